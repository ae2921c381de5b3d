"""Compares the recurrence with the prefill of transformers, where that library has the model."""

import json
import math
import pathlib
import shutil
import tempfile

import numpy as np
import torch
import transformers
from transformers import FalconMambaForCausalLM, Mamba2ForCausalLM, MambaForCausalLM

import fixtures
import spec as specs
import tensorfile

CLASSES = {
    "mamba": MambaForCausalLM,
    "mamba2": Mamba2ForCausalLM,
    "falcon_mamba": FalconMambaForCausalLM,
}
VERSION = transformers.__version__


class NotComparable(Exception):
    """transformers cannot run this model, or would run another one; the text says why."""


def renamed(spec, per_channel):
    """A Hugging Face config.json for an original checkpoint; see `adapted` for `per_channel`."""
    changes = {
        "hidden_size": spec.width,
        "num_hidden_layers": spec.layers,
        "state_size": spec.state,
        "conv_kernel": spec.taps,
        "vocab_size": spec.vocab,
        "expand": spec.inner // spec.width,
        "use_bias": spec.bias,
        "use_conv_bias": spec.conv_bias,
        "tie_word_embeddings": spec.tied is not False,
    }
    if spec.kind == "mamba1":
        return fixtures.mamba(time_step_rank=spec.rank, **changes)
    sizes = {"num_heads": spec.heads, "head_dim": spec.head_dim, "n_groups": spec.groups}
    if per_channel:
        sizes.update(num_heads=spec.inner, head_dim=1)
    return fixtures.mamba2(time_step_limit=list(spec.dt_limit), **sizes, **changes)


def adapted(spec, tensors, per_channel):
    """An original checkpoint's tensors under the names and shapes that transformers wants.

    D per channel: transformers has one D a head, so each channel becomes a head of its own that
    repeats its head's A and dt; this is the same function.
    """
    tensors = dict(tensors)
    tensors["backbone.embeddings.weight"] = tensors.pop(spec.embedding)
    for layer in range(spec.layers):
        mixer = f"backbone.layers.{layer}.mixer."
        if spec.layer_norm:
            del tensors[f"backbone.layers.{layer}.norm.bias"]
        if spec.kind == "mamba2" and not spec.gated_norm:
            tensors[mixer + "norm.weight"] = np.ones(spec.inner)
        if per_channel:
            rows = tensors[mixer + "in_proj.weight"]
            dt = np.repeat(rows[-spec.heads :], spec.head_dim, axis=0)
            tensors[mixer + "in_proj.weight"] = np.concatenate([rows[: -spec.heads], dt])
            for name in ("A_log", "dt_bias"):
                tensors[mixer + name] = np.repeat(tensors[mixer + name], spec.head_dim)
    if spec.layer_norm:
        del tensors["backbone.norm_f.bias"]
    return tensors


class Gate(torch.nn.Module):
    """The two ends of a Mamba-2 mixer that transformers lacks: a plain gate, or the norm first."""

    def __init__(self, norm, spec):
        super().__init__()
        self.norm, self.spec = norm, spec

    def forward(self, y, gate):
        """y [B, L, E] gated by `gate` [B, L, E]."""
        y = self.norm(y) if self.spec.gated_norm else y
        return y * torch.nn.functional.silu(gate)


def layer_norm(spec, tensors, name):
    """torch's own LayerNorm with the checkpoint's weight and bias."""
    module = torch.nn.LayerNorm(spec.width, eps=spec.eps)
    parts = {part: torch.tensor(tensors[f"{name}.{part}"]) for part in ("weight", "bias")}
    module.load_state_dict(parts)
    return module


def patch(model, spec, tensors):
    """Replaces the norms that transformers lacks; returns what was done, for the metadata."""
    backbone, notes = model.backbone, []
    for i, block in enumerate(backbone.layers):
        if spec.layer_norm:
            block.norm = layer_norm(spec, tensors, f"backbone.layers.{i}.norm")
        if spec.kind == "mamba2" and (not spec.gated_norm or spec.norm_before_gate):
            block.mixer.norm = Gate(block.mixer.norm, spec)
            notes = ["gate replaced"]
    if spec.layer_norm:
        backbone.norm_f = layer_norm(spec, tensors, "backbone.norm_f")
        notes.append("torch's LayerNorm put in")
    return notes


def readable_config(config, tensors):
    """(config, notes): what transformers is given in place of the fixture's config.json."""
    if "tie_word_embeddings" not in config:
        tied = "lm_head.weight" not in tensors
        return {**config, "tie_word_embeddings": tied}, ["tie_word_embeddings filled in"]
    if "Infinity" in config.get("time_step_limit", []):
        limit = [specs.number(value) for value in config["time_step_limit"]]
        return {**config, "time_step_limit": limit}, ["the string replaced by the number"]
    return config, []


def from_files(config, write_weights):
    """A model that transformers loads from files; `write_weights` is called with their folder."""
    with tempfile.TemporaryDirectory() as target:
        (pathlib.Path(target) / "config.json").write_text(json.dumps(config))
        write_weights(pathlib.Path(target))
        kind = CLASSES[config["model_type"]]
        model, report = kind.from_pretrained(target, dtype=torch.float32, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(key):
            raise NotComparable(f"{key}: {sorted(report[key])}")
    return model


def from_original(config, tensors):
    """(model, notes) of an original checkpoint."""
    spec = specs.from_config(config)
    per_channel = bool(config["ssm_cfg"].get("D_has_hdim"))
    notes = ["renamed to the Hugging Face layout"]
    if per_channel:
        notes.append("each channel made a head")

    def write(target):
        new = adapted(spec, tensors, per_channel)
        dtypes = {name: "F32" for name in new}
        tensorfile.write(target / "model.safetensors", new, dtypes, {"format": "pt"})

    model = from_files(renamed(spec, per_channel), write)
    return model, notes + patch(model, spec, tensors)


def built_by_hand(config, tensors):
    """A model whose inner width the config class refuses: the sizes are set after its checks."""
    spec = specs.from_config(config)
    kind = CLASSES[config["model_type"]]
    sizes = {"intermediate_size": spec.inner}
    config = fixtures.without(config, "architectures", "dtype", "intermediate_size", "expand")
    if spec.kind == "mamba2":
        config.update(num_heads=2 * spec.width, head_dim=1)  # sizes that pass the checks
        config.update(time_step_limit=list(spec.dt_limit))
        expand = math.nextafter(spec.inner / spec.width, math.inf)
        sizes = {"expand": expand, "num_heads": spec.heads, "head_dim": spec.head_dim}
    parsed = kind.config_class(**config)
    for name, value in sizes.items():
        object.__setattr__(parsed, name, value)
    model = kind(parsed)
    state = {name: torch.tensor(value, dtype=torch.float32) for name, value in tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if set(missing) - {"lm_head.weight"} or unexpected:
        raise NotComparable(f"tensors differ: {missing} {unexpected}")
    model.tie_weights()
    return model, ["the inner width set after the config's checks"]


def load(folder):
    """(model, notes): the fixture as a transformers model in float32, which is exact here."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = tensorfile.read_checkpoint(folder)
    if "model_type" not in config:
        model, notes = from_original(config, tensors)
    elif config["expand"] * config["hidden_size"] != specs.from_config(config).inner:
        model, notes = built_by_hand(config, tensors)
    elif not isinstance(config["expand"], int):
        model, notes = built_by_hand(config, tensors)
    else:
        config, notes = readable_config(config, tensors)

        def copy(target):
            for path in folder.glob("model*"):
                shutil.copy(path, target)

        model = from_files(config, copy)
    return model.eval(), notes


def difference(folder, ids, logits, state):
    """({"logits", "conv", "ssm"} -> largest absolute difference, notes) for one whole prefill."""
    model, notes = load(folder)
    with torch.no_grad():
        out = model(torch.tensor(np.asarray(ids)[None]), use_cache=True)
    worst = {"logits": float(np.abs(out.logits[0].double().numpy() - logits).max())}
    for part in ("conv", "ssm"):
        worst[part] = 0.0
    for i, layer in enumerate(state):
        conv = out.cache.get_conv_state(i, state_idx=0)[0].double().numpy()
        ssm = out.cache.get_recurrent_state(i, state_idx=0)[0].double().numpy()
        columns = conv.shape[1]
        worst["conv"] = max(worst["conv"], np.abs(conv - layer["conv"][:, -columns:]).max())
        ssm = ssm.reshape(layer["ssm"].shape)
        worst["ssm"] = max(worst["ssm"], np.abs(ssm - layer["ssm"]).max())
    return worst, notes
