#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/dit_small, or dit_no_cross_norm: a small random transformer and the results of diffusers with it.

    tools/make_dit_golden.py FOLDER [--no-cross-norm]

5 heads of 10 (RoPE parts 6, 2, 2), 2 layers, 3 channels in and 5 out: nothing is a multiple of a vector. Most weights
are F16, some F32 or BF16. Beside config.json and the weights lies run.safetensors: `latents` [2, 3, 3, 6, 10], `timestep`
[2] (not integers, and different), `text_0` and `text_1` (rows without padding: 3 and 512) and `out`, all computed in
float64 from the stored weights. diffusers computes the sinusoid of the time step in float32; here it is float64 too.
"""
import math
import os
import sys

import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file, save_file

TEXT_DIM = 10


def sinusoid(t):
    angle = t.double()[:, None] * torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float64) / 8)
    return torch.cat([angle.cos(), angle.sin()], 1)


def main():
    torch.manual_seed(11)
    folder = sys.argv[1]
    model = WanTransformer3DModel(num_attention_heads=5, attention_head_dim=10, in_channels=3, out_channels=5,
                                  text_dim=TEXT_DIM, freq_dim=16, ffn_dim=37, num_layers=2, eps=1e-5,
                                  cross_attn_norm="--no-cross-norm" not in sys.argv).eval()
    model.save_pretrained(folder)
    path = os.path.join(folder, "diffusion_pytorch_model.safetensors")
    stored = {}
    for i, (name, value) in enumerate(sorted(load_file(path).items())):
        value = 1 + 0.2 * torch.randn_like(value) if "norm" in name and name.endswith("weight") else value
        value = value + 0.1 * torch.randn_like(value) if name.endswith("bias") else value
        stored[name] = value.to((torch.float16, torch.float16, torch.float16, torch.bfloat16, torch.float32)[i % 5])
    save_file(stored, path)
    model.load_state_dict({name: value.float() for name, value in stored.items()})
    rope = (model.rope.freqs_cos.clone(), model.rope.freqs_sin.clone())
    model.double()
    model.rope.freqs_cos, model.rope.freqs_sin = (r.double() for r in rope)
    model.condition_embedder.timesteps_proj.forward = sinusoid
    latents, timestep = torch.randn(2, 3, 3, 6, 10), torch.tensor([961.5828, 3.25])
    texts = [torch.randn(3, TEXT_DIM), torch.randn(512, TEXT_DIM)]
    padded = torch.stack([torch.cat([t, torch.zeros(512 - len(t), TEXT_DIM)]) for t in texts])
    with torch.no_grad():
        out = model(latents.double(), timestep, padded.double()).sample
    save_file({"latents": latents, "timestep": timestep, "text_0": texts[0], "text_1": texts[1], "out": out.float()},
              os.path.join(folder, "run.safetensors"))


if __name__ == "__main__":
    main()
