"""Tests of compare.py against small programs that only print what the real ones print."""

import contextlib
import io
import json
import sys
import unittest
from pathlib import Path

import compare
from testing import FakePrograms

HOGNOSE = """
import json, sys
open(LOG, "a").write("hognose " + sys.argv[1] + "\\n")
if sys.argv[1] == "bench":
    assert sys.argv[2:] == ["MODEL", "--json", "--prompt", "4,512", "--generate", "64", "-t", "2"]
    rows = [{"phase": "prompt", "tokens": n, "tokens_per_second": n * 2.0} for n in (4, 512)]
    rows.append({"phase": "generate", "tokens": 64, "tokens_per_second": 30.0})
    print(json.dumps([{"batch": 1, "threads": 2, "dtype": "bf16"} | row for row in rows]))
"""
LLAMA_BENCH = """
import json
open(LOG, "a").write("llama bench\\n")
rows = [(4, 0, 4.0), (512, 0, 128.0), (0, 64, 60.0)]
print(json.dumps([{"n_prompt": p, "n_gen": n, "avg_ts": speed} for p, n, speed in rows]))
"""
LLAMA_RUN = """
import sys
open(LOG, "a").write("llama run\\n")
assert "--no-warmup" in sys.argv
"""
TRANSFORMERS = """
import json, pathlib, sys
assert pathlib.Path(sys.argv[1]).name == "time_transformers.py"
assert sys.argv[2:7] == ["MODEL", "-t", "2", "--dtype", "f32"]
if sys.argv[7:] == ["--prompt", "4,512", "--generate", "64"]:
    open(LOG, "a").write("transformers bench\\n")
    rows = [("prompt", 4, 2.0), ("prompt", 512, 64.0), ("generate", 64, 5.0)]
    print(json.dumps([dict(phase=p, tokens=n, tokens_per_second=speed) for p, n, speed in rows]))
else:
    assert sys.argv[7:] == ["--text", "A snake"]
    open(LOG, "a").write("transformers run\\n")
"""


class CompareTest(FakePrograms):
    def arguments(self, hognose=HOGNOSE, llama_bench=LLAMA_BENCH):
        """A call against llama.cpp."""
        return [
            *self.common(hognose),
            *["--rounds", "2", "--gguf", "FILE"],
            *["--llama-bench", self.program("llama-bench", llama_bench)],
            *["--llama-run", self.program("llama-run", LLAMA_RUN)],
        ]

    def common(self, hognose=HOGNOSE):
        """What a call has whatever the peer is."""
        return [
            *["--hognose", self.program("hognose", hognose), "--model", "MODEL"],
            *["--prompt", "4,512", "--json", str(self.folder / "out.json")],
        ]

    def against_transformers(self, body=TRANSFORMERS):
        """A call against transformers."""
        python = self.program("python", body)
        return [*self.common(), "--transformers", python, "--dtype", "f32", "--text", "A snake"]

    def call(self, arguments):
        """The exit code, standard output and standard error of a call."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare.main(arguments)
        return code, out.getvalue(), err.getvalue()

    def test_medians_ratios_and_files(self):
        code, out, err = self.call(self.arguments())
        self.assertEqual(code, 0, err)
        result = json.loads((self.folder / "out.json").read_text())
        ratio = {row["what"]: row["ratio"] for row in result["rows"]}
        self.assertEqual(list(ratio), ["prompt 4", "prompt 512", "generate 64", "start"])
        self.assertEqual(
            (ratio["prompt 4"], ratio["prompt 512"], ratio["generate 64"]), (2.0, 8.0, 0.5)
        )
        self.assertEqual(result["rows"][2]["hognose"]["values"], [30.0, 30.0])
        self.assertIn("generate 64", out)
        self.assertTrue(result["cpu"])

    def test_runs_alternate_after_one_warm_up_each(self):
        self.call(self.arguments())
        order = [line.split()[0] for line in self.log.read_text().splitlines()]
        half = ["hognose", "llama"] + ["hognose", "llama"] + ["llama", "hognose"]
        self.assertEqual(order, half * 2)

    def test_transformers_is_a_peer_of_three_rounds(self):
        code, out, err = self.call(self.against_transformers())
        self.assertEqual(code, 0, err)
        result = json.loads((self.folder / "out.json").read_text())
        ratio = {row["what"]: row["ratio"] for row in result["rows"]}
        self.assertEqual(
            (ratio["prompt 4"], ratio["prompt 512"], ratio["generate 64"]), (4.0, 16.0, 6.0)
        )
        self.assertIn("start", ratio)
        self.assertEqual((result["peer"], result["peer_model"]), ("transformers", "MODEL"))
        self.assertIn("transformers", out)
        order = [line.split()[0] for line in self.log.read_text().splitlines()]
        pair = ["hognose", "transformers"]
        self.assertEqual(order, (pair * 2 + pair[::-1] + pair) * 2)

    def test_a_failure_of_transformers_is_told(self):
        code, _, err = self.call(self.against_transformers("import sys\nsys.exit('no torch')"))
        self.assertEqual(code, 1)
        self.assertIn("no torch", err.splitlines()[-1])

    def test_json_lines_are_read_too(self):
        array = (
            'print(json.dumps([{"batch": 1, "threads": 2, "dtype": "bf16"} | row for row in rows]))'
        )
        lines = 'print("\\n".join(json.dumps(row) for row in rows))'
        self.assertIn(array, HOGNOSE)
        lines = HOGNOSE.replace(array, lines)
        code, _, err = self.call(self.arguments(hognose=lines))
        self.assertEqual(code, 0, err)

    def test_failures_are_one_line_that_names_the_program(self):
        for body, expected in [
            ("import sys\nsys.exit('x: bad file')", "exit code 1: x: bad file"),
            ("print('fast')", "output is not JSON"),
            ("print('[]')", "got no rows"),
            ("print('[{\"n_prompt\": 4}]')", "lacks the field 'n_gen'"),
            (
                'print(\'[{"n_prompt": 4, "n_gen": 0, "avg_ts": 1}]\')',
                "prompt 512: was not measured",
            ),
        ]:
            code, _, err = self.call(self.arguments(llama_bench=body))
            self.assertEqual(code, 1)
            self.assertIn(expected, err.splitlines()[-1])

    def test_a_missing_program_is_an_error(self):
        arguments = self.arguments()
        arguments[arguments.index("--hognose") + 1] = str(self.folder / "none")
        code, _, err = self.call(arguments)
        self.assertEqual(code, 1)
        self.assertIn("none", err.splitlines()[-1])

    def test_wrong_usage(self):
        llama = self.arguments()
        both = [*llama, "--transformers", "python"]
        no_gguf = [*self.common(), "--llama-run", "program"]
        bad = [[*llama, "--rounds", "0"], [*llama, "--unknown"], both, no_gguf, self.common()]
        for arguments in bad:
            with self.assertRaises(SystemExit) as stop:
                self.call(arguments)
            self.assertEqual(stop.exception.code, 2)


class SummaryTest(unittest.TestCase):
    def test_the_median_is_not_moved_by_an_outlier(self):
        got = compare.summary([3.0, 1.0, 100.0])
        self.assertEqual((got["median"], got["min"], got["max"]), (3.0, 1.0, 100.0))

    def test_a_shorter_start_gives_a_ratio_above_one(self):
        rows = compare.compare([{"start": 50.0}], [{"start": 200.0}], "peer", "ms")
        self.assertEqual(rows[0]["ratio"], 4.0)


if __name__ == "__main__":
    unittest.main()
