"""Tests of make_checkpoints.py on tiny shapes: what is written is read back without its help."""

import contextlib
import io
import json
import math
import tarfile
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import make_checkpoints

TINY = {
    kind: replace(shape, vocab=40, width=16, layers=2, rank=3, head=8)
    for kind, shape in make_checkpoints.SHAPES.items()
}


def read_safetensors(path):
    """Name -> (dtype, shape, bytes), and checks that the data leave no gap."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"} and (8 + length) % 8 == 0
    tensors, expected = {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == expected
        expected = end
        tensors[name] = (
            entry["dtype"],
            entry["shape"],
            data[8 + length + begin : 8 + length + end],
        )
    assert len(data) == 8 + length + expected
    return tensors


def floats(tensor):
    """The values of a tensor as float32."""
    dtype, shape, data = tensor
    if dtype == "F32":
        return np.frombuffer(data, "<f4").reshape(shape)
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.tokenizer = self.folder / "tokenizer.json"
        self.tokenizer.write_text('{"version": "1.0"}')

    def make(self, kind, *extra, out="model"):
        """The exit code and the folder of a run with a tiny shape."""
        arguments = [
            "--kind",
            kind,
            "--out",
            str(self.folder / out),
            "--tokenizer",
            str(self.tokenizer),
        ]
        with mock.patch.dict(make_checkpoints.SHAPES, TINY):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                code = make_checkpoints.main(arguments + list(extra))
        self.message = err.getvalue()
        return code, self.folder / out

    def test_names_and_shapes_of_mamba(self):
        _, folder = self.make("mamba")
        tensors = read_safetensors(folder / "model.safetensors")
        self.assertEqual(len(tensors), 1 + 2 * 10 + 1)
        mixer = "backbone.layers.1.mixer."
        shapes = {n.removeprefix(mixer): t[1] for n, t in tensors.items() if n.startswith(mixer)}
        expected = {
            "in_proj.weight": [64, 16],
            "conv1d.weight": [32, 1, 4],
            "conv1d.bias": [32],
            "x_proj.weight": [35, 32],
            "dt_proj.weight": [32, 3],
            "dt_proj.bias": [32],
            "A_log": [32, 16],
            "D": [32],
            "out_proj.weight": [16, 32],
        }
        self.assertEqual(shapes, expected)
        self.assertEqual(tensors["backbone.embeddings.weight"][1], [40, 16])

    def test_names_and_shapes_of_mamba2(self):
        _, folder = self.make("mamba2")
        tensors = read_safetensors(folder / "model.safetensors")
        self.assertEqual(len(tensors), 1 + 2 * 9 + 1)
        mixer = "backbone.layers.0.mixer."
        shapes = {n.removeprefix(mixer): t[1] for n, t in tensors.items() if n.startswith(mixer)}
        expected = {
            "in_proj.weight": [32 + 32 + 256 + 4, 16],
            "conv1d.weight": [288, 1, 4],
            "conv1d.bias": [288],
            "dt_bias": [4],
            "A_log": [4],
            "D": [4],
            "norm.weight": [32],
            "out_proj.weight": [16, 32],
        }
        self.assertEqual(shapes, expected)

    def test_values_are_those_of_a_fresh_model(self):
        for kind in ("mamba", "mamba2"):
            _, folder = self.make(kind, "--dtype", "f32", out=kind)
            tensors = read_safetensors(folder / "model.safetensors")
            values = {name: floats(tensor) for name, tensor in tensors.items()}
            self.assertTrue(all(np.isfinite(v).all() for v in values.values()))
            mixer = "backbone.layers.0.mixer."
            bias = values[mixer + ("dt_proj.bias" if kind == "mamba" else "dt_bias")]
            dt = np.log1p(np.exp(bias.astype(np.float64)))
            self.assertTrue((dt > 0.999e-3).all() and (dt < 0.1001).all())
            a = np.exp(values[mixer + "A_log"])
            self.assertTrue((a > 0.999).all() and (a < 16.01).all())

    def test_bf16_is_f32_rounded_and_seeds_differ(self):
        files = [("f32", "1"), ("bf16", "1"), ("bf16", "1"), ("bf16", "2")]
        weights = []
        for index, (dtype, seed) in enumerate(files):
            _, folder = self.make("mamba", "--dtype", dtype, "--seed", seed, out=str(index))
            weights.append(read_safetensors(folder / "model.safetensors"))
        name = "backbone.layers.0.mixer.in_proj.weight"
        wide, narrow = floats(weights[0][name]), floats(weights[1][name])
        self.assertTrue((np.abs(wide - narrow) <= np.abs(wide) * 2.0**-8).all())
        self.assertEqual(weights[1], weights[2])
        self.assertNotEqual(weights[1][name], weights[3][name])

    def test_bf16_rounds_to_nearest_even(self):
        bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], "<u4")
        got = make_checkpoints.to_bf16(bits.view("<f4"))
        self.assertEqual(got.tolist(), [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0xBF82])

    def test_the_other_files(self):
        _, folder = self.make("mamba2")
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["architectures"], ["Mamba2ForCausalLM"])
        self.assertEqual((config["num_heads"], config["torch_dtype"]), (4, "bfloat16"))
        self.assertEqual(config["time_step_limit"], [0.0, math.inf])
        self.assertEqual((folder / "tokenizer.json").read_text(), '{"version": "1.0"}')
        self.assertTrue((folder / "tokenizer_config.json").exists())
        self.assertTrue((folder / "generation_config.json").exists())

    def test_a_tokenizer_out_of_an_archive(self):
        archive = self.folder / "tokenizer.tar.xz"
        with tarfile.open(archive, "w:xz") as out:
            out.add(self.tokenizer, "some/tokenizer.json")
        self.assertEqual(make_checkpoints.read_tokenizer(archive), self.tokenizer.read_bytes())

    def test_failures(self):
        self.make("mamba")
        self.assertEqual(self.make("mamba")[0], 1)
        self.assertIn("is not empty", self.message)
        self.tokenizer.unlink()
        self.assertEqual(self.make("mamba", out="other")[0], 1)
        self.assertIn("tokenizer.json", self.message)

    def test_real_shapes_have_130_million_parameters(self):
        for kind, parameters in [("mamba", 129135360), ("mamba2", 128989632)]:
            table = make_checkpoints.tensors_of(make_checkpoints.SHAPES[kind])
            self.assertEqual(sum(math.prod(t.shape) for t in table), parameters)


if __name__ == "__main__":
    unittest.main()
