"""The engines that compare.py can run: the commands, and how to read what they print.

An engine is one function: from the options to its commands. The standard library is enough here.
"""

import argparse
import json
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# What one run measured ("prompt 512", "generate 64", "start") and its value.
Sample = dict[str, float]
LLAMA_RUN_FLAGS = "-no-cnv --no-warmup -fit off --simple-io"


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


def our_row(row: dict) -> tuple[str, float]:
    """The name and speed of one row of `hognose bench --json`, and of the programs beside this."""
    return f"{row['phase']} {row['tokens']}", float(row["tokens_per_second"])


def llama_row(row: dict) -> tuple[str, float]:
    """The name and speed of one row of `llama-bench -o json`."""
    if row["n_gen"]:
        return f"generate {row['n_gen']}", float(row["avg_ts"])
    return f"prompt {row['n_prompt']}", float(row["avg_ts"])


@dataclass(frozen=True)
class Engine:
    """One engine's commands: one prints rows of speeds, one ends after the first token."""

    name: str
    weights: str
    bench: list[str] | None
    first_token: list[str] | None
    row: Callable[[dict], tuple[str, float]] = our_row

    def speed(self, timeout: float) -> Sample:
        """Tokens per second by phase; a row that lacks a field is an error that names it."""
        program = self.bench[0]
        text, _ = run(self.bench, timeout)
        try:
            return dict(self.row(row) for row in rows_of(program, text))
        except KeyError as error:
            raise RunError(f"{program}: a row lacks the field {error}") from error

    def start(self, timeout: float) -> Sample:
        """Milliseconds from process start to the end after one token."""
        return {"start": run(self.first_token, timeout)[1] * 1e3}


def hognose(o: argparse.Namespace) -> Engine:
    """Hognose's own programs."""
    threads = ["-t", str(o.threads)]
    sizes = ["--prompt", o.prompt, "--generate", o.generate]
    return Engine(
        name="hognose",
        weights=o.model,
        bench=[o.hognose, "bench", o.model, "--json", *sizes, *threads],
        first_token=[
            *[o.hognose, "run", o.model, "-p", o.text, "-n", "1", *threads],
            *["--temperature", "0"],
        ],
    )


def llama(o: argparse.Namespace) -> Engine:
    """llama.cpp; either program may be missing."""
    same = ["-m", o.gguf, "-t", str(o.threads)]
    sizes = ["-p", o.prompt, "-n", o.generate]
    bench = [o.llama_bench, *same, *sizes, "-r", "1", "-o", "json"]
    flags = shlex.split(o.llama_run_flags)
    first_token = [o.llama_run, *same, "-p", o.text, "-n", "1", "--temp", "0", *flags]
    return Engine(
        name="llama.cpp",
        weights=o.gguf,
        bench=bench if o.llama_bench else None,
        first_token=first_token if o.llama_run else None,
        row=llama_row,
    )


def transformers(o: argparse.Namespace) -> Engine:
    """transformers on torch, which reads the same folder as Hognose."""
    program = str(Path(__file__).parent / "time_transformers.py")
    same = [o.transformers, program, o.model, "-t", str(o.threads), "--dtype", o.dtype]
    return Engine(
        name="transformers",
        weights=o.model,
        bench=[*same, "--prompt", o.prompt, "--generate", o.generate],
        first_token=[*same, "--text", o.text],
    )
