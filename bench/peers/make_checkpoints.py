#!/usr/bin/env python3
"""Writes a random checkpoint of the shape of Mamba-130M or Mamba-2-130M, as Hugging Face stores it.

The folder it makes (config.json, generation_config.json, model.safetensors, tokenizer.json,
tokenizer_config.json) is read by Hognose, by transformers and by llama.cpp's converter, so every
engine can be timed on the same weights. The weights are those of a fresh model: they mean nothing,
but the activations have the size of a real model's, and speed does not depend on more than that.

    python make_checkpoints.py --kind mamba --out mamba-130m-bf16
    python make_checkpoints.py --kind mamba2 --dtype f32 --out mamba2-130m-f32
"""

import argparse
import json
import math
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable

import numpy as np

DEFAULT_TOKENIZER = Path(__file__).resolve().parents[2] / "tests/fixtures/gpt-neox-tokenizer.tar.xz"
END_OF_TEXT = "<|endoftext|>"
DT_MIN, DT_MAX = 1e-3, 0.1
ITEM_BYTES = {"bf16": 2, "f32": 4}
SAFETENSORS_NAME = {"bf16": "BF16", "f32": "F32"}
TORCH_NAME = {"bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `rank` is used by Mamba only, `head` and `groups` by Mamba-2 only."""

    kind: str
    vocab: int
    width: int = 768
    layers: int = 24
    state: int = 16
    expand: int = 2
    taps: int = 4
    rank: int = 48
    head: int = 64
    groups: int = 1

    @property
    def inner(self) -> int:
        return self.expand * self.width

    @property
    def heads(self) -> int:
        return self.inner // self.head


SHAPES = {
    "mamba": Shape(kind="mamba", vocab=50280, state=16),
    "mamba2": Shape(kind="mamba2", vocab=50288, state=128),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file and the function that draws its values."""

    name: str
    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def uniform(bound: float) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Values in [-bound, bound)."""
    return lambda rng, shape: (rng.random(shape, dtype=np.float32) * 2 - 1) * np.float32(bound)


def normal(deviation: float) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Normal values with mean zero."""
    return lambda rng, shape: rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def ones(_: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All ones: norm weights and D."""
    return np.ones(shape, dtype=np.float32)


def dt_bias(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse softplus of time steps that are log-uniform in [DT_MIN, DT_MAX]."""
    low, high = math.log(DT_MIN), math.log(DT_MAX)
    dt = np.exp(rng.random(shape) * (high - low) + low)
    return (dt + np.log(-np.expm1(-dt))).astype(np.float32)


def a_log_mamba(_: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """log(1..N) in every row (S4D-real)."""
    row = np.log(np.arange(1, shape[1] + 1, dtype=np.float32))
    return np.broadcast_to(row, shape).copy()


def a_log_mamba2(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """The log of values uniform in [1, 16), one a head."""
    return np.log(rng.random(shape) * 15 + 1).astype(np.float32)


def mamba_mixer(s: Shape) -> list[Tensor]:
    """The tensors of one Mamba mixer. Linear layers: uniform in 1/sqrt(fan in), as in torch."""
    e, conv = s.inner, s.taps**-0.5
    return [
        Tensor("in_proj.weight", (2 * e, s.width), uniform(s.width**-0.5)),
        Tensor("conv1d.weight", (e, 1, s.taps), uniform(conv)),
        Tensor("conv1d.bias", (e,), uniform(conv)),
        Tensor("x_proj.weight", (s.rank + 2 * s.state, e), uniform(e**-0.5)),
        Tensor("dt_proj.weight", (e, s.rank), uniform(s.rank**-0.5)),
        Tensor("dt_proj.bias", (e,), dt_bias),
        Tensor("A_log", (e, s.state), a_log_mamba),
        Tensor("D", (e,), ones),
        Tensor("out_proj.weight", (s.width, e), uniform((e * s.layers) ** -0.5)),
    ]


def mamba2_mixer(s: Shape) -> list[Tensor]:
    """The tensors of one Mamba-2 mixer."""
    e, conv = s.inner, s.taps**-0.5
    channels = e + 2 * s.groups * s.state
    return [
        Tensor("in_proj.weight", (e + channels + s.heads, s.width), uniform(s.width**-0.5)),
        Tensor("conv1d.weight", (channels, 1, s.taps), uniform(conv)),
        Tensor("conv1d.bias", (channels,), uniform(conv)),
        Tensor("dt_bias", (s.heads,), dt_bias),
        Tensor("A_log", (s.heads,), a_log_mamba2),
        Tensor("D", (s.heads,), ones),
        Tensor("norm.weight", (e,), ones),
        Tensor("out_proj.weight", (s.width, e), uniform((e * s.layers) ** -0.5)),
    ]


def tensors_of(s: Shape) -> list[Tensor]:
    """Every tensor in file order. The head is tied to the embedding, so it has none."""
    mixer = {"mamba": mamba_mixer, "mamba2": mamba2_mixer}[s.kind](s)
    table = [Tensor("backbone.embeddings.weight", (s.vocab, s.width), normal(0.02))]
    for layer in range(s.layers):
        prefix = f"backbone.layers.{layer}."
        table.append(Tensor(prefix + "norm.weight", (s.width,), ones))
        table += [Tensor(prefix + "mixer." + t.name, t.shape, t.draw) for t in mixer]
    table.append(Tensor("backbone.norm_f.weight", (s.width,), ones))
    return table


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, rounded to nearest even. All values here are finite."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def safetensors_header(table: list[Tensor], dtype: str) -> bytes:
    """The length field and the JSON header, padded so that the data start at a multiple of 8."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in table:
        end = offset + math.prod(tensor.shape) * ITEM_BYTES[dtype]
        entries[tensor.name] = {
            "dtype": SAFETENSORS_NAME[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_weights(out: BinaryIO, table: list[Tensor], dtype: str, seed: int) -> None:
    """Draws and writes one tensor at a time. Both dtypes hold the same draws, BF16 rounded."""
    rng = np.random.default_rng(seed)
    out.write(safetensors_header(table, dtype))
    for tensor in table:
        values = np.ascontiguousarray(tensor.draw(rng, tensor.shape), dtype="<f4")
        out.write((to_bf16(values) if dtype == "bf16" else values).tobytes())


def config_of(s: Shape, dtype: str) -> dict[str, object]:
    """config.json with the fields that published checkpoints have, an infinite limit included."""
    config: dict[str, object] = {
        "architectures": ["MambaForCausalLM" if s.kind == "mamba" else "Mamba2ForCausalLM"],
        "model_type": s.kind,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "conv_kernel": s.taps,
        "expand": s.expand,
        "hidden_act": "silu",
        "hidden_size": s.width,
        "initializer_range": 0.1,
        "layer_norm_epsilon": 1e-05,
        "num_hidden_layers": s.layers,
        "rescale_prenorm_residual": False,
        "residual_in_fp32": True,
        "rms_norm": True,
        "state_size": s.state,
        "tie_word_embeddings": True,
        "time_step_floor": 0.0001,
        "time_step_max": DT_MAX,
        "time_step_min": DT_MIN,
        "time_step_rank": s.rank,
        "torch_dtype": TORCH_NAME[dtype],
        "transformers_version": "4.39.0" if s.kind == "mamba" else "4.44.0",
        "use_bias": False,
        "use_cache": True,
        "use_conv_bias": True,
        "vocab_size": s.vocab,
    }
    if s.kind == "mamba":
        config |= {
            "fused_add_norm": True,
            "intermediate_size": s.inner,
            "n_layer": s.layers,
            "ssm_cfg": {},
            "time_step_init_scheme": "random",
            "time_step_scale": 1.0,
        }
    else:
        config |= {
            "chunk_size": 256,
            "head_dim": s.head,
            "n_groups": s.groups,
            "norm_before_gate": False,
            "num_heads": s.heads,
            "time_step_limit": [0.0, math.inf],
        }
    return dict(sorted(config.items()))


def generation_config(version: object) -> dict[str, object]:
    """generation_config.json as transformers derives it from the model's config."""
    return {
        "_from_model_config": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "transformers_version": version,
    }


def tokenizer_config() -> dict[str, object]:
    """What transformers (and with it llama.cpp's converter) needs beside tokenizer.json."""
    return {
        "add_prefix_space": False,
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "GPTNeoXTokenizer",
        "unk_token": END_OF_TEXT,
    }


def read_tokenizer(path: Path) -> bytes:
    """tokenizer.json itself, or out of a tar archive that holds one."""
    if path.suffix == ".json":
        return path.read_bytes()
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and os.path.basename(member.name) == "tokenizer.json":
                source = archive.extractfile(member)
                assert source is not None
                return source.read()
    raise ValueError(f"{path}: holds no tokenizer.json")


def write_json(path: Path, value: object) -> None:
    """Writes indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_checkpoint(folder: Path, s: Shape, dtype: str, seed: int, tokenizer: bytes) -> None:
    """Writes all files of a checkpoint; the folder must be new or empty."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder}: is not empty")
    config = config_of(s, dtype)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_config(config["transformers_version"]))
    write_json(folder / "tokenizer_config.json", tokenizer_config())
    (folder / "tokenizer.json").write_bytes(tokenizer)
    with open(folder / "model.safetensors", "wb") as out:
        write_weights(out, tensors_of(s), dtype, seed)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=sorted(SHAPES), required=True)
    parser.add_argument("--dtype", choices=sorted(ITEM_BYTES), default="bf16")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="new or empty folder"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=DEFAULT_TOKENIZER,
        metavar="FILE",
        help="the GPT-NeoX tokenizer.json, or a tar archive with it",
    )
    options = parser.parse_args(arguments)
    try:
        tokenizer = read_tokenizer(options.tokenizer)
        write_checkpoint(options.out, SHAPES[options.kind], options.dtype, options.seed, tokenizer)
    except (OSError, ValueError, tarfile.TarError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
