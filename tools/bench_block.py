#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ithaca bench block`, `ithaca bench decode` and `ithaca bench encode` beside diffusers, in turn, on as many threads.

    pip install torch diffusers && tools/bench_block.py block [--size 1.3b|5b|a14b] [--seq 8192]
                                   tools/bench_block.py decode|encode [--vae 2.1|2.2] [--height 256]
        [--width 256] [--frames 5] [--precision f32,bf16] [--weights bf16] [--threads N] [--rounds 5]
        [--cpu avx2|avx512] [--ithaca build/ithaca]

The sizes are the same, and weights and inputs are random: a WanTransformerBlock with 512 rows of text, or the decoder or
the encoder of an AutoencoderKLWan. In every round each program computes once after a first time to warm up. --weights is
the type in which Ithaca's weights are stored; diffusers stores and multiplies the type of the precision. --cpu limits the
instructions of both. diffusers computes the keys and values of the text in every block; Ithaca makes them once for a
prompt, so they are not in its time.

Medians of the rounds in seconds, with the fastest round in brackets, and their ratio. Memory is the most that each
holds, weights and inputs included. A share is a share of the peak of the instructions that Ithaca multiplies with
(`ithaca bench block --help`)."""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

VAES = {"2.1": (16, 8, {}),  # latent channels, pixels per latent, fields with other values than the defaults
        "2.2": (48, 16, dict(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12,
                             out_channels=12, patch_size=2, scale_factor_spatial=16))}
SIZES = {"1.3b": (12, 8960), "5b": (24, 14336), "a14b": (40, 13824)}  # heads of 128, width of the feed-forward network
LIMITS = {  # variables that limit the instructions of PyTorch, oneDNN and MKL
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["block", "decode", "encode"])
    parser.add_argument("--size", choices=SIZES, default="1.3b")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--vae", choices=VAES, default="2.1")
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--precision", default="f32,bf16")
    parser.add_argument("--weights", choices=["bf16", "f32", "f16"], default="bf16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", choices=LIMITS)
    parser.add_argument("--ithaca", default="build/ithaca")
    return parser.parse_args()


def limit_instructions(cpu):
    """Begins this program again with the variables that PyTorch reads when it is loaded."""
    wanted = dict(LIMITS[cpu], ITHACA_CPU=cpu) if cpu else {}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, **wanted))


# ---- Ithaca ----------------------------------------------------------------------------------------------------------


def ithaca_rows(args, precision):
    command = [args.ithaca, "bench", args.what, "--json", "--repeat", "1", "--precision", precision,
               "--weights", args.weights, "--threads", str(args.threads)]
    if args.what == "block":
        command += ["--size", args.size, "--seq", str(args.seq)]
    else:
        command += ["--size", args.vae, "--height", str(args.height), "--width", str(args.width),
                    "--frames", str(args.frames)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# ---- diffusers -------------------------------------------------------------------------------------------------------


def make_block(args, dtype):
    import torch
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed, WanTransformerBlock
    heads, ffn = SIZES[args.size]
    dim = heads * 128
    block = WanTransformerBlock(dim, ffn, heads, "rms_norm_across_heads", True, 1e-6).to(dtype).eval()
    rotary = WanRotaryPosEmbed(128, (1, 2, 2), args.seq)(torch.empty(1, 1, 1, 2, 2 * args.seq))
    x, text = torch.randn(1, args.seq, dim, dtype=dtype), torch.randn(1, 512, dim, dtype=dtype)
    time_embedding = 0.1 * torch.randn(1, 6, dim)
    return lambda: block(x, text, time_embedding, rotary)


def make_vae(args, dtype):
    import torch
    from diffusers import AutoencoderKLWan
    torch.set_default_dtype(dtype)  # the weights never exist in f32 as well
    vae = AutoencoderKLWan(**VAES[args.vae][2]).eval()
    torch.set_default_dtype(torch.float32)
    return vae


def make_decode(args, dtype):
    import torch
    channels, stride, _ = VAES[args.vae]
    vae = make_vae(args, dtype)
    del vae.encoder, vae.quant_conv
    vae.encoder = torch.nn.Identity()  # decode() counts its layers
    size = ((args.frames - 1) // 4 + 1, args.height // stride, args.width // stride)
    latents = torch.randn(1, channels, *size, dtype=dtype)
    return lambda: vae.decode(latents).sample


def make_encode(args, dtype):
    import torch
    vae = make_vae(args, dtype)
    del vae.decoder, vae.post_quant_conv
    vae.decoder = torch.nn.Identity()  # encode() counts its layers
    video = torch.randn(1, 3, args.frames, args.height, args.width, dtype=dtype)
    return lambda: vae.encode(video).latent_dist.mode()


def status_bytes(name):
    with open("/proc/self/status", encoding="ascii") as lines:
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def forget_peak():
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return status_bytes("VmRSS")


class Diffusers:
    """The same computation in diffusers, which holds its weights from one round to the next."""

    def __init__(self, args, precision):
        import torch
        torch.set_num_threads(args.threads)
        before = forget_peak()
        make = {"block": make_block, "decode": make_decode, "encode": make_encode}[args.what]
        self.call = make(args, torch.float32 if precision == "f32" else torch.bfloat16)
        self.seconds()
        self.bytes = status_bytes("VmHWM") - before

    def seconds(self):
        import torch
        with torch.inference_mode():
            begin = time.perf_counter()
            self.call()
            return time.perf_counter() - begin


# ---- Report ----------------------------------------------------------------------------------------------------------


def measure(args, precision):
    peer = Diffusers(args, precision)
    theirs, ours = [], []
    for _ in range(args.rounds):
        theirs.append(peer.seconds())
        ours.append({row["stage"]: row for row in ithaca_rows(args, precision)})
    return theirs, ours, peer.bytes


def print_stages(ours):
    def median(stage, figure):
        return statistics.median(rows[stage][figure] for rows in ours)

    for stage, row in ours[0].items():
        line = f"  {stage:16}{median(stage, 'seconds'):10.4f} s"
        if row["peak"]:
            line += f"{100 * median(stage, 'share_of_peak'):8.1f}% of {row['peak']}, quiet "
            line += f"{100 * max(rows[stage]['quiet_share'] for rows in ours):.1f}%"
        print(line)


def main():
    args = arguments()
    limit_instructions(args.cpu)
    for precision in args.precision.split(","):
        theirs, ours, their_bytes = measure(args, precision)
        whole = [rows[args.what] for rows in ours]
        mine, peer = statistics.median(row["seconds"] for row in whole), statistics.median(theirs)
        best, best_peer = min(row["quiet_seconds"] for row in whole), min(theirs)
        print(f"{args.what} {args.size if args.what == 'block' else args.vae}, {precision}, {args.threads} threads, "
              f"{args.cpu or 'all'} instructions, {args.rounds} rounds")
        print_stages(ours)
        print(f"  diffusers       {peer:10.4f} s ({best_peer:.4f}): {peer / mine:.2f} of ithaca's {mine:.4f} s "
              f"({best:.4f}: {best_peer / best:.2f})")
        print(f"  memory          {1e-6 * whole[0]['memory_bytes']:10.0f} MB (predicted "
              f"{1e-6 * whole[0]['predicted_memory_bytes']:.0f} MB), diffusers {1e-6 * their_bytes:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
