#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Set every field of diffusers' scheduler classes to other values, one at a time, and compare ithaca with diffusers.

    tools/check_scheduler_fields.py --ithaca build/ithaca --model models/shapes [--only PATTERN] [--kind PATTERN]

For every value, diffusers' WanPipeline and `ithaca generate` make the latents of the same noise and prompt from a folder
with that scheduler_config.json. A line says "equal" with the largest relative error over the steps, or "refused" with
ithaca's sentence, and whether diffusers itself fails. "DIFFERENT" ends the program with status 1. The fields come
from the signatures of the installed diffusers, so new fields are found; a field without values here is an error.
"""
import argparse, inspect, json, os, re, subprocess, sys, tempfile

import torch
from diffusers import (DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler,
                       WanPipeline)
from safetensors.torch import load_file, save_file

from make_golden import PROMPTS, embed, load

STEPS, SIZE, FRAMES = 7, 32, 5
TOLERANCE = 1e-3
FLAG = [True, False, None, 1]
UNIPC = {"num_train_timesteps": [500, 2000, 100, 1, 0, None, 1000.0], "beta_start": [0.01, None], "beta_end": [0.5],
         "beta_schedule": ["scaled_linear", "squaredcos_cap_v2", "cosine"],
         "trained_betas": [[0.001, 0.002, 0.003], []], "solver_order": [1, 2, 3, 4, 0, None],
         "prediction_type": ["flow_prediction", "epsilon", "sample", "v_prediction", None],
         "thresholding": FLAG, "dynamic_thresholding_ratio": [0.5, None], "sample_max_value": [0.1, 7.0],
         "predict_x0": FLAG, "solver_type": ["bh1", "bh2", "midpoint", "heun", "logrho", "dpm", None],
         "lower_order_final": FLAG, "disable_corrector": [[], [0], [1, 4], [0, 1, 2, 3, 4, 5, 6], [-1, 50], None],
         "solver_p": [None, {"a": 1}], "use_karras_sigmas": FLAG, "use_exponential_sigmas": FLAG,
         "use_beta_sigmas": FLAG, "use_flow_sigmas": FLAG, "flow_shift": [1.0, 2.5, 12, 0.4, None],
         "timestep_spacing": ["linspace", "leading", "trailing"], "steps_offset": [1, -3],
         "final_sigmas_type": ["zero", "sigma_min", "last", None], "rescale_betas_zero_snr": FLAG,
         "use_dynamic_shifting": FLAG, "time_shift_type": ["exponential", "linear"], "sigma_min": [0.1, None],
         "sigma_max": [0.9, 2.0, None], "shift_terminal": [0.1, 0.02, 0.7, 0, 1, -0.1, True, None]}
EULER = {"num_train_timesteps": [500, 2000, 100, 1, 0, None], "shift": [1.0, 2.5, 12, 0.4, None],
         "use_dynamic_shifting": FLAG, "base_shift": [0.1, None], "max_shift": [3.0, None],
         "base_image_seq_len": [16], "max_image_seq_len": [64], "invert_sigmas": FLAG,
         "shift_terminal": [0.1, 0.02, 0.7, 0, 1, -0.1, True, None], "use_karras_sigmas": FLAG,
         "use_exponential_sigmas": FLAG, "use_beta_sigmas": FLAG, "time_shift_type": ["exponential", "linear"],
         "stochastic_sampling": FLAG}
DPMPP = {"algorithm_type": ["dpmsolver++", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver", "deis", None],
         "solver_type": ["midpoint", "heun", "bh1", "bh2", "logrho", "dpm", None], "euler_at_final": FLAG,
         "use_lu_lambdas": FLAG, "lambda_min_clipped": [-float("inf"), -5.1, 0.5, None],
         "variance_type": [None, "learned", "learned_range"]}
DPMPP = {**{name: values for name, values in UNIPC.items()
            if name not in ("predict_x0", "disable_corrector", "solver_p", "sigma_min", "sigma_max", "shift_terminal")},
         **DPMPP}
VALUES = {UniPCMultistepScheduler: UNIPC, FlowMatchEulerDiscreteScheduler: EULER, DPMSolverMultistepScheduler: DPMPP}
OTHER = {"a_field_of_tomorrow": [1, [2]], "_use_default_values": [[], ["flow_shift", "shift"]], "flow_shift": [9.0],
         "shift": [9.0]}
BASE = {UniPCMultistepScheduler: {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0},
        FlowMatchEulerDiscreteScheduler: {"shift": 3.0}}
BASE[DPMSolverMultistepScheduler] = BASE[UniPCMultistepScheduler]


def cases(kind):
    values = VALUES[kind]
    fields = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    missing = [name for name in fields if name not in values]
    if missing:
        sys.exit(f"{kind.__name__} has fields without values here: {', '.join(missing)}")
    yield "(as it is)", None, {}
    for name in fields:
        yield name, "(left out)", {name: KeyError}
        for value in values[name]:
            yield name, value, {name: value}
    for name, list_of in OTHER.items():
        for value in list_of if name not in fields else []:
            yield name, value, {name: value}


def config_of(kind, change):
    config = {"_class_name": kind.__name__, **BASE[kind], **change}
    return {key: value for key, value in config.items() if value is not KeyError}


def folder_with(model, work, kind, config):
    """Makes a folder of links to the model, with another scheduler and its name in the index."""
    folder = tempfile.mkdtemp(dir=work)
    for name in os.listdir(model):
        if name not in ("scheduler", "model_index.json", "ithaca.yaml"):
            os.symlink(os.path.join(os.path.abspath(model), name), os.path.join(folder, name))
    index = json.load(open(os.path.join(model, "model_index.json")))
    index["scheduler"] = ["diffusers", kind.__name__]
    json.dump(index, open(os.path.join(folder, "model_index.json"), "w"))
    os.mkdir(os.path.join(folder, "scheduler"))
    json.dump(config, open(os.path.join(folder, "scheduler", "scheduler_config.json"), "w"))
    return folder


def theirs(parts, folder, kind, noise, rows):
    """The latents [steps, ...] of diffusers, or its exception."""
    trace = []

    def keep(pipeline, step, t, found):
        trace.append(found["latents"][0].clone())
        return found

    try:
        scheduler = kind.from_pretrained(os.path.join(folder, "scheduler"))
        pipe = WanPipeline(tokenizer=None, text_encoder=None, vae=parts["vae"], scheduler=scheduler,
                           transformer=parts["high"], transformer_2=parts["low"], boundary_ratio=0.875)
        pipe.set_progress_bar_config(disable=True)
        with torch.no_grad():
            pipe(prompt_embeds=rows[0][None], negative_prompt_embeds=rows[1][None], latents=noise[None].clone(),
                 output_type="latent", num_inference_steps=STEPS, guidance_scale=3.0, guidance_scale_2=2.0, height=SIZE,
                 width=SIZE, num_frames=FRAMES, callback_on_step_end=keep)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return torch.stack(trace)


def ours(program, folder, noise_file):
    """The latents [steps, ...] of ithaca, or its sentence."""
    dump = os.path.join(folder, "dump.safetensors")
    command = [program, "generate", "--model", folder, "--prompt", PROMPTS[0], "--negative", "", "--frames", FRAMES,
               "--height", SIZE, "--width", SIZE, "--steps", STEPS, "--guidance", "3,2", "--sigmas", "diffusers",
               "--precision", "f32", "--threads", 1, "--noise", noise_file, "--dump", dump, "--output",
               os.path.join(folder, "frames/"), "--quiet"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode == 0:
        return load_file(dump)["latents"]
    return done.stderr.strip().splitlines()[-1].replace(folder + "/", "")


def error_of(a, b):
    steps = [float((x - y).norm() / y.norm()) for x, y in zip(a, b)]
    return max(steps) if a.isfinite().all() and b.isfinite().all() else float("nan")


def verdict(mine, reference):
    fails = f" (diffusers: {reference[:70]})" if isinstance(reference, str) else ""
    if isinstance(reference, torch.Tensor) and not reference.isfinite().all():
        fails = " (diffusers: not finite)"
    if isinstance(mine, str):
        return True, f"refused{fails} {mine}"
    if fails:
        return True, f"runs{fails}"
    error = error_of(mine, reference)
    return error <= TOLERANCE, f"{'equal' if error <= TOLERANCE else 'DIFFERENT'} ({error:.1e})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ithaca", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", default="", help="a pattern of the names of fields")
    parser.add_argument("--kind", default="", help="a pattern of the names of classes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = load(args.model)
    rows = [embed(parts, PROMPTS[0]), embed(parts, "")]
    noise = torch.randn(16, (FRAMES - 1) // 4 + 1, SIZE // 8, SIZE // 8, generator=torch.Generator().manual_seed(8))
    counts, good = {}, True
    with tempfile.TemporaryDirectory() as work:
        noise_file = os.path.join(work, "noise.safetensors")
        save_file({"noise": noise}, noise_file)
        for kind in (kind for kind in BASE if re.search(args.kind, kind.__name__)):
            for name, value, change in cases(kind):
                if not re.search(args.only, name):
                    continue
                folder = folder_with(args.model, work, kind, config_of(kind, change))
                fine, text = verdict(ours(args.ithaca, folder, noise_file), theirs(parts, folder, kind, noise, rows))
                good = good and fine
                counts[text.split()[0]] = counts.get(text.split()[0], 0) + 1
                shown = value if value == "(left out)" else json.dumps(value)
                print(f"{kind.__name__[:8]} {name:26} {shown:28} {text}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    sys.exit(not good)


if __name__ == "__main__":
    main()
