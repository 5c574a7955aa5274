#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/names.json: names of tensors in the published files, and their names in diffusers; and
tests/golden/published.json: the shapes of their tensors, of one layer for all that are alike.

    tools/make_name_golden.py WAN2.1-CHECKOUT WAN2.2-CHECKOUT OUT-NAMES OUT-SHAPES

Makes small models from the original code (github.com/Wan-Video/Wan2.1 and Wan2.2) and lists their tensors. diffusers' own
conversion of single files gives the canonical names. It does not know the autoencoder of Wan 2.2, for which rules here give
the names; with them diffusers must decode as the original code does. make_vision_golden.py has the names of the image
encoder. gguf's table gives the names of llama.cpp. Needs torch, diffusers, einops and gguf."""
import importlib.util
import json
import re
import sys
import types

import torch
import torch.nn.functional as functional
from diffusers import AutoencoderKLWan
from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers, convert_wan_vae_to_diffusers
from gguf import MODEL_ARCH, get_tensor_name_map


def attend(q, k, v, **_):
    """Stands for flash_attention."""
    return functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def module_of(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


def load(checkout, name):
    """Loads wan/modules/NAME.py alone, without the packages that only its attention, tokenizers and pictures need."""
    package = "wan_" + re.sub(r"\W", "_", checkout)
    sys.modules.setdefault(package, module_of(package, __path__=[f"{checkout}/wan/modules"]))
    sys.modules[f"{package}.attention"] = module_of("attention", flash_attention=attend)
    sys.modules[f"{package}.tokenizers"] = module_of("tokenizers", HuggingfaceTokenizer=None)
    stubs = {name: module_of(name) for name in ("torchvision", "torchvision.transforms") if name not in sys.modules}
    sys.modules.update(stubs)
    spec = importlib.util.spec_from_file_location(f"{package}.{name}", f"{checkout}/wan/modules/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"{package}.{name}"] = module
    spec.loader.exec_module(module)
    for stub in stubs:
        del sys.modules[stub]
    return module


def pairs(state, convert):
    """The names of a state, and the name to which diffusers moves each tensor."""
    tagged = {name: torch.full((4 * len(state),), float(i)) for i, name in enumerate(state)}
    back = {}
    for name, tensor in convert(dict(tagged)).items():
        back[int(tensor.flatten()[0].item())] = name
    lost = [name for i, name in enumerate(tagged) if i not in back]
    assert not lost, lost
    return [[name, back[i]] for i, name in enumerate(tagged)]


def convert_flf2v(state):
    """diffusers' own conversion, which leaves one tensor out."""
    converted = convert_wan_transformer_to_diffusers(state)
    converted["condition_embedder.image_embedder.pos_embed"] = converted.pop("img_emb.emb_pos")
    return converted


def original_t5(name):
    parts = {"norm1": "layer.0.layer_norm", "norm2": "layer.1.layer_norm", "ffn.gate.0": "layer.1.DenseReluDense.wi_0",
             "ffn.fc1": "layer.1.DenseReluDense.wi_1", "ffn.fc2": "layer.1.DenseReluDense.wo",
             "pos_embedding.embedding": "layer.0.SelfAttention.relative_attention_bias"}
    parts.update({f"attn.{x}": f"layer.0.SelfAttention.{x}" for x in "qkvo"})
    module = name.removesuffix(".weight")
    if module.startswith("blocks."):
        _, number, rest = module.split(".", 2)
        return f"encoder.block.{number}.{parts[rest]}.weight"
    return {"token_embedding": "shared", "norm": "encoder.final_layer_norm"}[module] + ".weight"


def renamed(name, rules):
    for pattern, canonical in rules:
        name = re.sub(pattern, canonical, name)
    return name


def original_vae_22(name):
    rules = [(r"^conv1\b", "quant_conv"), (r"^conv2\b", "post_quant_conv"), (r"coder\.conv1\b", "coder.conv_in"),
             (r"head\.0\b", "norm_out"), (r"head\.2\b", "conv_out"), (r"middle\.1\b", "mid_block.attentions.0"),
             (r"middle\.0\b", "mid_block.resnets.0"), (r"middle\.2\b", "mid_block.resnets.1"),
             (r"downsamples\.(\d+)\.downsamples\.\d+\.(resample|time_conv)", r"down_blocks.\1.downsampler.\2"),
             (r"upsamples\.(\d+)\.upsamples\.\d+\.(resample|time_conv)", r"up_blocks.\1.upsampler.\2"),
             (r"downsamples\.(\d+)\.downsamples\.(\d+)", r"down_blocks.\1.resnets.\2"),
             (r"upsamples\.(\d+)\.upsamples\.(\d+)", r"up_blocks.\1.resnets.\2"), (r"residual\.0", "norm1"),
             (r"residual\.2", "conv1"), (r"residual\.3", "norm2"), (r"residual\.6", "conv2"),
             (r"shortcut", "conv_shortcut")]
    return renamed(name, rules)


def check_vae_22(original, renamed):
    """Checks that diffusers' autoencoder with the renamed weights decodes as the original autoencoder does."""
    theirs = AutoencoderKLWan(base_dim=8, decoder_base_dim=8, z_dim=4, dim_mult=[1, 2, 4, 4], num_res_blocks=2,
                              temperal_downsample=[False, True, True], is_residual=True, in_channels=12,
                              out_channels=12, patch_size=2, latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    theirs.load_state_dict({b: original.state_dict()[a] for a, b in renamed}, strict=True)
    z = torch.randn(1, 4, 2, 4, 4)
    with torch.no_grad():
        assert torch.allclose(original.decode(z, [0, 1]).clamp(-1, 1), theirs.decode(z).sample, atol=1e-3)


def image_models(checkout):
    """Wan 2.1's models that see the rows of an image encoder, and this encoder."""
    model, clip = load(checkout, "model"), load(checkout, "clip")
    made = {name: model.WanModel(model_type=kind, dim=5120, ffn_dim=13824, num_heads=40, in_dim=36, out_dim=16, num_layers=1)
            for name, kind in (("I2V-2.1", "i2v"), ("FLF2V-2.1", "flf2v"))}
    vision = clip.VisionTransformer(image_size=224, patch_size=14, dim=1280, out_dim=1024, num_heads=16, num_layers=1)
    made["vision"] = torch.nn.ModuleDict({"visual": vision})
    return made


def write_shapes(checkout_21, checkout, out):
    """The shapes of the published models, from the code on the meta device, where tensors have no data."""
    model, t5 = load(checkout, "model"), load(checkout, "t5")
    sizes = {"1.3B": (1536, 8960, 12, 16, 16), "14B": (5120, 13824, 40, 16, 16), "I2V": (5120, 13824, 40, 36, 16),
             "5B": (3072, 14336, 24, 48, 48), "Lucy-Edit": (3072, 14336, 24, 96, 48), "Fun-1.3B-InP": (1536, 8960, 12, 36, 16)}
    with torch.device("meta"):
        made = {kind: model.WanModel(model_type="t2v", dim=dim, ffn_dim=ffn, num_heads=heads, in_dim=in_dim,
                                     out_dim=out_dim, num_layers=1)
                for kind, (dim, ffn, heads, in_dim, out_dim) in sizes.items()}
        made["umt5"] = t5.T5Encoder(256384, 4096, 4096, 10240, 64, 1, 32, shared_pos=False)
        down = [False, True, True]
        made["vae_2.1"] = load(checkout, "vae2_1").WanVAE_(dim=96, z_dim=16, temperal_downsample=down)
        made["vae_2.2"] = load(checkout, "vae2_2").WanVAE_(dim=160, dec_dim=256, z_dim=48, temperal_downsample=down)
        made.update(image_models(checkout_21))
    with open(out, "w") as file:
        rows = ",\n".join(f" {json.dumps(kind)}: {{\n" + ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(list(tensor.shape))}" for name, tensor in one.state_dict().items()) +
            "\n }" for kind, one in made.items())
        file.write("{\n" + rows + "\n}\n")


def main():
    checkout_21, checkout, out, out_shapes = sys.argv[1:]
    torch.cuda.current_device = lambda: 0  # t5.py calls it when it is loaded
    model, t5 = load(checkout, "model"), load(checkout, "t5")
    dit = model.WanModel(model_type="t2v", dim=24, ffn_dim=8, freq_dim=8, text_dim=8, num_heads=2, num_layers=2)
    encoder = t5.T5Encoder(16, 8, 8, 8, 2, 2, 32, shared_pos=False)
    sizes = {"dim": 8, "z_dim": 4, "temperal_downsample": [False, True, True]}
    vae = {"vae_2.1": load(checkout, "vae2_1").WanVAE_(**sizes),
           "vae_2.2": load(checkout, "vae2_2").WanVAE_(dec_dim=8, **sizes)}
    names = {"dit": pairs(dit.state_dict(), convert_wan_transformer_to_diffusers),
             "text": [[name, original_t5(name)] for name in encoder.state_dict()]}
    names["vae_2.1"] = pairs(vae["vae_2.1"].state_dict(), convert_wan_vae_to_diffusers)
    names["vae_2.2"] = [[name, original_vae_22(name)] for name in vae["vae_2.2"].state_dict()]
    check_vae_22(vae["vae_2.2"], names["vae_2.2"])
    table = get_tensor_name_map(MODEL_ARCH.T5ENCODER, 2)
    names["text_gguf"] = [[table.get_name(canonical.removesuffix(".weight")) + ".weight", canonical]
                          for _, canonical in names["text"]]
    flf2v = load(checkout_21, "model").WanModel(model_type="flf2v", dim=24, ffn_dim=8, freq_dim=8, text_dim=8, num_heads=2,
                                                num_layers=1)
    names["dit_flf2v"] = pairs(flf2v.state_dict(), convert_flf2v)
    write_shapes(checkout_21, checkout, out_shapes)
    with open(out, "w") as file:
        rows = ",\n".join(f" {json.dumps(kind)}: [\n" + ",\n".join(f"  {json.dumps(p)}" for p in list_) + "\n ]"
                          for kind, list_ in names.items())
        file.write("{\n" + rows + "\n}\n")


main()
