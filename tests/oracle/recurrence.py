"""A plain float64 recurrence for Mamba, Mamba-2 and Falcon-Mamba language models.

One token at a time, one layer at a time, no chunks and no batches: slow and easy to check against
the papers. Letters as in spec.py, and L tokens. The state of a layer is
  conv  [channels, K]  the last K inputs of the convolution, oldest first, zeros before the start
  ssm   [E, N] in Mamba-1, [H, P, N] in Mamba-2
Run as a program, it compares a fixture folder with its expected.safetensors.
"""

import argparse
import dataclasses
import json
import pathlib

import numpy as np

import spec as specs
import tensorfile


@dataclasses.dataclass
class Model:
    """A Spec and its tensors, all float64, under the names of the checkpoint."""

    spec: specs.Spec
    tensors: dict

    def head(self):
        """[V, D]: the output matrix. Without a flag, a stored lm_head is used if there is one."""
        tied = self.spec.tied
        if tied is None:
            tied = "lm_head.weight" not in self.tensors
        return self.tensors[self.spec.embedding if tied else "lm_head.weight"]


def load(folder):
    """The model in a folder that has config.json and one or more safetensors files."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    return Model(specs.from_config(config), tensorfile.read_checkpoint(folder))


def silu(x):
    """x * sigmoid(x)."""
    return x / (1.0 + np.exp(-x))


def softplus(x):
    """log(1 + exp(x)), exact for large x too."""
    return np.logaddexp(0.0, x)


def rms(x, eps):
    """x / sqrt(mean(x^2) + eps) over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def norm(model, name, x):
    """The norm before a block or at the end of the model: RMSNorm, or LayerNorm with its bias."""
    weight = model.tensors[name + ".weight"]
    if model.spec.layer_norm:
        return rms(x - np.mean(x), model.spec.eps) * weight + model.tensors[name + ".bias"]
    return rms(x, model.spec.eps) * weight


def linear(model, name, x):
    """W x, plus a bias where the checkpoint has one."""
    y = model.tensors[name + ".weight"] @ x
    return y + model.tensors.get(name + ".bias", 0.0)


def conv_step(model, name, window, x):
    """Shifts x [channels] into the window [channels, K]; returns silu of the convolution."""
    window[:, :-1] = window[:, 1:].copy()
    window[:, -1] = x
    weight = model.tensors[name + ".weight"][:, 0, :]
    bias = model.tensors[name + ".bias"] if model.spec.conv_bias else 0.0
    return silu(np.sum(window * weight, axis=1) + bias)


def mamba1_step(model, prefix, state, u):
    """One token through a Mamba-1 (or Falcon-Mamba) mixer: u [D] -> [D]; updates `state`."""
    spec, tensors = model.spec, model.tensors
    x, z = np.split(linear(model, prefix + "in_proj", u), 2)
    v = conv_step(model, prefix + "conv1d", state["conv"], x)
    projected = tensors[prefix + "x_proj.weight"] @ v
    dt, b, c = np.split(projected, [spec.rank, spec.rank + spec.state])
    if spec.mixer_eps is not None:
        dt, b, c = (rms(part, spec.mixer_eps) for part in (dt, b, c))
    dt = softplus(linear(model, prefix + "dt_proj", dt))  # [E]
    a = -np.exp(tensors[prefix + "A_log"])  # [E, N]
    state["ssm"][:] = np.exp(dt[:, None] * a) * state["ssm"] + np.outer(dt * v, b)
    y = state["ssm"] @ c + tensors[prefix + "D"] * v
    return linear(model, prefix + "out_proj", y * silu(z))


def gate(model, prefix, y, z):
    """What follows the scan in Mamba-2: y [E], gate z [E] -> [E]."""
    spec = model.spec
    if not spec.gated_norm:
        return y * silu(z)
    if not spec.norm_before_gate:
        y = y * silu(z)
    grouped = rms(y.reshape(spec.norm_groups, -1), spec.eps).reshape(-1)
    y = grouped * model.tensors[prefix + "norm.weight"]
    return y * silu(z) if spec.norm_before_gate else y


def group_of_heads(spec):
    """[H]: the group whose B and C each head uses."""
    heads = np.arange(spec.heads)
    return heads // (spec.heads // spec.groups) if spec.interleaved else heads % spec.groups


def mamba2_step(model, prefix, state, u):
    """One token through a Mamba-2 mixer: u [D] -> [D]; updates `state`."""
    spec, tensors = model.spec, model.tensors
    width = spec.groups * spec.state
    projected = linear(model, prefix + "in_proj", u)
    z, xbc, dt = np.split(projected, [spec.inner, 2 * spec.inner + 2 * width])
    xbc = conv_step(model, prefix + "conv1d", state["conv"], xbc)
    x, b, c = np.split(xbc, [spec.inner, spec.inner + width])
    x = x.reshape(spec.heads, spec.head_dim)
    owner = group_of_heads(spec)
    b = b.reshape(spec.groups, spec.state)[owner]  # [H, N]
    c = c.reshape(spec.groups, spec.state)[owner]
    dt = np.clip(softplus(dt + tensors[prefix + "dt_bias"]), *spec.dt_limit)  # [H]
    decay = np.exp(-dt * np.exp(tensors[prefix + "A_log"]))
    added = (dt[:, None] * x)[:, :, None] * b[:, None, :]
    state["ssm"][:] = decay[:, None, None] * state["ssm"] + added
    d_skip = tensors[prefix + "D"].reshape(spec.heads, -1)  # [H, 1], or [H, P] per channel
    y = np.einsum("hpn,hn->hp", state["ssm"], c) + d_skip * x
    return linear(model, prefix + "out_proj", gate(model, prefix, y.reshape(-1), z))


def zero_state(spec):
    """The state before the first token: one {"conv", "ssm"} a layer."""
    channels, ssm = spec.inner, (spec.inner, spec.state)
    if spec.kind == "mamba2":
        channels = spec.inner + 2 * spec.groups * spec.state
        ssm = (spec.heads, spec.head_dim, spec.state)
    return [
        {"conv": np.zeros((channels, spec.taps)), "ssm": np.zeros(ssm)} for _ in range(spec.layers)
    ]


def forward(model, ids, state=None):
    """(logits [L, V], final state) of the ids; a given state is continued in place."""
    spec = model.spec
    state = zero_state(spec) if state is None else state
    step = mamba1_step if spec.kind == "mamba1" else mamba2_step
    embedding, head = model.tensors[spec.embedding], model.head()
    if embedding.shape != (spec.vocab, spec.width):
        raise ValueError(f"{spec.embedding}: got {embedding.shape}, want {spec.vocab, spec.width}")
    logits = np.empty((len(ids), head.shape[0]))
    for row, token in enumerate(ids):
        residual = embedding[token]
        for layer in range(spec.layers):
            prefix = f"backbone.layers.{layer}."
            u = norm(model, prefix + "norm", residual)
            residual = residual + step(model, prefix + "mixer.", state[layer], u)
        logits[row] = head @ norm(model, "backbone.norm_f", residual)
    return logits, state


def compare(folder):
    """The largest differences between a fresh run and a folder's expected.safetensors."""
    expected, _ = tensorfile.read(pathlib.Path(folder) / "expected.safetensors")
    logits, state = forward(load(folder), expected["ids"])
    rows = expected.get("rows", np.arange(len(expected["ids"])))
    worst = {"logits": np.abs(logits[rows] - expected["logits"]).max()}
    for part in ("conv", "ssm"):
        differences = [
            np.abs(layer[part] - expected[f"layers.{i}.{part}"]).max()
            for i, layer in enumerate(state)
        ]
        worst[part] = max(differences)
    return worst


def main():
    """Compares each folder on the command line; exit code 1 where one differs by over 1e-4."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", help="a fixture folder")
    failed = False
    for folder in parser.parse_args().folder:
        worst = compare(folder)
        failed |= max(worst.values()) > 1e-4
        print(folder, " ".join(f"{part} {value:.1e}" for part, value in worst.items()))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
