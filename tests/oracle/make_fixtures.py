"""Writes tests/fixtures/models/<name>/ for every fixture and prints how each one compares.

    python make_fixtures.py                 all fixtures
    python make_fixtures.py NAME ...        some of them
    python make_fixtures.py --no-transformers   without torch and transformers: an existing
                                            comparison is kept where the numbers are unchanged
"""

import argparse
import json
import pathlib
import shutil

import numpy as np

import fixtures
import recurrence
import spec as specs
import tensorfile
import weights

MODELS = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models"


def write_model(folder, fixture):
    """config.json and the weights of a fixture."""
    spec = specs.from_config(fixture.config)
    seed = fixture.seed or fixture.name
    tensors = weights.model(spec, seed, fixture.head, **fixture.options)
    dtypes = weights.dtypes(tensors, fixture.storage)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(fixture.config, indent=2) + "\n")
    if fixture.shards > 1:
        tensorfile.write_shards(folder, tensors, dtypes, fixture.shards)
    else:
        tensorfile.write(folder / "model.safetensors", tensors, dtypes, {"format": "pt"})


def write_expected(folder, fixture, ids, logits, state, metadata):
    """expected.safetensors: ids, logits, the rows of logits if not all, the final state."""
    tensors = {"ids": ids}
    if fixture.rows:
        tensors["rows"] = np.array(fixture.rows)
        logits = logits[tensors["rows"]]
    tensors["logits"] = logits
    for i, layer in enumerate(state):
        tensors[f"layers.{i}.conv"] = layer["conv"]
        tensors[f"layers.{i}.ssm"] = layer["ssm"]
    dtypes = {name: "I64" if name in ("ids", "rows") else "F32" for name in tensors}
    tensorfile.write(folder / "expected.safetensors", tensors, dtypes, metadata)


def against_transformers(folder, ids, logits, state):
    """Metadata about the comparison with transformers."""
    import transformers_check  # needs torch, so only here

    metadata = {"transformers_version": transformers_check.VERSION}
    try:
        worst, notes = transformers_check.difference(folder, ids, logits, state)
    except transformers_check.NotComparable as reason:
        metadata["transformers_difference"] = f"n/a: {reason}"
        return metadata
    # The chunked float32 sums of transformers cost up to 2e-5 of a state that decays fast.
    largest = max(np.abs(layer["ssm"]).max() for layer in state)
    limits = {"logits": 1e-5 * np.abs(logits).max(), "conv": 1e-5, "ssm": 3e-5 * largest}
    if any(worst[part] > limits[part] for part in worst):
        raise SystemExit(f"{folder.name}: differs from transformers: {worst}")
    metadata["transformers_difference"] = f"{worst['logits']:.1e}"
    metadata["transformers_difference_conv"] = f"{worst['conv']:.1e}"
    metadata["transformers_difference_ssm"] = f"{worst['ssm']:.1e}"
    if notes:
        metadata["transformers_note"] = ", ".join(notes)
    return metadata


def kept_comparison(before, fixture, logits):
    """What an earlier expected.safetensors says of transformers, if its logits are still right."""
    tensors, metadata = before
    rows = list(fixture.rows) or slice(None)
    if not np.array_equal(tensors.get("logits"), logits[rows].astype(np.float32)):
        return {}
    return {key: text for key, text in metadata.items() if key.startswith("transformers_")}


def make(fixture, with_transformers):
    """Writes one fixture; returns the row of the printed table."""
    folder = MODELS / fixture.name
    before = ({}, {})
    if (folder / "expected.safetensors").exists():
        before = tensorfile.read(folder / "expected.safetensors")
    write_model(folder, fixture)
    model = recurrence.load(folder)
    tokens = fixture.config["vocab_size"]  # without the padding of the original layout
    ids = weights.ids(tokens, fixture.seed or fixture.name, fixture.length)
    logits, state = recurrence.forward(model, ids)
    metadata = {"oracle": "float64 recurrence", "what": fixture.what}
    if with_transformers:
        metadata.update(against_transformers(folder, ids, logits, state))
    else:
        metadata.update(kept_comparison(before, fixture, logits))
    write_expected(folder, fixture, ids, logits, state, metadata)
    return {
        "name": fixture.name,
        "kB": sum(path.stat().st_size for path in folder.iterdir()) / 1000,
        "largest": np.abs(logits).max(),
        "difference": metadata.get("transformers_difference", "not compared"),
        "ssm": metadata.get("transformers_difference_ssm", ""),
        "note": metadata.get("transformers_note", ""),
    }


def main():
    """Makes the fixtures named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*")
    parser.add_argument("--no-transformers", action="store_true")
    args = parser.parse_args()
    known = {fixture.name: fixture for fixture in fixtures.ALL}
    unknown = [name for name in args.name if name not in known]
    if unknown:
        parser.error(f"no such fixture: {', '.join(unknown)}")
    total = 0.0
    print(f"{'fixture':34} {'kB':>5} {'|logit|':>7}  difference to transformers (ssm)")
    for name in args.name or known:
        row = make(known[name], not args.no_transformers)
        total += row["kB"]
        print(
            f"{name:34} {row['kB']:5.0f} {row['largest']:7.2f}  {row['difference']}"
            f" ({row['ssm']}) {row['note']}",
            flush=True,
        )
    print(f"{total:.0f} kB in all")


if __name__ == "__main__":
    main()
