#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ithaca's attention on a GPU beside PyTorch's, in turn on the same GPU.

    tools/bench_gpu_sdpa.py [--seq 16384,32760,75600] [--heads 16] [--head-dim 128] [--dtype bf16|f16] [--rounds 3] \
                            [--bench build/bench_gpu_attention]

PyTorch's attention by cuDNN and by FlashAttention, and a matrix product of 8192^3 for the device's rate. Random numbers.
Medians over the rounds in TFLOP/s (4 S^2 D H operations of attention), and shares of cuDNN's rate.
"""
import argparse
import json
import statistics
import subprocess

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

SAMPLE_SECONDS = 0.04
PEERS = {"torch cudnn": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/bench_gpu_attention")
    parser.add_argument("--seq", default="16384,32760,75600")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def seconds_of(function):
    """Seconds of one call: the mean over a sample of SAMPLE_SECONDS, after calls to warm up."""
    function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    count = 1
    for _ in range(2):
        begin.record()
        for _ in range(count):
            function()
        end.record()
        torch.cuda.synchronize()
        seconds = begin.elapsed_time(end) * 1e-3 / count
        count = 1 + int(SAMPLE_SECONDS / seconds)
    return seconds


def torch_rates(args, seq, dtype):
    """TFLOP/s of each peer; None with a reason if it cannot run."""
    operations = 4 * seq**2 * args.head_dim * args.heads
    q, k, v = (torch.randn(1, seq, args.heads, args.head_dim, device="cuda", dtype=dtype).transpose(1, 2)
               for _ in range(3))
    rates = {}
    for name, backend in PEERS.items():
        try:
            with sdpa_kernel(backend):
                rates[name] = operations / 1e12 / seconds_of(
                    lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    return rates


def product_rate(dtype):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * 8192**3 / 1e12 / seconds_of(lambda: a @ b)


def ithaca_rates(args, seq):
    command = [args.bench, "--json", "--rounds", "3", "--seq", str(seq), "--heads", str(args.heads), "--head-dim",
               str(args.head_dim), "--dtype", args.dtype]
    command += ["--softmax", "both" if args.dtype == "bf16" else "online"]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {f"ithaca {row['softmax']}": row["tflops"] for row in rows}


def main():
    args = arguments()
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    print(f"{args.dtype}, H {args.heads}, D {args.head_dim}; TFLOP/s (share of cuDNN's rate)")
    for seq in map(int, args.seq.split(",")):
        rounds = {}
        for _ in range(args.rounds):
            rates = torch_rates(args, seq, dtype) | {"torch 8192^3 product": product_rate(dtype)}
            torch.cuda.empty_cache()
            rates |= ithaca_rates(args, seq)
            for name, rate in rates.items():
                rounds.setdefault(name, []).append(rate)
        medians = {name: statistics.median(rates) for name, rates in rounds.items()}
        for name, rate in medians.items():
            share = rate / medians.get("torch cudnn", float("nan"))
            spread = f"{min(rounds[name]):.1f} to {max(rounds[name]):.1f}"
            print(f"S {seq:6d}  {name:28s} {rate:7.1f}  ({share:5.3f})  {spread}", flush=True)


if __name__ == "__main__":
    main()
