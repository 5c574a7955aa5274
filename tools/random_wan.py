# SPDX-License-Identifier: Apache-2.0
"""Random small Wan models in the layout of diffusers, and a random run for each (check_models.py uses them).

A case is a function of its seed. The sizes come from Python's generator, the weights from torch's. The weights are
scaled so that activations, latents and pixels have a spread near 1. Then an error anywhere shows in the latents and
frames."""
import json
import math
import os
import random
import shutil

import torch
from diffusers import AutoencoderKLWan, DPMSolverMultistepScheduler, WanTransformer3DModel
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, CLIPVisionModel, UMT5Config, UMT5EncoderModel

from make_golden import TEXTS, take_published_levels

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
MOST_WEIGHTS = 2_500_000  # of heads^2 head_dim^2 layers, over both experts
MOST_PIXELS = 130_000     # of a video


def some_vae_fields(r, wan22, encodes_video):
    """Fields of AutoencoderKLWan. diffusers encodes a video in pieces of 4 frames, so strides over time are at most 4."""
    levels = r.choice((2, 3, 4, 4))
    down = [r.random() < 0.6 for _ in range(levels - 1)]
    if encodes_video:
        down = [True] * min(2, levels - 1) + [False] * max(0, levels - 3)
        r.shuffle(down)
    patch = r.choice((1, 2, 2, 2)) if wan22 else None
    z = r.choice((4, 12, 16, 24, 48)) if wan22 else r.choice((3, 8, 16, 16, 20))
    base, colours = r.choice((4, 8, 12, 16)), 3 * (patch or 1) ** 2
    mult = r.choice(([1, 1, 2, 2], [1, 2, 4, 4], [1, 2, 2, 4], [2, 2, 1, 1], [1, 3, 3, 2], [2, 1, 2, 3]))[:levels]
    return dict(base_dim=base, decoder_base_dim=r.choice((None, 8, 12)), z_dim=z, dim_mult=mult,
                num_res_blocks=r.choice((1, 1, 2)), attn_scales=[], temperal_downsample=down, dropout=0.0,
                latents_mean=[round(r.uniform(-1, 1), 4) for _ in range(z)],
                latents_std=[round(r.uniform(0.4, 2.5), 4) for _ in range(z)], is_residual=wan22, in_channels=colours,
                out_channels=colours, patch_size=patch, scale_factor_temporal=2 ** sum(down),
                scale_factor_spatial=(patch or 1) * 2 ** (levels - 1))


def vae_fields(*how):
    """Fields with numbers of channels that the shortcuts of Wan 2.2's autoencoder can divide."""
    while True:
        fields = some_vae_fields(*how)
        try:
            with torch.device("meta"):
                AutoencoderKLWan(**fields)
            return fields
        except ValueError:
            pass


def dit_fields(r, channels_in, channels_out, text_dim, experts):
    heads, size, layers = r.randint(1, 12), 2 * r.randint(8, 64), r.randint(1, 6)
    layers = max(1, min(layers, MOST_WEIGHTS // ((heads * size) ** 2 * experts)))
    return dict(num_attention_heads=heads, attention_head_dim=size, in_channels=channels_in, out_channels=channels_out,
                text_dim=text_dim, freq_dim=2 * r.randint(4, 128), ffn_dim=r.randint(heads * size // 2, 3 * heads * size),
                num_layers=layers, cross_attn_norm=r.random() < 0.7, qk_norm="rms_norm_across_heads",
                eps=r.choice((1e-6, 1e-6, 1e-5)), rope_max_seq_len=r.choice((1024, 64)))


def text_fields(r):
    return dict(vocab_size=1536, d_model=8 * r.randint(2, 20), d_kv=4 * r.randint(2, 16), d_ff=r.randint(16, 300),
                num_layers=r.randint(1, 4), num_heads=r.randint(1, 6), relative_attention_num_buckets=r.choice((32, 16, 8)),
                relative_attention_max_distance=r.choice((128, 40)), layer_norm_epsilon=r.choice((1e-6, 1e-5)),
                dropout_rate=0.0, feed_forward_proj="gated-gelu", num_decoder_layers=1)


def scheduler_fields(r, steps):
    shift, train = round(r.choice((1.0, 3.0, 5.0, r.uniform(0.5, 12))), 3), r.choice((1000, 1000, 1000, 500, 2000))
    one = steps == 1  # its first level is the last: diffusers divides by 0 with shift_terminal, and sigma_min does nothing
    common = dict(num_train_timesteps=train, shift_terminal=r.choice((None, None, None, 0.02, 0.1)) if not one else None)
    if r.random() < 0.3:
        return dict(_class_name="FlowMatchEulerDiscreteScheduler", shift=shift, **common)
    order = r.randint(1, 3)
    return dict(_class_name="UniPCMultistepScheduler", prediction_type="flow_prediction", use_flow_sigmas=True,
                flow_shift=shift, solver_order=order, solver_type=r.choice(("bh2", "bh2", "midpoint", "heun")),
                lower_order_final=order > 1 or r.random() < 0.5,
                final_sigmas_type=r.choice(("zero", "zero", "zero" if one else "sigma_min")),
                disable_corrector=sorted(r.sample(range(steps), r.choice((0, 0, 1)) * r.randint(0, steps))), **common)


def levels_fall(fields, sigmas, steps):
    """Whether each noise level is below the level before it. ithaca refuses others, and diffusers makes noise of them."""
    scheduler = DPMSolverMultistepScheduler.from_config(fields)
    scheduler.set_timesteps(steps)
    if sigmas == "official":
        take_published_levels(scheduler, steps, fields["flow_shift"])
    return bool((scheduler.sigmas.diff() < 0).all())


def with_dpmpp(case):
    """The case with a scheduler of DPM-Solver++ and, in a third of the cases, with as many steps as decide whether
    lower_order_final counts. All else stays as it is."""
    r = random.Random(f"dpm++ {case['seed']}")
    steps = r.choice((case["steps"], case["steps"], r.randint(13, 17)))
    last = r.choice(("zero", "zero", "sigma_min"))
    fields = dict(_class_name="DPMSolverMultistepScheduler", prediction_type="flow_prediction", use_flow_sigmas=True,
                  flow_shift=round(r.choice((1.0, 3.0, 5.0, r.uniform(0.5, 12))), 3),
                  num_train_timesteps=r.choice((1000, 1000, 1000, 500, 2000)), solver_order=r.randint(1, 3),
                  solver_type=r.choice(("midpoint", "midpoint", "heun")), lower_order_final=r.random() < 0.7,
                  euler_at_final=r.random() < 0.3, final_sigmas_type=last)
    if last == "sigma_min":
        fields.update(beta_start=r.choice((1e-4, 1e-4, 0.00085, 0.02)), beta_schedule=r.choice(("linear", "scaled_linear")))
    if not levels_fall(fields, case["sigmas"], steps):
        fields.update(final_sigmas_type="zero")
    return {**case, "steps": steps, "scheduler": fields}


def with_vision(case):
    """The case with an image encoder, to whose rows the transformer attends, as in Wan 2.1. All else stays as it is."""
    r, dit = random.Random(f"clip {case['seed']}"), dict(case["dits"][0])
    heads, patch = r.randint(1, 6), r.choice((7, 8, 14, 16))
    vision = dict(hidden_size=heads * r.choice((8, 16, 20, 40, 80)), intermediate_size=r.randint(16, 300),
                  num_attention_heads=heads, num_hidden_layers=r.randint(2, 5), image_size=patch * r.randint(2, 5),
                  patch_size=patch, projection_dim=16, hidden_act=r.choice(("gelu", "quick_gelu")), layer_norm_eps=1e-5)
    inner = dit["num_attention_heads"] * dit["attention_head_dim"]
    dit.update(image_dim=vision["hidden_size"], added_kv_proj_dim=inner)
    if case["images"] == 2:
        dit.update(pos_embed_seq_len=2 * (vision["image_size"] // patch) ** 2 + 2)
    return {**case, "dits": [dit], "vision": vision, "types": {**case["types"], "vision": r.choice(list(TYPES))}}


def run_fields(r, kind, vae, experts):
    stride, multiple = vae["scale_factor_temporal"], math.lcm(2 * vae["scale_factor_spatial"], 16)
    latent_frames = r.choice((1, 2, 3, 3, 4))
    if kind == "i2v":  # diffusers encodes 1, 4, 4 ... frames
        latent_frames = 1 + (latent_frames - 1) * 4 // stride
    grid = [r.randint(1, 6), r.randint(1, 6)]
    frames = (latent_frames - 1) * stride + 1
    while frames * grid[0] * grid[1] * multiple ** 2 > MOST_PIXELS and max(grid) > 1:
        grid[grid.index(max(grid))] -= 1
    high = r.choice((1.0, round(r.uniform(1.5, 6), 2), round(r.uniform(1.5, 6), 2)))
    low = r.choice((high, 1.0, round(r.uniform(1.5, 6), 2))) if high > 1 and experts == 2 else high
    return dict(frames=frames, height=grid[0] * multiple, width=grid[1] * multiple, guidance=[high, low],
                latents=[vae["z_dim"], latent_frames, grid[0] * multiple // vae["scale_factor_spatial"],
                         grid[1] * multiple // vae["scale_factor_spatial"]],
                sigmas=r.choice(("diffusers", "diffusers", "official")), prompt=r.choice(TEXTS), negative=r.choice(TEXTS[:10]))


def make_case(seed, dpmpp=False, clip=False):
    """All sizes and options of a case; with dpmpp, DPM-Solver++ takes the place of its solver; with clip, it is an I2V
    model with one expert and an image encoder."""
    r = random.Random(seed)
    kind = r.choice(("t2v", "t2v", "i2v", "ti2v")) if not clip else "i2v"
    experts = r.choice((1, 2)) if kind != "ti2v" and not clip else 1
    vae = vae_fields(r, kind == "ti2v" or r.random() < 0.25, kind == "i2v")
    z, text, steps = vae["z_dim"], text_fields(r), r.randint(1, 6)
    channels = 2 * z + vae["scale_factor_temporal"] if kind == "i2v" else z
    dits = [dit_fields(r, channels, z, text["d_model"], experts)]
    if experts == 2:
        dits.append(dits[0] if r.random() < 0.75 else dit_fields(r, channels, z, text["d_model"], experts))
    run = run_fields(r, kind, vae, experts)
    images = int(kind == "i2v" or (kind == "ti2v" and r.random() < 0.6))
    if kind == "i2v" and run["frames"] > 1 and r.random() < 0.4:
        images = 2
    case = dict(seed=seed, kind=kind, vae=vae, text=text, dits=dits, scheduler=scheduler_fields(r, steps), steps=steps,
                boundary=round(r.uniform(0.3, 0.97), 3) if experts == 2 else None, images=images,
                resized=images > 0 and r.random() < 0.3, types={part: r.choice(list(TYPES)) for part in ("dit", "vae", "text")},
                **run)
    case = with_vision(case) if clip else case
    return with_dpmpp(case) if dpmpp else case


def scale(module, factor):
    for parameter in module.parameters():
        parameter.mul_(factor)


def randomise(module):
    for name, parameter in module.named_parameters():
        if "norm" in name and name.endswith(("weight", "gamma")):
            parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
        elif name.endswith("bias"):
            parameter.copy_(0.05 * torch.randn_like(parameter))
        elif name.endswith("pos_embed"):
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return module.eval()


def make_dit(fields):
    dit = randomise(WanTransformer3DModel(**fields))
    dit.proj_out.weight.copy_(torch.randn_like(dit.proj_out.weight) / dit.proj_out.in_features ** 0.5)
    return dit


def make_vae(fields):
    vae = randomise(AutoencoderKLWan(**fields))
    size = fields["scale_factor_spatial"] * 4
    video = torch.rand(1, 3, 1, size, size) * 2 - 1
    mean = vae.encode(video).latent_dist.mode()
    scale(vae.quant_conv, 1 / float(mean.std()))
    pixels = vae.decode(torch.randn(1, fields["z_dim"], 1, 4, 4)).sample
    scale(vae.decoder.conv_out, 0.5 / float(pixels.std()))
    return vae


def make_text(fields):
    text = UMT5EncoderModel(UMT5Config(**fields))
    for name, parameter in text.named_parameters():
        if "layer_norm" in name:
            parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
        elif "relative_attention_bias" in name:
            parameter.copy_(torch.randn_like(parameter))
    return text.eval()


def make_vision(fields):
    """An image encoder of CLIP."""
    vision = randomise(CLIPVisionModel(CLIPVisionConfig(**fields)))
    for name, parameter in vision.named_parameters():
        if "embedding" in name and "patch" not in name:
            parameter.copy_(0.5 * torch.randn_like(parameter))
        elif parameter.ndim > 1:
            parameter.copy_(torch.randn_like(parameter) / parameter[0].numel() ** 0.5)
    return vision


def write_json(path, fields):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(fields, file, indent=2)
        file.write("\n")


def write_vision(fields, dtype, folder):
    """Writes an image encoder with the names of the published files (transformers 5 leaves `vision_model.` out), and its
    image processor."""
    side, path = fields["image_size"], f"{folder}/image_encoder/model.safetensors"
    make_vision(fields).to(dtype).save_pretrained(f"{folder}/image_encoder")
    save_file({f"vision_model.{name}": tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    write_json(f"{folder}/image_processor/preprocessor_config.json",
               dict(crop_size=dict(height=side, width=side), do_center_crop=True, do_convert_rgb=True, do_normalize=True,
                    do_rescale=True, do_resize=True, image_mean=[0.48145466, 0.4578275, 0.40821073],
                    image_processor_type="CLIPImageProcessor", image_std=[0.26862954, 0.26130258, 0.27577711], resample=3,
                    rescale_factor=1 / 255, size=dict(shortest_edge=side)))


def write_index(case, folder):
    scheduler = case["scheduler"]["_class_name"]
    from_image = case["kind"] == "i2v" or (case["kind"] == "ti2v" and case["images"])
    transformer = ["diffusers", "WanTransformer3DModel"]
    index = dict(_class_name="WanImageToVideoPipeline" if from_image else "WanPipeline", _diffusers_version="0.42.1",
                 boundary_ratio=case["boundary"], expand_timesteps=case["kind"] == "ti2v", scheduler=["diffusers", scheduler],
                 text_encoder=["transformers", "UMT5EncoderModel"], tokenizer=["transformers", "T5TokenizerFast"],
                 transformer=transformer, transformer_2=transformer if len(case["dits"]) == 2 else [None, None],
                 vae=["diffusers", "AutoencoderKLWan"])
    if "vision" in case:
        index.update(image_encoder=["transformers", "CLIPVisionModel"], image_processor=["transformers", "CLIPImageProcessor"])
    elif from_image:
        index.update(image_encoder=[None, None], image_processor=[None, None])
    write_json(f"{folder}/model_index.json", index)
    write_json(f"{folder}/scheduler/scheduler_config.json", case["scheduler"])


@torch.no_grad()
def write_model(case, tokenizer, folder):
    """Writes the model of a case. `tokenizer` is a folder with a spiece.model of 1536 pieces."""
    torch.manual_seed(case["seed"])
    write_index(case, folder)
    shutil.copytree(tokenizer, os.path.join(folder, "tokenizer"))
    types = {part: TYPES[name] for part, name in case["types"].items()}
    for fields, name in zip(case["dits"], ("transformer", "transformer_2")):
        make_dit(fields).to(types["dit"]).save_pretrained(os.path.join(folder, name))
    make_vae(case["vae"]).to(types["vae"]).save_pretrained(os.path.join(folder, "vae"))
    make_text(case["text"]).to(types["text"]).save_pretrained(os.path.join(folder, "text_encoder"))
    if "vision" in case:
        write_vision(case["vision"], types["vision"], folder)
