#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the sizes that the reference gives to videos of TI2V-5B from images of many shapes.

    tools/make_size_golden.py WAN2.2 tests/golden/image_sizes.txt

WAN2.2: a copy of github.com/Wan-Video/Wan2.2, whose best_output_size is called. A line has the width and the height of an
image, the area, and the width and the height of the video.
"""
import ast
import os
import random
import sys

source = open(os.path.join(sys.argv[1], "wan/utils/utils.py")).read()
function = next(n for n in ast.parse(source).body if getattr(n, "name", "") == "best_output_size")
space = {}
exec(compile(ast.Module([function], []), "utils.py", "exec"), space)

random.seed(5)
shapes = [(1, 1), (16, 9), (9, 16), (1280, 704), (704, 1280), (832, 480), (24, 40), (1000, 333), (2400, 100), (100, 2400),
          (1279, 703), (1281, 705), (1281, 704), (1920, 1080), (1080, 1920), (4032, 3024), (3024, 4032), (640, 480)]
shapes += [(random.randint(64, 4096), random.randint(64, 4096)) for _ in range(150)]
areas = (1280 * 704, 704 * 1024, 832 * 480, 64 * 96 * 4)
with open(sys.argv[2], "w") as out:
    for width, height in shapes:
        for area in areas:
            try:
                video = space["best_output_size"](width, height, 32, 32, area)
            except ZeroDivisionError:  # a side shorter than 32 pixels
                continue
            print(width, height, area, *video, file=out)
