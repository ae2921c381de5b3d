"""Writes the gradients that training must reproduce into the folders of some fixtures.

    python make_gradients.py                all of them
    python make_gradients.py NAME ...       those of some fixtures

Each file is checked before it is written: the logits against recurrence.py, and the gradients
against central differences of its loss. It also says how much the gradients change when every
weight is off by a rounding of float32, which is what a pass in float32 can be held to.
"""

import argparse
import dataclasses
import zlib

import numpy as np
import torch

import adamw
import gradients
import make_fixtures
import recurrence
import tensorfile
import weights

BRANCHES = ("conv", "ssm")
STEP = 5e-5  # of the central differences, in units of a tensor's root mean square
ENTRIES = 48  # entries that are checked by central differences
DRAWS = 8  # of rounded weights, for the sensitivity
ILL_POSED = 2.5e-5  # a sensitivity above this hides errors of the engine


@dataclasses.dataclass(frozen=True)
class Case:
    """One file: a sequence of a fixture, cut into documents, perhaps with a given state."""

    name: str
    file: str = "gradients.safetensors"
    length: int = 39  # L: odd, and one less than the ids that a fixture has
    boundaries: tuple = ()  # where documents begin, and L; none: one document
    state: bool = False  # an initial state, and a cotangent on the final one
    own_ids: bool = False  # not the fixture's, with which the problem is ill-posed


CASES = [
    Case("mamba_basic"),
    Case("mamba_odd_sizes"),
    Case("mamba_untied"),
    Case("falcon_mamba_eps"),
    Case("falcon_mamba_untied"),
    Case("mamba2_basic"),
    # The fixture's ids leave a group of the gated norm nearly at zero: a sensitivity of 1e-4.
    Case("mamba2_groups_4", own_ids=True),
    Case("mamba2_head_dim_1"),
    Case("mamba2_conv_5"),
    Case("mamba2_bias"),
    Case("mamba2_no_conv_bias"),
    Case("mamba2_dt_limit"),
    Case("mamba2_untied"),
    Case("mamba2_long", length=130),  # two whole chunks of 64 and two tokens
    Case("original_mamba2_d_per_channel"),
    Case("original_mamba2_plain_gate"),
    Case("original_mamba2_norm_before_gate"),
    Case("mamba_untied", "gradients_packed.safetensors", 39, (0, 1, 3, 22, 39)),
    Case("mamba2_long", "gradients_packed.safetensors", 130, (0, 1, 3, 64, 130)),
    Case("mamba_untied", "gradients_state.safetensors", 39, state=True),
    Case("mamba2_long", "gradients_state.safetensors", 130, state=True),
]
ADAMW = ("mamba_basic", "mamba2_basic")


@dataclasses.dataclass
class Problem:
    """What is differentiated; states are lists of {"conv", "ssm"} in numpy, one a layer."""

    ids: np.ndarray
    targets: np.ndarray
    boundaries: list
    initial: list  # before every document; zeros unless the case has a state
    cotangent: list  # of the final state of the last document


def random_state(spec, random, scale):
    """A state of normally distributed numbers."""
    return [
        {part: random.standard_normal(value.shape) * scale for part, value in layer.items()}
        for layer in recurrence.zero_state(spec)
    ]


def pose(case, model):
    """The Problem of a case."""
    expected, _ = tensorfile.read(make_fixtures.MODELS / case.name / "expected.safetensors")
    ids = expected["ids"]
    if case.own_ids:
        ids = weights.ids(model.spec.vocab, f"gradients of {case.name}", len(ids))
    ids = ids[: case.length + 1]
    targets = ids[1:].copy()
    targets[[5, 23]] = gradients.IGNORED
    random = np.random.default_rng(zlib.crc32(f"{case.name} {case.file}".encode()))
    scale = 1.0 if case.state else 0.0
    return Problem(
        ids=ids[:-1],
        targets=targets,
        boundaries=list(case.boundaries or (0, case.length)),
        initial=random_state(model.spec, random, 0.2 * scale),
        cotangent=random_state(model.spec, random, 0.02 * scale),
    )


def numpy_loss(model, problem):
    """(loss, logits) by recurrence.py: mean of -log softmax, plus cotangent times final state."""
    logits, bounds = [], problem.boundaries
    for begin, end in zip(bounds, bounds[1:]):
        state = [{part: x.copy() for part, x in layer.items()} for layer in problem.initial]
        rows, state = recurrence.forward(model, problem.ids[begin:end], state)
        logits.append(rows)
    logits = np.concatenate(logits)
    counts = problem.targets != gradients.IGNORED
    rows = logits[counts]
    lse = np.logaddexp.reduce(rows, axis=1)
    loss = np.mean(lse - rows[np.arange(len(rows)), problem.targets[counts]])
    for cotangent, last in zip(problem.cotangent, state):
        loss += sum(np.sum(cotangent[part] * last[part]) for part in BRANCHES)
    return loss, logits


def torch_gradients(model, problem):
    """(loss without the cotangent's part, logits, gradients by name) by autograd in float64."""
    params = gradients.parameters(model)
    initial = [
        {part: torch.tensor(x, requires_grad=True) for part, x in layer.items()}
        for layer in problem.initial
    ]
    ids, targets = torch.tensor(problem.ids), torch.tensor(problem.targets)
    logits, bounds = [], problem.boundaries
    for begin, end in zip(bounds, bounds[1:]):
        rows, last = gradients.forward(params, ids[begin:end], initial)
        logits.append(rows)
    logits = torch.cat(logits)
    loss = gradients.summed_loss(logits, targets) / (targets != gradients.IGNORED).sum()
    total = loss
    for cotangent, state in zip(problem.cotangent, last):
        for part in BRANCHES:
            total = total + (torch.tensor(cotangent[part]) * state[part]).sum()
    total.backward()
    found = {f"d.{name}": grad.numpy() for name, grad in gradients.gradients(params).items()}
    for i, layer in enumerate(initial):
        found.update({f"dinitial.layers.{i}.{part}": layer[part].grad.numpy() for part in BRANCHES})
    return loss.item(), logits.detach().numpy(), found


def numeric(loss, values, index):
    """The central difference of fourth order of loss() by one entry of `values`."""
    step, kept = STEP * np.sqrt(np.mean(values * values)), values[index]
    terms = []
    for factor, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
        values[index] = kept + factor * step
        terms.append(weight * loss())
    values[index] = kept
    return sum(terms) / (12 * step)


def worst_difference(case, model, problem, found):
    """The largest error of random entries of all tensors, over the tensor's largest entry."""
    places = {f"d.{name}": values for name, values in model.tensors.items()}
    if case.state:
        for i, layer in enumerate(problem.initial):
            places.update({f"dinitial.layers.{i}.{part}": layer[part] for part in BRANCHES})
    random = np.random.default_rng(zlib.crc32(case.name.encode()))
    worst = 0.0
    for turn in range(max(ENTRIES, 2 * len(places))):
        name = sorted(places)[turn % len(places)]
        values, gradient = places[name], found[name]
        index = tuple(random.integers(0, size) for size in values.shape)
        if turn < len(places):  # the largest entry once, since a random one may be zero
            index = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        error = numeric(lambda: numpy_loss(model, problem)[0], values, index) - gradient[index]
        worst = max(worst, abs(error) / np.abs(gradient).max())
    return worst


def sensitivity(case, model, problem, found):
    """The largest change of a gradient over its tensor's largest entry, of several draws.

    Every weight is multiplied by 1 + u, u uniform within the spacing of float32 numbers.
    """
    random = np.random.default_rng(zlib.crc32(f"sensitivity of {case.name}".encode()))
    eps, worst = 2.0**-23, 0.0
    for _ in range(DRAWS):
        near = {
            name: values * (1.0 + random.uniform(-eps, eps, values.shape))
            for name, values in model.tensors.items()
        }
        _, _, other = torch_gradients(recurrence.Model(model.spec, near), problem)
        for name, gradient in found.items():
            if case.state or name.startswith("d."):
                change = np.abs(other[name] - gradient).max() / np.abs(gradient).max()
                worst = max(worst, change)
    return worst


def tensors_of(case, problem, loss, changes, found):
    """What goes into the file."""
    tensors = {"ids": problem.ids, "targets": problem.targets}
    tensors.update({"loss": np.array([loss]), "sensitivity": np.array([changes])})
    if case.boundaries:
        tensors["boundaries"] = np.array(problem.boundaries)
    tensors.update({name: grad for name, grad in found.items() if name.startswith("d.")})
    if case.state:
        for i, (first, last) in enumerate(zip(problem.initial, problem.cotangent)):
            for part in BRANCHES:
                tensors[f"initial.layers.{i}.{part}"] = first[part]
                tensors[f"dfinal.layers.{i}.{part}"] = last[part]
        tensors.update({name: grad for name, grad in found.items() if name.startswith("dinitial.")})
    return tensors


def dtype_of(name):
    """How a tensor of a file is stored."""
    if name in ("ids", "targets", "boundaries"):
        return "I64"
    return "F64" if name in ("loss", "sensitivity") else "F32"


def rounded(problem):
    """The states as the file has them, so that the numbers are exact for what is stored."""
    for state in (problem.initial, problem.cotangent):
        for layer in state:
            for part in BRANCHES:
                layer[part] = layer[part].astype(np.float32).astype(np.float64)
    return problem


def make(case):
    """Checks and writes one file; prints its row of the table."""
    folder = make_fixtures.MODELS / case.name
    model = recurrence.load(folder)
    problem = rounded(pose(case, model))
    loss, logits, found = torch_gradients(model, problem)
    expected = numpy_loss(model, problem)[1]
    logits_error = np.abs(logits - expected).max() / np.abs(expected).max()
    error = worst_difference(case, model, problem, found)
    changes = sensitivity(case, model, problem, found)
    print(
        f"{case.name:34} {case.file:28} {loss:8.5f} {logits_error:8.1e} {error:8.1e}"
        f" {changes:8.1e}",
        flush=True,
    )
    missing = [name for name in model.tensors if f"d.{name}" not in found]
    if missing or logits_error > 1e-12 or error > 1e-6 or changes > ILL_POSED:
        raise SystemExit(f"{case.name}: {case.file}: not right; without a gradient: {missing}")
    tensors = tensors_of(case, problem, loss, changes, found)
    dtypes = {name: dtype_of(name) for name in tensors}
    metadata = {
        "oracle": f"torch {torch.__version__.split('+')[0]} autograd in float64",
        "central_differences": f"{error:.1e}",
    }
    tensorfile.write(folder / case.file, tensors, dtypes, metadata)


def main():
    """Makes the files of the fixtures named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*")
    names = parser.parse_args().name
    torch.set_num_threads(1)
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no gradients for: {', '.join(sorted(unknown))}")
    print(f"{'fixture':34} {'file':28} {'loss':>8} {'logits':>8} {'numeric':>8} sensitivity")
    for case in CASES:
        if not names or case.name in names:
            make(case)
    for name in ADAMW:
        if not names or name in names:
            adamw.make(make_fixtures.MODELS / name)


if __name__ == "__main__":
    main()
