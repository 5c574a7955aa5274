#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca bench: prints every row that the options ask for, and the numbers of a row agree.
. cli/lib.sh
know_machine
small="--heads 2 --head-dim 32 --repeat 2"

# steady TEST COMMAND...: measures, and measures again up to four times while TEST (for jq) is false for the figures,
# because other programs may disturb a measurement.
steady() {
    local test=$1 n
    shift
    for ((n = 0; n < 5; n++)); do
        expect 0 "" "$@"
        ! jq -e "$test" "$work/out" >/dev/null || return
    done
    fail "not $test: $(cat "$work/out")"
}

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

# Wisdom that cannot be saved at the end costs no measurement.
mkdir "$work/barred.lock"
expect 1 "cannot write .*barred" "$ithaca" bench attention $small --seq 50 --repeat 1 --wisdom "$work/barred" --json
[ "$(jq length "$work/out")" = 1 ] || fail "the rows are lost because wisdom cannot be saved"
expect 1 "cannot write .*barred" "$ithaca" bench generate --model "$model" --steps 1 --frames 1 --height 32 --width 32 --repeat 1 \
    --wisdom "$work/barred" --json
[ "$(jq length "$work/out")" = 7 ] || fail "the stages are lost because wisdom cannot be saved"
rmdir "$work/barred.lock"

# Measurements become wisdom for later commands. If only one kernel can run, nothing is measured.
for origin in measured wisdom; do
    expect 0 "" "$ithaca" bench attention $small --seq 33 --effort measure --wisdom "$work/measured" --json
    jq -e --arg origin $origin 'all(.[]; .kernel_from == $origin or .kernel_from == "estimate")' "$work/out" >/dev/null ||
        fail "--effort measure, $origin: $(cat "$work/out")"
done
if grep -q '^attention ' "$work/measured"; then
    jq -e '.[0].kernel_from == "wisdom"' "$work/out" >/dev/null || fail "wisdom is not used"
fi

# Plans without overlap send the same bytes and have the same error.
steady 'all(.[1, 3]; .hidden_share < 0.05)' "$ithaca" bench attention --heads 4 --head-dim 32 --repeat 2 --seq 64 --ranks 2 \
    --exchange copy --strategy ring,ring_unhidden,ulysses:2,ulysses_unhidden:2 --json
jq -e '([.[].overlap] == [null, "off", null, "off"]) and .[3].chunks == 2 and
    .[0].rel_l2 == .[1].rel_l2 and .[2].rel_l2 == .[3].rel_l2 and ([.[].sent_bytes] | unique | length) == 1' "$work/out" >/dev/null ||
    fail "plans that hide nothing: $(cat "$work/out")"
expect 0 "" "$ithaca" bench attention $small --seq 64 --ranks 2 --exchange copy --strategy ring --no-overlap --json
jq -e '.[0].overlap == "off"' "$work/out" >/dev/null || fail "--no-overlap"
expect 2 "unhidden" "$ithaca" bench attention $small --seq 64 --strategy _unhidden

expect 0 "" "$ithaca" bench attention $small --seq 33 --dtype f16 --ranks 3 --strategy ulysses_ring,single --ulysses 3
[ "$(wc -l <"$work/out")" = 3 ] || fail "the table: $(cat "$work/out")"
[ -s "$work/err" ] && fail "standard error: $(cat "$work/err")"

expect 1 "ring" "$ithaca" bench attention $small --seq 64 --ranks 4 --ring 3 --strategy ring
expect 1 "no_such" "$ithaca" bench attention $small --seq 64 --kernel no_such
expect 1 "--kv-heads is 3" "$ithaca" bench attention $small --seq 64 --kv-heads 3
expect 1 "size can hold|no memory" "$ithaca" bench attention --seq 10000000 --batch 10000000 --heads 10000000

# A block and a decoder with random weights: a row for each stage. The times of the stages add up to the last row.
figures='all(.[]; .seconds >= 0 and .spread >= 0 and .quiet_seconds <= .seconds * 1.0001 and .threads >= 1) and
    all(.[] | select(.peak != null); .gflops > 0 and .burst_gflops >= .peak_gflops and .peak_gflops > 0 and
        .share_of_peak > 0 and .quiet_share > 0 and (.operations / .seconds / .gflops / 1e9 - 1 | fabs) < 1e-4 and
        (.share_of_peak * .peak_gflops / .gflops - 1 | fabs) < 1e-4 and (.peak | test("^[a-z0-9]+_"))) and
    all(.[] | select(.peak == null); .operations == 0 and .gflops == null and .share_of_peak == null) and
    (([.[:-1][].operations] | add) as $work | ($work / .[-1].operations - 1 | fabs) < 1e-4) and
    .[-1].predicted_memory_bytes == .[-1].memory_bytes and .[-1].memory_bytes > .[-1].weights_bytes'
tiny="--heads 2 --head-dim 32 --ffn-dim 96 --seq 70 --repeat 2"
for options in "" "--precision f32 --weights f32 --threads 1" "--precision bf16 --weights f16 --threads 2 --softmax fixed_m --text 9"; do
    expect 0 "" "$ithaca" bench block $tiny $options --json
    jq -e "$figures" "$work/out" >/dev/null || fail "bench block $options: $(cat "$work/out")"
    jq -e '[.[].stage] == ["qkv", "self attention", "project", "cross attention", "ffn", "rest", "block"]' "$work/out" \
        >/dev/null || fail "the stages of a block"
    [ -s "$work/err" ] && fail "standard error: $(cat "$work/err")"
done
jq -e 'all(.[]; .precision == "bf16" and .weights == "f16" and .threads == 2 and .text == 9 and .repeats == 2)' "$work/out" \
    >/dev/null || fail "the options of bench block"
expect 0 "" "$ithaca" bench decode --size small --height 32 --width 48 --frames 5 --repeat 2 --json
jq -e "$figures" "$work/out" >/dev/null ||
    fail "bench decode: $(cat "$work/out")"
jq -e '[.[].stage] == ["latents", "attention", "level 1", "level 2", "level 3", "level 4", "picture", "norms", "rest",
    "decode"]' "$work/out" >/dev/null || fail "the stages of a decoder"

expect 0 "" "$ithaca" bench encode --size small --height 32 --width 48 --frames 5 --repeat 2 --json
jq -e "$figures" "$work/out" >/dev/null ||
    fail "bench encode: $(cat "$work/out")"
jq -e '[.[].stage] == ["latents", "attention", "picture", "level 1", "level 2", "level 3", "level 4", "norms", "rest",
    "encode"]' "$work/out" >/dev/null || fail "the stages of an encoder"

# No rate is above the peak by more than the noise, except in stages that do fewer operations than are counted.
steady '.[-1].quiet_share < 1.1' "$ithaca" bench block --heads 4 --head-dim 64 --ffn-dim 1024 --seq 512 --threads 1 \
    --precision f32 --json

# The sizes of the models, in the table.
for size in "1.3b 12 heads of 128, feed-forward 8960" "5b 24 heads of 128, feed-forward 14336" "a14b 40 heads of 128, feed-forward 13824"; do
    expect 1 "tokens [0-9]+ would do" "$ithaca" bench block --size ${size%% *} --seq 1000000000
done
expect 0 "" "$ithaca" bench block $tiny
grep -qE '^block: 2 heads of 32, feed-forward 96, 70 tokens, 512 rows of text; precision (f32|bf16), weights bf16, [0-9]+ threads?$' \
    "$work/out" && [ "$(wc -l <"$work/out")" = 10 ] || fail "the table of a block: $(cat "$work/out")"
expect 0 "" "$ithaca" bench decode --size small --height 8 --width 8 --frames 1
grep -qE '^memory [0-9.]+ MB held \(predicted [0-9.]+ MB; [0-9.]+ MB of it are the weights\), [0-9.]+ MB resident$' "$work/out" ||
    fail "the table of a decoder: $(cat "$work/out")"

# Whole runs of a model: a row for each stage. A stage is no longer than the whole of its repeat.
expect 0 "" "$ithaca" bench generate --model "$model" --steps 2 --frames 5 --height 32 --width 48 --repeat 2 --threads 2 --json
jq -e '[.[].stage] == ["load", "text", "plan", "denoise", "step", "decode", "whole"] and all(.[]; .seconds > 0 and .bench == "generate" and
    .frames == 5 and .height == 32 and .width == 48 and .steps == 2 and .threads == 2 and .repeats == 2) and
    (.[4].seconds * 2 / .[3].seconds - 1 | fabs) < 1e-4 and .[3].seconds_max <= .[6].seconds_max and
    .[6].seconds_max <= ([.[1, 2, 3, 5] | .seconds_max] | add) * 1.0001 and
    .[6].seconds_min >= ([.[1, 2, 3, 5] | .seconds_min] | add) * 0.9999 and
    .[0].predicted_seconds == null and .[2].predicted_seconds == null and
    (.[1].predicted_seconds + .[3].predicted_seconds + .[5].predicted_seconds) / .[6].predicted_seconds > 0.999 and
    .[4].predicted_seconds * 2 / .[3].predicted_seconds < 1.001 and .[6].predicted_seconds > 0 and .[6].memory_bytes > 1e6' "$work/out" >/dev/null ||
    fail "the stages of a run: $(cat "$work/out")"
expect 0 "" "$ithaca" bench generate --model "$model" --steps 1 --frames 1 --height 32 --width 32 --repeat 1 --ranks 2
grep -qE '^Wan.*: 1 frame of 32 x 32, 1 step, cfg batch, (f32|bf16); 2 ranks$' "$work/out" && [ "$(wc -l <"$work/out")" = 10 ] ||
    fail "the table of a run: $(cat "$work/out")"
expect 1 "/none" "$ithaca" bench generate --model /none
expect 2 "--model is needed" "$ithaca" bench generate
expect 2 "--fps is of a video, and none is written" "$ithaca" bench generate --model "$model" --fps 5
expect 1 "frames" "$ithaca" bench generate --model "$model" --frames 6

# A terminal shows progress. Ctrl-C ends the command within a second, without a line on standard output.
if command -v script >/dev/null; then
    script -qec "'$ithaca' bench block $tiny --json >'$work/out'" /dev/null >"$work/screen" </dev/null || fail "on a terminal"
    grep -q 'run 3/3 in' "$work/screen" || fail "no progress on a terminal: $(cat "$work/screen")"
    # The bar fits a narrow terminal. A terminal that cannot overwrite a line gets a new line each time.
    video="'$ithaca' generate --model '$model' --prompt x --steps 3 --output '$work/bar.mp4' >/dev/null"
    script -qec "stty cols 50; export TERM=xterm; $video" /dev/null 2>&1 >"$work/screen" </dev/null || fail "narrow terminal"
    tr '\r' '\n' <"$work/screen" | grep -aE '^(text|denoise|decode) *\[' | sed 's/\x1b\[K//' >"$work/bars"
    [ -s "$work/bars" ] && [ "$(wc -L <"$work/bars")" -lt 50 ] || fail "bars on 50 columns: $(cat "$work/bars")"
    script -qec "stty cols 20; export TERM=xterm; $video" /dev/null 2>&1 >"$work/screen" </dev/null || fail "tiny terminal"
    tr '\r' '\n' <"$work/screen" | sed 's/\x1b\[K//' | grep -aqE '^step [0-9]+/3, .{,12}$' || fail "20 columns: $(cat "$work/screen")"
    script -qec "export TERM=dumb; $video" /dev/null 2>&1 >"$work/screen" </dev/null || fail "dumb terminal"
    grep -q 'denoise: step 3 of 3' "$work/screen" && ! grep -q $'\x1b' "$work/screen" || fail "TERM=dumb: $(cat "$work/screen")"
fi
set -m # so that the process does not inherit an ignored SIGINT
"$ithaca" bench block --seq 4096 --repeat 1000 --json >"$work/out" 2>"$work/err" &
set +m
await_heed $! INT
sleep 1
kill -INT $!
begin=$(date +%s%N) status=0
wait $! || status=$?
[ $(($(date +%s%N) - begin)) -lt 20000000000 ] && [ $status = 1 ] && [ ! -s "$work/out" ] || fail "SIGINT: status $status"
grep -q 'interrupted by SIGINT' "$work/err" || fail "SIGINT is not named: $(cat "$work/err")"

expect 2 "as the first argument, 'block', 'decode', 'encode' and" "$ithaca" bench --seq 64 block
expect 2 "there is no '7b'|7b" "$ithaca" bench block --size 7b
expect 1 "--head-dim is 31; it must be even.*32 would do" "$ithaca" bench block --head-dim 31
expect 1 "text_rows is 513; it must lie between 1 and 512" "$ithaca" bench block --text 513
expect 1 "frames is 6; it must be one more than a multiple of 4: the nearest are 5 and 9" "$ithaca" bench decode --frames 6
expect 1 "width is 100; it must be a multiple of 8: the nearest are 96 and 104" "$ithaca" bench decode --width 100
finish
