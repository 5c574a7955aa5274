#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/umt5: a random umT5 encoder of odd sizes in float16, and the results of transformers with it.

    tools/make_text_golden.py --output tests/golden/umt5
"""
import argparse
import os

import torch
from safetensors.torch import save_file
from transformers import UMT5Config, UMT5EncoderModel


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--output", required=True)
    folder = p.parse_args().output
    torch.manual_seed(1)
    config = UMT5Config(vocab_size=61, d_model=40, d_kv=12, num_heads=5, d_ff=52, num_layers=3, dropout_rate=0.0,
                        relative_attention_num_buckets=20, relative_attention_max_distance=50, layer_norm_epsilon=1e-5)
    model = UMT5EncoderModel(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
        elif "relative_attention_bias" in name:
            parameter.copy_(torch.randn_like(parameter))
        elif parameter.ndim == 2:
            parameter.copy_(torch.randn_like(parameter) * (1.0 if "shared" in name else 0.8 * parameter.shape[1] ** -0.5))
    model.half().save_pretrained(folder)
    model = UMT5EncoderModel.from_pretrained(folder, dtype=torch.float32).eval()
    golden = {}
    for count in (1, 6, 133):
        ids = torch.randint(config.vocab_size, (1, count))
        golden[f"ids_{count}"] = ids[0].to(torch.int32)
        golden[f"rows_{count}"] = model(input_ids=ids).last_hidden_state[0].contiguous()
    save_file(golden, os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main()
