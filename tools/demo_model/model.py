"""Mamba-2 language model in plain torch, with a chunked forward pass.

Parameter names and shapes follow the Hugging Face class Mamba2ForCausalLM, so
a state dict of LanguageModel can be stored and loaded there without changes.

The state space layer computes, per head with scalar A < 0,

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t^T,    y_t = C_t h_t + D x_t

Time is cut into chunks. Inside a chunk the layer is a masked matrix product
with the decay matrix L[i, j] = exp(cum_i - cum_j), j <= i, where cum is the
cumulative sum of dt A; between chunks only the state is passed on.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Config:
    """Shape of the model. Inner size and head count follow from it."""

    vocab_size: int = 2048
    hidden_size: int = 256
    num_hidden_layers: int = 6
    state_size: int = 64
    head_dim: int = 64
    expand: int = 2
    conv_kernel: int = 4
    layer_norm_epsilon: float = 1e-5
    time_step_min: float = 0.001
    time_step_max: float = 0.1
    time_step_limit: tuple = (0.0, 100.0)
    chunk_size: int = 64
    dropout: float = 0.0

    @property
    def inner_size(self):
        return self.expand * self.hidden_size

    @property
    def num_heads(self):
        return self.inner_size // self.head_dim


class RMSNorm(nn.Module):
    """Root mean square norm, optionally of x * silu(gate)."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x, gate=None):
        x = x.float()
        if gate is not None:
            x = x * F.silu(gate.float())
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def scan(x, dt, A, B, C, chunk):
    """Run the state space recurrence from a zero state.

    x: (batch, time, head, p), dt: (batch, time, head) in float32, A: (head,),
    B and C: (batch, time, n). Returns y with the shape of x.
    """
    b, time, h, p = x.shape
    pad = -time % chunk
    if pad:
        x, dt = F.pad(x, (0, 0, 0, 0, 0, pad)), F.pad(dt, (0, 0, 0, pad))
        B, C = F.pad(B, (0, 0, 0, pad)), F.pad(C, (0, 0, 0, pad))
    chunks = (time + pad) // chunk
    xdt = (x * dt[..., None]).view(b, chunks, chunk, h, p)
    B, C = B.view(b, chunks, chunk, -1), C.view(b, chunks, chunk, -1)
    cum = (dt * A).view(b, chunks, chunk, h).transpose(2, 3).cumsum(-1)  # b c h q

    # Inside each chunk.
    mask = torch.ones(chunk, chunk, device=x.device).tril()
    L = (cum[..., :, None] - cum[..., None, :]).clamp(max=0).exp() * mask
    scores = (C @ B.transpose(-1, -2))[:, :, None] * L  # b c h q k
    y = scores.to(xdt.dtype) @ xdt.transpose(2, 3)  # b c h q p

    if chunks > 1:
        # State that each chunk adds, then the state before each chunk.
        rest = (cum[..., -1:] - cum).exp().transpose(2, 3)[..., None]  # b c q h 1
        added = B.transpose(-1, -2) @ (xdt * rest).flatten(-2)  # b c n (h p)
        keep = cum[..., -1].exp()[..., None].expand(b, chunks, h, p).flatten(-2)
        state, states = torch.zeros_like(added[:, 0]), []
        for c in range(chunks):
            states.append(state)
            state = state * keep[:, c, None] + added[:, c]
        carried = (C @ torch.stack(states, 1)).view(b, chunks, chunk, h, p)
        y = y + carried.transpose(2, 3) * cum.exp()[..., None]
    return y.transpose(2, 3).reshape(b, time + pad, h, p)[:, :time]


class Mixer(nn.Module):
    """Projection, short causal convolution, state space layer, gated norm."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        inner, n, h = cfg.inner_size, cfg.state_size, cfg.num_heads
        conv_dim = inner + 2 * n
        self.in_proj = nn.Linear(cfg.hidden_size, inner + conv_dim + h, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, cfg.conv_kernel, groups=conv_dim)
        low, high = math.log(cfg.time_step_min), math.log(cfg.time_step_max)
        dt = torch.exp(torch.rand(h) * (high - low) + low)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.empty(h).uniform_(1, 16)))
        self.D = nn.Parameter(torch.ones(h))
        self.norm = RMSNorm(inner, cfg.layer_norm_epsilon)
        self.out_proj = nn.Linear(inner, cfg.hidden_size, bias=False)
        with torch.no_grad():
            self.out_proj.weight /= math.sqrt(cfg.num_hidden_layers)

    def conv(self, x):
        """Causal convolution per channel, written as a sum of shifted copies."""
        time, width = x.shape[1], self.cfg.conv_kernel
        x = F.pad(x.float(), (0, 0, width - 1, 0))
        weight, out = self.conv1d.weight, self.conv1d.bias
        for i in range(width):
            out = out + x[:, i : i + time] * weight[:, 0, i]
        return F.silu(out)

    def forward(self, u):
        cfg = self.cfg
        inner, n = cfg.inner_size, cfg.state_size
        z, xbc, dt = self.in_proj(u).split([inner, inner + 2 * n, cfg.num_heads], -1)
        x, B, C = self.conv(xbc).split([inner, n, n], -1)
        x = x.unflatten(-1, (cfg.num_heads, cfg.head_dim))
        dt = F.softplus(dt.float() + self.dt_bias).clamp(*cfg.time_step_limit)
        y = scan(x, dt, -torch.exp(self.A_log), B, C, cfg.chunk_size)
        y = y + x * self.D[:, None]
        return self.out_proj(self.norm(y.flatten(-2), z))


class Block(nn.Module):
    """Pre-norm residual block. The residual stream stays in float32."""

    def __init__(self, cfg):
        super().__init__()
        self.norm = RMSNorm(cfg.hidden_size, cfg.layer_norm_epsilon)
        self.mixer = Mixer(cfg)
        self.drop = nn.Dropout(cfg.dropout)

    def forward(self, x):
        return x + self.drop(self.mixer(self.norm(x)).float())


class Backbone(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embeddings = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        nn.init.normal_(self.embeddings.weight, std=0.02)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.num_hidden_layers))
        self.norm_f = RMSNorm(cfg.hidden_size, cfg.layer_norm_epsilon)
        self.drop = nn.Dropout(cfg.dropout)

    def forward(self, ids):
        x = self.drop(self.embeddings(ids))
        for layer in self.layers:
            x = layer(x)
        return self.norm_f(x)


class LanguageModel(nn.Module):
    """Backbone with the embedding matrix as output head."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.backbone = Backbone(cfg)

    def forward(self, ids):
        return F.linear(self.backbone(ids), self.backbone.embeddings.weight)


def hf_config(cfg):
    """Return config.json of the Hugging Face layout as a dict."""
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.hidden_size,
        "num_hidden_layers": cfg.num_hidden_layers,
        "state_size": cfg.state_size,
        "head_dim": cfg.head_dim,
        "num_heads": cfg.num_heads,
        "expand": cfg.expand,
        "n_groups": 1,
        "conv_kernel": cfg.conv_kernel,
        "hidden_act": "silu",
        "use_bias": False,
        "use_conv_bias": True,
        "layer_norm_epsilon": cfg.layer_norm_epsilon,
        "rms_norm": True,
        "residual_in_fp32": True,
        "tie_word_embeddings": True,
        "time_step_limit": list(cfg.time_step_limit),
        "time_step_min": cfg.time_step_min,
        "time_step_max": cfg.time_step_max,
        "chunk_size": cfg.chunk_size,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
