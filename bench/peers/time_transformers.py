#!/usr/bin/env python3
"""Times a Mamba checkpoint with transformers on torch, on the CPU and by the path CPUs get.

Prints one line: a JSON array of rows like those of `hognose bench --json`. With --text it writes
one token after that text instead, for whoever times the whole process. Needs the packages of
requirements.txt; a folder is read as it is and nothing is fetched.

    python time_transformers.py mamba-130m-bf16 --prompt 4,512 --generate 64 -t 2
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when the packages are imported

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

DTYPES = {"auto": "auto", "bf16": torch.bfloat16, "f32": torch.float32}


def step(model: PreTrainedModel, ids: torch.Tensor, cache: object = None) -> tuple:
    """Feeds ids (1, L); returns the likeliest next token (1, 1) and the cache after them."""
    out = model(ids, cache=cache, use_cache=True, logits_to_keep=1)
    return out.logits[:, -1].argmax(-1, keepdim=True), out.cache


def greedy(model: PreTrainedModel, token: torch.Tensor, cache: object, count: int) -> list[int]:
    """The count tokens after this one, each chosen from the logits of the one before."""
    tokens = []
    for _ in range(count):
        token, cache = step(model, token, cache)
        tokens.append(token.item())
    return tokens


def seconds(work: Callable[[], object]) -> float:
    """Wall time of the second of two runs; the first is the warm-up."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def some_ids(model: PreTrainedModel, count: int) -> torch.Tensor:
    """Token ids (1, count) that jump about in the vocabulary."""
    return (torch.arange(count) * 7919 % model.config.vocab_size)[None]


def measure(model: PreTrainedModel, prompts: list[int], generate: int) -> list[dict]:
    """One row for each prompt length and one for generation; a length of 0 is left out."""
    rows = []

    def add(phase: str, tokens: int, work: Callable[[], object]) -> None:
        rows.append({"phase": phase, "tokens": tokens, "tokens_per_second": tokens / seconds(work)})

    for length in filter(None, prompts):
        ids = some_ids(model, length)
        add("prompt", length, lambda ids=ids: step(model, ids))
    if generate:
        token, cache = step(model, some_ids(model, 1))  # the first step alone takes another path
        add("generate", generate, lambda: greedy(model, token, cache, generate))
    return rows


def next_text(model: PreTrainedModel, folder: str, text: str) -> str:
    """The text of the likeliest token after the given text."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(text, return_tensors="pt").input_ids
    return tokenizer.decode(step(model, ids)[0][0])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", metavar="DIR", help="a checkpoint's folder")
    parser.add_argument(
        "--prompt",
        default="4,512",
        metavar="N[,N]",
        type=lambda text: [int(n) for n in text.split(",")],
        help="prompt lengths (default: %(default)s)",
    )
    parser.add_argument("--generate", type=int, default=64, metavar="N", help="(default: 64)")
    parser.add_argument("--text", help="write one token after this text and time nothing")
    parser.add_argument(
        "--dtype", choices=DTYPES, default="auto", help="(default: auto, the checkpoint's own)"
    )
    parser.add_argument("-t", "--threads", type=int, default=2)
    return parser.parse_args(arguments)


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Loads, then times or writes; returns the exit code."""
    o = parse(arguments)
    torch.set_num_threads(o.threads)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            o.model, dtype=DTYPES[o.dtype], local_files_only=True
        ).eval()
        if o.text is not None:
            print(next_text(model, o.model, o.text))
        else:
            print(json.dumps(measure(model, o.prompt, o.generate)))
    except (OSError, ValueError) as error:
        print(f"{o.model}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
