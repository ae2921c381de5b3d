"""Tests of compare_training.py against small programs that only print what the real ones print."""

import array
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

import compare_training
from testing import FakePrograms

# A step of 12 rows takes 6 ms and one of 4 rows 2 ms, but the first ten times that.
HOGNOSE = """
import json, sys, time
flag = dict(zip(sys.argv[4::2], sys.argv[5::2]))
assert sys.argv[1:4] == ["train", "--task", "regression"], sys.argv
open(LOG, "a").write("hognose " + sys.argv[0] + "\\n")
forward = flag.get("--eval-every") == "1"
rows = 12 + (12 if forward else 4)
assert f"({rows}, 6)" in open(flag["--data"], "rb").read(128).decode(errors="replace")
assert int(rows * float(flag["--validation"])) == rows - 12
assert flag["--target"] == "c5" and flag["--batch-size"] == ("1" if forward else "3")
assert flag["--precision"] in ("f32", "bf16") and flag["--checkpoint"] == "none"
with open(flag["--log"], "w") as log:
    for step in range(int(flag["--steps"])):
        speed = 200.0 if step == 0 else 2000.0
        row = {"step": step, "tokens_per_second": speed, "memory_bytes": (step + 1) << 20}
        print(json.dumps(row), file=log)
        if forward:
            time.sleep(0.05)
            print(f"step {step + 1}: held-out loss 1.0", file=sys.stderr, flush=True)
"""
TORCH = """
import json, pathlib, sys
assert pathlib.Path(sys.argv[1]).name == "time_torch_training.py"
assert "--batch=3" in sys.argv and "--d-state=4" in sys.argv and "--warmup" in sys.argv
open(LOG, "a").write("torch\\n")
mode, precision = sys.argv[3], sys.argv[5]
row = {"mode": mode, "precision": precision, "milliseconds": [12.0, 18.0, 90.0]}
print(json.dumps(row | {"peak_memory_bytes": 10 << 20, "base_memory_bytes": 0, "torch": "2.0"}))
"""


class CompareTrainingTest(FakePrograms):
    def arguments(self, hognose=HOGNOSE, torch=TORCH):
        """A call with two rounds of three steps."""
        return [
            *["--hognose", self.program("hognose", hognose)],
            *["--torch", self.program("python", torch), "--json", str(self.folder / "out.json")],
            *["--batch", "3", "--length", "4", "--features", "5", "--d-state", "4"],
            *["--rounds", "2", "--steps", "3", "--warmup", "1"],
        ]

    def call(self, arguments):
        """The exit code, standard output and standard error of a call."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare_training.main(arguments)
        return code, out.getvalue(), err.getvalue()

    def test_steps_after_the_warm_up_and_memory(self):
        code, out, err = self.call([*self.arguments(), "--mode", "step"])
        self.assertEqual(code, 0, err)
        result = json.loads((self.folder / "out.json").read_text())
        rows = {row["what"]: row for row in result["rows"]}
        names = ["step f32", "peak memory f32", "step bf16", "peak memory bf16"]
        self.assertEqual(list(rows), names)
        self.assertEqual(rows["step f32"]["hognose"]["values"], [6.0, 6.0])
        self.assertEqual(rows["step f32"]["torch"]["median"], 18.0)
        self.assertEqual(rows["step f32"]["ratio"], 3.0)
        self.assertEqual(rows["peak memory f32"]["ratio"], 2.5)
        self.assertEqual(result["milliseconds"]["step f32"]["torch"], [[12.0, 18.0, 90.0]] * 2)
        self.assertEqual((result["torch"], result["sizes"]["batch"]), ("2.0", 3))
        self.assertIn("peak memory f32 (MiB)", out)
        self.assertIn("step bf16 (ms)", out)

    def test_a_forward_pass_is_what_lies_between_evaluations_without_the_step(self):
        arguments = compare_training.parse(self.arguments())
        ours = compare_training.Hognose(arguments, self.folder)
        ends = [(1.0, "1 parameters"), (2.0, "step 1: held-out loss 1.0")]
        ends += [(2.5, "step 2: held-out loss 1.0"), (3.25, "step 3: held-out loss 1.0")]
        self.assertEqual(ours.evaluations(ends, [900.0, 100.0, 50.0]), [400.0, 400.0, 700.0])

    def test_forward_passes_come_from_the_running_program(self):
        code, _, err = self.call([*self.arguments(), "--mode", "forward", "--precision", "f32"])
        self.assertEqual(code, 0, err)
        result = json.loads((self.folder / "out.json").read_text())
        self.assertEqual([row["what"] for row in result["rows"]], ["forward f32"])
        # It sleeps 50 ms each time; how late a line is seen depends on the machine's load.
        self.assertGreater(result["rows"][0]["hognose"]["median"], 10.0)
        self.assertEqual(len(result["milliseconds"]["forward f32"]["hognose"][0]), 3)

    def test_runs_alternate_after_one_warm_up_each(self):
        self.call([*self.arguments(), "--mode", "step", "--precision", "f32"])
        order = [line.split()[0] for line in self.log.read_text().splitlines()]
        pair = ["hognose", "torch"]
        self.assertEqual(order, pair * 2 + pair[::-1])

    def test_the_peer_is_named_by_its_kind(self):
        kind = ["--compile", "--implementation", "transformers", "--checkpoint"]
        body = TORCH + 'assert "--compile" in sys.argv and "--checkpoint" in sys.argv\n'
        ours = HOGNOSE.replace('"--checkpoint"] == "none"', '"--checkpoint"] == "layer"')
        arguments = [*self.arguments(ours, body), *kind, "--mode", "step", "--precision", "f32"]
        code, out, err = self.call(arguments)
        self.assertEqual(code, 0, err)
        self.assertIn("transformers, compiled", out)

    def test_failures_are_one_line_that_names_the_program(self):
        for hognose, torch, expected in [
            ("import sys\nsys.exit('x: bad file')", TORCH, "exit code 1: x: bad file"),
            (HOGNOSE.replace("memory_bytes", "memory"), TORCH, "lacks the field 'memory_bytes'"),
            (HOGNOSE.replace('["--steps"])', '["--steps"]) - 1'), TORCH, "got 3 times, want 4"),
            (HOGNOSE, "import sys\nsys.exit('no torch')", "exit code 1: no torch"),
            (HOGNOSE, "print('fast')", "output is not JSON"),
            (HOGNOSE, "print('{}')", "lacks the field 'torch'"),
        ]:
            code, _, err = self.call([*self.arguments(hognose, torch), "--mode", "step"])
            self.assertEqual(code, 1)
            self.assertIn(expected, err.splitlines()[-1])
        silent = HOGNOSE.replace("held-out", "")
        code, _, err = self.call([*self.arguments(silent), "--mode", "forward"])
        self.assertEqual(code, 1)
        self.assertIn("got 0 evaluations, want 4", err.splitlines()[-1])

    def test_a_run_that_hangs_is_stopped(self):
        hangs = "import time\ntime.sleep(600)"
        code, _, err = self.call([*self.arguments(hangs), "--timeout", "0.5"])
        self.assertEqual(code, 1)
        self.assertIn("hognose: was ended by signal 9 (--timeout 0.5?)", err.splitlines()[-1])

    def test_wrong_usage(self):
        good = self.arguments()
        for bad in (["--rounds", "0"], ["--mode", "back"], ["--precision", "f32,f8"], ["--x"]):
            with self.assertRaises(SystemExit) as stop:
                self.call([*good, *bad])
            self.assertEqual(stop.exception.code, 2)


class TableTest(unittest.TestCase):
    def test_the_file_is_an_npy_of_f32(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            compare_training.write_table(path, 7, 3)
            data = path.read_bytes()
        size = int.from_bytes(data[8:10], "little")
        self.assertEqual((data[:8], (10 + size) % 64), (b"\x93NUMPY\x01\x00", 0))
        self.assertIn(b"'shape': (7, 3)", data[: 10 + size])
        values = array.array("f", data[10 + size :])
        self.assertEqual(len(values), 21)
        self.assertEqual(len(set(values)), 21)


if __name__ == "__main__":
    unittest.main()
