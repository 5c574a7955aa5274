#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca bench attention: every row that was asked for is there, and its figures hang together.
. cli/lib.sh
small="--heads 2 --head-dim 32 --repeat 2"

expect 0 "" "$ithaca" bench attention $small --seq 64,100 --batch 1,2 --ranks 2 --strategy single,ulysses,ring,ulysses_custom_fixed_m \
    --json
jq -e 'length == 16 and all(.[]; .gflops > 0 and .peak_gflops > 0 and .seconds > 0 and .spread >= 0 and
    .rel_l2 > 1e-5 and .rel_l2 < 0.00390625 and .memory_bytes > 0 and .threads >= 1 and .dtype == "bf16" and
    (.share_of_peak * .peak_gflops / .gflops - 1 | fabs) < 1e-4 and (.peak | test("^[a-z0-9]+_")) and
    .kernel_from == "estimate" and
    (4 * .batch * .heads * .seq * .seq * .head_dim / .seconds / .gflops / 1e9 - 1 | fabs) < 1e-4)' "$work/out" >/dev/null ||
    fail "figures: $(cat "$work/out")"
jq -e '[.[] | [.seq, .batch, .name]] | unique | length == 16' "$work/out" >/dev/null || fail "a row is there twice"
jq -e 'all(.[]; (.name == "single") == (.ranks == 1)) and all(.[]; (.ranks == 1) == (.sent_bytes == 0)) and
    all(.[] | select(.name == "ulysses_custom_fixed_m"); .strategy == "ulysses" and .softmax == "fixed_m")' "$work/out" \
    >/dev/null || fail "what was asked for is not what was done"
# S h b / P * 4 (P - 1) / P and 2 S h b (P - 1) / P, for bf16
jq -e 'all(.[] | select(.strategy == "ulysses" or .strategy == "ring");
    .sent_bytes == .batch * .seq * .heads * .head_dim * 2)' "$work/out" >/dev/null || fail "bytes sent"
jq -e 'all(.[]; (.predicted_memory_bytes / .memory_bytes - 1 | fabs) < 0.05)' "$work/out" >/dev/null || fail "memory"

expect 0 "" "$ithaca" bench attention $small --seq 50 --dtype f32 --softmax online,fixed_m --kv-heads 1 --threads 1 \
    --kernel f32_ref --wisdom "$work/wisdom" --trace "$work/trace" --json
jq -e 'length == 2 and all(.[]; .rel_l2 < 5e-6 and .kernel == "f32_ref" and .kernel_from == "named" and .peak == "f32_ref" and .kv_heads == 1 and .threads == 1) and
    [.[].softmax] == ["online", "fixed_m"]' "$work/out" >/dev/null || fail "options: $(cat "$work/out")"
[ -s "$work/wisdom" ] && jq -e .traceEvents "$work/trace" >/dev/null || fail "wisdom and trace"

# What is measured is wisdom from then on. Where a kernel has no rival, nothing is measured.
for origin in measured wisdom; do
    expect 0 "" "$ithaca" bench attention $small --seq 33 --effort measure --wisdom "$work/measured" --json
    jq -e --arg origin $origin 'all(.[]; .kernel_from == $origin or .kernel_from == "estimate")' "$work/out" >/dev/null ||
        fail "--effort measure, $origin: $(cat "$work/out")"
done
if grep -q '^attention ' "$work/measured"; then
    jq -e '.[0].kernel_from == "wisdom"' "$work/out" >/dev/null || fail "wisdom is not used"
fi

expect 0 "" "$ithaca" bench attention $small --seq 33 --dtype f16 --ranks 3 --strategy ulysses_ring,single --ulysses 3
[ "$(wc -l <"$work/out")" = 3 ] || fail "the table: $(cat "$work/out")"
[ -s "$work/err" ] && fail "standard error: $(cat "$work/err")"

expect 1 "ring" "$ithaca" bench attention $small --seq 64 --ranks 4 --ring 3 --strategy ring
expect 1 "no_such" "$ithaca" bench attention $small --seq 64 --kernel no_such
expect 1 "kv_heads is 3" "$ithaca" bench attention $small --seq 64 --kv-heads 3
expect 1 "size can hold|no memory" "$ithaca" bench attention --seq 10000000 --batch 10000000 --heads 10000000
finish
