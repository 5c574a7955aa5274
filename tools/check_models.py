#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make random small Wan models, and compare the videos of ithaca with the videos of diffusers.

    tools/check_models.py --ithaca build/ithaca --tokenizer models/shapes/tokenizer [--seeds 1-100] [--dpmpp] [--clip] \
        [--forms] [--keep FOLDER]

A seed gives a model (random_wan.py): kind, sizes, autoencoder, text encoder, scheduler, types of the weights; and a run:
frames, size, steps, guidance, prompts, images. diffusers and `ithaca generate` make its video in f32 from the same noise,
ithaca on one rank and on two with other options. Per seed a line with the relative L2 error of the latents after the last
step (at most 1e-3), and the share of pixels that differ by more than 1 of 255 (at most 1 in 10,000). The status is 1 if a
seed fails: --seeds K repeats it, and --keep keeps its files. With --dpmpp the solver of every model is DPM-Solver++, with
random fields. With --clip all models are I2V models with an image encoder, as in Wan 2.1. With --forms, the model is also
written under the names of the original code, as repackaged files, and as GGUF of three kinds (model_forms.py): the bits
must be the same as of a folder with the same numbers.
Needs torch, diffusers, transformers, sentencepiece, ftfy and gguf."""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
import sentencepiece
import torch
from diffusers import DiffusionPipeline
from diffusers.utils import logging as diffusers_logging
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPImageProcessorPil, CLIPVisionModel, UMT5EncoderModel
from transformers.utils import logging as transformers_logging

from make_golden import decode, embed, frames_u8, take_published_levels
from model_forms import FORMS, write_forms
from random_wan import make_case, write_model

TOLERANCE, LEVELS, MOST_DIFFERING = 1e-3, 1, 1e-4
SECOND_RUNS = ([], ["--cfg", "parallel"], ["--cfg", "sequential"], ["--strategy", "ring"], ["--strategy", "ulysses"],
               ["--shard-weights"], ["--keep-packed"])


def write_inputs(case, folder):
    """Writes the noise and the images."""
    random_numbers = torch.Generator().manual_seed(case["seed"] + 1000000)
    save_file({"noise": torch.randn(case["latents"], generator=random_numbers)}, f"{folder}/noise.safetensors")
    height, width = case["height"], case["width"]
    if case["resized"]:
        height, width = height + 13, max(8, width - 5)
    for i in range(case["images"]):
        small = torch.rand(1, 3, 5, 7, generator=random_numbers)
        picture = torch.nn.functional.interpolate(small, size=(height, width), mode="bicubic").clamp(0, 1)[0]
        picture = (picture.permute(1, 2, 0) * 255).round().to(torch.uint8)
        Image.fromarray(picture.numpy()).save(f"{folder}/image_{i}.png")


def fitted_image(case, path):
    """Scales rows, then columns, as ithaca and older versions of Pillow do. Pillow 13 begins with columns for some sizes,
    which changes the rounding to 8 bits between the two."""
    image = Image.open(path)
    image = image.resize((case["width"], image.height), Image.LANCZOS)
    return image.resize((case["width"], case["height"]), Image.LANCZOS)


def image_rows(case, folder):
    """The rows that the image encoder makes of the pictures, which it sees in their own sizes. They are scaled in the order
    of fitted_image."""
    processor = CLIPImageProcessorPil.from_pretrained(f"{folder}/model/image_processor")
    encoder = CLIPVisionModel.from_pretrained(f"{folder}/model/image_encoder", dtype=torch.float32).eval()
    images, side = [Image.open(f"{folder}/image_{i}.png") for i in range(case["images"])], case["vision"]["image_size"]
    for i, image in enumerate(images):
        width, height = (side * length // min(image.size) for length in image.size)
        images[i] = image.resize((width, image.height), Image.BICUBIC).resize((width, height), Image.BICUBIC)
    return encoder(**processor(images=images, return_tensors="pt"), output_hidden_states=True).hidden_states[-2]


def official_grid(scheduler):
    """Makes the scheduler take the noise levels of the published code."""
    inner, train = scheduler.set_timesteps, scheduler.config.num_train_timesteps

    def set_timesteps(steps, device=None):
        inner(sigmas=numpy.linspace(1 - 1 / train, 0, steps + 1)[:-1], device=device)

    def set_timesteps_of_dpmpp(steps, device=None):
        inner(steps, device=device)
        take_published_levels(scheduler, steps, scheduler.config.flow_shift)

    scheduler.set_timesteps = set_timesteps_of_dpmpp if is_dpmpp(scheduler.config) else set_timesteps


def is_dpmpp(scheduler):
    return scheduler["_class_name"].startswith("DPM")


@torch.no_grad()
def theirs(case, folder):
    """The latents after the last step, and the frames, of diffusers."""
    f32 = torch.float32
    absent = dict.fromkeys(("tokenizer", "text_encoder") + (("image_encoder", "image_processor") if "vision" in case else ()))
    pipe = DiffusionPipeline.from_pretrained(f"{folder}/model", dtype=f32, **absent)
    if "vision" in case:
        pipe.encode_image = lambda images, device: image_rows(case, folder)
    pipe.set_progress_bar_config(disable=True)
    text = UMT5EncoderModel.from_pretrained(f"{folder}/model/text_encoder", dtype=f32).eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/model/tokenizer/spiece.model")
    rows = [embed({"sp": pieces, "text": text}, case[key])[None] for key in ("prompt", "negative")]
    if case["sigmas"] == "official":
        official_grid(pipe.scheduler)
    adds_one = case["vae"]["scale_factor_temporal"] == 1  # then diffusers makes one frame more than it is asked for
    options = dict(prompt_embeds=rows[0], negative_prompt_embeds=rows[1], output_type="latent", height=case["height"],
                   width=case["width"], num_frames=case["frames"] - adds_one, num_inference_steps=case["steps"],
                   guidance_scale=case["guidance"][0], latents=load_file(f"{folder}/noise.safetensors")["noise"][None])
    if case["boundary"] is not None:
        options["guidance_scale_2"] = case["guidance"][1]
    images = [fitted_image(case, f"{folder}/image_{i}.png") for i in range(case["images"])]
    options.update(zip(("image", "last_image"), images))
    latents = pipe(**options).frames
    return latents[0], frames_u8(decode({"vae": pipe.vae}, latents))


def ours(case, folder, program, extra, model=None):
    """The latents after the last step, and the frames, of ithaca; or its message."""
    command = [program, "generate", "--model", model or f"{folder}/model", "--prompt", case["prompt"], "--negative", case["negative"],
               "--frames", case["frames"], "--height", case["height"], "--width", case["width"], "--steps", case["steps"],
               "--guidance", ",".join(map(str, case["guidance"][:len(case["dits"])])), "--sigmas", case["sigmas"],
               "--precision", "f32", "--noise", f"{folder}/noise.safetensors", "--dump", f"{folder}/dump.safetensors",
               "--output", f"{tempfile.mkdtemp(dir=folder)}/", "--quiet", *extra]
    for option, i in zip(("--image", "--last-image"), range(case["images"])):
        command += [option, f"{folder}/image_{i}.png"]
    if case["images"]:
        command += ["--fit", "stretch"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip() or f"status {done.returncode}").replace(f"{folder}/", "")
    dump = load_file(f"{folder}/dump.safetensors")
    return dump["final"], dump["frames"]


def compare(mine, reference):
    """Whether the videos agree, the relative error of the latents, and the share of pixels that differ."""
    error = float((mine[0] - reference[0]).norm() / reference[0].norm())
    pixels = (mine[1].int() - reference[1].int()).abs().amax(-1) > LEVELS
    share = float(pixels.float().mean())
    return error <= TOLERANCE and share <= MOST_DIFFERING and bool(mine[0].isfinite().all()), error, share


def check_forms(case, args, folder):
    """Whether other forms of the model give the bits of a folder with the same numbers, and a line for each that fails."""
    lines = []
    for form in FORMS:
        model, files = f"{folder}/{form}/model", f"{folder}/{form}/files"
        shutil.copytree(f"{folder}/model", model)
        options = write_forms(form, case, model, files)
        found = [ours(case, folder, args.ithaca, ["--threads", 1, *extra], model) for extra in ([], options)]
        if any(isinstance(one, str) for one in found):
            lines.append(f"{form}: {found}")
        elif not all(torch.equal(a, b) for a, b in zip(*found)):
            lines.append(f"{form}: other bits, {compare(*found)[1]:.1e}")
    return lines


def describe(case):
    vae, dits = case["vae"], case["dits"]
    sizes = " + ".join(f"{d['num_attention_heads']}x{d['attention_head_dim']}x{d['num_layers']}" for d in dits)
    order = case["scheduler"].get("solver_order")
    solver = f"{'dpm++' if is_dpmpp(case['scheduler']) else 'unipc'}{order}" if order else "euler"
    types = "/".join(case["types"].values())
    return (f"{case['kind']}{'+%d' % case['images'] if case['images'] else ''} {sizes} vae {'2.2' if vae['is_residual'] else '2.1'}"
            f" {vae['base_dim']}*{vae['dim_mult']} z{vae['z_dim']} {solver} {case['steps']} steps"
            f" {case['frames']}x{case['height']}x{case['width']} {types}")


def check(seed, args, folder):
    """Runs a case. Returns whether it succeeds, its largest error, and its line."""
    case, started = make_case(seed, args.dpmpp, args.clip), time.time()
    write_model(case, args.tokenizer, f"{folder}/model")
    write_inputs(case, folder)
    with open(f"{folder}/case.json", "w") as file:
        json.dump(case, file, indent=1)
    reference = theirs(case, folder)
    second = random.Random(seed).choice(SECOND_RUNS)
    good, worst, lines = True, 0.0, []
    for extra in (["--threads", 1], ["--ranks", 2, "--threads", 2, *second]):
        mine = ours(case, folder, args.ithaca, extra)
        if isinstance(mine, str):
            good, text = False, mine
        else:
            fine, error, share = compare(mine, reference)
            good, worst = good and fine, max(worst, error)
            text = f"{error:.1e} {share:.0e}"
        lines.append(text)
    spread = f"{float(reference[0].std()):.2f} {float(reference[1].float().std()):.0f}"
    forms = check_forms(case, args, folder) if args.forms else []
    good = good and not forms
    verdict = ("equal" if good else "DIFFERENT") + "".join(f" | {form}" for form in forms)
    return good, worst, (f"{seed} {verdict} | {lines[0]} | {lines[1]} {' '.join(second)} | {describe(case)} | spread "
                         f"{spread} | {time.time() - started:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ithaca", required=True)
    parser.add_argument("--tokenizer", required=True, help="folder with the spiece.model of models/shapes")
    parser.add_argument("--seeds", default="1-100", help="K, or K-L")
    parser.add_argument("--dpmpp", action="store_true", help="DPM-Solver++ in place of the solver of every model")
    parser.add_argument("--clip", action="store_true", help="I2V models with an image encoder")
    parser.add_argument("--forms", action="store_true", help="also original names, repackaged files and GGUF")
    parser.add_argument("--keep", help="folder for the files of cases that fail")
    args = parser.parse_args()
    if args.clip and args.forms:
        parser.error("--forms writes no image encoder")
    torch.set_num_threads(1)
    for logging in (diffusers_logging, transformers_logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    first, _, last = args.seeds.partition("-")
    failed, worst = [], 0.0
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                good, error, line = check(seed, args, folder)
            except Exception as exception:  # diffusers refuses the case
                good, error, line = False, 0.0, f"{seed} BROKEN {type(exception).__name__}: {exception}"
            if not good and args.keep:
                os.makedirs(args.keep, exist_ok=True)
                subprocess.run(["cp", "-r", folder, os.path.join(args.keep, str(seed))], check=True)
        print(line, flush=True)
        worst = max(worst, error)
        failed += [] if good else [seed]
    print(f"{len(failed)} of seeds {args.seeds} fail: {failed}; largest relative error of latents {worst:.1e}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
