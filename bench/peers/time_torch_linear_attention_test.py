"""Tests of time_torch_linear_attention.py on tiny shapes; skipped where torch is missing."""

import contextlib
import importlib.util
import io
import json
import unittest

HAVE_TORCH = importlib.util.find_spec("torch") is not None
if HAVE_TORCH:
    import torch

    import time_torch_linear_attention as timed


@unittest.skipUnless(HAVE_TORCH, "needs torch")
class TimeTorchLinearAttentionTest(unittest.TestCase):
    def test_the_einsum_form_is_the_recurrence(self):
        q, k, v = (torch.randn(2, 9, 3, 4, dtype=torch.float64) for _ in range(3))
        mask = torch.ones(9, 9, dtype=torch.float64).tril()
        for normalised in (False, True):
            fq, fk = q, k
            if normalised:
                fq, fk = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
            state, z, rows = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4), []
            for t in range(9):
                state = state + fk[:, t, :, :, None] * v[:, t, :, None]
                z = z + fk[:, t]
                o = 0.5 * (fq[:, t, :, None] @ state)[..., 0, :]
                rows.append(o / (0.5 * (fq[:, t] * z).sum(-1)[..., None]) if normalised else o)
            want = torch.stack(rows, 1)
            got = timed.einsum_form(q, k, v, mask, normalised)
            self.assertLess((got - want).abs().max().item(), 1e-8 * want.abs().max().item())

    def test_prints_one_line_of_json(self):
        for form in (["einsum"], ["einsum", "--normalised"], ["softmax"]):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = timed.main([*form, *"--batch 2 --length 8 --heads 2 --width 4".split()])
            self.assertEqual(code, 0)
            result = json.loads(out.getvalue())
            self.assertEqual(result["form"], form[0])
            self.assertGreater(result["best_ms"], 0.0)
            self.assertGreaterEqual(result["median_ms"], result["best_ms"])


if __name__ == "__main__":
    unittest.main()
