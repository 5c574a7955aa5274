#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ithaca's attention beside PyTorch's scaled_dot_product_attention, in turn, on as many threads.

    pip install torch && tools/bench_sdpa.py [--dtype bf16|f32|f16] [--threads 1] [--seq 8192] [--heads 2]
                                             [--head-dim 128] [--rounds 5]

Tensors of bf16 are compared with the better of PyTorch's bf16 and f32, others with PyTorch's of their own type. Medians
over the rounds, in GFLOP/s (4 S^2 D H operations). Shares are shares of the peak of the instructions that
Ithaca's kernel multiplies with. The peak is measured after each run of the kernel.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

PEERS = {"bf16": ["bfloat16", "float32"], "f32": ["float32"], "f16": ["float16"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ithaca", default="build/ithaca")
    parser.add_argument("--dtype", choices=PEERS, default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernel", default=None, help="of Ithaca's; by its rule if left out")
    return parser.parse_args()


def ithaca_row(args, softmax):
    command = [args.ithaca, "bench", "attention", "--json", "--repeat", "1", "--dtype", args.dtype,
               "--softmax", softmax, "--threads", str(args.threads), "--seq", str(args.seq), "--heads", str(args.heads),
               "--head-dim", str(args.head_dim)]
    if args.kernel:
        command += ["--kernel", args.kernel]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    row = rows[0] if isinstance(rows, list) else rows
    return row


def torch_rate(args, dtype):
    import torch
    torch.set_num_threads(args.threads)
    q, k, v = (torch.randn(1, args.heads, args.seq, args.head_dim).to(getattr(torch, dtype)) for _ in range(3))
    torch.nn.functional.scaled_dot_product_attention(q, k, v)  # warms up
    start = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return 4e-9 * args.seq**2 * args.head_dim * args.heads / (time.perf_counter() - start)


def main():
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    peers = [f"torch {dtype}" for dtype in PEERS[args.dtype]]
    rates = {name: [] for name in peers + ["ithaca online", "ithaca fixed_m"]}
    rows = {name: [] for name in rates}
    for _ in range(args.rounds + 1):
        for name in rates:
            who, what = name.split()
            if who == "torch":
                rates[name].append(torch_rate(args, what))
                continue
            rows[name].append(ithaca_row(args, what))
            rates[name].append(rows[name][-1]["gflops"])
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}  # the first round warms up
    peer = max(medians[name] for name in peers)
    print(f"torch {torch.__version__}, {args.dtype}, S {args.seq}, D {args.head_dim}, H {args.heads}, "
          f"{args.threads} thread(s)")
    for name, median in medians.items():
        kernel = rows[name][-1]["kernel"] if rows[name] else ""
        print(f"{name:16} {kernel:14} {median:9.1f} GFLOP/s  {median / peer:5.2f} x {' or '.join(peers)}", end="")
        if rows[name]:
            share = statistics.median(row["share_of_peak"] for row in rows[name][1:])
            print(f"  {100 * share:5.1f}% of {rows[name][-1]['peak']}", end="")
        print()


if __name__ == "__main__":
    main()
