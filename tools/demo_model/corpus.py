"""Extract the training text of the demo model from a Debian package.

The package r-cran-janeaustenr holds the six completed novels of Jane Austen
as an R data base. This script reads that data base (no R needed), puts each
paragraph on one line, and writes a fixed train / valid / test split.

Run:
    apt-get download r-cran-janeaustenr
    dpkg-deb -x r-cran-janeaustenr_*.deb austen
    python corpus.py --package austen --out WORK/corpus
"""

import argparse
import json
import pathlib
import re
import struct
import warnings
import zlib

import rdata

DATA_DIR = "usr/lib/R/site-library/janeaustenr/data"

# Order of first publication. The name is the R variable.
BOOKS = [
    ("sensesensibility", "Sense and Sensibility"),
    ("prideprejudice", "Pride and Prejudice"),
    ("mansfieldpark", "Mansfield Park"),
    ("emma", "Emma"),
    ("northangerabbey", "Northanger Abbey"),
    ("persuasion", "Persuasion"),
]

# A modern editor's note that follows the novel in one of the files.
END_MARK = "A NOTE ON THE TEXT"

TEST_SHARE = 0.05  # the last part of each book
VALID_SHARE = 0.025  # the part just before it


def r_value(raw):
    """Convert the bytes of an R serialisation to a Python value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rdata.conversion.convert(rdata.parser.parse_data(raw))


def read_books(package_dir):
    """Return {variable name: list of lines} from the lazy-load data base."""
    base = pathlib.Path(package_dir) / DATA_DIR
    index = r_value((base / "Rdata.rdx").read_bytes())["variables"]
    blob = (base / "Rdata.rdb").read_bytes()
    books = {}
    for name, (start, length) in index.items():
        entry = blob[int(start) : int(start) + int(length)]
        (size,) = struct.unpack(">I", entry[:4])
        raw = zlib.decompress(entry[4:])
        if len(raw) != size:
            raise ValueError(f"{name}: {len(raw)} bytes, {size} expected")
        books[str(name)] = [str(line) for line in r_value(raw)]
    return books


def clean(lines):
    """Return a list of paragraphs, each one line of text."""
    if END_MARK in lines:
        lines = lines[: lines.index(END_MARK)]
    paragraphs, current = [], []
    for line in lines + [""]:
        # Underscores mark italics in the source; they are dropped.
        line = re.sub(r"\s+", " ", line.replace("_", "")).strip()
        if line:
            current.append(line)
        elif current:
            paragraphs.append(" ".join(current))
            current = []
    return paragraphs


def split(paragraphs):
    """Cut a book at paragraph ends into train, valid and test text."""
    total = sum(len(p) + 2 for p in paragraphs)
    limits = [total * (1 - TEST_SHARE - VALID_SHARE), total * (1 - TEST_SHARE)]
    parts, position = [[], [], []], 0
    for p in paragraphs:
        parts[sum(position >= limit for limit in limits)].append(p)
        position += len(p) + 2
    return ["\n\n".join(part) + "\n" for part in parts]


def read_texts(corpus, key):
    """Return the texts of train, valid or test: one a book."""
    lines = (pathlib.Path(corpus) / f"{key}.jsonl").read_text().split("\n")
    return [json.loads(line)["text"] for line in lines if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", required=True, help="unpacked package")
    parser.add_argument("--out", required=True, help="folder for the text")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    books = read_books(args.package)
    sizes = {}
    texts = {"train": [], "valid": [], "test": []}
    for name, title in BOOKS:
        parts = split(clean(books[name]))
        for key, text in zip(texts, parts):
            texts[key].append(text)
        sizes[title] = [len(t.encode()) for t in parts]
        print(f"{title}: train, valid, test bytes {sizes[title]}")
    for key, pieces in texts.items():
        lines = [json.dumps({"text": piece}, ensure_ascii=False) + "\n" for piece in pieces]
        (out / f"{key}.jsonl").write_text("".join(lines))
        print(f"{key}: {sum(len(t.encode()) for t in pieces)} bytes")
    (out / "sizes.json").write_text(json.dumps(sizes, indent=1))


if __name__ == "__main__":
    main()
