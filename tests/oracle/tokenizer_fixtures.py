"""Writes tests/fixtures/tokenizers/*.json: small tokenizers and what the tokenizers library makes of
hard texts with them.

    pip install -r tests/oracle/requirements-tokenizers.txt
    python tests/oracle/tokenizer_fixtures.py [GPT_NEOX_TOKENIZER_JSON]

texts.json   the texts
models.json  the models (tiny, trained here), by name
NAME.json    {"model", "config", "results"}: config is tokenizer.json without its model; a result is
             [ids, ids without special tokens, text of ids, the same without special tokens] for each
             text. null: the library fails, or (second and fourth) the same as the one before.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/fixtures/tokenizers"
ARCHIVE = ROOT / "tests/fixtures/gpt-neox-tokenizer.tar.xz"

TEXTS = [
    "", " ", "  ", "\n", "\t", "\r\n", "\0", "a", " a", "a ", "  a  b   c    ", "\u3000",
    "Hello, world!", "Hello  world", "hello WORLD Hello", "It's we'll they've I'm he'd 'S 'RE don''t",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "tabs\tand\t\tmore\n\nlines\r\nand\rold  \n  indented\n\t\tcode",
    "    if (x == 1) {\n        return foo(bar[i], \"baz\");\n    }\n",
    "def f(x):\n\treturn x ** 2 + 3.14e-10  # why?",
    "0 12 345 6789 1234567890 3.14 1,000,000 \u0663\u0664 \u00bd \u2167 \u00b2 1st 2nd",
    "caf\u00e9 cafe\u0301 na\u00efve \u212bngstr\u00f6m A\u030angstro\u0308m \ufb01ne \u2460 \uff21\uff22",
    "\u1e9b\u0323 a\u0316\u0301 a\u0301\u0316 \u0344 \u0958 \u2126 \uac00\u11a8 \u1100\u1161",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587\u5b57\u7b26\u6d4b\u8bd5 \ud55c\uad6d\uc5b4",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u200fRTL\u200e",
    "\u0440\u0443\u0301\u0441\u0441\u043a\u0438\u0439 \u0422\u0415\u041a\u0421\u0422 \u0130stanbul \u00df\u1e9e \u03a3\u03c3\u03c2",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f",
    "nbsp\u00a0here\u2003em\u2009thin\u202fnarrow\u205fmath\u3000cjk\u1680ogham",
    "not\u200bspace \u180e \ufeff \u2060 nel\u0085here ls\u2028ps\u2029end",
    "\ue000 \uf8ff \U000f0000 \U0010ffff \u0378 \U0001fbff \ufffe \ufffd",
    "control \x01\x02\x1b[0m \x7f\x80\x9f",
    "one\0two\0\0three", "a" * 70, "ab" * 200, "=" * 33 + "->" + "-" * 40, " " * 40 + "x" + " " * 27,
    "<s>", "<s>Hello</s>", "Hello<s> world </s>  !", "<s><s>x</s></s>", "a<mask>b <mask> c  <mask>  d",
    "wordword word word, word_ _word wordy word", "[TAG][tag] [TAG]x x[TAG]  [TAG]",
    "caf\u00e9[E\u0301] [\u00c9] [\u00e9]", "<0x41> <0x0A> <0xZZ> <unk>", "\u2581under\u2581\u2581score \u2581",
    "  <s>  leading", "trailing  </s>  ", "<s", "<|end|><|end|> <|end|>x", "new\u0897\u1c89\U00010d50\U00031350\u2ebf",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE x86_64 utf-8",
    "!?!?... \u00a1hola! \u00bfqu\u00e9? \u201cquoted\u201d \u2018it\u2019s\u2019 \u2014 \u2026 $5 <b> a+b=c ^~`|",
    "https://example.com/a/b?c=d&e=f#g user@example.org", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940",
    "mixed\u4e2d\u6587and\u65e5\u672cENGLISH123\u0661\u0662abc", "\u017f \u212a '\u017f K's", "x\u0301\u0302\u0303y\u0327\u0301",
]

ADDED = [
    {"content": "<s>", "special": True}, {"content": "</s>", "special": True},
    {"content": "<mask>", "special": True, "lstrip": True},
    {"content": "<|end|>", "special": True, "rstrip": True},
    {"content": "word", "single_word": True, "normalized": False},
    {"content": "[TAG]", "normalized": True, "lstrip": True, "rstrip": True},
    {"content": "[\u00c9]", "normalized": True}, {"content": "   ", "normalized": True},
    {"content": "  ", "normalized": True},
]

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY = dict(BYTE_LEVEL, use_regex=False)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme="always", cut=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def pre(*parts):
    return sequence("pretokenizers", *parts)


def norm(*parts):
    return sequence("normalizers", *parts)


def template(*pieces):
    single = [{"Sequence": {"id": "A", "type_id": 0}} if p == "$A" else
              {"SpecialToken": {"id": p, "type_id": 0}} for p in pieces]
    return {"type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]},
                               "two": {"id": "two", "ids": [3, 4], "tokens": ["x", "y"]}}}


LLAMA_DECODER = sequence(
    "decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0})


def tokenizers():
    """name, model, config."""
    yield "byte_level", "byte", dict(pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL, added_tokens=ADDED)
    yield "byte_level_prefix", "byte", dict(
        normalizer={"type": "NFC"}, pre_tokenizer=dict(BYTE_LEVEL, add_prefix_space=True),
        post_processor=sequence("processors", BYTE_LEVEL, template("<s>", "$A", "two")),
        decoder=BYTE_LEVEL, added_tokens=ADDED)
    yield "gpt4", "byte_ignore_merges", dict(
        pre_tokenizer=pre(split(GPT4), BYTES_ONLY), decoder=BYTE_LEVEL, added_tokens=ADDED[:4],
        post_processor=template("<s>", "$A"))
    yield "cased", "byte", dict(pre_tokenizer=pre(split(CASED, "Removed", True), BYTES_ONLY),
                                decoder=BYTE_LEVEL)
    yield "deepseek", "byte", dict(
        pre_tokenizer=pre(split(r"[\r\n]"), split(r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6]+"),
                          split(r"\s?[!-/:-~\uff01-\uff0f\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
                          split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                          {"type": "Digits", "individual_digits": True}, BYTES_ONLY),
        decoder=BYTE_LEVEL)
    yield "falcon", "byte", dict(
        pre_tokenizer=pre({"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL,
                          {"type": "Digits", "individual_digits": False},
                          split("[0-9][0-9][0-9]")),
        decoder=BYTE_LEVEL, added_tokens=ADDED[:3])
    yield "llama", "fallback", dict(
        normalizer=norm({"type": "Prepend", "prepend": "\u2581"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}),
        decoder=LLAMA_DECODER, added_tokens=ADDED, post_processor=template("<s>", "$A"))
    for scheme in ["always", "never", "first"]:
        yield "metaspace_" + scheme, "fallback", dict(
            pre_tokenizer=metaspace(scheme), decoder=metaspace(scheme), added_tokens=ADDED)
    yield "metaspace_whole", "fallback", dict(
        normalizer=norm({"type": "Strip", "strip_left": False, "strip_right": True},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}),
        pre_tokenizer=metaspace("first", False), decoder=LLAMA_DECODER)
    yield "strip_first", "fallback", dict(
        normalizer={"type": "Strip", "strip_left": True, "strip_right": True},
        pre_tokenizer=pre({"type": "Punctuation"}, metaspace("first")), decoder=metaspace("first"))
    yield "old_metaspace", "unk", dict(
        pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
        decoder={"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True})
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield form.lower(), "byte", dict(normalizer={"type": form}, pre_tokenizer=BYTE_LEVEL,
                                         decoder=BYTE_LEVEL, added_tokens=ADDED)
    yield "lowercase", "byte", dict(
        normalizer=norm({"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}),
        pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL, added_tokens=ADDED)
    yield "byte_level_normalizer", "byte_partial", dict(
        normalizer={"type": "ByteLevel"}, decoder=BYTE_LEVEL, pre_tokenizer=split("\u0120", "MergedWithNext"))
    for i, behavior in enumerate(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                  "Contiguous"]):
        yield "split_" + behavior.lower(), "unk", dict(
            pre_tokenizer=pre(split(" ", behavior, kind="String"),
                              split(r"[aeiou]|\d+", behavior, invert=i % 2 == 1),
                              {"type": "Punctuation", "behavior": behavior}),
            added_tokens=ADDED)
    yield "empty_matches", "unk", dict(pre_tokenizer=split(r"x*|(?=o)", "MergedWithPrevious"),
                                       normalizer={"type": "Replace", "pattern": {"Regex": "l*"},
                                                   "content": "-"})
    yield "words", "unk_fused", dict(pre_tokenizer={"type": "Whitespace"}, added_tokens=ADDED)
    yield "space_words", "word_end", dict(
        pre_tokenizer={"type": "WhitespaceSplit"}, decoder={"type": "BPEDecoder", "suffix": "</w>"},
        added_tokens=ADDED[:3])
    yield "continuing", "continuing", dict(pre_tokenizer={"type": "BertPreTokenizer"})
    yield "digits", "no_unk", dict(
        pre_tokenizer=pre({"type": "Digits", "individual_digits": False},
                          {"type": "CharDelimiterSplit", "delimiter": "e"}))
    yield "nothing", "fallback_partial", dict(added_tokens=ADDED)
    yield "bytes_then_split", "byte", dict(
        pre_tokenizer=pre(BYTE_LEVEL, split("[aeiou\u0120]", "MergedWithPrevious")),
        decoder=sequence("decoders", BYTE_LEVEL,
                         {"type": "Strip", "content": "a", "start": 2, "stop": 3},
                         {"type": "Replace", "pattern": {"Regex": r"(\w)\1"}, "content": "=="}))
    yield "decoders", "fallback", dict(
        decoder=sequence("decoders", {"type": "ByteFallback"},
                         {"type": "Replace", "pattern": {"Regex": "[^a-z]"}, "content": "."},
                         {"type": "Strip", "content": ".", "start": 0, "stop": 0}))
    patterns = [r"\b", r"\B\w", r"[\w&&[^aeiou]]+", r"[[:upper:]][[:lower:]]*", r"[^\W\d]+|\h",
                r"\p{Han}+|\p{^Latin}", r"(?i)hello|WORLD", r"a(?i)b|C", r"(?m:l.)", r"\s{,2}\S{2}?",
                r"(?:ab){2,3}+", r"(?<q>['\"]).*?\k<q>", r"^.|.$", r"[\]\-\[^]+", r"(?>a+)b|\p{Lu}++",
                r"[^[:punct:]\s]+", r"\x{41}|\u0042|\x43|\103", r"\p{Letter}\p{Nd}?|\p{Greek}"]
    for i, pattern in enumerate(patterns):
        yield "regex_%02d" % i, "unk", dict(pre_tokenizer=split(pattern))


def marked(corpus, prefix, suffix, merges=40):
    """A model with a prefix or suffix on parts of words. The library's trainer numbers the tokens of
    such a model in a different order each time."""
    words = [w for text in corpus for w in text.split()]
    words = [[(prefix if i else "") + c + (suffix if i == len(w) - 1 else "")
              for i, c in enumerate(w)] for w in words]
    tokens = ["<unk>"] + sorted({symbol for word in words for symbol in word})
    pairs_merged = []
    for _ in range(merges):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        left, right = min(counts, key=lambda pair: (-counts[pair], pair))
        pairs_merged.append([left, right])
        tokens.append(left + right[len(prefix):])
        for word in words:
            i = 0
            while i + 1 < len(word):
                if word[i:i + 2] == [left, right]:
                    word[i:i + 2] = [tokens[-1]]
                i += 1
    return {"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": prefix or None,
            "end_of_word_suffix": suffix or None, "merges": pairs_merged,
            "vocab": {token: i for i, token in enumerate(dict.fromkeys(tokens))}}


def train():
    """The models, as in tokenizer.json."""
    # Latin letters only, so that the other texts hold characters that no token covers.
    corpus = ["".join(c for c in t if c < "\u0180" or c == "\u2581") for t in TEXTS if len(t) > 8] * 3

    def model(pre_tokenizer, vocab_size, alphabet=(), special=(), **options):
        tokenizer = Tokenizer(models.BPE(**options))
        tokenizer.pre_tokenizer = pre_tokenizer
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                      initial_alphabet=sorted(alphabet),
                                      special_tokens=list(special))
        tokenizer.train_from_iterator(corpus, trainer)
        return json.loads(tokenizer.to_str())["model"]

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte = model(byte_level, 420, pre_tokenizers.ByteLevel.alphabet())
    bytes_ = ["<0x%02X>" % b for b in range(256)]
    fallback = model(pre_tokenizers.Metaspace(), 440, special=["<unk>"] + bytes_, unk_token="<unk>",
                     byte_fallback=True, fuse_unk=True)
    unk = model(pre_tokenizers.WhitespaceSplit(), 200, special=["<unk>"], unk_token="<unk>")
    missing = {k: v for k, v in fallback["vocab"].items() if k not in ("<0xE4>", "<0xF0>", "<0x00>")}
    return {
        "byte": byte,
        "byte_partial": model(byte_level, 220),
        "byte_ignore_merges": dict(byte, ignore_merges=True, merges=byte["merges"][::2],
                                   vocab=byte["vocab"]),
        "fallback": fallback,
        "fallback_partial": dict(fallback, vocab=missing, fuse_unk=False),
        "unk": dict(unk, merges=[" ".join(m) for m in unk["merges"]]),
        "unk_fused": dict(unk, fuse_unk=True),
        "no_unk": dict(unk, unk_token=None),
        "word_end": marked(corpus, "", "</w>"),
        "continuing": marked(corpus, "##", ""),
    }


def complete(config, model):
    added = []
    next_id = len(model["vocab"])
    for token in config.get("added_tokens", []):
        full = dict(id=0, content="", single_word=False, lstrip=False, rstrip=False,
                    normalized=not token.get("special", False), special=False)
        full.update(token)
        full["id"] = model["vocab"].get(token["content"], next_id)
        next_id += full["id"] == next_id
        added.append(full)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added,
                **{k: config.get(k) for k in ["normalizer", "pre_tokenizer", "post_processor", "decoder"]})


def attempt(f):
    try:
        return f()
    except BaseException:  # the library panics where an index is out of range
        return None


def results(tokenizer):
    out = []
    for text in TEXTS:
        ids = attempt(lambda: tokenizer.encode(text).ids)
        plain = attempt(lambda: tokenizer.encode(text, add_special_tokens=False).ids)
        if ids is None:
            out.append(None)
            continue
        decoded = attempt(lambda: tokenizer.decode(ids, skip_special_tokens=False))
        skipped = attempt(lambda: tokenizer.decode(ids, skip_special_tokens=True))
        out.append([ids, None if plain == ids else plain, decoded,
                    None if skipped == decoded else skipped])
    return out


def dump(name, value):
    (OUT / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def pack(source):
    """The GPT-NeoX tokenizer as a reproducible archive."""
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "tokenizer.json"
        target.write_text(json.dumps(json.load(open(source)), ensure_ascii=False, indent=0))
        subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
                        "--mode=u=rw,go=r", "-C", folder, "-I", "xz -9e", "-cf", str(ARCHIVE),
                        "tokenizer.json"], check=True)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    trained = train()
    dump("texts.json", TEXTS)
    dump("models.json", trained)
    for name, model, config in tokenizers():
        full = complete(config, trained[model])
        tokenizer = Tokenizer.from_str(json.dumps(dict(full, model=trained[model])))
        dump(name + ".json", {"model": model, "config": full, "results": results(tokenizer)})
    if len(sys.argv) > 1:
        pack(sys.argv[1])
        tokenizer = Tokenizer.from_file(sys.argv[1])
        dump("gpt_neox.json", {"model": "gpt-neox", "config": None, "results": results(tokenizer)})


if __name__ == "__main__":
    main()
