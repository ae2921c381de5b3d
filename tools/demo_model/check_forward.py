"""Compare the forward pass of model.py with transformers' Mamba2ForCausalLM.

Builds a model with the default shape and random weights (or loads a training
checkpoint), copies the weights into the transformers class, and prints the
largest difference of the logits in float32. Exits 1 above the tolerance.

Run:
    python check_forward.py [--checkpoint WORK/run/best.pt]
"""

import argparse
import sys

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

from model import Config, LanguageModel, hf_config

TOLERANCE = 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint")
    parser.add_argument("--length", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(1)
    if args.checkpoint:
        saved = torch.load(args.checkpoint, weights_only=True)
        ours = LanguageModel(Config(**saved["config"]))
        ours.load_state_dict(saved["model"])
    else:
        ours = LanguageModel(Config())
    theirs = Mamba2ForCausalLM(Mamba2Config(**hf_config(ours.cfg))).float()
    result = theirs.load_state_dict(ours.state_dict(), strict=False)
    if result.unexpected_keys or set(result.missing_keys) - {"lm_head.weight"}:
        sys.exit(f"keys differ: {result}")
    theirs.tie_weights()
    ours.eval()
    theirs.eval()
    ids = torch.randint(ours.cfg.vocab_size, (2, args.length))
    with torch.no_grad():
        a, b = ours(ids), theirs(ids).logits.float()
    difference = (a - b).abs().max().item()
    print(f"largest logit {b.abs().max().item():.3f}, largest difference {difference:.2e}")
    sys.exit(difference >= TOLERANCE)


if __name__ == "__main__":
    main()
