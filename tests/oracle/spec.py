"""What a config.json says about a model, for both layouts that published models use.

Hugging Face: `model_type` is mamba, mamba2 or falcon_mamba. Original (state-spaces): no
`model_type`, but `d_model` and `ssm_cfg`. Letters: D model width, E inner width, N state size,
H heads, P head width, G groups, K conv taps, R dt rank, V vocabulary rows.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Spec:
    """One model, free of either layout's names."""

    kind: str  # "mamba1" or "mamba2"
    width: int  # D
    layers: int
    inner: int  # E; H * P in Mamba-2
    state: int  # N
    taps: int  # K
    vocab: int  # rows of the embedding, padding included
    embedding: str  # name of the embedding tensor
    tied: bool | None  # None: the config does not say
    rank: int = 0  # R, Mamba-1
    heads: int = 0  # H, Mamba-2
    head_dim: int = 0  # P, Mamba-2
    groups: int = 1  # G, Mamba-2
    bias: bool = False  # in_proj and out_proj have a bias
    conv_bias: bool = True
    eps: float = 1e-5  # of block norms, the final norm and the gated norm
    layer_norm: bool = False  # LayerNorm instead of RMSNorm between blocks
    mixer_eps: float | None = None  # Falcon-Mamba: weightless norms of dt, B, C
    gated_norm: bool = True  # Mamba-2: False is a plain gate
    norm_before_gate: bool = False
    norm_groups: int = 1  # groups of the gated norm
    interleaved: bool = True  # head h uses group h / (H / G); False would be h mod G
    dt_limit: tuple = (0.0, math.inf)


def number(value):
    """A float from a JSON number, a string such as "Infinity", or {"__float__": "Infinity"}."""
    return float(value["__float__"] if isinstance(value, dict) else value)


def from_config(config):
    """The Spec of a parsed config.json."""
    if "model_type" in config:
        return from_hugging_face(config)
    return from_original(config)


def from_hugging_face(config):
    """A Spec from the fields that transformers writes."""
    model_type = config["model_type"]
    width = config["hidden_size"]
    common = {
        "width": width,
        "layers": config["num_hidden_layers"],
        "state": config["state_size"],
        "taps": config["conv_kernel"],
        "vocab": config["vocab_size"],
        "embedding": "backbone.embeddings.weight",
        "tied": config.get("tie_word_embeddings"),
        "bias": config["use_bias"],
        "conv_bias": config["use_conv_bias"],
        "eps": config["layer_norm_epsilon"],
    }
    if model_type == "mamba2":
        # transformers reads neither `norm_before_gate` nor `rms_norm` of a published config: the
        # gate always comes first, and the gated norm is always there.
        heads, head_dim = config["num_heads"], config["head_dim"]
        return Spec(
            kind="mamba2",
            inner=heads * head_dim,
            heads=heads,
            head_dim=head_dim,
            groups=config["n_groups"],
            norm_groups=config["n_groups"],
            dt_limit=tuple(number(v) for v in config["time_step_limit"]),
            **common,
        )
    if model_type not in ("mamba", "falcon_mamba"):
        raise ValueError(f"model_type: got {model_type}, want mamba, mamba2 or falcon_mamba")
    rank = config["time_step_rank"]
    inner = config.get("intermediate_size") or int(config["expand"] * width)
    falcon = model_type == "falcon_mamba"
    return Spec(
        kind="mamba1",
        inner=inner,
        rank=math.ceil(width / 16) if rank == "auto" else rank,
        mixer_eps=config.get("mixer_rms_eps", 1e-6) if falcon else None,
        **common,
    )


def from_original(config):
    """A Spec from the reference implementation's config; absent fields take its defaults."""
    ssm = dict(config.get("ssm_cfg") or {})
    layer = ssm.pop("layer", "Mamba1")
    width = config["d_model"]
    pad = config.get("pad_vocab_size_multiple", 8)
    inner = int(ssm.get("expand", 2) * width)
    common = {
        "width": width,
        "layers": config["n_layer"] if "n_layer" in config else config["n_layers"],
        "inner": inner,
        "taps": ssm.get("d_conv", 4),
        "vocab": -(-config["vocab_size"] // pad) * pad,
        "embedding": "backbone.embedding.weight",
        "tied": config.get("tie_embeddings"),
        "bias": ssm.get("bias", False),
        "conv_bias": ssm.get("conv_bias", True),
        "layer_norm": not config.get("rms_norm", True),
    }
    if layer == "Mamba1":
        rank = ssm.get("dt_rank", "auto")
        return Spec(
            kind="mamba1",
            state=ssm.get("d_state", 16),
            rank=math.ceil(width / 16) if rank == "auto" else rank,
            **common,
        )
    if layer != "Mamba2":
        raise ValueError(f"ssm_cfg.layer: got {layer}, want Mamba1 or Mamba2")
    head_dim, groups = ssm.get("headdim", 64), ssm.get("ngroups", 1)
    if inner % head_dim:
        raise ValueError(f"ssm_cfg.headdim: {head_dim} does not divide the inner width {inner}")
    return Spec(
        kind="mamba2",
        state=ssm.get("d_state", 128),
        heads=inner // head_dim,
        head_dim=head_dim,
        groups=groups,
        norm_groups=groups,
        gated_norm=ssm.get("rmsnorm", True),
        norm_before_gate=ssm.get("norm_before_gate", False),
        dt_limit=tuple(number(v) for v in ssm.get("dt_limit", (0.0, math.inf))),
        **common,
    )
