"""The list of fixtures: what each one is for, its config.json and how its weights are stored."""

import dataclasses
import math

VERSION = "5.24.0"
INFINITY = {"__float__": "Infinity"}  # how transformers writes it since 5.0


@dataclasses.dataclass(frozen=True)
class Fixture:
    """One folder under tests/fixtures/models."""

    name: str
    what: str
    config: dict
    storage: str = "F32"  # see weights.dtypes
    head: str = ""  # see weights.model
    length: int = 40  # L
    rows: tuple = ()  # the rows of logits that are stored; all of them when empty
    shards: int = 1
    seed: str = ""  # fixtures with one seed and one shape have the same weights; default: the name
    options: dict = dataclasses.field(default_factory=dict)  # more arguments of weights.model


def without(config, *names):
    """A copy of `config` that lacks some fields."""
    return {key: value for key, value in config.items() if key not in names}


def common(model_type, architecture, **changes):
    """The fields that all three Hugging Face model types share."""
    config = {
        "architectures": [architecture],
        "bos_token_id": 0,
        "conv_kernel": 4,
        "dtype": "float32",
        "eos_token_id": 0,
        "expand": 2,
        "hidden_act": "silu",
        "hidden_size": 16,
        "initializer_range": 0.1,
        "layer_norm_epsilon": 1e-05,
        "model_type": model_type,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "rescale_prenorm_residual": False,
        "residual_in_fp32": True,
        "state_size": 8,
        "tie_word_embeddings": True,
        "time_step_floor": 0.0001,
        "time_step_max": 0.1,
        "time_step_min": 0.001,
        "time_step_rank": 3,
        "transformers_version": VERSION,
        "use_bias": False,
        "use_cache": True,
        "use_conv_bias": True,
        "vocab_size": 48,
    }
    config.update(changes)
    return config


def mamba(**changes):
    """config.json of a `mamba` model as transformers writes it."""
    config = common("mamba", "MambaForCausalLM", **changes)
    config.setdefault("intermediate_size", int(config["expand"] * config["hidden_size"]))
    extra = {"time_step_init_scheme": "random", "time_step_scale": 1.0, "use_mambapy": False}
    return dict(sorted({**extra, "use_associative_scan": True, **config}.items()))


def falcon(**changes):
    """config.json of a `falcon_mamba` model."""
    changes = {"mixer_rms_eps": 1e-6, **changes}
    config = mamba(**changes)
    config.update(model_type="falcon_mamba", architectures=["FalconMambaForCausalLM"])
    return config


def mamba2(**changes):
    """config.json of a `mamba2` model; four heads of eight channels where nothing else is said."""
    changes = {"time_step_limit": [0.0, INFINITY], "time_step_rank": 1, **changes}
    sizes = {"chunk_size": 256, "head_dim": 8, "n_groups": 1, "num_heads": 4}
    config = common("mamba2", "Mamba2ForCausalLM", **{**sizes, **changes})
    return dict(sorted(config.items()))


def original(ssm_cfg, **changes):
    """config.json of a checkpoint of the reference implementation (state-spaces)."""
    config = {
        "d_model": 16,
        "n_layer": 2,
        "vocab_size": 45,
        "ssm_cfg": ssm_cfg,
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 8,
    }
    config.update(changes)
    return config


MAMBA = [
    Fixture("mamba_basic", "Mamba-1, tied, F32", mamba(hidden_size=20, vocab_size=50)),
    Fixture(
        "mamba_odd_sizes",
        "hidden 20, inner 44, state 5, conv 3; biases in the projections, none in the convolution",
        mamba(
            hidden_size=20,
            expand=2.2,
            intermediate_size=44,
            state_size=5,
            conv_kernel=3,
            use_bias=True,
            use_conv_bias=False,
            vocab_size=41,
        ),
    ),
    Fixture("mamba_bf16", "BF16 weights, A_log and D in F32", mamba(dtype="bfloat16"), "mixed"),
    Fixture("mamba_f16", "every tensor in F16", mamba(dtype="float16"), "F16"),
    Fixture(
        "mamba_untied", "own lm_head", mamba(tie_word_embeddings=False), head="own"
    ),
    Fixture("mamba_state_17", "state 17: one over a vector", mamba(state_size=17)),
    Fixture("mamba_conv_2", "conv of 2 taps", mamba(conv_kernel=2)),
    Fixture(
        "mamba_rank_auto",
        'time_step_rank "auto" and no intermediate_size: rank ceil(17 / 16), inner 34',
        without(mamba(hidden_size=17, time_step_rank="auto"), "intermediate_size"),
    ),
    Fixture(
        "mamba_padded_vocab",
        "64 rows in embedding and head, as for a tokenizer of 50 entries padded to 64",
        mamba(vocab_size=64, pad_vocab_size_multiple=64),
    ),
    Fixture(
        "mamba_both_layouts_fields",
        "Hugging Face layout with d_model, n_layer and ssm_cfg too, as the first conversions had",
        mamba(
            d_model=16,
            d_inner=32,
            n_layer=2,
            ssm_cfg={},
            rms_norm=True,
            fused_add_norm=True,
            pad_vocab_size_multiple=8,
        ),
    ),
    Fixture(
        "mamba_large_eps",
        "layer_norm_epsilon 0.05 on small embeddings, so that the epsilon shows",
        mamba(layer_norm_epsilon=0.05),
        options={"embedding_scale": 0.3},
    ),
]

FALCON = [
    Fixture("falcon_mamba_basic", "tied, F32", falcon()),
    Fixture(
        "falcon_mamba_eps",
        "mixer_rms_eps 1e-3 is not layer_norm_epsilon 1e-5, and the norms see small values",
        falcon(mixer_rms_eps=1e-3),
        options={"projection_scale": 0.1},
    ),
    Fixture("falcon_mamba_bf16", "every tensor in BF16", falcon(dtype="bfloat16"), "BF16"),
    Fixture(
        "falcon_mamba_untied",
        "own lm_head; no mixer_rms_eps, which means 1e-6, and the norms see tiny values",
        without(falcon(tie_word_embeddings=False), "mixer_rms_eps"),
        head="own",
        options={"projection_scale": 0.004},
    ),
]

LONG_ROWS = (*range(3), *range(62, 67), *range(126, 131), *range(253, 262), 280, 298, 299)

MAMBA2 = [
    Fixture("mamba2_basic", "Mamba-2, tied, F32", mamba2(state_size=16)),
    Fixture(
        "mamba2_groups_4",
        "4 groups, 8 heads; norm_before_gate and rms_norm as in published files (not read)",
        mamba2(num_heads=8, head_dim=4, n_groups=4, norm_before_gate=True, rms_norm=True),
    ),
    Fixture(
        "mamba2_inner_not_expand",
        "2 groups, 6 heads of 17: inner width 102, not expand * hidden = 24",
        mamba2(hidden_size=12, num_heads=6, head_dim=17, n_groups=2),
    ),
    Fixture("mamba2_head_dim_1", "24 heads of 1", mamba2(hidden_size=12, num_heads=24, head_dim=1)),
    Fixture("mamba2_hidden_33", "hidden 33", mamba2(hidden_size=33, num_heads=6, head_dim=11)),
    Fixture("mamba2_state_7", "state 7", mamba2(state_size=7)),
    Fixture("mamba2_conv_2", "conv of 2 taps", mamba2(conv_kernel=2)),
    Fixture("mamba2_conv_3", "conv of 3 taps", mamba2(conv_kernel=3)),
    Fixture("mamba2_conv_5", "conv of 5 taps", mamba2(conv_kernel=5)),
    Fixture("mamba2_bias", "biases in in_proj and out_proj", mamba2(use_bias=True)),
    Fixture("mamba2_no_conv_bias", "no bias in the convolution", mamba2(use_conv_bias=False)),
    Fixture(
        "mamba2_dt_limit",
        "time_step_limit [0.01, 0.1], reached on both sides",
        mamba2(time_step_limit=[0.01, 0.1]),
    ),
    Fixture(
        "mamba2_infinity_bare",
        "time_step_limit [0.0, Infinity]: a bare word, not valid JSON",
        mamba2(time_step_limit=[0.0, math.inf]),
        seed="mamba2_infinity",
    ),
    Fixture(
        "mamba2_infinity_string",
        'time_step_limit [0.0, "Infinity"]; weights of mamba2_infinity_bare',
        mamba2(time_step_limit=[0.0, "Infinity"]),
        seed="mamba2_infinity",
    ),
    Fixture(
        "mamba2_infinity_object",
        'time_step_limit [0.0, {"__float__": "Infinity"}]; weights of mamba2_infinity_bare',
        mamba2(time_step_limit=[0.0, INFINITY]),
        seed="mamba2_infinity",
    ),
    Fixture("mamba2_bf16", "every tensor in BF16", mamba2(dtype="bfloat16"), "BF16"),
    Fixture("mamba2_f16", "every tensor in F16", mamba2(dtype="float16"), "F16"),
    Fixture("mamba2_untied", "own lm_head", mamba2(tie_word_embeddings=False), head="own"),
    Fixture(
        "mamba2_no_flag_no_head",
        "no tie_word_embeddings, no lm_head: tied",
        without(mamba2(), "tie_word_embeddings"),
    ),
    Fixture(
        "mamba2_no_flag_own_head",
        "no tie_word_embeddings, an lm_head: it is used",
        without(mamba2(), "tie_word_embeddings"),
        head="own",
    ),
    Fixture(
        "mamba2_long",
        "300 tokens, 2 groups: past a chunk of 256; logits of 25 rows",
        mamba2(n_groups=2),
        length=300,
        rows=LONG_ROWS,
    ),
    Fixture("mamba2_shards", "two shards and an index", mamba2(n_groups=2), shards=2),
    Fixture(
        "mamba2_large_eps",
        "layer_norm_epsilon 0.05, which the gated norm uses too",
        mamba2(layer_norm_epsilon=0.05),
        options={"embedding_scale": 0.3},
    ),
]

SMALL = {"layer": "Mamba2", "d_state": 8, "headdim": 8}

ORIGINAL = [
    Fixture(
        "original_mamba",
        "reference layout, ssm_cfg {}: all defaults; 45 tokens padded to 48 rows; lm_head stored",
        original({}),
        head="same",
    ),
    Fixture(
        "original_mamba_untied",
        "reference layout, tie_embeddings false, Mamba1 by name, sizes and biases given",
        original(
            {
                "layer": "Mamba1",
                "d_state": 6,
                "d_conv": 3,
                "expand": 3,
                "dt_rank": 5,
                "bias": True,
                "conv_bias": False,
            },
            tie_embeddings=False,
        ),
        head="own",
    ),
    Fixture(
        "original_mamba_layer_norm",
        "reference layout, rms_norm false: LayerNorm with a bias; no lm_head stored",
        original({"d_state": 8}, rms_norm=False, tie_embeddings=True),
    ),
    Fixture(
        "original_mamba2_defaults",
        'reference layout, ssm_cfg {"layer": "Mamba2"}: state 128, one head of 64; BF16',
        original(
            {"layer": "Mamba2"},
            d_model=32,
            d_intermediate=0,
            attn_layer_idx=[],
            attn_cfg={},
            pad_vocab_size_multiple=16,
            tie_embeddings=True,
        ),
        "BF16",
        head="same",
    ),
    Fixture(
        "original_mamba2_n_layers",
        "n_layers instead of n_layer; 2 groups; tie_embeddings false",
        without(original({**SMALL, "ngroups": 2}, n_layers=2, tie_embeddings=False), "n_layer"),
        head="own",
    ),
    Fixture(
        "original_mamba2_d_per_channel",
        "D_has_hdim: D has one entry a channel",
        original({**SMALL, "D_has_hdim": True}),
        options={"d_per_channel": True},
    ),
    Fixture(
        "original_mamba2_plain_gate",
        "rmsnorm false: y * silu(z), no norm before out_proj",
        original({**SMALL, "rmsnorm": False}),
    ),
    Fixture(
        "original_mamba2_norm_before_gate",
        "norm_before_gate true: norm(y) * silu(z), 2 groups",
        original({**SMALL, "ngroups": 2, "norm_before_gate": True}),
    ),
    Fixture(
        "original_mamba2_dt_limit",
        "dt_limit [0.01, 0.1] in ssm_cfg, reached on both sides",
        original({**SMALL, "dt_limit": [0.01, 0.1]}),
    ),
]

ALL = [*MAMBA, *FALCON, *MAMBA2, *ORIGINAL]
