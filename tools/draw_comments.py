#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw comments at random from the sources, to see whether a stranger understands each at first reading.

    tools/draw_comments.py SEED [COUNT] [FOLDER ...]

prints COUNT (20) comments of FOLDER (src) with their file, line and the code that follows. The same seed draws the same
comments from the same tree. Licence lines and rulers are not drawn.
"""
import pathlib
import random
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def comments(path):
    text = path.read_text()
    blank = STRING.sub(lambda m: " " * len(m.group()), text)
    for match in COMMENT.finditer(blank):
        comment = text[match.start():match.end()]
        if "SPDX-License" not in comment and "----" not in comment:
            yield match.start(), match.end(), text


def show(path, start, end, text):
    line = text.count("\n", 0, start)
    last = text.count("\n", 0, end)
    print(f"{path}:{line + 1}")
    for row in text.split("\n")[line:last + 4]:
        print(f"    {row}")
    print()


def main():
    seed, count, folders = sys.argv[1], int((sys.argv[2:3] or [20])[0]), sys.argv[3:] or ["src"]
    files = sorted(p for f in folders for p in pathlib.Path(f).rglob("*") if p.suffix in (".c", ".h", ".cc", ".cu", ".cuh"))
    everything = [(path, *comment) for path in files for comment in comments(path)]
    for drawn in random.Random(seed).sample(everything, min(count, len(everything))):
        show(*drawn)


if __name__ == "__main__":
    main()
