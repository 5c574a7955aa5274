#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a trace (--trace FILE of ithaca) as an SVG picture.

    tools/draw_trace.py TRACE.json >PICTURE.svg [--last MS] [--ranks N]

Each rank has the lanes of the trace: computing, waiting, exchange. --last draws the MS milliseconds before the end of
the last computation, --ranks the first N ranks. Perfetto (https://ui.perfetto.dev) shows the same file with more detail."""
import argparse
import html
import json
import sys

WIDTH, MARGIN, LANE, GAP = 900, 140, 18, 12
COLOURS = {"attend": "#56b4e9", "pack": "#0072b2", "offsets": "#009e73", "waiting": "#d55e00", "exchange": "#bbbbbb"}


def read(path, last, ranks):
    """The spans of the trace as (rank, lane, name, begin, end), in milliseconds from the first span that is drawn."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    spans = [(e["pid"], lanes[e["pid"], e["tid"]], e["name"], e["ts"] / 1e3, (e["ts"] + e["dur"]) / 1e3)
             for e in events if e["ph"] == "X" and e["pid"] < ranks]
    if not spans:
        sys.exit(f"draw_trace: {path}: no spans")
    end = max((span[4] for span in spans if span[1] == "computing"), default=max(span[4] for span in spans))
    zero = max(min(span[3] for span in spans), end - last)
    return [(rank, lane, name, max(begin, zero) - zero, min(finish, end) - zero)
            for rank, lane, name, begin, finish in spans if begin < end and finish > zero]


def box(x, y, width, height, fill):
    return f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.3):.2f}" height="{height}" fill="{fill}"/>'


def text(x, y, anchor, words):
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def draw(spans):
    """The picture of the spans, as lines of SVG."""
    ranks = sorted({span[0] for span in spans})
    names = ["computing", "waiting", "exchange"]
    end = max(span[4] for span in spans)
    scale = (WIDTH - MARGIN - 20) / end
    top = {rank: 30 + i * (len(names) * LANE + GAP) for i, rank in enumerate(ranks)}
    height = top[ranks[-1]] + len(names) * LANE + 40
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
             'font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i, (name, colour) in enumerate(COLOURS.items()):
        lines += [box(MARGIN + i * 110, 6, 14, 14, colour), text(MARGIN + i * 110 + 20, 18, "start", name)]
    for rank in ranks:
        for i, name in enumerate(names):
            label = f"rank {rank}, {name}" if i == 0 else name
            lines.append(text(MARGIN - 8, top[rank] + i * LANE + 13, "end", label))
    for rank, lane, name, begin, finish in spans:
        colour = COLOURS.get(name if lane == "computing" else lane, "#cccccc")
        y = top[rank] + names.index(lane) * LANE + 2
        lines.append(box(MARGIN + begin * scale, y, (finish - begin) * scale, LANE - 4, colour))
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e9) if end / s <= 12)
    for i in range(int(end / step) + 1):
        x = MARGIN + i * step * scale
        lines += [f'<path d="M{x:.1f} 26 V{height - 24}" stroke="#ddd" fill="none"/>',
                  text(x, height - 10, "middle", f"{i * step:g} ms")]
    return lines + ["</svg>"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--last", type=float, default=float("inf"), metavar="MS")
    parser.add_argument("--ranks", type=int, default=8, metavar="N")
    given = parser.parse_args()
    print("\n".join(draw(read(given.trace, given.last, given.ranks))))


if __name__ == "__main__":
    main()
