#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ithaca's attention over processes beside yunchang (Ulysses and ring of PyTorch, over gloo), in turn.

    pip install torch yunchang && tools/bench_yunchang.py [--processes 2] [--strategy ulysses|ring] [--seq 8192]
                                 [--heads 8] [--head-dim 128] [--dtype bf16|f32] [--threads 1] [--rounds 3]
                                 [--mpirun "mpirun.openmpi --oversubscribe"]

Both sides run under the same mpirun, with as many threads in each process. yunchang's own kernels need a GPU; its local
attention is PyTorch's flash attention for CPUs here. A time is from a barrier to the end of the last process, the median
of the repeats. sent is counted on both sides: bytes that a process gives to its communication library for others.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ithaca", default="build/ithaca")
    parser.add_argument("--mpirun", default="mpirun.openmpi --oversubscribe --bind-to none")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--strategy", choices=["ulysses", "ring"], default="ulysses")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="127.0.0.1", help="address at which the processes of PyTorch meet")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- One process of yunchang ------------------------------------------------------------------------------------------


def count_sent(dist):
    """Makes the functions by which yunchang communicates count the bytes for other processes."""
    sent = [0]
    all_to_all, batch = dist.all_to_all_single, dist.batch_isend_irecv

    def counted_all_to_all(output, tensor, group=None, **others):
        ranks = dist.get_world_size(group)
        sent[0] += tensor.numel() * tensor.element_size() * (ranks - 1) // ranks
        return all_to_all(output, tensor, group=group, **others)

    def counted_batch(operations):
        sent[0] += sum(o.tensor.numel() * o.tensor.element_size() for o in operations if o.op is dist.isend)
        return batch(operations)

    dist.all_to_all_single, dist.batch_isend_irecv = counted_all_to_all, counted_batch
    return sent


def be_worker(args):
    import torch
    import torch.distributed as dist
    import yunchang.kernels.attention as kernels
    from yunchang import LongContextAttention, set_seq_parallel_pg
    from yunchang.kernels import AttnType
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    dist.init_process_group("gloo", init_method=f"tcp://{args.master}:29517", rank=rank, world_size=args.processes)
    kernels._scaled_dot_product_flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    ulysses = args.processes if args.strategy == "ulysses" else 1
    set_seq_parallel_pg(ulysses, args.processes // ulysses, rank, args.processes)
    attention = LongContextAttention(ring_impl_type="basic_pytorch", attn_type=AttnType.TORCH_FLASH)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    shape = (1, args.seq // args.processes, args.heads, args.head_dim)
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    sent, times = count_sent(dist), []
    for _ in range(args.repeat + 1):
        dist.barrier()
        sent[0] = 0
        start = time.perf_counter()
        attention(q, k, v)
        dist.barrier()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"seconds": statistics.median(times[1:]), "sent_bytes": sent[0]}))


# ---- Turns ------------------------------------------------------------------------------------------------------------


def mpirun(args, command):
    line = shlex.split(args.mpirun) + ["-n", str(args.processes)] + command
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    found = json.loads(output[output.index("{" if output.lstrip().startswith("{") else "["):])
    return found[0] if isinstance(found, list) else found


def ithaca(args):
    return mpirun(args, [args.ithaca, "bench", "attention", "--json", "--repeat", str(args.repeat), "--dtype", args.dtype,
                         "--strategy", args.strategy, "--threads", str(args.threads), "--seq", str(args.seq), "--heads",
                         str(args.heads), "--head-dim", str(args.head_dim)])


def yunchang(args):
    return mpirun(args, [sys.executable, os.path.abspath(__file__), "--worker"] + sys.argv[1:])


def main():
    args = arguments()
    if args.worker:
        return be_worker(args)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    rows = {"ithaca": [], "yunchang": []}
    for _ in range(args.rounds):
        rows["ithaca"].append(ithaca(args))
        rows["yunchang"].append(yunchang(args))
    median = {side: statistics.median(row["seconds"] for row in rows[side]) for side in rows}
    print(f"{args.processes} processes, {args.strategy}, {args.dtype}, S = {args.seq}, H = {args.heads}, "
          f"D = {args.head_dim}, {args.threads} threads each")
    for side in rows:
        print(f"  {side:9} {median[side]:9.4f} s   sent {rows[side][0].get('sent_bytes', 0)} bytes")
    print(f"  yunchang / ithaca: {median['yunchang'] / median['ithaca']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
