# SPDX-License-Identifier: Apache-2.0
"""Writes the weights of a folder in the layout of diffusers in other forms: the names of the original code, the files
that Comfy repackages, and GGUF (check_models.py --forms compares the videos)."""
import os
import re
import shutil

import gguf
import torch
from safetensors.torch import load_file, save_file

FORMS = ("original", "repackaged", "F16", "BF16", "Q8_0")
DIT = ((r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
       (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
       (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
       (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
       (r"^condition_embedder\.time_proj\.", "time_projection.1."), (r"^scale_shift_table$", "head.modulation"),
       (r"^condition_embedder\.image_embedder\.norm1\.", "img_emb.proj.0."),
       (r"^condition_embedder\.image_embedder\.ff\.net\.0\.proj\.", "img_emb.proj.1."),
       (r"^condition_embedder\.image_embedder\.ff\.net\.2\.", "img_emb.proj.3."),
       (r"^condition_embedder\.image_embedder\.norm2\.", "img_emb.proj.4."),
       (r"^condition_embedder\.image_embedder\.pos_embed$", "img_emb.emb_pos"),
       (r"\.add_([kv])_proj\.", r".\1_img."), (r"\.norm_added_k\.", ".norm_k_img."),
       (r"^proj_out\.", "head.head."), (r"\.scale_shift_table$", ".modulation"), (r"\.attn1\.", ".self_attn."),
       (r"\.attn2\.", ".cross_attn."), (r"\.to_([qkv])\.", r".\1."), (r"\.to_out\.0\.", ".o."),
       (r"\.norm2\.", ".norm3."), (r"\.ffn\.net\.0\.proj\.", ".ffn.0."), (r"\.ffn\.net\.2\.", ".ffn.2."))
TEXT = ((r"^(shared|encoder\.embed_tokens)\.", "token_embedding."), (r"^encoder\.final_layer_norm\.", "norm."),
        (r"^encoder\.block\.", "blocks."), (r"\.layer\.0\.layer_norm\.", ".norm1."),
        (r"\.layer\.1\.layer_norm\.", ".norm2."),
        (r"\.layer\.0\.SelfAttention\.relative_attention_bias\.", ".pos_embedding.embedding."),
        (r"\.layer\.0\.SelfAttention\.", ".attn."), (r"\.layer\.1\.DenseReluDense\.wi_0\.", ".ffn.gate.0."),
        (r"\.layer\.1\.DenseReluDense\.wi_1\.", ".ffn.fc1."), (r"\.layer\.1\.DenseReluDense\.wo\.", ".ffn.fc2."))
LLAMA = ((r"^token_embedding\.", "token_embd."), (r"^norm\.", "enc.output_norm."), (r"^blocks\.", "enc.blk."),
         (r"\.norm1\.", ".attn_norm."), (r"\.norm2\.", ".ffn_norm."), (r"\.attn\.([qkvo])\.", r".attn_\1."),
         (r"\.pos_embedding\.embedding\.", ".attn_rel_b."), (r"\.ffn\.gate\.0\.", ".ffn_gate."),
         (r"\.ffn\.fc1\.", ".ffn_up."), (r"\.ffn\.fc2\.", ".ffn_down."))
VAE = ((r"^quant_conv\.", "conv1."), (r"^post_quant_conv\.", "conv2."), (r"\.conv_in\.", ".conv1."),
       (r"\.norm_out\.", ".head.0."), (r"\.conv_out\.", ".head.2."), (r"\.mid_block\.attentions\.0\.", ".middle.1."),
       (r"\.mid_block\.resnets\.0\.", ".middle.0."), (r"\.mid_block\.resnets\.1\.", ".middle.2."),
       (r"\.norm1\.", ".residual.0."), (r"(?<=\d)\.conv1\.", ".residual.2."), (r"\.norm2\.", ".residual.3."),
       (r"(?<=\d)\.conv2\.", ".residual.6."), (r"\.conv_shortcut\.", ".shortcut."))


def renamed(name, rules):
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def vae_name(name, fields):
    """Wan 2.1 numbers the parts of all levels in one list; Wan 2.2 has a list in each level."""
    blocks = fields["num_res_blocks"] + 1
    nested = re.sub(r"down_blocks\.(\d+)\.downsampler\.", rf"downsamples.\1.downsamples.{blocks - 1}.", name)
    nested = re.sub(r"down_blocks\.(\d+)\.resnets\.", r"downsamples.\1.downsamples.", nested)
    nested = re.sub(r"down_blocks\.", "downsamples.", nested)
    up = re.search(r"up_blocks\.(\d+)\.(resnets\.(\d+)|upsampler(s\.0)?)\.", nested)
    if up:
        level, part = int(up[1]), int(up[3]) if up[3] else blocks
        place = f"{level}.upsamples.{part}" if fields["is_residual"] else level * (blocks + 1) + part
        nested = nested.replace(up[0], f"upsamples.{place}.")
    return renamed(nested, VAE)


def write_gguf(path, architecture, state, kind):
    """Writes the file, and returns its numbers as f32. Rows that the kind cannot hold are F16, vectors F32."""
    writer, numbers = gguf.GGUFWriter(path, architecture), {}
    for name, tensor in state.items():
        values, stored = tensor.float().numpy(), gguf.GGMLQuantizationType[kind]
        if values.ndim != 2:
            stored = gguf.GGMLQuantizationType.F32
        elif values.shape[1] % gguf.GGML_QUANT_SIZES[stored][0]:
            stored = gguf.GGMLQuantizationType.F16
        packed = gguf.quants.quantize(values, stored)
        writer.add_tensor(name, packed, raw_dtype=stored)
        numbers[name] = torch.from_numpy(gguf.quants.dequantize(packed, stored).reshape(values.shape).copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


def write_part(form, source, folder, names, architecture):
    """Writes a component of the folder `source` into `folder`. Returns the new file."""
    os.makedirs(folder)
    shutil.copy(f"{source}/config.json", folder)
    files = [name for name in os.listdir(source) if name.endswith(".safetensors")]
    state = load_file(f"{source}/{files[0]}")
    if form in ("original", "repackaged") or not architecture:
        save_file({names(name): tensor.clone() for name, tensor in state.items()}, f"{folder}/weights.safetensors")
        return f"{folder}/weights.safetensors"
    numbers = write_gguf(f"{folder}/weights.gguf", architecture, {names(name): t for name, t in state.items()}, form)
    save_file({name: numbers[names(name)].contiguous() for name in state}, f"{source}/{files[0]}", {"format": "pt"})
    return f"{folder}/weights.gguf"


def write_forms(form, case, model, folder):
    """Writes the model in a form. In `model` the weights become the same numbers, unpacked. Returns ithaca's options."""
    prefix = "model.diffusion_model." if form == "repackaged" else ""
    dit = lambda name: prefix + renamed(name, DIT)
    text = {"original": lambda name: renamed(name, TEXT), "repackaged": lambda name: name}
    llama = lambda name: renamed(renamed(name, TEXT), LLAMA)
    options = []
    for i, part in enumerate(("transformer", "transformer_2")[:len(case["dits"])]):
        option = "--dit" if len(case["dits"]) == 1 else ("--dit-high", "--dit-low")[i]
        options += [option, write_part(form, f"{model}/{part}", f"{folder}/{part}", dit, "wan")]
    vae = lambda name: vae_name(name, case["vae"])
    options += ["--vae", write_part(form, f"{model}/vae", f"{folder}/vae", vae, None)]
    encoder = write_part(form, f"{model}/text_encoder", f"{folder}/text_encoder", text.get(form, llama), "t5encoder")
    return options + ["--text-encoder", encoder]
