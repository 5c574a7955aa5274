#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well the videos of the small models show the shapes that were asked for.

    ithaca generate --model models/shapes --prompts FILE --output clip/    first: clip-001/, clip-002/ ... of PNGs
    tools/judge_shapes.py FOLDER FILE                                            then: the figures of these folders

Pixels of a frame belong to the shape if their colour is beyond half way from the colour of the ground to the colour of
the shape. The figure of a frame is the intersection of this area and a true shape, divided by their union (IoU, 1 for a
perfect shape); the centre and the size of the true shape are fitted to the frame. Parts of a shape beyond the frame do
not count. --strip FILE writes a picture with every fourth frame of the videos, one video on each line.

Needs the packages of tiny_wan.py, and Pillow.
"""
import argparse, glob, os
import numpy as np
from PIL import Image
import tiny_wan

AREA = {"circle": np.pi, "square": 3.24, "triangle": 1.62}  # of a shape of size 1


def words(prompt):
    """Colour, shape and ground that a prompt names."""
    has = lambda table: next(w for w in table if w in prompt)
    return has(tiny_wan.COLOURS), has(tiny_wan.SHAPES), next(g for g in tiny_wan.GROUNDS if g + " background" in prompt)


def area(frame, colour, ground):
    """The pixels that belong to the shape."""
    ground = np.array(tiny_wan.GROUNDS[ground], float)
    span = np.array(tiny_wan.COLOURS[colour], float) - ground
    return (frame - ground) @ span > 0.5 * span @ span


def fit(mask, shape):
    """The best IoU, and [x, y, size] of its shape, found by a search whose steps become smaller."""
    if not mask.any():
        return 0.0, np.zeros(3)
    size = mask.shape[0]
    y, x = np.mgrid[0:size, 0:size] / size

    def iou(at):
        true = tiny_wan.distance(shape, x - at[0], y - at[1], at[2]) < 0
        return (mask & true).sum() / (mask | true).sum()

    rows, columns = np.nonzero(mask)
    at = np.array([np.median(columns) / size, np.median(rows) / size, (mask.mean() / AREA[shape]) ** 0.5])
    best, step = iou(at), 4 / size
    while step > 0.2 / size:
        near = [at + sign * step * axis for axis in np.eye(3) for sign in (-1, 1)]
        found = max(near, key=iou)
        if iou(found) > best:
            best, at = iou(found), found
        else:
            step /= 2
    return best, at


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("prompts")
    p.add_argument("--strip")
    a = p.parse_args()
    figures, strips = {}, []
    prompts = [line.strip() for line in open(a.prompts) if line.strip()]
    for prompt, folder in zip(prompts, sorted(glob.glob(os.path.join(a.folder, "*/")))):
        colour, shape, ground = words(prompt)
        frames = [np.array(Image.open(f).convert("RGB")) for f in sorted(glob.glob(folder + "*.png"))]
        fits = [fit(area(f.astype(float), colour, ground), shape)[0] for f in frames]
        figures.setdefault(shape, []).append(fits)
        strips.append(np.concatenate(frames[::4], 1))
        print(f"{np.mean(fits):.3f} {np.min(fits):.3f}  {prompt}", flush=True)
    for shape, fits in figures.items():
        print(f"{np.mean(fits):.3f} {np.mean([min(f) for f in fits]):.3f}  {shape}s")
    every = [f for fits in figures.values() for f in fits]
    print(f"{np.mean(every):.3f} {np.mean([min(f) for f in every]):.3f}  all: mean IoU, and the mean of the videos' lowest")
    if a.strip:
        Image.fromarray(np.concatenate(strips)).save(a.strip)


if __name__ == "__main__":
    main()
