"""Loss and gradients of Mamba, Mamba-2 and Falcon-Mamba language models by torch's autograd.

The forward pass is written once more, apart from recurrence.py: projections over all tokens, then
one token after the other through convolution and state. Letters as in spec.py, and L tokens.
A document sees nothing before its first token except through its initial state.
"""

import dataclasses

import torch
from torch.nn import functional

IGNORED = -100  # a target that counts for nothing


@dataclasses.dataclass
class Parameters:
    """A Spec and its tensors, leaves of autograd, under the names of the checkpoint."""

    spec: object  # spec.Spec
    tensors: dict

    def head(self):
        """[V, D]: the output matrix. Without a flag, a stored lm_head is used if there is one."""
        tied = self.spec.tied
        if tied is None:
            tied = "lm_head.weight" not in self.tensors
        return self.tensors[self.spec.embedding if tied else "lm_head.weight"]

    def linear(self, name, x):
        """x [L, K] W^T, plus a bias where the checkpoint has one."""
        return functional.linear(
            x, self.tensors[name + ".weight"], self.tensors.get(name + ".bias")
        )


def parameters(model, dtype=torch.float64):
    """The Parameters of a recurrence.Model."""
    tensors = {
        name: torch.tensor(value, dtype=dtype, requires_grad=True)
        for name, value in model.tensors.items()
    }
    return Parameters(model.spec, tensors)


def unit(x, eps):
    """x over its root mean square, by the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def norm(model, name, x):
    """The RMSNorm before a block or at the end."""
    if model.spec.layer_norm:
        raise ValueError("LayerNorm: not here, since the engine doesn't take it")
    return unit(x, model.spec.eps) * model.tensors[name + ".weight"]


def convolve(model, name, window, x):
    """silu of the causal convolution of x [L, C], and the window [C, K] after it."""
    weight = model.tensors[name + ".weight"].squeeze(1)  # [C, K]
    seen = torch.cat([window.T, x])  # [K + L, C]
    rows, taps = x.shape[0], weight.shape[1]
    y = sum(weight[:, k] * seen[k + 1 : k + 1 + rows] for k in range(taps))
    if model.spec.conv_bias:
        y = y + model.tensors[name + ".bias"]
    return functional.silu(y), seen[-taps:].T


def softplus(x):
    """log(1 + exp(x)), without the threshold of torch's own."""
    return torch.logaddexp(x, torch.zeros_like(x))


def mamba1(model, prefix, state, u):
    """A Mamba-1 or Falcon-Mamba mixer: u [L, D] -> [L, D], and the state after it."""
    spec, tensors = model.spec, model.tensors
    x, z = model.linear(prefix + "in_proj", u).split(spec.inner, dim=-1)
    v, window = convolve(model, prefix + "conv1d", state["conv"], x)
    parts = functional.linear(v, tensors[prefix + "x_proj.weight"])
    parts = parts.split([spec.rank, spec.state, spec.state], dim=-1)
    if spec.mixer_eps is not None:
        parts = [unit(part, spec.mixer_eps) for part in parts]
    dt, b, c = parts
    dt = softplus(model.linear(prefix + "dt_proj", dt))  # [L, E]
    a = -tensors[prefix + "A_log"].exp()  # [E, N]
    h, rows = state["ssm"], []
    for t in range(u.shape[0]):
        h = (dt[t, :, None] * a).exp() * h + (dt[t] * v[t])[:, None] * b[t]
        rows.append(h @ c[t])
    y = torch.stack(rows) + tensors[prefix + "D"] * v
    out = model.linear(prefix + "out_proj", y * functional.silu(z))
    return out, {"conv": window, "ssm": h}


def gate(model, prefix, y, z):
    """What follows the scan in Mamba-2: y [L, E], gate z [L, E] -> [L, E]."""
    spec = model.spec
    if not spec.gated_norm:
        return y * functional.silu(z)
    if not spec.norm_before_gate:
        y = y * functional.silu(z)
    y = unit(y.unflatten(-1, (spec.norm_groups, -1)), spec.eps).flatten(-2)
    y = y * model.tensors[prefix + "norm.weight"]
    return y * functional.silu(z) if spec.norm_before_gate else y


def mamba2(model, prefix, state, u):
    """A Mamba-2 mixer: u [L, D] -> [L, D], and the state after it."""
    spec, tensors = model.spec, model.tensors
    width = spec.groups * spec.state
    sizes = [spec.inner, spec.inner + 2 * width, spec.heads]
    z, xbc, dt = model.linear(prefix + "in_proj", u).split(sizes, dim=-1)
    xbc, window = convolve(model, prefix + "conv1d", state["conv"], xbc)
    x, b, c = xbc.split([spec.inner, width, width], dim=-1)
    x = x.unflatten(-1, (spec.heads, spec.head_dim))  # [L, H, P]
    repeats = spec.heads // spec.groups  # neighbouring heads share a group
    b = b.unflatten(-1, (spec.groups, spec.state)).repeat_interleave(repeats, dim=-2)  # [L, H, N]
    c = c.unflatten(-1, (spec.groups, spec.state)).repeat_interleave(repeats, dim=-2)
    dt = softplus(dt + tensors[prefix + "dt_bias"]).clamp(*spec.dt_limit)  # [L, H]
    decay = (-dt * tensors[prefix + "A_log"].exp()).exp()
    added = (dt[..., None] * x)[..., None] * b[:, :, None, :]  # [L, H, P, N]
    h, rows = state["ssm"], []
    for t in range(u.shape[0]):
        h = decay[t, :, None, None] * h + added[t]
        rows.append((h * c[t, :, None, :]).sum(-1))
    d_skip = tensors[prefix + "D"].reshape(spec.heads, -1)  # [H, 1], or [H, P] per channel
    y = (torch.stack(rows) + d_skip * x).flatten(-2)
    return model.linear(prefix + "out_proj", gate(model, prefix, y, z)), {"conv": window, "ssm": h}


def forward(model, ids, state):
    """(logits [L, V], final state) of one document that starts in `state`."""
    mixer = mamba1 if model.spec.kind == "mamba1" else mamba2
    residual, last = model.tensors[model.spec.embedding][ids], []
    for layer in range(model.spec.layers):
        prefix = f"backbone.layers.{layer}."
        u = norm(model, prefix + "norm", residual)
        added, after = mixer(model, prefix + "mixer.", state[layer], u)
        residual = residual + added
        last.append(after)
    return functional.linear(norm(model, "backbone.norm_f", residual), model.head()), last


def summed_loss(logits, targets):
    """The sum of -log softmax at the targets that count."""
    return functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")


def gradients(model):
    """{name: gradient} of all parameters after a backward pass; one not used has none."""
    return {name: t.grad for name, t in model.tensors.items() if t.grad is not None}
