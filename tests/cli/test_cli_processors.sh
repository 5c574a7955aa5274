#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Older processors, emulated by qemu, which ends a program at an instruction that they lack (ITHACA_CPU only chooses
# kernels). One has no AVX, the other has AVX2 alone. The program sees their instruction sets, makes plans for machines
# that have more, verifies attention, and makes a video.
. cli/lib.sh
command -v qemu-x86_64 >/dev/null && [ "$(uname -m)" = x86_64 ] || { echo "skipped: there is no qemu-x86_64"; exit 77; }
! has_sanitizer || { echo "skipped: sanitizers look at the native build"; exit 77; }
cd "$work"
unset ITHACA_CPU

# on_processor NAME SETS
on_processor() {
    local emulated="qemu-x86_64 -cpu $1 $ithaca" machine
    expect 0 "" $emulated info --model "$model" --json # without a model it would measure all kernels
    python3 - out "$2" <<'END_OF_PYTHON' || fail "$1: other instruction sets"
import json, sys
info = json.load(open(sys.argv[1]))
assert info["machine"]["instruction_sets"] == sys.argv[2], info["machine"]
END_OF_PYTHON
    for machine in "$root"/machines/*.yaml; do
        expect 0 "" $emulated plan --machine "$machine" --seq 75600 --ranks 8
    done
    for dtype in f32 bf16; do
        expect 0 "" $emulated verify --seq 40 --heads 2 --head-dim 16 --ranks 2 --dtype $dtype
        expect 0 "" $emulated generate --model "$model" --prompt "a red square" --frames 1 --height 16 --width 16 --steps 1 \
            --precision $dtype --output clip.gif --quiet
    done
}
on_processor Nehalem baseline
# qemu emulates AVX2 from version 7.2 on
[[ $(qemu-x86_64 --version) =~ version\ ([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 100 + BASH_REMATCH[2] < 702)) && { finish; exit; }
on_processor Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid "baseline avx2"
finish
