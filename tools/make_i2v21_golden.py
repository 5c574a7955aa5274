#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write random small models in the form of Wan 2.1's I2V-14B and FLF2V-14B, and the results of diffusers with them.

    tools/make_i2v21_golden.py GOLDEN

Their transformers also attend to the rows of an image encoder, CLIP's, which sees the whole pictures.
GOLDEN/i2v21 is a model for a first image. GOLDEN/flf2v21 is a model for a first and a last image: its transformer
(GOLDEN/i2v21/transformer_flf2v) adds a position to the rows of both. Links lead to the parts that they share with each other
and with GOLDEN/i2v/model.
GOLDEN/i2v21/dit.safetensors, dit_flf2v.safetensors: a pass of the transformers. `latents` [2, 16, ...], `condition` [20, ...],
`image_embeds` [rows, 32] (the rows of one image or of two, the same for both entries), `timestep` [2], `text` [2, rows, dim]
(zero up to 512), `out` [2, 16, ...], and stages with the names of diffusers' modules (16 rows of the embedded text).
GOLDEN/i2v21/first.safetensors, first_last.safetensors: runs from pictures of sizes other than the video's, which diffusers
stretches. `first`, `last` [height, width, 3], `pixels` [images, 3, 28, 28] (the input of the image encoder), `image_embeds`,
`noise`, `condition`, `latents` (after each step), `frames`. diffusers' pipeline must compute the same from the pictures.
Everything is computed in f32 from the stored weights. The pictures go through the image processor that uses Pillow."""
import functools
import os
import sys

import numpy
import torch
from diffusers import UniPCMultistepScheduler, WanImageToVideoPipeline, WanTransformer3DModel
from PIL import Image
from transformers import CLIPImageProcessorPil, CLIPVisionModel

from make_golden import PROMPTS, capture, condition, decode, denoise, embed, frames_u8, load, picture, put
from random_wan import make_dit, write_json, write_vision

FRAMES, HEIGHT, WIDTH = 9, 80, 48
LATENTS = (3, HEIGHT // 8, WIDTH // 8)
STEPS, GUIDANCE, NEGATIVE = 3, 4.0, "blurry"
VISION = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=3, image_size=28, patch_size=14,
              projection_dim=16, hidden_act="gelu", layer_norm_eps=1e-5)
VISION_ROWS = (VISION["image_size"] // VISION["patch_size"]) ** 2 + 1
DIT = dict(num_attention_heads=4, attention_head_dim=16, in_channels=36, out_channels=16, text_dim=128, freq_dim=64, ffn_dim=96,
           num_layers=2, cross_attn_norm=True, qk_norm="rms_norm_across_heads", eps=1e-6, rope_max_seq_len=1024,
           image_dim=VISION["hidden_size"], added_kv_proj_dim=64)
INDEX = dict(_class_name="WanImageToVideoPipeline", _diffusers_version="0.33.0",
             image_encoder=["transformers", "CLIPVisionModel"], image_processor=["transformers", "CLIPImageProcessor"],
             scheduler=["diffusers", "UniPCMultistepScheduler"], text_encoder=["transformers", "UMT5EncoderModel"],
             tokenizer=["transformers", "T5TokenizerFast"], transformer=["diffusers", "WanTransformer3DModel"],
             vae=["diffusers", "AutoencoderKLWan"])


def link(path, target):
    if os.path.lexists(path):
        os.remove(path)
    os.symlink(target, path)


def write_models(golden):
    first, both = f"{golden}/i2v21", f"{golden}/flf2v21"
    for folder in (first, both):
        write_json(f"{folder}/model_index.json", INDEX)
        for part in ("text_encoder", "tokenizer", "vae"):
            link(f"{folder}/{part}", f"../i2v/model/{part}")
    link(f"{first}/scheduler", "../i2v/model/scheduler")
    scheduler = UniPCMultistepScheduler.from_pretrained(f"{first}/scheduler")
    UniPCMultistepScheduler.from_config(scheduler.config, flow_shift=16.0).save_pretrained(f"{both}/scheduler")
    make_dit(DIT).to(torch.bfloat16).save_pretrained(f"{first}/transformer")
    fields = dict(DIT, pos_embed_seq_len=2 * VISION_ROWS)
    make_dit(fields).to(torch.bfloat16).save_pretrained(f"{first}/transformer_flf2v")
    link(f"{both}/transformer", "../i2v21/transformer_flf2v")
    write_vision(VISION, torch.float16, first)
    for part in ("image_encoder", "image_processor"):
        link(f"{both}/{part}", f"../i2v21/{part}")


def write_pass(folder, rows, path):
    """A pass over a batch of two prompts of different lengths, with the same image rows."""
    dit = WanTransformer3DModel.from_pretrained(folder, torch_dtype=torch.float32).eval()
    x, given = torch.randn(2, 16, *LATENTS), torch.randn(20, *LATENTS)
    time, text = torch.tensor([871, 402]), torch.zeros(2, 512, DIT["text_dim"])
    image = torch.randn(rows, VISION["hidden_size"]) * torch.linspace(0.05, 1, rows)[:, None]  # small rows show LayerNorm's eps
    for entry, count in enumerate((9, 4)):
        text[entry, :count] = torch.randn(count, DIT["text_dim"])
    got, hooks = capture(dit, ["condition_embedder.text_embedder", "condition_embedder.image_embedder", "blocks.0.attn2",
                               "blocks.0", "blocks.1.attn2", "blocks.1"])
    both = torch.cat([image, image]).view(-1, VISION_ROWS, VISION["hidden_size"])
    out = dit(torch.cat([x, given.expand(2, -1, -1, -1, -1)], 1), time, text, encoder_hidden_states_image=both).sample
    got["condition_embedder.text_embedder"] = got["condition_embedder.text_embedder"][:, :16]
    put(path, {"latents": x, "condition": given, "image_embeds": image, "timestep": time, "text": text[:, :9], "out": out, **got})


def encode_images(model, pictures):
    """The encoder's input, and its rows before its last layer [rows of all pictures, dim]."""
    processor = CLIPImageProcessorPil.from_pretrained(f"{model}/image_processor")
    encoder = CLIPVisionModel.from_pretrained(f"{model}/image_encoder", dtype=torch.float32).eval()
    pixels = processor(images=[Image.fromarray(one.numpy()) for one in pictures], return_tensors="pt").pixel_values
    return pixels, encoder(pixels, output_hidden_states=True).hidden_states[-2].flatten(0, 1)


def stretched(picture):
    """Scales rows, then columns. Pillow 13 begins with columns if a picture is narrower than the video, which ours are not."""
    image = Image.fromarray(picture.numpy())
    image = image.resize((WIDTH, image.height), Image.LANCZOS).resize((WIDTH, HEIGHT), Image.LANCZOS)
    return torch.from_numpy(numpy.array(image))


def check_pipeline(model, pictures, prompts, noise, latents):
    """Checks that diffusers' pipeline makes the same latents from the pictures. (transformers 5 cannot read a tokenizer that
    is only a spiece.model, so the pipeline takes the rows of the two prompts.)"""
    processor = CLIPImageProcessorPil.from_pretrained(f"{model}/image_processor")
    pipe = WanImageToVideoPipeline.from_pretrained(model, image_processor=processor, tokenizer=None, text_encoder=None,
                                                   torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    images = dict(zip(("image", "last_image"), (Image.fromarray(one.numpy()) for one in pictures)))
    made = pipe(prompt_embeds=prompts[0][None], negative_prompt_embeds=prompts[1][None], height=HEIGHT, width=WIDTH,
                num_frames=FRAMES, latents=noise, num_inference_steps=STEPS, guidance_scale=GUIDANCE, output_type="latent",
                **images).frames[0]
    error = float((made - latents).norm() / latents.norm())
    print(f"the latents of {model} differ from the pipeline's by {error:.1e}")
    assert error < 1e-5


def write_run(model, pictures, prompt, shift, path):
    parts, noise = load(model), torch.randn(1, 16, *LATENTS)
    pixels, rows = encode_images(model, pictures)
    cond = condition(parts, [stretched(one) for one in pictures], FRAMES)
    parts["high"] = functools.partial(parts["high"], encoder_hidden_states_image=rows.view(-1, VISION_ROWS, rows.shape[1]))
    prompts = [embed(parts, text) for text in (prompt, NEGATIVE)]
    x, trace, _ = denoise(parts, noise, *prompts, "unipc", "diffusers", STEPS, shift, GUIDANCE, GUIDANCE, None,
                          model_input=lambda x, t: (torch.cat([x, cond], 1), t.expand(1)))
    put(path, {**dict(zip(("first", "last"), pictures)), "pixels": pixels, "image_embeds": rows, "noise": noise[0],
               "condition": cond[0], "latents": trace, "frames": frames_u8(decode(parts, x))},
        prompt=prompt, negative=NEGATIVE, solver="unipc", grid="diffusers", steps=STEPS, shift=shift, guidance=GUIDANCE,
        frames=FRAMES, height=HEIGHT, width=WIDTH, fit="stretch")
    check_pipeline(model, pictures, prompts, noise, x[0])


@torch.no_grad()
def main():
    golden = sys.argv[1]
    torch.set_num_threads(1)
    torch.manual_seed(21)
    write_models(golden)
    folder = f"{golden}/i2v21"
    write_pass(f"{folder}/transformer", VISION_ROWS, f"{folder}/dit.safetensors")
    write_pass(f"{folder}/transformer_flf2v", 2 * VISION_ROWS, f"{folder}/dit_flf2v.safetensors")
    first, last = picture(61, 107), picture(90, 66)
    write_run(folder, [first], PROMPTS[0], 3.0, f"{folder}/first.safetensors")
    write_run(f"{golden}/flf2v21", [first, last], PROMPTS[1], 16.0, f"{folder}/first_last.safetensors")


main()
