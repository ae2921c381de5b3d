#!/usr/bin/env python3
"""Times Hognose against llama.cpp on the same weights, the same machine and in alternating runs.

Each round runs one program, then the other, so that a change of the machine's clock or load meets
both. Reported are medians over the rounds, the ratio of the medians and the range. Standard library
only.

    python compare.py --hognose build/hognose --model mamba-130m-bf16 --llama-bench llama-bench \
        --llama-run llama-completion --gguf mamba-130m-bf16.gguf --rounds 5 --json result.json
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

# What one run measured ("prompt 512", "generate 64", "start") and its value.
Sample = dict[str, float]
LLAMA_RUN_FLAGS = "-no-cnv --no-warmup -fit off --simple-io"
PROMPT = "The snake moves through the grass without a sound, and"


class RunError(Exception):
    """A program failed or printed something else than expected; the text says which and why."""


def run(command: list[str], timeout: float) -> tuple[str, float]:
    """Runs a program without standard input; returns standard output and seconds of wall time."""
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{command[0]}: {error}") from error
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RunError(f"{command[0]}: exit code {done.returncode}: {' '.join(last)}")
    return done.stdout.decode(errors="replace"), seconds


def rows_of(program: str, text: str) -> list[dict]:
    """The rows of a benchmark's output: a JSON array of objects, or one object a line."""
    try:
        rows = json.loads(text)
        rows = rows if isinstance(rows, list) else [rows]
    except ValueError:
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise RunError(f"{program}: output is not JSON: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise RunError(f"{program}: got no rows, want an array of JSON objects")
    return rows


def read_rows(program: str, text: str, convert: Callable[[dict], tuple[str, float]]) -> Sample:
    """Turns rows into a sample; a row that lacks a field is an error that names it."""
    try:
        return dict(convert(row) for row in rows_of(program, text))
    except KeyError as error:
        raise RunError(f"{program}: a row lacks the field {error}") from error


def hognose_row(row: dict) -> tuple[str, float]:
    """The name and speed of one row of `hognose bench --json`."""
    return f"{row['phase']} {row['tokens']}", float(row["tokens_per_second"])


def llama_row(row: dict) -> tuple[str, float]:
    """The name and speed of one row of `llama-bench -o json`."""
    if row["n_gen"]:
        return f"generate {row['n_gen']}", float(row["avg_ts"])
    return f"prompt {row['n_prompt']}", float(row["avg_ts"])


def speed_runs(o: argparse.Namespace) -> dict[str, Callable[[], Sample]]:
    """One run of each benchmark program, returning tokens per second by phase."""
    threads = ["-t", str(o.threads)]
    ours = [
        o.hognose,
        "bench",
        o.model,
        "--json",
        "--prompt",
        o.prompt,
        "--generate",
        o.generate,
        *threads,
    ]
    peer = [
        o.llama_bench,
        "-m",
        o.gguf,
        "-p",
        o.prompt,
        "-n",
        o.generate,
        *threads,
        "-r",
        "1",
        "-o",
        "json",
    ]
    return {
        "hognose": lambda: read_rows(o.hognose, run(ours, o.timeout)[0], hognose_row),
        "llama.cpp": lambda: read_rows(o.llama_bench, run(peer, o.timeout)[0], llama_row),
    }


def start_runs(o: argparse.Namespace) -> dict[str, Callable[[], Sample]]:
    """One run of each program from process start to the end after one token, in milliseconds."""
    same = ["-p", o.text, "-n", "1", "-t", str(o.threads)]
    ours = [o.hognose, "run", o.model, *same, "--temperature", "0"]
    peer = [o.llama_run, "-m", o.gguf, *same, "--temp", "0", *shlex.split(o.llama_run_flags)]
    return {
        "hognose": lambda: {"start": run(ours, o.timeout)[1] * 1e3},
        "llama.cpp": lambda: {"start": run(peer, o.timeout)[1] * 1e3},
    }


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


def compare(samples: dict[str, list[Sample]], unit: str) -> list[dict]:
    """One row for each thing both measured; the ratio is above 1 where Hognose is better."""
    ours, peer = samples["hognose"], samples["llama.cpp"]
    rows = []
    for what in ours[0]:
        if not all(what in sample for sample in ours + peer):
            raise RunError(f"{what}: was not measured in every run of both programs")
        a, b = summary([s[what] for s in ours]), summary([s[what] for s in peer])
        ratio = a["median"] / b["median"] if unit == "tokens/s" else b["median"] / a["median"]
        rows.append({"what": what, "unit": unit, "hognose": a, "llama.cpp": b, "ratio": ratio})
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


def table(rows: list[dict]) -> str:
    """The rows as a text table."""

    def cell(s: dict) -> str:
        return f"{s['median']:9.1f}  [{s['min']:.1f}..{s['max']:.1f}]"

    lines = [f"{'':24}{'hognose':30}{'llama.cpp':30}ratio"]
    for row in rows:
        name = f"{row['what']} ({'ms' if row['unit'] == 'ms' else 't/s'})"
        lines.append(
            f"{name:24}{cell(row['hognose']):30}{cell(row['llama.cpp']):30}{row['ratio']:.2f}"
        )
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hognose", required=True, metavar="PROGRAM")
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="the checkpoint Hognose reads"
    )
    parser.add_argument(
        "--llama-bench", metavar="PROGRAM", help="llama.cpp's benchmark; without it no speed"
    )
    parser.add_argument(
        "--llama-run",
        metavar="PROGRAM",
        help="llama.cpp's completion program; without it no start time",
    )
    parser.add_argument(
        "--llama-run-flags",
        default=LLAMA_RUN_FLAGS,
        metavar="FLAGS",
        help="further flags of that program (default: %(default)s)",
    )
    parser.add_argument(
        "--gguf", required=True, metavar="FILE", help="the same checkpoint converted"
    )
    parser.add_argument("--rounds", type=int, default=5)
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
    if options.rounds < 1:
        parser.error("--rounds: want 1 or more")
    if not (options.llama_bench or options.llama_run):
        parser.error("want --llama-bench, --llama-run or both")
    return options


def measure(o: argparse.Namespace) -> dict[str, object]:
    """Runs everything that was asked for."""

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    load = os.getloadavg()[0]
    rows = []
    if o.llama_bench:
        rows += compare(alternate(speed_runs(o), o.rounds, log), "tokens/s")
    if o.llama_run:
        rows += compare(alternate(start_runs(o), o.rounds, log), "ms")
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_before": load,
        "threads": o.threads,
        "rounds": o.rounds,
        "model": Path(o.model).name,
        "gguf": Path(o.gguf).name,
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
        f"{result['model']} against {result['gguf']}, {options.threads} threads, "
        f"{options.rounds} alternating rounds, median [min..max]"
    )
    print(table(result["rows"]))
    print("Ratio: above 1, Hognose is faster. t/s: more is better. ms: less is better.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
