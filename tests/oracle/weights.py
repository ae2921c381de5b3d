"""Random weights in which every path of the network shows in the logits.

Nothing is left at the usual start values: norm weights, D, A_log and every bias are random, and
the time steps spread over 1e-3 to 1. Letters as in spec.py.
"""

import zlib

import numpy as np


def inverse_softplus(y):
    """x with log(1 + exp(x)) = y."""
    return y + np.log(-np.expm1(-y))


def spread_steps(random, count, low=1e-3, high=1.0):
    """`count` time steps from `low` to `high`, evenly spaced in the logarithm, shuffled."""
    return random.permutation(np.geomspace(low, high, count))


def matrix(random, rows, columns, scale=1.0):
    """A [rows, columns] matrix that keeps the size of its input, times `scale`."""
    return random.standard_normal((rows, columns)) * scale / np.sqrt(columns)


def mamba1_mixer(spec, random, projection_scale):
    """The tensors of one Mamba-1 or Falcon-Mamba mixer."""
    inner, rank, state = spec.inner, spec.rank, spec.state
    tensors = {
        "in_proj.weight": matrix(random, 2 * inner, spec.width),
        "conv1d.weight": matrix(random, inner, spec.taps, 1.5)[:, None, :],
        "x_proj.weight": matrix(random, rank + 2 * state, inner, projection_scale),
        "dt_proj.weight": matrix(random, inner, rank),
        "dt_proj.bias": inverse_softplus(spread_steps(random, inner)),
        "A_log": np.log(random.uniform(0.3, 8.0, (inner, state))),
        "D": random.standard_normal(inner) * 0.7,
        "out_proj.weight": matrix(random, spec.width, inner, 1.5),
    }
    if spec.bias:
        tensors["in_proj.bias"] = random.standard_normal(2 * inner) * 0.5
        tensors["out_proj.bias"] = random.standard_normal(spec.width) * 0.5
    if spec.conv_bias:
        tensors["conv1d.bias"] = random.standard_normal(inner) * 0.5
    return tensors


def mamba2_mixer(spec, random, d_per_channel):
    """The tensors of one Mamba-2 mixer; D is [H], or [H * P] when `d_per_channel`."""
    inner, heads = spec.inner, spec.heads
    channels = inner + 2 * spec.groups * spec.state
    rows = inner + channels + heads
    tensors = {
        "in_proj.weight": matrix(random, rows, spec.width),
        "conv1d.weight": matrix(random, channels, spec.taps, 1.5)[:, None, :],
        "dt_bias": inverse_softplus(spread_steps(random, heads)),
        "A_log": np.log(random.uniform(0.3, 8.0, heads)),
        "D": random.standard_normal(inner if d_per_channel else heads) * 0.7,
        "out_proj.weight": matrix(random, spec.width, inner, 1.0 if spec.gated_norm else 1.5),
    }
    if spec.gated_norm:
        tensors["norm.weight"] = random.uniform(0.4, 1.6, inner)
    if spec.bias:
        tensors["in_proj.bias"] = random.standard_normal(rows) * 0.5
        tensors["out_proj.bias"] = random.standard_normal(spec.width) * 0.5
    if spec.conv_bias:
        tensors["conv1d.bias"] = random.standard_normal(channels) * 0.5
    return tensors


def norm(spec, random, name):
    """The tensors of a block's norm or of the final norm."""
    tensors = {name + ".weight": random.uniform(0.5, 1.5, spec.width)}
    if spec.layer_norm:
        tensors[name + ".bias"] = random.standard_normal(spec.width) * 0.5
    return tensors


def model(spec, seed, head="", d_per_channel=False, projection_scale=1.2, embedding_scale=0.7):
    """Every tensor of a model, sorted by name.

    `head`: "" stores no lm_head, "same" a copy of the embedding, "own" an independent matrix.
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    embedding = random.standard_normal((spec.vocab, spec.width)) * embedding_scale
    tensors = {spec.embedding: embedding}
    if head == "same":
        tensors["lm_head.weight"] = embedding
    if head == "own":
        tensors["lm_head.weight"] = random.standard_normal(embedding.shape) * 0.5
    for layer in range(spec.layers):
        prefix = f"backbone.layers.{layer}."
        if spec.kind == "mamba1":
            mixer = mamba1_mixer(spec, random, projection_scale)
        else:
            mixer = mamba2_mixer(spec, random, d_per_channel)
        tensors.update({prefix + "mixer." + name: value for name, value in mixer.items()})
        tensors.update(norm(spec, random, prefix + "norm"))
    tensors.update(norm(spec, random, "backbone.norm_f"))
    return dict(sorted(tensors.items()))


def ids(tokens, seed, count):
    """`count` ids below `tokens`; the first and the last are both among them."""
    random = np.random.default_rng(zlib.crc32(("ids of " + seed).encode()))
    drawn = random.integers(0, tokens, count)
    drawn[1], drawn[2] = tokens - 1, 0
    return drawn


def dtypes(tensors, policy):
    """Storage type of each tensor: F32, F16 or BF16 for all, or "mixed": BF16, A_log and D F32."""
    if policy != "mixed":
        return {name: policy for name in tensors}
    wide = (".A_log", ".D")
    return {name: "F32" if name.endswith(wide) else "BF16" for name in tensors}
