#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the results of diffusers and Pillow for image-to-video, with the checkpoints of tests/golden/i2v and ti2v.

    tools/make_image_golden.py GOLDEN

GOLDEN/i2v/dit.safetensors: one pass of a transformer whose tokens carry a condition. `latents` [2, 16, ...], `condition`
[20, ...], `timestep` [2], `text` [2, rows, dim] (zero up to 512), `out` [2, 16, ...].
GOLDEN/ti2v/dit.safetensors: one pass whose first latent frame has time step 0. `latents` [2, 48, ...], `first` [48, 1, ...]
(in the place of the first latent frame), the rest as above.
GOLDEN/resize.safetensors: pictures that Pillow resizes with its Lanczos filter. `from_N` [height, width, 3], `to_N`.
"""
import sys
import numpy as np
import torch
from diffusers import WanTransformer3DModel
from PIL import Image
from safetensors.torch import save_file

golden = sys.argv[1]
torch.manual_seed(5)


def forward(folder, x, time, rows):
    m = WanTransformer3DModel.from_pretrained(folder, torch_dtype=torch.float32).eval()
    text = torch.zeros(2, 512, m.config.text_dim)
    for i, n in enumerate(rows):
        text[i, :n] = torch.randn(n, m.config.text_dim)
    with torch.no_grad():
        return text[:, :max(rows)], m(x, time, text).sample


def save(path, **tensors):
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{golden}/{path}")


x, condition, t = torch.randn(2, 16, 3, 6, 10), torch.randn(20, 3, 6, 10), torch.tensor([871, 402])
text, out = forward(f"{golden}/i2v/model/transformer", torch.cat([x, condition[None].expand(2, -1, -1, -1, -1)], 1), t, (9, 4))
save("i2v/dit.safetensors", latents=x, condition=condition, timestep=t, text=text, out=out)

x, first = torch.randn(2, 48, 3, 6, 10), torch.randn(48, 1, 6, 10)
inp = x.clone()
inp[:, :, :1] = first
steps = torch.ones(2, 3, 3, 5) * t[:, None, None, None]
steps[:, 0] = 0
text, out = forward(f"{golden}/ti2v/model/transformer", inp, steps.flatten(1), (9, 4))
save("ti2v/dit.safetensors", latents=x, first=first, timestep=t, text=text, out=out)

rng = np.random.default_rng(5)
pairs = {}
for i, (h, w, to_h, to_w) in enumerate([(37, 53, 16, 32), (16, 24, 48, 80), (40, 40, 40, 24), (30, 50, 64, 50), (1, 1, 16, 16),
                                        (2, 90, 16, 16), (33, 47, 33, 47)]):
    picture = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
    pairs[f"from_{i}"] = torch.from_numpy(picture)
    pairs[f"to_{i}"] = torch.from_numpy(np.array(Image.fromarray(picture).resize((to_w, to_h), Image.LANCZOS)))
save("resize.safetensors", **pairs)
