#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Published times of Wan on TPU v7x, H100 and GB200, compared with `ithaca plan` for the machines in machines/. Each
# machine has one rate for all rows of its table (machines/README.md), so these rows check which plan the cost model
# finds faster, and how its times scale.
. cli/lib.sh
export XDG_CACHE_HOME=$work/cache
a14b=wan2.2-a14b-720p

# best MACHINE RANKS FIELD OPTION...: prints a field of the best plan.
best() {
    local machine=$1 ranks=$2 field=$3
    shift 3
    "$ithaca" plan --machine "$machine" --ranks "$ranks" --json "$@" | jq -r ".[0].$field"
}
# step MACHINE RANKS CFG ULYSSES RING OPTION...: prints the seconds of a step.
step() {
    local machine=$1 ranks=$2 cfg=$3 ulysses=$4 ring=$5
    shift 5
    best "$machine" "$ranks" seconds_step --problem $a14b --cfg "$cfg" --ulysses "$ulysses" --ring "$ring" --chunks 1 \
        --softmax online --direction uni "$@"
}
# within SHARE PREDICTED REPORTED NAME: predicted and reported differ by at most SHARE of the reported time.
within() {
    echo "$4: predicted $2, reported $3, $(jq -n "100 * ($2 / $3 - 1) | round")%"
    [ "$(jq -n "$2 > 0 and ($2 / $3 - 1 | fabs) <= $1")" = true ] || fail "$4: $2 instead of $3"
}
# ahead A B NAME: time A must be less than time B.
ahead() {
    [ "$(jq -n "$1 < $2")" = true ] || fail "$3: $1 is not ahead of $2"
}

# TPU v7x (maxdiffusion 430, 436, 452). The guidance branches are computed in parallel: each has 4 of 8 ranks, or 8 of
# 16.
u2r2=$(step tpu-v7x-8 8 parallel 2 2) u4=$(step tpu-v7x-8 8 parallel 4 1)
u4r2=$(step tpu-v7x-16 16 parallel 4 2) u8=$(step tpu-v7x-16 16 parallel 8 1)
within 0.15 "$u2r2" 2.74 "TPU, 4 ranks, 2 x 2"
within 0.15 "$u4" 3.06 "TPU, 4 ranks, 4 x 1"
within 0.15 "$u4r2" 1.595 "TPU, 8 ranks, 4 x 2"
within 0.15 "$u8" 1.590 "TPU, 8 ranks, 8 x 1"
ahead "$u2r2" "$u4" "TPU, 4 ranks: 2 x 2 before 4 x 1"
within 0.02 "$u4r2" "$u8" "TPU, 8 ranks: 4 x 2 as fast as 8 x 1"
within 0.15 "$(best tpu-v7x-8 8 seconds_step --problem $a14b --cfg batch --ulysses 8 --ring 1 --chunks 1 --softmax online)" 3.10 \
    "TPU, 8 ranks, both branches as a batch"
within 0.15 "$(best tpu-v7x-8 8 seconds_step --problem $a14b --cfg batch --ulysses 8 --ring 1 --chunks 1 --softmax fixed_m)" 2.95 \
    "TPU, the same with fixed_m"
within 0.15 "$(step tpu-v7x-8 8 parallel 2 2 --softmax fixed_m)" 2.633 "TPU, 4 ranks, 2 x 2, fixed_m"
# 16 ranks for each branch.
expect 0 "" "$ithaca" plan --machine tpu-v7x-16 --ranks 16 --problem $a14b --cfg sequential --chunks 1 --softmax online --json
jq -e '.[0] | .ulysses == 8 and .ring == 2' "$work/out" >/dev/null || fail "16 ranks: $(jq -c '.[0]' "$work/out")"
jq -e 'any(.[]; .ulysses == 16 and (.legal | not) and (.rule | test("must divide the 40 heads.* as 8 does")))' "$work/out" >/dev/null ||
    fail "ulysses on 16 ranks is not refused"
expect 0 "" "$ithaca" plan --machine h100-8x16 --ranks 16 --problem $a14b --cfg sequential --chunks 1 --softmax online --json
jq -e 'any(.[]; .ulysses == 16 and .legal and .seconds_step > 0)' "$work/out" >/dev/null || fail "ulysses on 16 ranks has no cost here"
# Chunks gain about 3%.
two=$(best tpu-v7x-16 16 seconds_step --problem $a14b --cfg parallel --ulysses 8 --ring 1 --softmax online --chunks 2)
within 0.02 "$(jq -n "$two / $u8")" 0.97 "TPU, 8 ranks, 8 x 1: time with 2 chunks over the time without"

# Whole runs of 40 steps, in which one device decodes the frames; and seconds of a step.
# decode MACHINE: prints the seconds of decoding on one device.
decode() { "$ithaca" plan --machine "$1" --problem $a14b --cfg sequential --softmax online --json |
    jq '.[0] | .seconds_video - 40 * .seconds_step'; }
h100=$(decode h100-8) gb200=$(decode gb200-nvl72)
run() { jq -n "40 * $1 + $2"; }
h1=$(run "$(step h100-8 1 sequential 1 1)" "$h100") h4=$(run "$(step h100-8 4 sequential 4 1)" "$h100")
h8=$(run "$(step h100-8 8 sequential 8 1)" "$h100")
within 0.2 "$h1" 1041.5 "H100, published code, 1 device"
within 0.2 "$h4" 288.7 "H100, published code, 4 devices"
within 0.2 "$h8" 155.1 "H100, published code, 8 devices"
within 0.2 "$(jq -n "$h1 / $h8")" "$(jq -n '1041.5 / 155.1')" "H100, published code, 1 over 8 devices"
l1=$(best h100-8 1 seconds_step --problem wan2.1-14b-480p --cfg sequential --softmax online)
l8=$(best h100-8 8 seconds_step --problem wan2.1-14b-480p --cfg parallel --ulysses 4 --ring 1 --chunks 1 --softmax online)
within 0.2 "$l1" 5.18 "H100, LightX2V, 1 device"
within 0.2 "$l8" 0.75 "H100, LightX2V, 8 devices"
within 0.2 "$(jq -n "$l1 / $l8")" "$(jq -n '5.18 / 0.75')" "H100, LightX2V, 1 over 8 devices"
g1=$(run "$(step gb200-nvl72 1 sequential 1 1)" "$gb200") g8=$(run "$(step gb200-nvl72 8 parallel 4 1)" "$gb200")
g64=$(run "$(step gb200-nvl72 64 parallel 8 4)" "$gb200")
within 0.2 "$g1" 348.4 "GB200, 1 device"
within 0.2 "$g8" 48.06 "GB200, 8 devices"
within 0.2 "$g64" 8.48 "GB200, 64 devices"
within 0.2 "$(jq -n "$g1 / $g64")" "$(jq -n '348.4 / 8.48')" "GB200, 1 over 64 devices"
finish
