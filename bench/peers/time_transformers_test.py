"""Tests of time_transformers.py on tiny models; skipped where torch or transformers is missing."""

import contextlib
import importlib.util
import io
import json
import tempfile
import unittest

HAVE = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
if HAVE:
    import torch
    from transformers import Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM

    import time_transformers

SAME = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "initializer_range": 0.5}


@unittest.skipUnless(HAVE, "needs torch and transformers")
class TimeTransformersTest(unittest.TestCase):
    def models(self):
        """A tiny model of each kind."""
        torch.manual_seed(1)
        yield MambaForCausalLM(MambaConfig(**SAME, state_size=4)).eval()
        sizes = {"state_size": 8, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4}
        yield Mamba2ForCausalLM(Mamba2Config(**SAME, **sizes)).eval()

    def call(self, *arguments):
        """The exit code, standard output and standard error of a call."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = time_transformers.main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def test_the_tokens_timed_are_those_of_generate(self):
        for model in self.models():
            ids = time_transformers.some_ids(model, 5)
            with torch.inference_mode():
                token, cache = time_transformers.step(model, ids)
                got = [token.item(), *time_transformers.greedy(model, token, cache, 7)]
                flags = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
                mask = torch.ones_like(ids)  # by default it would hide id 0
                want = model.generate(ids, attention_mask=mask, max_new_tokens=8, **flags)
            self.assertEqual(got, want[0, 5:].tolist())

    def test_one_line_of_rows(self):
        for model in self.models():
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                arguments = [folder, "--prompt", "0,3,9", "--generate", "2", "--dtype", "bf16"]
                code, out, err = self.call(*arguments)
            self.assertEqual(code, 0, err)
            self.assertEqual(len(out.splitlines()), 1)
            rows = json.loads(out)
            self.assertEqual(
                [(row["phase"], row["tokens"]) for row in rows],
                [("prompt", 3), ("prompt", 9), ("generate", 2)],
            )
            self.assertTrue(all(row["tokens_per_second"] > 0 for row in rows))

    def test_a_folder_without_a_model_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = self.call(folder)
        self.assertEqual((code, out, len(err.splitlines())), (1, "", 1))
        self.assertIn(folder, err)


if __name__ == "__main__":
    unittest.main()
