#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/clip: a random image encoder of odd sizes in float32, and the results of transformers with it;
and tests/golden/bicubic.safetensors: pictures that Pillow resizes with its bicubic filter.

    tools/make_vision_golden.py WAN2.1-CHECKOUT tests/golden

clip/model.safetensors has the names of transformers' CLIPVisionModelWithProjection, clip/original.safetensors the names of the
original code (github.com/Wan-Video/Wan2.1, wan/modules/clip.py), whose module must compute the same. clip/names.json has the
pairs of names. clip/expected.safetensors: `picture_N` [height, width, 3], `pixels_N` [3, 42, 42] of CLIPImageProcessorPil, the
processor that scales with Pillow; `rows_N` [10, 40], hidden_states[-2]; `quick_N`, the same with quick_gelu. bicubic.safetensors:
`from_N` [height, width, 3], `to_N`. Needs torch, transformers, Pillow.
"""
import importlib.util
import json
import os
import sys
import types

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

PICTURES = ((37, 54), (93, 41))
SIZES = [(37, 53, 16, 32), (16, 24, 48, 80), (40, 40, 40, 24), (30, 50, 64, 50), (1, 1, 16, 16), (2, 90, 16, 16), (33, 47, 33, 47)]


def random_model():
    torch.manual_seed(1)
    config = CLIPVisionConfig(hidden_size=40, intermediate_size=52, projection_dim=24, num_hidden_layers=3, num_attention_heads=2,
                              image_size=42, patch_size=14, hidden_act="gelu", layer_norm_eps=1e-4)
    model = CLIPVisionModelWithProjection(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "layrnorm" in name:
            parameter.copy_((1 if name.endswith("weight") else 0) + 0.3 * torch.randn_like(parameter))
        elif name.endswith("bias"):
            parameter.copy_(0.3 * torch.randn_like(parameter))
        elif "embedding" in name and "patch" not in name:
            parameter.copy_(torch.randn_like(parameter))
        else:
            parameter.copy_(torch.randn_like(parameter) * 1.2 * parameter[0].numel() ** -0.5)
    return model


def original_module(checkout):
    """Loads wan/modules/clip.py alone, without the packages that its vision transformer does not need."""
    def attention(q, k, v, **_):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    stand_ins = {"wan_modules": {}, "wan_modules.attention": {"flash_attention": attention},
                 "wan_modules.tokenizers": {"HuggingfaceTokenizer": None}, "wan_modules.xlm_roberta": {"XLMRoberta": torch.nn.Module},
                 "torchvision": {}, "torchvision.transforms": {}}
    for name, members in stand_ins.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members, __path__=[])
    spec = importlib.util.spec_from_file_location("wan_modules.clip", f"{checkout}/wan/modules/clip.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def original_state(state):
    """The weights of transformers with the original names and shapes."""
    top = {"embeddings.class_embedding": "cls_embedding", "embeddings.patch_embedding.weight": "patch_embedding.weight",
           "embeddings.position_embedding.weight": "pos_embedding", "pre_layrnorm.weight": "pre_norm.weight",
           "pre_layrnorm.bias": "pre_norm.bias", "post_layernorm.weight": "post_norm.weight", "post_layernorm.bias": "post_norm.bias"}
    parts = {"layer_norm1": "norm1", "self_attn.out_proj": "attn.proj", "layer_norm2": "norm2", "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.2"}
    pairs, out = [], {}

    def add(name, canonical, tensor):
        pairs.append(["visual." + name, canonical])
        out["visual." + name] = tensor.contiguous()

    for canonical, tensor in state.items():
        name = canonical.removeprefix("vision_model.")
        if canonical == "visual_projection.weight":
            add("head", "visual_projection", tensor.T)
        elif name in top:
            add(top[name], canonical, tensor.reshape(1, -1, tensor.shape[-1]) if "_embedding" in top[name] and "patch" not in name else tensor)
        elif "q_proj" in name:
            _, _, number, _, _, kind = name.split(".")
            joint = torch.cat([state[canonical.replace("q_proj", f"{x}_proj")] for x in "qkv"])
            add(f"transformer.{number}.attn.to_qkv.{kind}", canonical.replace("q_proj", "qkv_proj"), joint)
        elif "k_proj" not in name and "v_proj" not in name:
            _, _, number, rest = name.split(".", 3)
            module, kind = rest.rsplit(".", 1)
            add(f"transformer.{number}.{parts[module]}.{kind}", canonical, tensor)
    return pairs, out


@torch.no_grad()
def main():
    checkout, golden = sys.argv[1:]
    folder = os.path.join(golden, "clip")
    os.makedirs(folder, exist_ok=True)
    model = random_model()
    state = {n: t.contiguous() for n, t in model.state_dict().items() if not n.endswith("position_ids")}
    model.config.save_pretrained(folder)
    save_file(state, os.path.join(folder, "model.safetensors"))
    processor = CLIPImageProcessorPil(size={"shortest_edge": 47}, crop_size={"height": 42, "width": 42})
    processor.save_pretrained(folder)
    pairs, renamed = original_state(state)
    save_file(renamed, os.path.join(folder, "original.safetensors"))
    with open(os.path.join(folder, "names.json"), "w") as file:
        file.write("{\n \"vision\": [\n" + ",\n".join(f"  {json.dumps(p)}" for p in pairs) + "\n ]\n}\n")
    c = model.config
    theirs = original_module(checkout).VisionTransformer(c.image_size, c.patch_size, c.hidden_size, c.intermediate_size / c.hidden_size,
                                                         c.projection_dim, c.num_attention_heads, c.num_hidden_layers,
                                                         activation="gelu", norm_eps=c.layer_norm_eps).eval()
    theirs.load_state_dict({n.removeprefix("visual."): t for n, t in renamed.items()}, strict=True)
    quick = CLIPVisionModelWithProjection(CLIPVisionConfig(**{**c.to_dict(), "hidden_act": "quick_gelu"})).eval()
    quick.load_state_dict(model.state_dict())
    rng, expected, pairs = np.random.default_rng(5), {}, {}
    for i, (height, width) in enumerate(PICTURES):
        picture = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        pixels = torch.from_numpy(np.stack(processor(Image.fromarray(picture))["pixel_values"]))
        rows = model(pixels, output_hidden_states=True).hidden_states[-2]
        assert torch.allclose(theirs(pixels, use_31_block=True), rows, rtol=1e-5, atol=1e-5)
        expected |= {f"picture_{i}": torch.from_numpy(picture), f"pixels_{i}": pixels[0].contiguous(), f"rows_{i}": rows[0].contiguous(),
                     f"quick_{i}": quick(pixels, output_hidden_states=True).hidden_states[-2][0].contiguous()}
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    for i, (h, w, to_h, to_w) in enumerate(SIZES):
        picture = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
        pairs[f"from_{i}"] = torch.from_numpy(picture)
        pairs[f"to_{i}"] = torch.from_numpy(np.array(Image.fromarray(picture).resize((to_w, to_h), Image.BICUBIC)))
    save_file(pairs, os.path.join(golden, "bicubic.safetensors"))


if __name__ == "__main__":
    main()
