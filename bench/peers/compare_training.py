#!/usr/bin/env python3
"""Times training of a sequence model with Hognose against torch, in alternating runs.

Both train a Mamba-2 regression of the same sizes on one batch after another: time of a step, of the
forward pass alone, and the most memory that the process of the steps ever held. Reported are
medians over the rounds as in compare.py. Standard library only; time_torch_training.py needs torch.

    python compare_training.py --hognose build/hognose --torch venv/bin/python --json result.json
"""

import argparse
import array
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import compare
import engines
from engines import RunError, Sample

MIB = 1 << 20
SIZES = {
    **{"batch": 32, "length": 256, "features": 256, "d-model": 256, "layers": 4},
    **{"d-state": 64, "head-dim": 64},
}


def write_table(path: Path, rows: int, columns: int) -> None:
    """Random numbers in [-1, 1) as an NPY file of F32."""
    draw = random.Random(0).uniform
    numbers = array.array("f", (draw(-1, 1) for _ in range(rows * columns)))
    if sys.byteorder == "big":
        numbers.byteswap()
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    shape += " " * (-(len(shape) + 11) % 64) + "\n"  # the data begin at a multiple of 64 bytes
    header = b"\x93NUMPY\x01\x00" + len(shape).to_bytes(2, "little") + shape.encode()
    path.write_bytes(header + numbers.tobytes())


def told(command: list[str], timeout: float) -> list[tuple[float, str]]:
    """Runs a program; returns each line of its standard error and when it came, in seconds."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RunError(f"{command[0]}: {error}") from error
    stop = threading.Timer(timeout, process.kill)
    stop.start()
    try:
        lines = [(time.perf_counter(), line.strip()) for line in process.stderr]
        code = process.wait()
    finally:
        stop.cancel()
        process.stderr.close()
    if code < 0:
        raise RunError(f"{command[0]}: was ended by signal {-code} (--timeout {timeout:g}?)")
    if code != 0:
        last = lines[-1][1] if lines else ""
        raise RunError(f"{command[0]}: exit code {code}: {last}")
    return lines


class Hognose:
    """Hognose by its command line; what a run measures is in milliseconds and bytes."""

    def __init__(self, o: argparse.Namespace, folder: Path):
        self.o, self.folder = o, folder
        self.tokens = o.batch * o.length
        # The rows held out: few beside the steps, and one batch where their pass is timed.
        self.held_out = {"step": o.length, "forward": self.tokens}
        for mode, held_out in self.held_out.items():
            write_table(self.table(mode), self.tokens + held_out, o.features + 1)

    def table(self, mode: str) -> Path:
        """The data of a mode."""
        return self.folder / f"{mode}.npy"

    def command(self, mode: str, precision: str) -> list[str]:
        """A run of `hognose train`."""
        o = self.o
        # Half a row more than wanted, since the share is rounded down to whole rows.
        share = (self.held_out[mode] + 0.5) / (self.tokens + self.held_out[mode])
        evaluate = ["--batch-size", "1", "--eval-every", "1"]
        return [
            *[o.hognose, "train", "--task", "regression", "--data", str(self.table(mode))],
            *["--target", f"c{o.features}", "--validation", repr(share), "--arch", "mamba2"],
            *["--d-model", str(o.d_model), "--layers", str(o.layers)],
            *["--d-state", str(o.d_state), "--head-dim", str(o.head_dim)],
            *["--sequence-length", str(o.length), "--steps", str(o.warmup + o.steps)],
            *(["--batch-size", str(o.batch)] if mode == "step" else evaluate),
            *["--precision", precision, "--checkpoint", "layer" if o.checkpoint else "none"],
            *["--optimizer", "adamw", "--clip", "1", "-t", str(o.threads)],
            *["--out", str(self.folder / "model"), "--log", str(self.folder / "log.jsonl")],
            "--force",
        ]

    def run(self, mode: str, precision: str) -> tuple[list[float], int]:
        """The time of every step or forward pass after the warm-up, and the peak of the memory."""
        o = self.o
        lines = told(self.command(mode, precision), o.timeout)
        text = (self.folder / "log.jsonl").read_text(encoding="utf-8")
        log = engines.rows_of(o.hognose, text)
        rows = 1 if mode == "forward" else o.batch
        try:
            steps = [rows * o.length / row["tokens_per_second"] * 1e3 for row in log]
            memory = max(row["memory_bytes"] for row in log)
        except KeyError as error:
            raise RunError(f"{o.hognose}: the log lacks the field {error}") from error
        times = steps if mode == "step" else self.evaluations(lines, steps)
        if len(times) != o.warmup + o.steps:
            raise RunError(f"{o.hognose}: got {len(times)} times, want {o.warmup + o.steps}")
        return times[o.warmup :], memory

    def evaluations(self, lines: list[tuple[float, str]], steps: list[float]) -> list[float]:
        """Times of the passes over the held-out rows.

        The log does not have them. Each ends with a line on standard error, and one step lies
        between two of them, whose time the log has: the rest is the pass. The first one, before
        which more than a step lies, is given the second's time (it is a warm-up).
        """
        ends = [when * 1e3 for when, line in lines if "held-out loss" in line]
        if len(ends) != len(steps):
            raise RunError(f"{self.o.hognose}: got {len(ends)} evaluations, want {len(steps)}")
        times = [b - a - step for a, b, step in zip(ends, ends[1:], steps[1:])]
        return times[:1] + times


class Torch:
    """torch, by time_torch_training.py."""

    def __init__(self, o: argparse.Namespace):
        self.o = o
        self.versions: set[str] = set()

    def command(self, mode: str, precision: str) -> list[str]:
        """A run of that program."""
        o = self.o
        program = str(Path(__file__).parent / "time_torch_training.py")
        sizes = [f"--{name}={getattr(o, name.replace('-', '_'))}" for name in SIZES]
        return [
            *[o.torch, program, "--mode", mode, "--precision", precision, *sizes],
            *["--implementation", o.implementation, *(["--compile"] if o.compile else [])],
            *(["--checkpoint"] if o.checkpoint else []),
            *["--warmup", str(o.warmup), "--repeats", str(o.steps), "-t", str(o.threads)],
        ]

    def run(self, mode: str, precision: str) -> tuple[list[float], int]:
        """The time of every step or forward pass after the warm-up, and the peak of the memory."""
        text, _ = engines.run(self.command(mode, precision), self.o.timeout)
        (row, *_) = engines.rows_of(self.o.torch, text)
        try:
            self.versions.add(row["torch"])
            return row["milliseconds"], row["peak_memory_bytes"]
        except KeyError as error:
            raise RunError(f"{self.o.torch}: a row lacks the field {error}") from error


def sample(
    engine: Hognose | Torch, mode: str, precision: str, every: list[list[float]]
) -> Sample:
    """One run: its median time and its peak of the memory; all its times are added to `every`."""
    times, memory = engine.run(mode, precision)
    every.append(times)
    return {"ms": statistics.median(times), "MiB": memory / MIB}


def rows_of(mode: str, precision: str, samples: dict[str, list[Sample]], peer: str) -> list[dict]:
    """The rows of the table for one mode and precision; only steps have one of memory."""
    rows = []
    for unit, what in (("ms", mode), ("MiB", "peak memory")):
        if unit == "ms" or mode == "step":
            name = f"{what} {precision}"
            ours, theirs = ([{name: s[unit]} for s in samples[e]] for e in ("hognose", peer))
            rows += compare.compare(ours, theirs, peer, unit)
    return rows


def peer_name(o: argparse.Namespace) -> str:
    """The peer in the table."""
    name = "torch" if o.implementation == "chunked" else o.implementation
    return f"{name}, compiled" if o.compile else name


def measure(o: argparse.Namespace) -> dict[str, object]:
    """Runs everything that was asked for."""

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    load, peer = os.getloadavg()[0], peer_name(o)
    rows, steps, torch = [], {}, Torch(o)
    with tempfile.TemporaryDirectory() as folder:
        programs = {"hognose": Hognose(o, Path(folder)), peer: torch}
        for mode in o.mode:
            for precision in o.precision:
                log(f"{mode} {precision}")
                every = {name: [] for name in programs}
                runs = {
                    name: functools.partial(sample, program, mode, precision, every[name])
                    for name, program in programs.items()
                }
                rows += rows_of(mode, precision, compare.alternate(runs, o.rounds, log), peer)
                # The first of each is that of the warm-up.
                steps[f"{mode} {precision}"] = {name: all_[1:] for name, all_ in every.items()}
    return {
        "cpu": compare.cpu_name(),
        "cores": os.cpu_count(),
        "load_before": load,
        "threads": o.threads,
        "rounds": o.rounds,
        "sizes": {name: getattr(o, name.replace("-", "_")) for name in SIZES},
        "checkpoint": o.checkpoint,
        "peer": peer,
        "torch": ", ".join(sorted(torch.versions)),
        "rows": rows,
        "milliseconds": steps,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])

    def choice(name: str, choices: list[str]) -> None:
        parser.add_argument(
            name,
            default=",".join(choices),
            metavar="NAME[,NAME]",
            help="(default: %(default)s)",
        )

    parser.add_argument("--hognose", required=True, metavar="PROGRAM")
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="a Python that has torch")
    known = {"mode": ["step", "forward"], "precision": ["f32", "bf16"]}
    for name, choices in known.items():
        choice(f"--{name}", choices)
    parser.add_argument(
        "--implementation",
        choices=["chunked", "transformers"],
        default="chunked",
        help="torch's Mamba-2 (default: %(default)s)",
    )
    parser.add_argument("--compile", action="store_true", help="torch with torch.compile")
    parser.add_argument(
        "--checkpoint", action="store_true", help="both run each block's forward pass twice"
    )
    for name, value in [*SIZES.items(), ("rounds", 3), ("steps", 5), ("warmup", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    for name, choices in known.items():
        setattr(options, name, getattr(options, name).split(","))
        if not set(getattr(options, name)) <= set(choices):
            parser.error(f"--{name}: want {' or '.join(choices)}")
    for name in [*SIZES, "rounds", "steps", "warmup"]:
        if getattr(options, name.replace("-", "_")) < 1:
            parser.error(f"--{name}: want 1 or more")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints and writes; returns the exit code."""
    o = parse(arguments)
    try:
        result = measure(o)
        if o.json:
            o.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except (RunError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{result['cpu']}, {result['cores']} cores, load before {result['load_before']:.2f}")
    print(", ".join(f"{name} {value}" for name, value in result["sizes"].items()))
    print(
        f"torch {result['torch']}, {o.threads} threads, {o.rounds} alternating rounds of "
        f"{o.steps} steps, median [min..max]"
    )
    print(compare.table(result["rows"], result["peer"]))
    print("Ratio: above 1, Hognose is faster or takes less memory. Less is better throughout.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
