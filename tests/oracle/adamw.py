"""Eight steps of AdamW as torch takes them: the losses and gradient norms that training must show.

Settings: batch of 2 rows, learning rate 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 0.1,
gradients clipped to a global norm of 1. Row r of step s reads `length` tokens of the stream from
(2 s + r) length on; its targets are one later.
"""

import numpy as np
import torch

import gradients
import recurrence
import tensorfile
import weights

STEPS, BATCH, LENGTH = 8, 2, 16
RATE, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.999), 1e-8, 0.1, 1.0


def decays(model, name):
    """Whether weight decay takes part of a tensor: matrices and convolutions only."""
    kept = (".A_log", ".D", "bias", "norm.weight", "norm_f.weight", model.spec.embedding)
    return not name.endswith(kept)


def optimizer(params):
    """AdamW with the tensors in two groups."""
    groups = [
        {
            "params": [t for name, t in params.tensors.items() if decays(params, name) == decayed],
            "weight_decay": DECAY if decayed else 0.0,
        }
        for decayed in (True, False)
    ]
    return torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPS)


def batch_loss(params, stream, step):
    """The mean loss of a step's rows."""
    zeros = [
        {part: torch.tensor(x, dtype=params.head().dtype) for part, x in layer.items()}
        for layer in recurrence.zero_state(params.spec)
    ]
    total = 0.0
    for row in range(BATCH):
        begin = (step * BATCH + row) * LENGTH
        ids = stream[begin : begin + LENGTH]
        logits, _ = gradients.forward(params, ids, zeros)
        total = total + gradients.summed_loss(logits, stream[begin + 1 : begin + LENGTH + 1])
    return total / (BATCH * LENGTH)


def train(model, stream, dtype):
    """(losses, gradient norms before clipping) of the steps."""
    params = gradients.parameters(model, dtype)
    steps = optimizer(params)
    losses, norms = [], []
    for step in range(STEPS):
        steps.zero_grad()
        loss = batch_loss(params, stream, step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.tensors.values()), CLIP)
        steps.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return np.array(losses), np.array(norms)


def make(folder):
    """Writes adamw.safetensors: float32 steps, and the same in float64 beside them."""
    model = recurrence.load(folder)
    stream = weights.ids(model.spec.vocab, f"adamw of {folder.name}", STEPS * BATCH * LENGTH + 1)
    tensors = {"ids": stream}
    for suffix, dtype in (("", torch.float32), ("_f64", torch.float64)):
        losses, norms = train(model, torch.tensor(stream), dtype)
        tensors[f"losses{suffix}"], tensors[f"grad_norms{suffix}"] = losses, norms
    dtypes = {
        name: "I64" if name == "ids" else "F64" if name.endswith("_f64") else "F32"
        for name in tensors
    }
    metadata = {"oracle": f"torch {torch.__version__.split('+')[0]}", "length": str(LENGTH)}
    tensorfile.write(folder / "adamw.safetensors", tensors, dtypes, metadata)
    for name in ("losses", "grad_norms"):
        wide = tensors[name + "_f64"]
        error = np.abs(tensors[name] / wide - 1).max()
        span = f"{wide[0]:.4f} to {wide[-1]:.4f}"
        print(f"{folder.name:34} {name}: {span}, float32 off by {error:.1e}")
