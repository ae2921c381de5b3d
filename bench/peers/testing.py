"""What the tests of the comparisons share: programs that stand for the engines."""

import stat
import sys
import tempfile
import unittest
from pathlib import Path


class FakePrograms(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.log = self.folder / "log"

    def program(self, name, body):
        """Makes an executable out of a few lines of Python."""
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nLOG = {str(self.log)!r}\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)
