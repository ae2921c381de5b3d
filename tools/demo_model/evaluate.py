"""Measure and sample the demo model as stored.

Loads the BF16 weights of a model folder, computes in float32, and prints

  - bits per byte of the held-out text: minus the sum of the log2-likelihoods
    of all its tokens, divided by its UTF-8 bytes. Each piece is preceded by
    token 0. "windows" scores a piece in windows of --window tokens of which
    the last half counts (the first window counts whole); "whole" carries the
    state from the first to the last token of a piece;
  - a greedy and a sampled continuation, computed by transformers.

Run:
    python evaluate.py --model models/demo --corpus WORK/corpus \
        [--greedy-json FILE]
"""

import argparse
import json
import math
import pathlib

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import Mamba2ForCausalLM

from model import Config, LanguageModel

PROMPT = "It is a truth universally acknowledged"
OWN_KEYS = (
    "vocab_size hidden_size num_hidden_layers state_size head_dim expand conv_kernel "
    "layer_norm_epsilon time_step_min time_step_max time_step_limit chunk_size"
).split()


def load(folder):
    """Return the model of a folder in float32 and its tokenizer."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    model = LanguageModel(Config(**{key: config[key] for key in OWN_KEYS}))
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))


@torch.no_grad()
def nats(model, ids, window):
    """Sum of the negative log-likelihoods of ids[1:]."""
    total, done = 0.0, 0
    window = window or len(ids)
    while done < len(ids) - 1:
        start = max(0, min(done - window // 2, len(ids) - 1 - window)) if done else 0
        part = ids[start : start + window + 1]
        losses = F.cross_entropy(model(part[None, :-1])[0], part[1:], reduction="none")
        total += losses[done - start :].double().sum().item()
        done = start + len(part) - 1
    return total


def bits_per_byte(model, tokenizer, texts, window):
    total = 0.0
    for text in texts:
        total += nats(model, torch.tensor([0] + tokenizer.encode(text).ids), window)
    return total / math.log(2) / sum(len(t.encode()) for t in texts)


def samples(folder, tokenizer, path):
    """Print a greedy and sampled texts; store the greedy one if asked."""
    model, report = Mamba2ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    print(f"transformers: {report}")
    model.eval()
    prompt = torch.tensor([tokenizer.encode(PROMPT).ids])
    end = prompt.shape[1]
    out = model.generate(prompt, do_sample=False, max_new_tokens=40, eos_token_id=None)
    ids = out[0, end:].tolist()
    print(f"greedy: {PROMPT + tokenizer.decode(ids)!r}")
    if path:
        record = {"prompt": PROMPT, "prompt_ids": prompt[0].tolist(), "ids": ids}
        record["text"] = tokenizer.decode(ids)
        pathlib.Path(path).write_text(json.dumps(record, indent=1) + "\n")
    for seed in (1, 2):
        torch.manual_seed(seed)
        out = model.generate(
            prompt, do_sample=True, temperature=0.8, top_k=0, top_p=0.95, max_new_tokens=120
        )
        text = tokenizer.decode(out[0, end:].tolist())
        print(f"sampled, seed {seed}: {PROMPT + text!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    parser.add_argument("--greedy-json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = load(args.model)
    texts = json.loads((pathlib.Path(args.corpus) / f"{args.split}.json").read_text())
    for name, window in (("windows", args.window), ("whole", 0)):
        value = bits_per_byte(model, tokenizer, texts, window)
        print(f"{args.split}, {name}: {value:.4f} bits per byte")
    samples(args.model, tokenizer, args.greedy_json)


if __name__ == "__main__":
    main()
