#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/lora: random LoRA files for the transformer of tests/golden/dit_small, and the results of
diffusers after it has merged each of them.

    tools/make_lora_golden.py DIT_SMALL FOLDER

Needs diffusers and peft. The files have the key names of PEFT (peft.safetensors, alpha in the metadata), of the original
code with alphas (original.safetensors) and without (plain.safetensors), and of kohya (kohya.safetensors). diffusers reads
them with WanLoraLoaderMixin, and merges them with fuse_lora at the strength STRENGTH. So it does biases.safetensors, whose
products have biases (lora_bias of PEFT). differences.safetensors has differences of weights, biases and tables, which
diffusers does not read; they are added here by their definition.
out.safetensors has the output of each, for the inputs of dit_small/run.safetensors, computed in float64.
"""
import json
import os
import sys

import torch
from diffusers import WanTransformer3DModel
from diffusers.loaders import WanLoraLoaderMixin
from safetensors.torch import load_file, save_file

from make_dit_golden import sinusoid

STRENGTH = 0.7
ORIGINAL = {"attn1.to_q": "self_attn.q", "attn1.to_k": "self_attn.k", "attn1.to_v": "self_attn.v",
            "attn1.to_out.0": "self_attn.o", "attn2.to_q": "cross_attn.q", "attn2.to_k": "cross_attn.k",
            "attn2.to_v": "cross_attn.v", "attn2.to_out.0": "cross_attn.o", "ffn.net.0.proj": "ffn.0", "ffn.net.2": "ffn.2"}
TOP = {"condition_embedder.time_proj": "time_projection.1", "proj_out": "head.head",
       "condition_embedder.text_embedder.linear_1": "text_embedding.0",
       "condition_embedder.text_embedder.linear_2": "text_embedding.2",
       "condition_embedder.time_embedder.linear_1": "time_embedding.0",
       "condition_embedder.time_embedder.linear_2": "time_embedding.2"}


def open_model(folder):
    model = WanTransformer3DModel.from_pretrained(folder, torch_dtype=torch.float32).eval()
    rope = (model.rope.freqs_cos.clone(), model.rope.freqs_sin.clone())
    model.double()
    model.rope.freqs_cos, model.rope.freqs_sin = (r.double() for r in rope)
    model.condition_embedder.timesteps_proj.forward = sinusoid
    return model


def output(model, folder):
    run = load_file(os.path.join(folder, "run.safetensors"))
    texts = [run["text_0"], run["text_1"]]
    padded = torch.stack([torch.cat([t, torch.zeros(512 - len(t), t.shape[1])]) for t in texts])
    with torch.no_grad():
        return model(run["latents"].double(), run["timestep"], padded.double()).sample.float()


def original(module):
    if not module.startswith("blocks."):
        return TOP[module]
    _, number, rest = module.split(".", 2)
    return f"blocks.{number}.{ORIGINAL[rest]}"


def random_pair(weight, rank, dtype):
    rows, width = weight.shape[0], weight[0].numel()
    down, up = torch.randn(rank, width) / width**0.5, torch.randn(rows, rank) / rank**0.5
    return down.to(dtype), up.to(dtype)


def modules(model, with_top):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and (name.startswith("blocks.") or (with_top and name in TOP)):
            yield name, module.weight


def make(form, model, folder):
    file, metadata = {}, {"format": "pt"}
    types = {"peft": torch.float32, "original": torch.bfloat16, "plain": torch.float16, "kohya": torch.bfloat16}
    for i, (name, weight) in enumerate(modules(model, form != "kohya")):
        rank = 3 if form == "peft" else 1 + i % 5 if form == "plain" else 2 ** (i % 3)
        down, up = random_pair(weight, rank, types[form])
        alpha = torch.tensor(2.0 ** (i % 4 - 1), dtype=types[form])  # powers of two, which bf16 does not round
        body = "diffusion_model." + original(name)
        if form == "peft":
            file[f"transformer.{name}.lora_A.weight"], file[f"transformer.{name}.lora_B.weight"] = down, up
        elif form == "original" and name.startswith("blocks."):
            file[body + ".lora_down.weight"], file[body + ".lora_up.weight"], file[body + ".alpha"] = down, up, alpha
        elif form == "plain" and name.startswith("blocks."):
            file[body + ".lora_A.weight"], file[body + ".lora_B.weight"] = down, up
        elif form == "kohya":
            body = "lora_unet_" + original(name).replace(".", "_")
            file[body + ".lora_down.weight"], file[body + ".lora_up.weight"], file[body + ".alpha"] = down, up, alpha
        elif name in ("proj_out", "condition_embedder.time_proj"):
            a, b = (".lora_down", ".lora_up") if form == "original" else (".lora_A", ".lora_B")
            file[body + a + ".weight"], file[body + b + ".weight"] = down, up
    if form == "peft":
        down, up = random_pair(model.patch_embedding.weight, 3, torch.float32)
        shape = model.patch_embedding.weight.shape
        file["transformer.patch_embedding.lora_A.weight"] = down.reshape(3, *shape[1:])
        file["transformer.patch_embedding.lora_B.weight"] = up.reshape(shape[0], 3, 1, 1, 1)
        metadata["lora_adapter_metadata"] = json.dumps(
            {"transformer.r": 3, "transformer.lora_alpha": 5, "transformer.use_rslora": False,
             "transformer.target_modules": sorted({key[len("transformer."):].rsplit(".lora_", 1)[0] for key in file}),
             "transformer.alpha_pattern": {"blocks.1.attn1.to_k": 2}})
    save_file(file, os.path.join(folder, form + ".safetensors"), metadata)


def merge(form, model, folder):
    state, metadata = WanLoraLoaderMixin.lora_state_dict(os.path.join(folder, form + ".safetensors"),
                                                         return_lora_metadata=True)
    model.load_lora_adapter(state, metadata=metadata, prefix="transformer")
    model.double()
    model.fuse_lora(lora_scale=STRENGTH)


def differences(model, folder):
    file = {}
    state = model.state_dict()
    for key, name in {"blocks.0.norm3.diff": "blocks.0.norm2.weight", "blocks.0.norm3.diff_b": "blocks.0.norm2.bias",
                      "blocks.1.self_attn.norm_q.diff": "blocks.1.attn1.norm_q.weight",
                      "blocks.1.self_attn.k.diff": "blocks.1.attn1.to_k.weight",
                      "blocks.0.ffn.2.diff_b": "blocks.0.ffn.net.2.bias",
                      "blocks.0.diff_m": "blocks.0.scale_shift_table", "head.diff_m": "scale_shift_table",
                      "head.head.diff": "proj_out.weight", "head.head.diff_b": "proj_out.bias",
                      "patch_embedding.diff": "patch_embedding.weight", "time_embedding.0.diff_b":
                      "condition_embedder.time_embedder.linear_1.bias"}.items():
        value = (0.1 * torch.randn(state[name].shape)).to(torch.float16)
        file["diffusion_model." + key] = value
        state[name] += STRENGTH * value.double()
    model.load_state_dict(state)
    save_file(file, os.path.join(folder, "differences.safetensors"))


def biases(model, folder):
    """PEFT's lora_bias: each product has a bias, with the same factor alpha / rank."""
    file, names = {}, [name for name, _ in modules(model, True)]
    for name, weight in modules(model, True):
        down, up = random_pair(weight, 3, torch.float32)
        file[f"transformer.{name}.lora_A.weight"], file[f"transformer.{name}.lora_B.weight"] = down, up
        file[f"transformer.{name}.lora_B.bias"] = 0.1 * torch.randn(weight.shape[0])
    settings = {"transformer.r": 3, "transformer.lora_alpha": 5, "transformer.lora_bias": True,
                "transformer.target_modules": names}
    save_file(file, os.path.join(folder, "biases.safetensors"), {"format": "pt", "lora_adapter_metadata": json.dumps(settings)})


def main():
    torch.manual_seed(7)
    small, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    out = {}
    for form in ("peft", "original", "plain", "kohya"):
        model = open_model(small)
        make(form, model, folder)
        merge(form, model, folder)
        out[form] = output(model, small)
    model = open_model(small)
    out["without"] = output(model, small)
    differences(model, folder)
    out["differences"] = output(model, small)
    model = open_model(small)
    biases(model, folder)
    merge("biases", model, folder)
    out["biases"] = output(model, small)
    save_file(out, os.path.join(folder, "out.safetensors"))
    for form in out:
        print(form, float((out[form] - out["without"]).norm() / out["without"].norm()))


if __name__ == "__main__":
    main()
