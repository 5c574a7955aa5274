#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the predicted time of `ithaca generate` with the measured one: runs of 20 steps on 1, 2 and 4 ranks.

    tools/check_video_prediction.py build/ithaca models/shapes [--repeat 5] [--steps 20] [--ranks 1,2,4] [OPTION ...]

For each number of ranks it prints the median of predicted / measured over the runs, of the whole (text, denoising and
decoding, without the writing of the video) and of each stage, once with the short measurement that each run makes, and
once with --dry-run. Further options go to `ithaca generate`. The machine should have nothing else to do. The exit status
is 1 if the median for the whole is not within 15%.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

STAGES = ("conditioning", "denoise", "decode_compute")


def run(command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def whole(seconds):
    return sum(seconds[stage] for stage in STAGES)


def line(name, predicted, measured):
    ratio = {stage: statistics.median(p[stage] / m[stage] for p, m in zip(predicted, measured)) for stage in STAGES}
    all_ratio = statistics.median(whole(p) / whole(m) for p, m in zip(predicted, measured))
    stages = ", ".join(f"{stage} {value:.3f}" for stage, value in ratio.items())
    print(f"  {name:12} predicted / measured {all_ratio:.3f}  ({stages}); measured "
          f"{statistics.median(whole(m) for m in measured):.3f} s")
    return all_ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ithaca")
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", default="20")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--prompt", default="A red circle moves to the right on a black background.")
    args, rest = parser.parse_known_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_CACHE_HOME=folder)  # an empty cache, without a description of the machine
        for ranks in args.ranks.split(","):
            command = [args.ithaca, "generate", "--model", args.model, "--prompt", args.prompt, "--steps", args.steps,
                       "--ranks", ranks, "--json", "--output", os.path.join(folder, "clip.mp4"), *rest]
            runs = [run(command, environment) for _ in range(args.repeat)]
            dry = [run([*command, "--dry-run"], environment) for _ in range(min(args.repeat, 3))]
            measured = [r["seconds"] for r in runs]
            print(f"{ranks} rank{'s' if ranks != '1' else ''}")
            quick_ratio = line("in the run", [r["predicted_seconds"] for r in runs], measured)
            dry_ratio = line("dry run", [statistics_of(dry)] * len(measured), measured)
            good &= 0.85 <= quick_ratio <= 1.15 and 0.85 <= dry_ratio <= 1.15
    return 0 if good else 1


def statistics_of(dry):
    return {stage: statistics.median(d["predicted"][stage] for d in dry) for stage in STAGES}


if __name__ == "__main__":
    sys.exit(main())
