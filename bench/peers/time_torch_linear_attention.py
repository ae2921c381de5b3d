#!/usr/bin/env python3
"""Times torch on the CPU at what linear_attention_bench does.

`einsum` is causal linear attention as products that keep all scores of a head, [L, L], forward and
backward; `softmax` is scaled_dot_product_attention, forward only. Both have queries, keys and
values [B, L, H, D]. Prints one line of JSON. Needs torch.

    python time_torch_linear_attention.py einsum --batch 32 --length 256 -t 2
    python time_torch_linear_attention.py softmax --batch 1 --length 16384 -t 2
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F


def einsum_form(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, normalised: bool
) -> torch.Tensor:
    """Causal linear attention of [B, L, H, D], with all scores at once; mask [L, L] is 0 or 1."""
    if normalised:
        q, k = F.elu(q) + 1, F.elu(k) + 1
    scores = torch.einsum("blhd,bmhd->bhlm", q * q.shape[-1] ** -0.5, k) * mask
    o = torch.einsum("bhlm,bmhd->blhd", scores, v)
    if normalised:
        o = o / (scores.sum(-1).mT[..., None] + 1e-10)
    return o


def einsum_pass(options: argparse.Namespace) -> Callable[[], None]:
    shape = (options.batch, options.length, options.heads, options.width)
    q, k, v = (torch.randn(shape).requires_grad_() for _ in range(3))
    gradient = torch.randn(shape)
    mask = torch.ones(options.length, options.length).tril()

    def run() -> None:
        q.grad = k.grad = v.grad = None
        einsum_form(q, k, v, mask, options.normalised).backward(gradient)

    return run


def softmax_pass(options: argparse.Namespace) -> Callable[[], None]:
    shape = (options.batch, options.heads, options.length, options.width)
    q, k, v = (torch.randn(shape) for _ in range(3))

    def run() -> None:
        F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return run


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("form", choices=["einsum", "softmax"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--normalised", action="store_true", help="elu + 1 and a normaliser")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("-t", "--threads", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    run = einsum_pass(options) if options.form == "einsum" else softmax_pass(options)
    run()
    seconds = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    seconds.sort()
    result = {"form": options.form, "threads": options.threads, "torch": torch.__version__}
    result |= {"best_ms": seconds[0] * 1e3, "median_ms": seconds[len(seconds) // 2] * 1e3}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
