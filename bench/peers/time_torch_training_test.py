"""Tests of time_torch_training.py on tiny models; skipped where torch is missing."""

import contextlib
import importlib.util
import io
import json
import unittest

HAVE_TORCH = importlib.util.find_spec("torch") is not None
HAVE_TRANSFORMERS = HAVE_TORCH and importlib.util.find_spec("transformers") is not None
if HAVE_TORCH:
    import torch

    import time_torch_training

TINY = [
    *["--batch", "2", "--length", "12", "--features", "5", "--d-model", "8", "--layers", "2"],
    *["--d-state", "4", "--head-dim", "4", "--chunk", "4", "--repeats", "3", "--warmup", "1"],
]


@unittest.skipUnless(HAVE_TORCH, "needs torch")
class TimeTorchTrainingTest(unittest.TestCase):
    def call(self, *arguments):
        """The exit code, standard output and standard error of a call."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = time_torch_training.main([*TINY, "-t", "1", *arguments])
        return code, out.getvalue(), err.getvalue()

    def inputs(self, dtype):
        """x, dt, a, b, c of a scan of 24 rows."""
        generator = torch.Generator().manual_seed(1)
        shapes = [(2, 24, 3, 4), (2, 24, 3), (3,), (2, 24, 5), (2, 24, 5)]
        x, dt, a, b, c = (torch.randn(s, generator=generator, dtype=dtype) for s in shapes)
        return x, torch.nn.functional.softplus(dt), -torch.exp(a), b, c

    def test_the_chunked_form_is_the_recurrence(self):
        x, dt, a, b, c = self.inputs(torch.float32)
        want = time_torch_training.recurrence(x, dt, a, b, c)
        for chunk in (1, 4, 8, 24):
            got = time_torch_training.chunked(x, dt, a, b, c, chunk)
            self.assertLess((got - want).abs().max().item(), 1e-4 * want.abs().max().item())

    def test_so_are_its_gradients(self):
        def gradients(scan, *more):
            leaves = [m.requires_grad_() for m in self.inputs(torch.float64)]
            scan(*leaves, *more).square().sum().backward()
            return [m.grad for m in leaves]

        want = gradients(time_torch_training.recurrence)
        for a, b in zip(gradients(time_torch_training.chunked, 8), want, strict=True):
            self.assertLess((a - b).abs().max().item(), 1e-10 * b.abs().max().item())

    def test_the_convolution_is_conv1d_and_causal(self):
        block = time_torch_training.Block(time_torch_training.parse(TINY))
        rows = torch.randn(2, 7, block.conv.in_channels)
        padded = torch.nn.functional.pad(rows.mT, (block.conv.kernel_size[0] - 1, 0))
        torch.testing.assert_close(block.convolve(rows), block.conv(padded).mT)

    def test_one_line_for_each_mode_and_precision(self):
        for mode in ("forward", "step"):
            for precision in ("f32", "bf16"):
                code, out, err = self.call("--mode", mode, "--precision", precision)
                self.assertEqual((code, len(out.splitlines())), (0, 1), err)
                row = json.loads(out)
                self.assertEqual((row["mode"], row["precision"]), (mode, precision))
                self.assertEqual((row["implementation"], row["compiled"]), ("chunked", False))
                self.assertEqual(len(row["milliseconds"]), 3)
                self.assertGreater(row["peak_memory_bytes"], 0)
                self.assertLessEqual(row["base_memory_bytes"], row["peak_memory_bytes"])
                self.assertEqual(row["torch"], torch.__version__)

    def test_steps_lower_the_loss_as_much_with_checkpoints(self):
        losses = []
        for more in ([], ["--checkpoint"]):
            step = time_torch_training.stepper(time_torch_training.parse([*TINY, *more]))
            losses.append([step().item() for _ in range(20)])
        self.assertLess(losses[0][-1], losses[0][0])
        self.assertEqual(losses[0], losses[1])

    @unittest.skipUnless(HAVE_TRANSFORMERS, "needs transformers")
    def test_transformers_computes_the_same(self):
        both = {}
        for name in ("chunked", "transformers"):
            o = time_torch_training.parse([*TINY, "--implementation", name])
            both[name] = time_torch_training.network(o).eval()
        ours, theirs = both["chunked"][1], both["transformers"][1].model
        names = {"A_log": "a_log", "D": "d_skip", "dt_bias": "dt_bias"}
        for block, layer in zip(ours.blocks, theirs.layers, strict=True):
            mixer = layer.mixer
            parts = [(block.norm, layer.norm), (block.gate_norm, mixer.norm)]
            for name in ("in_proj", "out_proj"):
                parts.append((getattr(block, name), getattr(mixer, name)))
            parts.append((block.conv, mixer.conv1d))
            for a, b in parts:
                a.load_state_dict(b.state_dict())
            for name, own in names.items():
                getattr(block, own).data.copy_(getattr(mixer, name).data)
        h = torch.randn(2, 12, 8)
        with torch.no_grad():
            want = both["transformers"][1](h)
            got = theirs.norm_f(ours(h))  # the blocks alone have no last norm
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        code, out, err = self.call("--implementation", "transformers")
        self.assertEqual((code, json.loads(out)["implementation"]), (0, "transformers"), err)

    def test_wrong_usage(self):
        for bad in (["--length", "10"], ["--head-dim", "3"], ["--repeats", "0"], ["--mode", "x"]):
            with self.assertRaises(SystemExit) as stop:
                self.call(*bad)
            self.assertEqual(stop.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
