#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the cost model with measurements on this machine: ithaca bench attention for every strategy, ranks 1, 2 and
4, and lengths of 4,096 to 32,768, in place and as messages.

    tools/check_prediction.py [--ithaca build/ithaca] [--machine FILE] [--seq 4096,8192] [--ranks 1,2,4] [--launch CMD]
    tools/check_prediction.py --ranks 1 --exchange copy --seq 4096 --launch 'tests/hosts/hosts.sh -r 1gbit -d 5 -n 2'

Prints a line for each cell with the ratio predicted / measured; then the share of cells whose ratio is from 0.8 to 1.25;
and for each problem the plan that is predicted to be the fastest, beside the fastest one measured. Ends with 1 if fewer
than 95% of the cells are within, or if a chosen plan takes more than 5% longer than the best. The machine should be idle.
"""
import argparse
import collections
import json
import shlex
import statistics
import subprocess
import sys

LEAST, MOST, SHARE, LOSS = 0.8, 1.25, 0.95, 1.05
STRATEGIES = {1: "single", 2: "ulysses:1,ulysses:2,ring,ring_bidir",
              4: "ulysses:1,ulysses:2,ring,ring_bidir,ulysses_ring:1,ulysses_ring:2,ulysses_ring_bidir:1"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ithaca", default="build/ithaca")
    parser.add_argument("--machine", help="a description, as of ithaca bench; measured by each run if left out")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--seq", default="4096,8192,16384,32768")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-dim", default="64,128")
    parser.add_argument("--dtype", default="bf16,f32")
    parser.add_argument("--softmax", default="online,fixed_m")
    parser.add_argument("--exchange", default="in_place,copy")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--figure", choices=["seconds", "seconds_min"], default="seconds", help="median, or the fastest")
    parser.add_argument("--launch", help="starts the processes, such as 'mpirun -n 2', and ends with their number; --ranks are then "
                        "of each process")
    return parser.parse_args()


def measure(args, ranks, dtype, head_dim, exchange):
    """The rows of one run of the benchmark. One rank exchanges nothing, so it is measured once."""
    if ranks == 1 and exchange != args.exchange.split(",")[0] and not args.launch:
        return []
    total = ranks * (int(shlex.split(args.launch)[-1]) if args.launch else 1)
    command = shlex.split(args.launch or "") + [
        args.ithaca, "bench", "attention", "--json", "--ranks", str(ranks), "--dtype", dtype, "--head-dim", head_dim,
        "--heads", str(args.heads), "--seq", args.seq, "--softmax", args.softmax, "--repeat", str(args.repeat),
        "--strategy", STRATEGIES.get(total, STRATEGIES[4])]
    if ranks > 1 or args.launch:
        command += ["--exchange", exchange]
    else:
        command += ["--threads", "1"]
    if args.machine:
        command += ["--machine", args.machine]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def show(row, ratio, figure):
    mark = "" if LEAST <= ratio <= MOST else "  <<"
    print(f"{row['name']:<22} {row['ranks']} ranks  {row['ulysses']} x {row['ring']}  {row['chunks']} chunks  "
          f"{row['softmax']:<7} {row['exchange']:<8} {row['dtype']:<4} {row['seq']:>6} x {row['head_dim']:<4} "
          f"measured {row[figure]:.5f} s  predicted {row['predicted_seconds']:.5f} s  ratio {ratio:.3f}{mark}", flush=True)


def choices(cells, figure):
    """Compares the predicted fastest plan of each problem with the fastest plan. Returns the largest loss."""
    worst = 1.0
    for key, rows in cells.items():
        chosen = min(rows, key=lambda row: row["predicted_seconds"])
        best = min(rows, key=lambda row: row[figure])
        loss = chosen[figure] / best[figure]
        worst = max(worst, loss)
        mark = "" if loss <= LOSS else "  <<"
        name = [f"{row['name']} {row['softmax']}" for row in (chosen, best)]
        print(f"{key[0]} ranks {key[1]:<8} {key[2]:<4} {key[3]:>6} x {key[4]:<4} chosen {name[0]}, best {name[1]}: "
              f"{100 * (loss - 1):.1f}% longer{mark}")
    return worst


def main():
    args = arguments()
    cells, ratios = collections.defaultdict(list), []
    for ranks in map(int, args.ranks.split(",")):
        for dtype in args.dtype.split(","):
            for head_dim in args.head_dim.split(","):
                for exchange in args.exchange.split(","):
                    for row in measure(args, ranks, dtype, head_dim, exchange):
                        if row["predicted_seconds"] is None:
                            sys.exit(f"no prediction of {row['name']}")
                        ratios.append(row["predicted_seconds"] / row[args.figure])
                        show(row, ratios[-1], args.figure)
                        cells[row["ranks"], exchange, dtype, row["seq"], row["head_dim"]].append(row)
    print()
    worst = choices(cells, args.figure)
    within = sum(LEAST <= ratio <= MOST for ratio in ratios) / len(ratios)
    print(f"\n{len(ratios)} cells, {100 * within:.1f}% within {LEAST} to {MOST}; ratios {min(ratios):.3f} to {max(ratios):.3f}, "
          f"median {statistics.median(ratios):.3f}; a chosen plan takes {100 * (worst - 1):.1f}% longer than the best at most")
    return 0 if within >= SHARE and worst <= LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
