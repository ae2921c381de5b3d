"""Character n-gram baseline for the held-out bits per byte.

Counts contexts of 0 to ORDER characters (bytes) on the training text and
reports the bits per byte of the test text under two interpolated models:

  Witten-Bell   p_k(c|h) = (n(hc) + t(h) p_{k-1}(c|h')) / (n(h) + t(h))
  Kneser-Ney    p_k(c|h) = (max(n(hc) - d_k, 0) + d_k t(h) p_{k-1}(c|h')) / n(h)

n is a count, t(h) the number of distinct bytes seen after context h, h' is h
without its first byte, and a context never seen passes on p_{k-1}. Below order
0 the distribution is uniform over 256 bytes. Kneser-Ney uses continuation
counts (distinct left neighbours) below the top order, and one discount per
order, d = n1 / (n1 + 2 n2), from the numbers of n-grams counted once and twice.

Run:
    python ngram.py --corpus WORK/corpus
"""

import argparse

import numpy as np

from corpus import read_texts

ORDER = 5  # the longest context, in bytes
PAD = 10  # line feed, stands before the first byte of each piece


def windows(text):
    """Return a row per byte of text: ORDER context bytes, then the byte."""
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    padded = np.concatenate([np.full(ORDER, PAD, dtype=np.uint8), data])
    return np.lib.stride_tricks.sliding_window_view(padded, ORDER + 1)


def keys(rows, context):
    """Pack the last context + 1 bytes of each row into an integer."""
    out = np.zeros(len(rows), dtype=np.int64)
    for column in range(ORDER - context, ORDER + 1):
        out = (out << 8) | rows[:, column]
    return out


def look_up(table, values, wanted):
    """Return values[i] where table[i] equals wanted, and 0 elsewhere."""
    at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return np.where(table[at] == wanted, values[at], 0)


def count(rows, continuation):
    """Return, per context length, the sorted n-gram keys and their counts."""
    tables = []
    for k in range(ORDER + 1):
        if continuation and k < ORDER:
            longer = np.unique(keys(rows, k + 1))
            mask = (1 << (8 * (k + 1))) - 1
            tables.append(np.unique(longer & mask, return_counts=True))
        else:
            tables.append(np.unique(keys(rows, k), return_counts=True))
    return tables


def probabilities(tables, rows, method):
    """Return the probability of the last byte of each row."""
    p = np.full(len(rows), 1 / 256)
    for k, (table, counts) in enumerate(tables):
        context, first = np.unique(table >> 8, return_index=True)
        totals = np.add.reduceat(counts, first)
        types = np.diff(np.append(first, len(table)))
        wanted = keys(rows, k)
        n_hc = look_up(table, counts, wanted).astype(float)
        n_h = look_up(context, totals, wanted >> 8).astype(float)
        t_h = look_up(context, types, wanted >> 8).astype(float)
        seen = n_h > 0
        if method == "witten-bell":
            top, bottom = n_hc + t_h * p, n_h + t_h
        else:
            n1, n2 = np.sum(counts == 1), np.sum(counts == 2)
            d = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
            top, bottom = np.maximum(n_hc - d, 0) + d * t_h * p, n_h
        p = np.where(seen, top / np.where(seen, bottom, 1), p)
    return p


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    args = parser.parse_args()
    train = read_texts(args.corpus, "train")
    held_out = read_texts(args.corpus, args.split)
    seen = np.concatenate([windows(t) for t in train])
    rows = np.concatenate([windows(t) for t in held_out])
    print(f"{args.split}: {len(rows)} bytes, order {ORDER}, {len(seen)} training bytes")
    for method in ("witten-bell", "kneser-ney"):
        tables = count(seen, continuation=method == "kneser-ney")
        bits = -np.log2(probabilities(tables, rows, method))
        print(f"{method}: {bits.mean():.4f} bits per byte")


if __name__ == "__main__":
    main()
