"""Write a training checkpoint as a Hugging Face model folder in BF16.

Each file is written aside and then renamed, so that a reader of the folder
never sees a half-written file.

Run:
    python export.py --checkpoint WORK/run/best.pt \
        --tokenizer WORK/tokenizer.json --out models/demo
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save

from model import Config, hf_config

GENERATION = {
    "_from_model_config": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def put(path, data):
    """Write bytes to a file in one step."""
    aside = path.with_name(path.name + ".tmp")
    aside.write_bytes(data)
    aside.rename(path)


def as_json(value):
    return (json.dumps(value, indent=2) + "\n").encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    saved = torch.load(args.checkpoint, weights_only=True)
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in saved["model"].items()}
    put(out / "config.json", as_json(hf_config(Config(**saved["config"]))))
    put(out / "generation_config.json", as_json(GENERATION))
    put(out / "tokenizer.json", pathlib.Path(args.tokenizer).read_bytes())
    put(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    info = {k: v for k, v in saved.items() if k not in ("model", "config")}
    print(f"checkpoint: {info}")
    print(f"parameters: {sum(t.numel() for t in tensors.values())}")
    for path in sorted(out.iterdir()):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
