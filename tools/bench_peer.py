#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same benchmark in Ithaca and in diffusers in float32, in turn on the same cores, and prints medians.

    tools/bench_peer.py [--rounds 5] [--ithaca build/ithaca] [--model models/shapes] [--threads 2]

Needs torch, diffusers, transformers, sentencepiece, safetensors. Loading and imports are left out on both sides.
"""
import argparse, json, os, statistics, subprocess, time
import numpy as np
import torch

PROMPT = "A red circle moves to the right on a black background."


def load(model):
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
    from transformers import UMT5EncoderModel
    import sentencepiece
    part = lambda name: os.path.join(model, name)
    return {"vae": AutoencoderKLWan.from_pretrained(part("vae"), torch_dtype=torch.float32).eval(),
            "text": UMT5EncoderModel.from_pretrained(part("text_encoder"), dtype=torch.float32).eval(),
            "high": WanTransformer3DModel.from_pretrained(part("transformer"), torch_dtype=torch.float32).eval(),
            "low": WanTransformer3DModel.from_pretrained(part("transformer_2"), torch_dtype=torch.float32).eval(),
            "scheduler": UniPCMultistepScheduler.from_pretrained(part("scheduler")),
            "tokens": sentencepiece.SentencePieceProcessor(model_file=part("tokenizer/spiece.model"))}


def embed(parts, text):
    ids = parts["tokens"].encode(text) + [1]
    rows = parts["text"](input_ids=torch.tensor([ids])).last_hidden_state[0]
    return torch.cat([rows, torch.zeros(512 - len(ids), rows.shape[1])])


@torch.no_grad()
def run_diffusers(parts):
    from diffusers import UniPCMultistepScheduler
    t0 = time.perf_counter()
    cond, uncond = embed(parts, PROMPT)[None], embed(parts, "")[None]
    t1 = time.perf_counter()
    scheduler = UniPCMultistepScheduler.from_config(parts["scheduler"].config, flow_shift=1.0)
    sigmas = np.linspace(1, 1 / 1000, 9)[:-1]
    sigmas = 3.0 * sigmas / (1 + 2.0 * sigmas)
    sigmas[0] -= 1e-6
    scheduler.set_timesteps(sigmas=sigmas)
    x = torch.randn(1, 16, 5, 16, 16, generator=torch.Generator().manual_seed(0))
    for t in scheduler.timesteps:
        model, g = (parts["high"], 4.0) if t >= 875 else (parts["low"], 3.0)
        c, u = (model(x, t.expand(1), text).sample for text in (cond, uncond))
        x = scheduler.step(u + g * (c - u), t, x, return_dict=False)[0]
    t2 = time.perf_counter()
    vae = parts["vae"]
    mean, std = (torch.tensor(v).view(1, -1, 1, 1, 1) for v in (vae.config.latents_mean, vae.config.latents_std))
    vae.decode(x * std + mean).sample
    t3 = time.perf_counter()
    return {"text": t1 - t0, "denoise": t2 - t1, "decode": t3 - t2, "whole": t3 - t0}


def run_ithaca(program, model, threads):
    command = [program, "bench", "generate", "--model", model, "--prompt", PROMPT, "--negative", "", "--steps", "8",
               "--sigmas", "diffusers", "--precision", "f32", "--threads", str(threads), "--repeat", "1", "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["stage"]: row["seconds"] for row in rows}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--ithaca", default="build/ithaca")
    p.add_argument("--model", default="models/shapes")
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    parts = load(a.model)
    run_diffusers(parts)
    ours, theirs = [], []
    for _ in range(a.rounds):
        theirs.append(run_diffusers(parts))
        ours.append(run_ithaca(a.ithaca, a.model, a.threads))
    print(f"{'seconds (median)':18}{'ithaca':>10}{'diffusers':>12}{'ratio':>8}")
    for stage in ("text", "denoise", "decode", "whole"):
        mine, peer = (statistics.median(r[stage] for r in rows) for rows in (ours, theirs))
        print(f"{stage:18}{mine:10.3f}{peer:12.3f}{mine / peer:8.2f}")


if __name__ == "__main__":
    main()
