#!/usr/bin/env python3
"""Times torch on the CPU at what `hognose train --task regression` does with a Mamba-2 model.

The model is a linear layer, Mamba-2 blocks with a norm before and the residual around each, and a
linear layer to one number a row; the loss is the mean squared error. A step is the forward and
backward pass of one batch, clipping of the gradients' norm to 1 and AdamW; `forward` is the pass
alone, without gradients. Prints one line of JSON. Needs torch; --implementation transformers also
that package.

    python time_torch_training.py --mode step --precision f32 -t 2
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when the packages are imported

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def peak_memory() -> int:
    """The most memory this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def recurrence(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """Mamba-2's recurrence row by row, the definition: shapes as in chunked()."""
    state = x.new_zeros(x.shape[0], x.shape[2], x.shape[3], b.shape[-1])  # [B, H, P, N]
    rows = []
    for t in range(x.shape[1]):
        keep = torch.exp(dt[:, t] * a)[:, :, None, None]
        add = (x[:, t] * dt[:, t, :, None])[..., None] * b[:, t, None, None, :]
        state = state * keep + add
        rows.append((state * c[:, t, None, None, :]).sum(-1))
    return torch.stack(rows, 1)


def chunked(
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    chunk: int,
) -> torch.Tensor:
    """The same as matrix products over chunks of rows, from a zero state.

    x [B, L, H, P], dt [B, L, H] in f32, a [H] below 0, b and c [B, L, N] (one group); L is a
    multiple of the chunk. All heads share b and c, so what goes into the states and comes out of
    them is one product over H * P columns.
    """
    batch, length, heads, width = x.shape
    count = length // chunk
    dt = dt.view(batch, count, chunk, heads)
    b, c = (m.view(batch, count, chunk, -1) for m in (b, c))
    x = x.reshape(batch, count, chunk, heads, width)
    total = torch.cumsum(dt * a, 2)  # [B, C, Q, H]: logarithm of the decay since the chunk's start
    last = total[:, :, -1:]

    # Rows of the same chunk: (c b^T, decayed) times x dt.
    inside = total.transpose(2, 3)  # [B, C, H, Q]
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).triu(1)
    decay = (inside[..., :, None] - inside[..., None, :]).masked_fill(later, -torch.inf).exp()
    scores = c @ b.transpose(2, 3)
    xdt = x * dt.to(x.dtype)[..., None]
    y = ((scores[:, :, None] * decay) @ xdt.transpose(2, 3)).transpose(2, 3)

    # What each chunk adds to the state, the states [N, H * P] before each, and what they say.
    left = xdt * torch.exp(last - total).to(x.dtype)[..., None]
    added = b.transpose(2, 3) @ left.flatten(3)
    kept = torch.exp(last)[..., None].expand(-1, -1, -1, -1, width).flatten(3)
    states = [torch.zeros_like(added[:, 0])]
    for k in range(count - 1):
        states.append(states[-1] * kept[:, k] + added[:, k])
    carried = (c @ torch.stack(states, 1)).view(x.shape)
    return (y + carried * torch.exp(total)[..., None]).reshape(batch, length, heads, width)


class RmsNorm(nn.RMSNorm):
    """With the weights in the rows' type: torch fuses the operation only where both agree."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., D] to the same."""
        return F.rms_norm(rows, self.normalized_shape, self.weight.to(rows.dtype), self.eps)


class Block(nn.Module):
    """norm, Mamba-2, residual."""

    def __init__(self, o: argparse.Namespace):
        super().__init__()
        self.inner = o.expand * o.d_model
        self.heads, self.width = self.inner // o.head_dim, o.head_dim
        self.states, self.chunk = o.d_state, o.chunk
        mixed = self.inner + 2 * o.d_state
        self.norm = RmsNorm(o.d_model, eps=1e-5)
        self.in_proj = nn.Linear(o.d_model, self.inner + mixed + self.heads, bias=False)
        self.conv = nn.Conv1d(mixed, mixed, o.conv_width, groups=mixed)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, self.heads + 1).float()))
        self.d_skip = nn.Parameter(torch.ones(self.heads))
        self.dt_bias = nn.Parameter(torch.linspace(-6, -2, self.heads))
        self.gate_norm = RmsNorm(self.inner, eps=1e-5)
        self.out_proj = nn.Linear(self.inner, o.d_model, bias=False)

    def convolve(self, rows: torch.Tensor) -> torch.Tensor:
        """The causal convolution of [B, L, C].

        As one of images of height 1 it reads rows as they lie (channels last), which took a bit
        over half of conv1d's time, forward and backward.
        """
        taps = self.conv.weight
        padded = F.pad(rows, (0, 0, taps.shape[-1] - 1, 0))
        image = padded.transpose(1, 2).unsqueeze(2)  # [B, C, 1, L + K - 1]
        taps = taps.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        return F.conv2d(image, taps, self.conv.bias, groups=rows.shape[-1]).squeeze(2).mT

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """[B, L, D] to the same."""
        batch, length, _ = h.shape
        mixed = self.inner + 2 * self.states
        z, xbc, dt = self.in_proj(self.norm(h)).split([self.inner, mixed, self.heads], -1)
        x, b, c = F.silu(self.convolve(xbc)).split([self.inner, self.states, self.states], -1)
        x = x.reshape(batch, length, self.heads, self.width)
        dt = F.softplus(dt.float() + self.dt_bias)
        y = chunked(x, dt, -torch.exp(self.a_log), b, c, self.chunk)
        y = (y + x * self.d_skip[:, None]).reshape(batch, length, self.inner)
        return h + self.out_proj(self.gate_norm(y * F.silu(z)))


class Blocks(nn.Module):
    """The blocks one after another."""

    def __init__(self, o: argparse.Namespace):
        super().__init__()
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.again = o.checkpoint

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """[B, L, D] to the same."""
        for block in self.blocks:
            again = self.again and torch.is_grad_enabled()
            h = checkpoint(block, h, use_reentrant=False) if again else block(h)
        return h


class TransformersBlocks(nn.Module):
    """The blocks as transformers has them: on a CPU its plain torch code."""

    def __init__(self, o: argparse.Namespace):
        super().__init__()
        from transformers import Mamba2Config, Mamba2Model  # seconds that other runs don't need

        config = Mamba2Config(
            vocab_size=4,  # not used, but the ids of special tokens have to fit
            hidden_size=o.d_model,
            num_hidden_layers=o.layers,
            state_size=o.d_state,
            expand=o.expand,
            conv_kernel=o.conv_width,
            head_dim=o.head_dim,
            num_heads=o.expand * o.d_model // o.head_dim,
            n_groups=1,
            chunk_size=o.chunk,
        )
        self.model = Mamba2Model(config)
        if o.checkpoint:
            self.model.gradient_checkpointing_enable()

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """[B, L, D] to the same."""
        return self.model(inputs_embeds=h, use_cache=False).last_hidden_state


IMPLEMENTATIONS = {"chunked": Blocks, "transformers": TransformersBlocks}


def network(o: argparse.Namespace) -> nn.Module:
    """Rows of features [B, L, F] to [B, L, 1]."""
    blocks = IMPLEMENTATIONS[o.implementation](o)
    return nn.Sequential(nn.Linear(o.features, o.d_model), blocks, nn.Linear(o.d_model, 1))


def stepper(o: argparse.Namespace) -> Callable[[], torch.Tensor]:
    """What is timed: one forward pass, or one whole step; returns the answers or the loss."""
    torch.manual_seed(0)
    model = network(o).train(o.mode == "step")
    call = torch.compile(model) if o.compile else model
    x, target = torch.randn(o.batch, o.length, o.features), torch.randn(o.batch, o.length, 1)
    cast = contextlib.nullcontext
    if o.precision == "bf16":
        cast = lambda: torch.autocast("cpu", dtype=torch.bfloat16)

    def forward() -> torch.Tensor:
        with torch.no_grad(), cast():
            return call(x)

    if o.mode == "forward":
        return forward
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def step() -> torch.Tensor:
        with cast():
            loss = F.mse_loss(call(x).float(), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def measure(o: argparse.Namespace) -> dict[str, object]:
    """Warms up and times every repeat."""
    base = peak_memory()
    work = stepper(o)
    for _ in range(o.warmup):
        work()
    times = []
    for _ in range(o.repeats):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) * 1e3)
    return {
        "mode": o.mode,
        "precision": o.precision,
        "implementation": o.implementation,
        "compiled": o.compile,
        "milliseconds": times,
        "peak_memory_bytes": peak_memory(),
        "base_memory_bytes": base,
        "torch": torch.__version__,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mode", choices=["forward", "step"], default="step")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--implementation", choices=IMPLEMENTATIONS, default="chunked")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument(
        "--checkpoint", action="store_true", help="run each block's forward pass twice"
    )
    for name, value in [
        *[("batch", 32), ("length", 256), ("features", 256), ("d-model", 256), ("layers", 4)],
        *[("d-state", 64), ("head-dim", 64), ("expand", 2), ("conv-width", 4), ("chunk", 64)],
        *[("repeats", 5), ("warmup", 2)],
    ]:
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N")
    parser.add_argument("-t", "--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.length % options.chunk:
        parser.error("--length: want a multiple of --chunk")
    if options.expand * options.d_model % options.head_dim:
        parser.error("--head-dim: want a divisor of the inner width")
    if options.repeats < 1:
        parser.error("--repeats: want 1 or more")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Times and prints; returns the exit code."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    print(json.dumps(measure(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
