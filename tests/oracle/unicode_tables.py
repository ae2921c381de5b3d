"""Writes src/io/tokenizer/unicode_data.h and tests/fixtures/tokenizers/unicode.json.

The parts of the tokenizers library use Unicode tables of different ages. Every code point is put
to each of them; the header holds what differs from Unicode 14, the fixture holds the whole sets.

Needs the pinned tokenizers (requirements-tokenizers.txt) and a Python whose unicodedata is 14.0.0
(3.11). Run: python tests/oracle/unicode_tables.py
"""

import json
import pathlib
import subprocess
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "src/io/tokenizer/unicode_data.h"
FIXTURE = ROOT / "tests/fixtures/tokenizers/unicode.json"
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Co").split()


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def matched(pattern):
    """Code points that the library's regular expressions match."""
    rest = normalizers.Replace(Regex(pattern), "").normalize_str(TEXT)
    return set(ALL) - set(map(ord, rest))


def isolated(pre_tokenizer):
    """Code points that the pre-tokenizer cuts off from the letters around them."""
    found = set()
    for begin in range(0, len(ALL), 4096):
        text = "a" + "a".join(map(chr, ALL[begin:begin + 4096])) + "a"
        for _, (first, last) in pre_tokenizer.pre_tokenize_str(text):
            if last - first == 1 and first % 2 == 1:
                found.add(ord(text[first]))
    return found


def words():
    whitespace = pre_tokenizers.Whitespace()
    return {c for c in ALL if whitespace.pre_tokenize_str("a" + chr(c))[0][1] == (0, 2)}


def inert(name):
    """Code points that a normal form of Unicode 14 changes or moves, and the library's does not."""
    form = getattr(normalizers, name)()
    out = set()
    for c in ALL:
        ch = chr(c)
        contexts = [ch, "a\u0301" + ch, "a" + ch + "\u0316\u0301", "a\u0316\u0301" + ch,
                    unicodedata.normalize("NFD", ch)]
        if unicodedata.category(ch) == "Cn":
            continue
        if any(form.normalize_str(x) != unicodedata.normalize(name, x) for x in contexts):
            decomposed = unicodedata.normalize("NFD", ch)
            composes = form.normalize_str(decomposed) != unicodedata.normalize(name, decomposed)
            out.add(ord(decomposed[-1]) if composes and len(decomposed) > 1 else c)
            out.add(c)
    return out


def array(name, comment, rows, kind="Range"):
    lines = ["// " + comment, "inline constexpr %s %s[] = {" % (kind, name)]
    lines += ["    {%s}," % row for row in rows]
    return lines + ["};", ""]


def hex_ranges(code_points):
    return ["0x%X, 0x%X" % tuple(r) for r in ranges(code_points)]


def lower_rows():
    lower = normalizers.Lowercase()
    changed = []
    for c in ALL:
        mine, theirs = chr(c).lower(), lower.normalize_str(chr(c))
        if mine != theirs:
            changed.append((c, ord(theirs) - c))
    rows = []
    for c, delta in changed:
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == delta:
            rows[-1][1] = c
        else:
            rows.append([c, c, delta])
    return ["0x%X, 0x%X, %d" % tuple(r) for r in rows]


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    category = {}
    for name in CATEGORIES:
        category.update((c, name) for c in matched(r"\p{%s}" % name))
    old = {c: unicodedata.category(chr(c)) for c in ALL}
    new_rows, new = [], set()
    for c in ALL:
        if old[c] != "Cn" or c not in category:
            continue
        new.add(c)
        if new_rows and new_rows[-1][1] == c - 1 and new_rows[-1][2] == category[c]:
            new_rows[-1][1] = c
        else:
            new_rows.append([c, c, category[c]])
    numbers = {c for c in category if category[c][0] == "N"}
    digits = isolated(pre_tokenizers.Digits(True))
    punctuation = isolated(pre_tokenizers.Punctuation("isolated"))
    strip = normalizers.StripAccents()
    marks = {c for c in ALL if strip.normalize_str("a" + chr(c)) == "a"}
    canonical = inert("NFC") | inert("NFD")
    compatibility = (inert("NFKC") | inert("NFKD")) - canonical
    old_of = lambda letter: {c for c in ALL if old[c][0] == letter and c >= 0x80}

    lines = [
        "// What differs from Unicode 14 in the tables of the tokenizers library's parts.",
        "// Made by tests/oracle/unicode_tables.py.",
        "#pragma once", "", "#include <cstdint>", "", "#include <utf8proc.h>", "",
        "namespace hognose::io::tokenizer {", "",
        "struct Range {", "  char32_t first;", "  char32_t last;", "};",
        "struct CategoryRange {", "  char32_t first;", "  char32_t last;",
        "  utf8proc_category_t category;", "};",
        "struct LowerRange {", "  char32_t first;", "  char32_t last;",
        "  int32_t to_lower;  // what is added", "};", "",
        "// All arrays ascend.", "",
    ]
    lines += array("kNewCharacters", "Assigned in Unicode 15.0, 15.1 and 16.0.",
                   ["0x%X, 0x%X, UTF8PROC_CATEGORY_%s" % (a, b, name.upper())
                    for a, b, name in new_rows], "CategoryRange")
    lines += array("kNewerNumbers", "Numbers for Digits only: assigned in Unicode 17.",
                   hex_ranges(digits - numbers))
    lines += array("kNewLower", "Upper case letters since Unicode 14.", lower_rows(), "LowerRange")
    lines += array("kNotPunctuation", "P* in Unicode 14, but not for Punctuation.",
                   hex_ranges(old_of("P") - punctuation))
    lines += array("kAlsoPunctuation", "The reverse.",
                   hex_ranges({c for c in punctuation if c >= 0x80} - old_of("P")))
    lines += array("kNotMarks", "M* in Unicode 14, but not for StripAccents.",
                   hex_ranges(old_of("M") - marks))
    lines += array("kAlsoMarks", "The reverse.", hex_ranges(marks - old_of("M")))
    lines += array("kInert", "Changed or moved by NFC and NFD of Unicode 14, but not here.",
                   hex_ranges(canonical - new))
    lines += array("kInertCompatibility", "The same for NFKC and NFKD, besides those of kInert.",
                   hex_ranges(compatibility - new))
    lines += ["}  // namespace hognose::io::tokenizer"]
    HEADER.write_text("\n".join(lines) + "\n")
    subprocess.run(["clang-format", "-i", str(HEADER)], check=True)

    sets = {r"\p{%s}" % name: matched(r"\p{%s}" % name)
            for name in ["L", "Lu", "Ll", "Lo", "M", "N", "Nd", "P", "S", "Z", "Han"]}
    for pattern in [r"\s", r"\w", r"[\w]", r"\W", r"\d", r"\h", r"[[:punct:]]", r"[[:alpha:]]", r"[^\W\d_]",
                    r"[\p{Lu}&&[^A-Z]]", r"[\D]"]:
        sets[pattern] = matched(pattern)
    sets.update(Digits=digits, Punctuation=punctuation, StripAccents=marks, Whitespace=words())
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    rows = ["  %s: %s" % (json.dumps(k), json.dumps(ranges(v), separators=(",", ":")))
            for k, v in sets.items()]
    FIXTURE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
