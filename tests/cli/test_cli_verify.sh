#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca verify: every kind of problem passes, the plans are of every kind, and the figures agree with one another.
. cli/lib.sh

# verify OPTION...: all plans pass.
verify() {
    expect 0 "" "$ithaca" verify "$@"
    tail -n 1 "$work/out" | grep -qE '^[1-9][0-9]* plans, 0 failed$' || fail "verify $*: $(tail -n 1 "$work/out")"
    [ -s "$work/err" ] && fail "verify $* writes on standard error: $(cat "$work/err")"
}
small="--heads 3 --head-dim 32 --ranks 4"
verify $small --seq 37
verify $small --seq 37 --dtype f32 --mask lengths --seed 7
verify $small --seq 33,1,2 --kv-seq 70 --dtype f16 --mask bool
verify --heads 6 --kv-heads 2 --head-dim 40 --ranks 6 --seq 29 --mask additive --dtype f32
verify --heads 5 --batch 1 --seq 3 --ranks 5 --head-dim 1
verify $small --seq 20 --kv-seq 0
verify --heads 1 --batch 1 --seq 50 --ranks 1
for dtype in bf16 f16 f32; do
    for heads in 1 2 3; do # few keys: online has hardly an error, and fixed_m the rounding of its offset
        verify --seq 8 --kv-seq 1 --heads $heads --head-dim 16 --ranks 2 --dtype $dtype
        verify --seq 8 --kv-seq 2 --heads $heads --head-dim 16 --ranks 2 --dtype $dtype
        verify --seq 8 --kv-seq 6 --heads $heads --head-dim 16 --ranks 2 --dtype $dtype --seed 6
    done
done
for dtype in bf16 f16 f32; do
    for sizes in "2 1" "3 1" "5 1" "12 1" "40 1" "5 2" "1 64"; do # few numbers, so that their errors vary much
        for seed in 0 1 2 5 8 10; do
            verify --seq ${sizes% *} --head-dim ${sizes#* } --ranks 1 --threads 1 --batch 4 --heads 8 --dtype $dtype --seed $seed
        done
    done
done
verify --head-dim 1 --seq 5 --ranks 2

# The plans have every value of every option, and their figures are right.
expect 0 "" "$ithaca" verify $small --seq 40 --json --threads 3
jq -e '.failed == 0 and .plans == ([.problems[].plans[]] | length) and (.problems | length) == 1 and
    .problems[0].queries == 40 and .problems[0].dtype == "bf16"' "$work/out" >/dev/null || fail "JSON: $(head -c 300 "$work/out")"
jq -e '[.problems[].plans[]] | all(.[]; .error <= .bound and .lse_error <= .lse_bound and .bound > 0 and .repeats and
    .verdict == "ok" and .same_as_single != false and (.strategy == "ulysses") == (.same_as_single == true) and
    .ulysses * .ring == .ranks)' "$work/out" >/dev/null || fail "verdicts"
jq -e '[.problems[].plans[]] | any(.[]; .error > 1e-4) and
    ([.[].strategy] | unique == ["ring", "single", "ulysses", "ulysses_ring"]) and
    ([.[].softmax] | unique == ["fixed_m", "online"]) and ([.[].chunks] | unique | length > 1) and
    any(.[]; .direction == "bidir") and any(.[]; .direction == "uni") and any(.[]; .fold | not) and
    any(.[]; .softmax == "fixed_m" and .smoothing) and any(.[]; .softmax == "fixed_m" and (.smoothing | not)) and
    any(.[]; .exchange == "copy") and any(.[]; .exchange == "in_place")' "$work/out" >/dev/null || fail "an option is missing"
kernels=$("$ithaca" info --json | jq -c '[.kernels[] | select(.usable and .bf16_gflops) | .name] | sort')
[ "$(jq -c '[.problems[].plans[].kernel] | unique | sort' "$work/out")" = "$kernels" ] || fail "kernels other than $kernels"
kernel=$(echo "$kernels" | jq -r '.[0]')
expect 0 "" "$ithaca" verify $small --seq 10 --json --kernel "$kernel"
jq -e --arg kernel "$kernel" 'all(.problems[].plans[]; .kernel == $kernel)' "$work/out" >/dev/null || fail "--kernel"

expect 1 "no kernel 'none'" "$ithaca" verify --kernel none
expect 1 "this machine cannot run the kernel bf16_amx" env ITHACA_CPU=baseline "$ithaca" verify --kernel bf16_amx
expect 1 "--kv-heads is 4" "$ithaca" verify --heads 6 --kv-heads 4
expect 1 "size can hold|no memory" "$ithaca" verify --seq 1000000 --batch 1000000 --heads 1000000 --head-dim 1000000
finish
