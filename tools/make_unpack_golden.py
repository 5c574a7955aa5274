#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/unpack/TYPE.bin, the oracle of the unpacking of packed number formats (src/kernels/unpack.h).

A file holds ELEMENTS packed numbers, and behind them the same numbers as f32, little-endian. The numbers come from
other people's code: the package gguf for quantisation blocks, torch for fp8. Blocks are random bytes, so that every code
occurs; their f16 scales are random or extreme: 0, negative, subnormal, the largest, infinity, NaN.

    tools/make_unpack_golden.py tests/golden/unpack        (needs gguf, numpy, torch)
"""
import sys

import gguf
import numpy as np
import torch

ELEMENTS = 16 * 256
EXTREME = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00, 0xBC00]
# type: the offsets of the f16 scales in a block
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}


def blocks(name, random):
    kind = gguf.GGMLQuantizationType[name]
    run, size = gguf.GGML_QUANT_SIZES[kind]
    packed = random.integers(0, 256, (ELEMENTS // run, size), dtype=np.uint8)
    for number, offset in enumerate(SCALES[name]):
        scales = random.normal(0, 0.05, len(packed)).astype(np.float16).view(np.uint16)
        for i, extreme in enumerate(EXTREME):  # the first blocks are ordinary; in the others an extreme scale moves
            if 2 + i < len(packed):
                scales[2 + (i + number * 5) % len(EXTREME)] = extreme
        packed[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return packed.tobytes(), gguf.quants.dequantize(packed, kind)


def codes(dtype):
    packed = torch.arange(ELEMENTS, dtype=torch.int32).to(torch.uint8)
    return packed.numpy().tobytes(), packed.view(dtype).to(torch.float32).numpy()


def main(folder):
    random = np.random.default_rng(15)
    made = {name.lower(): blocks(name, random) for name in SCALES}
    made |= {"f8_e4m3": codes(torch.float8_e4m3fn), "f8_e5m2": codes(torch.float8_e5m2), "i8": codes(torch.int8)}
    for name, (packed, values) in made.items():
        values = np.ascontiguousarray(values, dtype="<f4")
        assert values.size == ELEMENTS
        with open(f"{folder}/{name}.bin", "wb") as file:
            file.write(packed + values.tobytes())


main(sys.argv[1])
