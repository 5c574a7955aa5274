#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fit the linear map of previews (--preview) from latent channels to colours, and say how well it fits.

    tools/fit_preview.py models/shapes/vae PICTURE... [--json MAP.json]

Two maps are fitted by least squares, each with a constant term:

    encoded   from the pictures: their latents (AutoencoderKLWan of diffusers), and the mean colour of the pixels that
              each latent stands for. One half of the pictures is for the fit.
    decoded   from random normal latents that the decoder turns into colours, as ithaca does for an autoencoder whose
              files have no encoder. It sees no picture.

For each the script prints the share of the variance of the colours that the map explains on the other half of the
pictures: 1 - (sum of squared errors) / (sum of squared differences from the mean colour). Needs torch, diffusers, numpy and
Pillow.
"""
import argparse
import json

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from PIL import Image

SIDE = 16  # rows and columns of the random latents, as in src/wan/run/preview.c


def read_picture(path, multiple):
    picture = Image.open(path).convert("RGB")
    width, height = picture.width // multiple * multiple, picture.height // multiple * multiple
    pixels = np.asarray(picture.crop((0, 0, width, height)), np.float32) / 127.5 - 1
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None, :, None]


def squares(frame, side):
    """[3, H, W] -> the mean colours of its squares, [H / side * W / side, 3]"""
    return torch.nn.functional.avg_pool2d(frame[None], side)[0].flatten(1).T.double().numpy()


def rows(latents):
    """[z, h, w] -> [h * w, z + 1]; the last column is 1"""
    flat = latents.flatten(1).T.double().numpy()
    return np.hstack([flat, np.ones((len(flat), 1))])


def explained(weights, latents, colours):
    error = ((latents @ weights - colours) ** 2).sum()
    return 1 - error / ((colours - colours.mean(0)) ** 2).sum()


def random_latents(vae, seed):
    """Latents of one frame, normalised."""
    return torch.randn(vae.config.z_dim, SIDE, SIDE, generator=torch.manual_seed(seed))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("vae", help="a folder with config.json and the weights of an AutoencoderKLWan")
parser.add_argument("pictures", nargs="+")
parser.add_argument("--samples", type=int, default=1, help="frames of random latents for the second map")
parser.add_argument("--json", help="write both maps to this file: [z + 1, 3], the constant last")
arguments = parser.parse_args()

vae = AutoencoderKLWan.from_pretrained(arguments.vae, torch_dtype=torch.float32)
mean = torch.tensor(vae.config.latents_mean)[:, None, None]
std = torch.tensor(vae.config.latents_std)[:, None, None]
stride = getattr(vae.config, "scale_factor_spatial", None) or 8 * (vae.config.patch_size or 1)
latents, colours = [], []
with torch.no_grad():
    for path in arguments.pictures:
        picture = read_picture(path, stride)
        mode = vae.encode(picture).latent_dist.mode()[0, :, 0]
        latents.append(rows((mode - mean) / std))
        colours.append(squares(picture[0, :, 0], stride))
    seen, asked = [], []
    for sample in range(arguments.samples):
        z = random_latents(vae, sample)
        frame = vae.decode((z * std + mean)[None, :, None]).sample[0, :, 0].clamp(-1, 1)
        asked.append(rows(z))
        seen.append(squares(frame, stride))
fit, test = slice(0, None, 2), slice(1 if len(latents) > 1 else 0, None, 2)
maps = {
    "encoded": np.linalg.lstsq(np.vstack(latents[fit]), np.vstack(colours[fit]), rcond=None)[0],
    "decoded": np.linalg.lstsq(np.vstack(asked), np.vstack(seen), rcond=None)[0],
}
for name, weights in maps.items():
    share = explained(weights, np.vstack(latents[test]), np.vstack(colours[test]))
    print(f"{name}: {100 * share:.1f}% of the variance of the colours is explained")
if arguments.json:
    with open(arguments.json, "w") as out:
        json.dump({name: weights.tolist() for name, weights in maps.items()}, out, indent=1)
