"""Shows that every ingredient of every fixture is visible in its logits.

Each row spoils one ingredient (drops a bias, swaps two parts, forgets the state ...) and prints the
largest change of the stored logits relative to the largest logit. Exit code 1 if a change is under
1e-2: then an engine with that fault might pass.
"""

import argparse
import dataclasses
import math

import numpy as np

import fixtures
import make_fixtures
import recurrence
import tensorfile

LIMIT = 1e-2
X_PROJ = "backbone.layers.0.mixer.x_proj.weight"


def changed(model, suffix, change):
    """A model in which `change` is applied to every tensor whose name ends in `suffix`."""
    tensors = {
        name: change(value) if name.endswith(suffix) else value
        for name, value in model.tensors.items()
    }
    return recurrence.Model(model.spec, tensors)


def respecified(model, **fields):
    """A model whose Spec has other fields."""
    return recurrence.Model(dataclasses.replace(model.spec, **fields), model.tensors)


def swapped_rows(model, suffix, first, second):
    """A model in which two equally long ranges of rows of a tensor (and its bias) trade places."""

    def swap(tensor):
        tensor = tensor.copy()
        kept = tensor[first].copy()
        tensor[first] = tensor[second]
        tensor[second] = kept
        return tensor

    return changed(changed(model, suffix + ".weight", swap), suffix + ".bias", swap)


def tensor_faults(model):
    """(name, spoiled model) for each tensor that a model may have."""
    names = model.tensors
    spoiled = {
        "mixer.A_log": ("A all -1", np.zeros_like),
        "mixer.D": ("D all ones", np.ones_like),
        "mixer.dt_bias": ("no dt_bias", np.zeros_like),
        "dt_proj.bias": ("no dt_proj.bias", np.zeros_like),
        "dt_proj.weight": ("no dt_proj.weight", np.zeros_like),
        "conv1d.bias": ("no conv bias", np.zeros_like),
        "conv1d.weight": ("conv taps reversed", lambda t: t[:, :, ::-1]),
        "in_proj.bias": ("no in_proj.bias", np.zeros_like),
        "out_proj.bias": ("no out_proj.bias", np.zeros_like),
        "mixer.norm.weight": ("gated norm weight 1", np.ones_like),
        "0.norm.weight": ("block norm weight 1", np.ones_like),
        "norm_f.weight": ("final norm weight 1", np.ones_like),
        "0.norm.bias": ("no block norm bias", np.zeros_like),
        "norm_f.bias": ("no final norm bias", np.zeros_like),
    }
    for suffix, (what, change) in spoiled.items():
        if any(name.endswith(suffix) for name in names):
            yield what, changed(model, suffix, change)
    if names["backbone.layers.0.mixer.A_log"].size > 1:
        yield "A in another order", changed(model, "mixer.A_log", lambda t: t[..., ::-1])
    yield "first tap dropped", changed(model, "conv1d.weight", drop_first_tap)
    per_channel = [n for n, t in names.items() if n.endswith("mixer.D") and model.spec.heads]
    if per_channel and names[per_channel[0]].size > model.spec.heads:
        shape = (model.spec.heads, -1)
        yield "D per head", changed(model, "mixer.D", lambda t: first_of_each(t.reshape(shape)))


def drop_first_tap(weight):
    """A convolution that sees one token less."""
    weight = weight.copy()
    weight[:, :, 0] = 0.0
    return weight


def first_of_each(d_skip):
    """D with the first channel's value for its whole head."""
    return np.repeat(d_skip[:, :1], d_skip.shape[1], axis=1).reshape(-1)


def order_faults(model):
    """(name, spoiled model): parts of a projection taken in the wrong order."""
    spec = model.spec
    first, second = slice(0, spec.inner), slice(spec.inner, 2 * spec.inner)
    yield "x and z swapped", swapped_rows(model, "in_proj", first, second)
    if spec.kind == "mamba1":
        b = slice(spec.rank, spec.rank + spec.state)
        yield "B and C swapped", swapped_rows(model, "x_proj", b, slice(b.stop, None))
        return
    b = slice(2 * spec.inner, 2 * spec.inner + spec.groups * spec.state)
    c = slice(b.stop, b.stop + spec.groups * spec.state)
    yield "B and C swapped", swapped_rows(model, "in_proj", b, c)
    if spec.groups > 1:
        yield "groups tiled, not interleaved", respecified(model, interleaved=False)


def spec_faults(model):
    """(name, spoiled model): a flag or a limit that is read wrongly."""
    spec = model.spec
    low, high = spec.dt_limit
    if low > 0.0:
        yield "no lower dt limit", respecified(model, dt_limit=(0.0, high))
    if high < math.inf:
        yield "no upper dt limit", respecified(model, dt_limit=(low, math.inf))
    if spec.mixer_eps is not None:
        yield "no norms of dt, B, C", respecified(model, mixer_eps=None)
    if spec.mixer_eps not in (None, 1e-6):
        yield "mixer eps 1e-6", respecified(model, mixer_eps=1e-6)
        yield "mixer eps is the block eps", respecified(model, mixer_eps=spec.eps)
    if spec.mixer_eps == 1e-6 and model.tensors[X_PROJ].std() < 0.01:
        yield "mixer eps is the block eps", respecified(model, mixer_eps=spec.eps)
    if spec.eps != 1e-5:
        yield "eps 1e-5", respecified(model, eps=1e-5)
    if spec.layer_norm:
        yield "RMSNorm for LayerNorm", respecified(model, layer_norm=False)
    if spec.kind == "mamba2" and spec.gated_norm:
        other = not spec.norm_before_gate
        yield "gate on the other side", respecified(model, norm_before_gate=other)
        yield "no gated norm", respecified(model, gated_norm=False)
        if spec.groups > 1:
            yield "one group in the norm", respecified(model, norm_groups=1)
    if "lm_head.weight" in model.tensors:
        yield "tied, lm_head ignored", respecified(model, tied=True)


def run(model, ids, reset=None):
    """Logits; `reset` is the position before which every ssm state is forgotten, or "always"."""
    if reset is None:
        return recurrence.forward(model, ids)[0]
    cuts = range(1, len(ids)) if reset == "always" else [reset]
    state, logits = recurrence.zero_state(model.spec), []
    for piece in np.split(np.asarray(ids), cuts):
        for layer in state:
            layer["ssm"][:] = 0.0
        logits.append(recurrence.forward(model, piece, state)[0])
    return np.concatenate(logits)


def changes(fixture):
    """(name of the fault, relative change of the stored logits) for one fixture."""
    folder = make_fixtures.MODELS / fixture.name
    expected, _ = tensorfile.read(folder / "expected.safetensors")
    model, ids = recurrence.load(folder), expected["ids"]
    rows = expected.get("rows", np.arange(len(ids)))
    largest = np.abs(expected["logits"]).max()

    def change(logits):
        return np.abs(logits[rows] - expected["logits"]).max() / largest

    for faults in (tensor_faults, order_faults, spec_faults):
        for what, spoiled in faults(model):
            if fixture.head == "same" and what == "tied, lm_head ignored":
                continue
            yield what, change(run(spoiled, ids))
    yield "no memory in the state", change(run(model, ids, "always"))
    if len(ids) > 256:
        yield "state dropped at 256", change(run(model, ids, 256))


def main():
    """Prints the table; exit code 1 if an ingredient does not show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*")
    names = parser.parse_args().name
    weak = 0
    for fixture in fixtures.ALL:
        if names and fixture.name not in names:
            continue
        for what, value in changes(fixture):
            mark = "" if value > LIMIT else "  <-- under the limit"
            weak += value <= LIMIT
            print(f"{fixture.name:34} {what:30} {value:8.1e}{mark}", flush=True)
    print(f"{weak} ingredients change the logits by less than {LIMIT}")
    return int(weak > 0)


if __name__ == "__main__":
    raise SystemExit(main())
