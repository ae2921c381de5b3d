"""Measure the demo model on held-out text, and store a greedy continuation for a test.

Bits per byte: minus the sum of the log2-likelihoods of all tokens of a text,
divided by its UTF-8 bytes. Each text is preceded by token 0, and the state is
carried from its first to its last token. `hognose score` computes it, all
products in float32.

--greedy-json writes 40 tokens that transformers generates from the same
weights in float32; tests/parity/demo_model_test.cc compares the engine with
them.

Run:
    python evaluate.py --model models/demo --corpus WORK/corpus \
        --hognose build/hognose [--greedy-json tests/fixtures/demo_greedy.json]
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from tokenizers import Tokenizer

from corpus import read_texts

PROMPT = "It is a truth universally acknowledged"


def nats(hognose, model, ids):
    """Sum of the negative log-likelihoods of ids[1:]."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(" ".join(map(str, ids)))
        file.flush()
        command = [hognose, "score", model, "--ids", file.name, "--activations", "f32"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["nll"] * (len(ids) - 1)


def bits_per_byte(hognose, model, tokenizer, texts):
    total = sum(nats(hognose, model, [0] + tokenizer.encode(text).ids) for text in texts)
    return total / math.log(2) / sum(len(text.encode()) for text in texts)


def store_greedy(folder, tokenizer, path):
    import torch
    from transformers import Mamba2ForCausalLM

    model = Mamba2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.tensor([tokenizer.encode(PROMPT).ids])
    out = model.generate(prompt, do_sample=False, max_new_tokens=40, eos_token_id=None)
    ids = out[0, prompt.shape[1] :].tolist()
    record = {"prompt": PROMPT, "prompt_ids": prompt[0].tolist(), "ids": ids}
    record["text"] = tokenizer.decode(ids)
    pathlib.Path(path).write_text(json.dumps(record, indent=1) + "\n")
    print(f"greedy: {PROMPT + record['text']!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--hognose", required=True, help="the executable")
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    parser.add_argument("--greedy-json")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(pathlib.Path(args.model) / "tokenizer.json"))
    texts = read_texts(args.corpus, args.split)
    value = bits_per_byte(args.hognose, args.model, tokenizer, texts)
    print(f"{args.split}: {value:.4f} bits per byte")
    if args.greedy_json:
        store_greedy(args.model, tokenizer, args.greedy_json)


if __name__ == "__main__":
    main()
