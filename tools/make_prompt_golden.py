#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/prompts.json: prompts, and the texts that Python's ftfy and html make of them.

    tools/make_prompt_golden.py > tests/golden/prompts.json

Random strings of everything that cleaning changes, each with the result: [text, clean]. Strings that the repair of mojibake
would change are left out, because this repair is not part of the cleaning here.
"""
import html
import json
import random
import re
from html.entities import html5

import ftfy

PLAIN = ftfy.TextFixerConfig(fix_encoding=False, explain=False)
NAMES = sorted(html5)
CAPITALS = [name.upper() for name in NAMES if name == name.lower()]


def clean(text, config=None):
    text = html.unescape(html.unescape(ftfy.fix_text(text, config)))
    return re.sub(r"\s+", " ", text.strip()).strip()


def number(r):
    return r.choice([r.randrange(300), r.randrange(0x80, 0xA0), r.randrange(0x120000), r.randrange(0xD700, 0xE100),
                     0xFDD0 + r.randrange(40), 0xFFFE, 10 ** r.randrange(30), ord(";"), ord("&"), ord("<")])


ATOMS = [
    lambda r: chr(r.randrange(1, 0x80)),
    lambda r: chr(r.randrange(0x80, 0x100)),
    lambda r: chr(r.randrange(0x100, 0x600)),
    lambda r: chr(r.choice([r.randrange(0x600, 0xD800), r.randrange(0xE000, 0xFF00)])),
    lambda r: chr(r.randrange(0xFF00, 0x10000)),
    lambda r: chr(r.choice([r.randrange(0x10000, 0x110000), r.randrange(0x1D000, 0x1D200)])),
    lambda r: chr(r.randrange(0x2000, 0x2070)),
    lambda r: r.choice("ĲĳŉǱǲǳǄǅǆǇǈǉǊǋǌﬀﬁﬂﬃﬄﬅﬆ"),
    lambda r: "\x1b[" + r.choice(["", "1", "31;4", "0;;", "٣", "１2"]) + r.choice("mAhz;[ 1"),
    lambda r: "&" + r.choice(NAMES),
    lambda r: "&" + r.choice(CAPITALS),
    lambda r: "&" + r.choice(NAMES).rstrip(";") + r.choice(["", "a", "x;", ";;", " ", "é"]),
    lambda r: "&" + r.choice(NAMES)[:r.randrange(1, 8)] + r.choice([";", ""]),
    lambda r: f"&#{number(r)}" + r.choice([";", "", "a;"]),
    lambda r: f"&#{r.choice('xX')}{number(r):x}" + r.choice([";", "", "g;"]),
    lambda r: r.choice(["&", "&amp;", "&amp;amp;", "&AMP;", "&amp", "&#38;", "&#x26;", "&amp;#38;"])
    + r.choice(["lt;", "amp;", "eacute;", "#60;", "EACUTE;", "", "#233"]),
    lambda r: r.choice(["\r\n", "\r", "\n", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\t", "\x1c", "\x1f", "\n\n"]),
    lambda r: r.choice("‘’‚‛“”„‟ʼ'\"`´"),
    lambda r: r.choice(["<", ">", "<b>", ";", "word", "red circle"]),
    lambda r: chr(r.choice([r.randrange(0xAC00, 0xD7A4), r.randrange(0x1100, 0x1200)])),
    lambda r: r.choice([" ", "  ", "\u3000", "\xa0", "\u200b", "\ufeff", "\ufffc", "\u206a", "\u1680"]),
    lambda r: r.choice("aeioAns1") + chr(r.randrange(0x300, 0x345)) + chr(r.randrange(0x300, 0x345)),
]


def main():
    r = random.Random(3)
    pairs = []
    while len(pairs) < 400:
        text = "".join(r.choice(ATOMS)(r) for _ in range(r.randrange(16)))
        if clean(text) == clean(text, PLAIN):
            pairs.append([text, clean(text)])
    print("[\n" + ",\n".join(json.dumps(pair) for pair in pairs) + "\n]")


if __name__ == "__main__":
    main()
