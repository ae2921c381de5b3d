#!/usr/bin/env python3
"""Times Hognose against a peer on the same weights, the same machine and in alternating runs.

Each round runs one program, then the other, so that a change of the machine's clock or load meets
both. Reported are medians over the rounds, the ratio of the medians and the range. Standard library
only. The peer is llama.cpp or transformers; engines.py knows their commands.

    python compare.py --hognose build/hognose --model mamba-130m-bf16 --llama-bench llama-bench \
        --llama-run llama-completion --gguf mamba-130m-bf16.gguf --rounds 5 --json result.json
    python compare.py --hognose build/hognose --model mamba-130m-bf16 --transformers venv/bin/python
"""

import argparse
import functools
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import engines
from engines import RunError, Sample

PROMPT = "The snake moves through the grass without a sound, and"
SHORT = {"tokens/s": "t/s"}  # units in the table


def alternate(
    runs: dict[str, Callable[[], Sample]], rounds: int, log: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """Warms up every program once, then runs them in turn, in reverse order every other round."""
    samples: dict[str, list[Sample]] = {name: [] for name in runs}
    for name, measure in runs.items():
        log(f"warm-up: {name}")
        measure()
    for index in range(rounds):
        order = list(runs.items())
        for name, measure in order if index % 2 == 0 else reversed(order):
            sample = measure()
            samples[name].append(sample)
            text = ", ".join(f"{what} {value:.1f}" for what, value in sample.items())
            log(f"round {index + 1}/{rounds}: {name}: {text}")
    return samples


def summary(values: list[float]) -> dict[str, object]:
    """Median, range and the single values."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "values": values,
    }


def compare(ours: list[Sample], peer: list[Sample], name: str, unit: str) -> list[dict]:
    """One row for each thing both measured; the ratio is above 1 where Hognose is better."""
    rows = []
    for what in ours[0]:
        if not all(what in sample for sample in ours + peer):
            raise RunError(f"{what}: was not measured in every run of both programs")
        a, b = summary([s[what] for s in ours]), summary([s[what] for s in peer])
        ratio = a["median"] / b["median"] if unit == "tokens/s" else b["median"] / a["median"]
        rows.append({"what": what, "unit": unit, "hognose": a, name: b, "ratio": ratio})
    return rows


def cpu_name() -> str:
    """The CPU's name from /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def table(rows: list[dict], peer: str) -> str:
    """The rows as a text table."""

    def cell(s: dict) -> str:
        return f"{s['median']:9.1f}  [{s['min']:.1f}..{s['max']:.1f}]"

    lines = [f"{'':24}{'hognose':30}{peer:30}ratio"]
    for row in rows:
        name = f"{row['what']} ({SHORT.get(row['unit'], row['unit'])})"
        lines.append(
            f"{name:24}{cell(row['hognose']):30}{cell(row[peer]):30}{row['ratio']:.2f}"
        )
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hognose", required=True, metavar="PROGRAM")
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="the checkpoint Hognose reads"
    )
    llama = parser.add_argument_group("against llama.cpp")
    llama.add_argument("--gguf", metavar="FILE", help="the same checkpoint converted")
    llama.add_argument("--llama-bench", metavar="PROGRAM", help="without it no speed")
    llama.add_argument("--llama-run", metavar="PROGRAM", help="without it no start time")
    llama.add_argument(
        "--llama-run-flags",
        default=engines.LLAMA_RUN_FLAGS,
        metavar="FLAGS",
        help="further flags of that program (default: %(default)s)",
    )
    torch = parser.add_argument_group("against transformers")
    torch.add_argument(
        "--transformers", metavar="PYTHON", help="a Python that has torch and transformers"
    )
    torch.add_argument(
        "--dtype",
        choices=["auto", "bf16", "f32"],
        default="auto",
        help="what it computes in (default: auto, the checkpoint's type)",
    )
    parser.add_argument("--rounds", type=int, help="(default: 5; with --transformers 3)")
    parser.add_argument(
        "--prompt", default="512", metavar="N[,N]", help="prompt lengths (default: %(default)s)"
    )
    parser.add_argument(
        "--generate",
        default="64",
        metavar="N",
        help="tokens to generate (default: %(default)s)",
    )
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--text", default=PROMPT, help="prompt of the start measurement")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 3 if options.transformers else 5
    if options.rounds < 1:
        parser.error("--rounds: want 1 or more")
    if bool(options.transformers) == bool(options.llama_bench or options.llama_run):
        parser.error("want one peer: --transformers, or --llama-bench, --llama-run or both")
    if not options.transformers and not options.gguf:
        parser.error("want --gguf with llama.cpp")
    return options


def measure(o: argparse.Namespace) -> dict[str, object]:
    """Runs everything that was asked for."""

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    load = os.getloadavg()[0]
    ours = engines.hognose(o)
    peer = engines.transformers(o) if o.transformers else engines.llama(o)
    rows = []
    for unit, asked, sample in [
        ("tokens/s", peer.bench, engines.Engine.speed),
        ("ms", peer.first_token, engines.Engine.start),
    ]:
        if asked:
            runs = {e.name: functools.partial(sample, e, o.timeout) for e in (ours, peer)}
            samples = alternate(runs, o.rounds, log)
            rows += compare(samples[ours.name], samples[peer.name], peer.name, unit)
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_before": load,
        "threads": o.threads,
        "rounds": o.rounds,
        "model": Path(ours.weights).name,
        "peer": peer.name,
        "peer_model": Path(peer.weights).name,
        "rows": rows,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints and writes; returns the exit code."""
    options = parse(arguments)
    try:
        result = measure(options)
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except (RunError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{result['cpu']}, {result['cores']} cores, load before {result['load_before']:.2f}")
    print(
        f"{result['model']} against {result['peer']} with {result['peer_model']}, "
        f"{options.threads} threads, {options.rounds} alternating rounds, median [min..max]"
    )
    print(table(result["rows"], result["peer"]))
    print("Ratio: above 1, Hognose is faster. t/s: more is better. ms: less is better.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
