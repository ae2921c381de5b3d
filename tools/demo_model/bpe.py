"""Train the byte-level BPE tokenizer of the demo model.

The tokenizer sees the training text only. Token 0 is <|endoftext|>; the 256
byte symbols and the learned merges follow. The vocabulary has VOCAB_SIZE
entries.

Run:
    python bpe.py --corpus WORK/corpus --out WORK/tokenizer.json
"""

import argparse

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import read_texts

VOCAB_SIZE = 2048
END_OF_TEXT = "<|endoftext|>"


def train(texts):
    """Return a tokenizer trained on a list of texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Paragraphs, so that no word count depends on the file layout.
    tokenizer.train_from_iterator((line for t in texts for line in t.splitlines(True)), trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    tokenizer = train(read_texts(args.corpus, "train"))
    tokenizer.save(args.out)
    print(f"vocabulary: {tokenizer.get_vocab_size()} entries")
    for key in ("train", "valid", "test"):
        texts = read_texts(args.corpus, key)
        ids = [tokenizer.encode(t).ids for t in texts]
        for text, row in zip(texts, ids):
            if tokenizer.decode(row, skip_special_tokens=False) != text:
                raise ValueError(f"{key}: text does not survive the round trip")
        tokens = sum(len(row) for row in ids)
        size = sum(len(t.encode()) for t in texts)
        print(f"{key}: {tokens} tokens, {size / tokens:.3f} bytes per token")


if __name__ == "__main__":
    main()
