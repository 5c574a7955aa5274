#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/small.gguf with the package gguf, for tests/files/test_gguf.c, which knows its contents.

    tools/make_gguf_golden.py tests/golden/small.gguf        (needs gguf, numpy)
"""
import sys

import gguf
import numpy as np

writer = gguf.GGUFWriter(sys.argv[1], "wan")
writer.add_uint32("a.u32", 4000000000)
writer.add_int8("a.i8", -5)
writer.add_uint64("a.u64", 2**63)
writer.add_float32("a.f32", 0.5)
writer.add_float64("a.f64", 1e-6)
writer.add_bool("a.bool", True)
writer.add_string("a.string", "Grüße")
writer.add_array("tokenizer.ggml.tokens", ["<pad>", "", "▁wan"])
writer.add_array("tokenizer.ggml.scores", [0.0, -1.5, -2.0])
# Numbers that each type holds exactly: with this largest magnitude the scale of a quantisation block is 1.
column = np.arange(64, dtype=np.float32)
eight = np.stack([column % 32 - 127, 127 - column % 32])
four = (np.arange(64, dtype=np.float32) % 16 - 8).reshape(1, 64)
writer.add_tensor("whole", np.arange(6, dtype=np.float32).reshape(2, 3))
writer.add_tensor("half", (np.arange(5) / 4).astype(np.float16))
for name, numbers, kind in ("eight", eight, gguf.GGMLQuantizationType.Q8_0), ("four", four, gguf.GGMLQuantizationType.Q4_0):
    writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
writer.add_tensor("filter", np.arange(24, dtype=np.float32).reshape(3, 2, 1, 2, 2))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
