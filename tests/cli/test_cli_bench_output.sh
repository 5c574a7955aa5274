#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The output of benchmarks: the suite, CSV, the comparison with an earlier run, the picture, and the trace of one batch.
. cli/lib.sh
know_machine
cd "$work"
small="--heads 4 --head-dim 32 --repeat 2 --threads 2"

# The suite: eight strategies at four batch sizes on four ranks, unless options say otherwise.
expect 0 "" "$ithaca" bench attention --suite $small --seq 64 --svg suite.svg --json
cp out suite.json
jq -e 'length == 32 and ([.[].batch] | unique) == [1, 2, 4, 8] and all(.[]; .seq == 64 and .bench == "attention" and
    .ranks == (if .name == "single" then 1 else 4 end) and .plan_seconds > 0 and .plan_seconds < 10 and
    .seconds_min <= .seconds and .seconds <= .seconds_max and
    ((.seconds_max - .seconds_min) / .seconds - .spread | fabs) < 1e-3)' out >/dev/null || fail "the suite: $(cat out)"
jq -e '[.[0:8][] | .name] == ["single", "ulysses", "ring", "ulysses_ring", "ulysses:2", "ulysses_fixed_m", "ring_bidir",
    "ulysses_ring_bidir"] and .[3].ulysses == 2 and .[3].ring == 2 and .[12].chunks == 2 and .[9].chunks == 1 and
    .[5].softmax == "fixed_m" and .[6].direction == "bidir" and .[7].direction == "bidir"' suite.json >/dev/null ||
    fail "the strategies of the suite: $(jq -c '.[0:8]' suite.json)"
expect 0 "" "$ithaca" bench attention --suite $small --seq 40 --batch 3 --strategy ring --ranks 2 --json
jq -e 'length == 1 and .[0].batch == 3 and .[0].name == "ring" and .[0].ranks == 2' out >/dev/null || fail "$(cat out)"
expect 0 "" "$ithaca" bench attention --suite --batch 3 --print-config
grep -qE '^batch: \[3\] +# command line$' out && grep -qE '^seq: \[4096\] +# chosen' out || fail "$(cat out)"

for name in ulysses: ulysses:x ulysses:0 ulysses:-1 ulysses:2x; do
    expect 2 "--strategy: '$name' is not NAME:N" "$ithaca" bench attention $small --seq 64 --ranks 2 --strategy $name
done

# CSV has the same figures as JSON.
expect 0 "" "$ithaca" bench attention $small --seq 64 --batch 1,2 --ranks 2 --strategy single,ulysses:2 --csv
tr -d '\r' <out >rows.csv
[ "$(wc -l <rows.csv)" = 5 ] || fail "CSV: $(cat rows.csv)"
[ "$(head -1 rows.csv | tr , '\n' | sort)" = "$(jq -r '.[0] | keys[]' suite.json | sort)" ] || fail "columns: $(head -1 rows.csv)"
[ "$(awk -F, 'NF != n && NR > 1 { print "bad" } NR == 1 { n = NF }' rows.csv)" = "" ] || fail "fields: $(cat rows.csv)"
name=$(head -1 rows.csv | tr , '\n' | grep -nx name | cut -d: -f1)
batch=$(head -1 rows.csv | tr , '\n' | grep -nx batch | cut -d: -f1)
[ "$(tail -n +2 rows.csv | cut -d, -f"$name","$batch" | tr '\n' ' ')" = "single,1 ulysses:2,1 single,2 ulysses:2,2 " ] ||
    [ "$(tail -n +2 rows.csv | cut -d, -f"$name","$batch" | sort | tr '\n' ' ')" = "1,single 1,ulysses:2 2,single 2,ulysses:2 " ] ||
    fail "the rows of CSV: $(cat rows.csv)"
expect 2 "--json and --csv exclude each other" "$ithaca" bench attention $small --csv --json
expect 2 "--json and --csv exclude each other" "$ithaca" bench block --csv --json

# The prediction of a machine with one rate and no other cost: operations over the rate, on one unit.
cat >simple.yaml <<'END'
name: simple
host_units: 1
rank_units: 1
levels:
  - {name: threads, shares_memory: true}
attention:
  - {kernel: exact, dtype: bf16, softmax: online, head_dim: 32, block_q: 16, block_kv: 64, gflops: 2}
END
expect 0 "" "$ithaca" bench attention $small --seq 64 --batch 1,3 --strategy single --machine ./simple.yaml --softmax online,fixed_m --json
jq -e 'all(.[] | select(.softmax == "online"); 4 * .batch * 4 * 64 * 64 * 32 / 2e9 / .predicted_seconds - 1 | fabs < 1e-4)' out \
    >/dev/null || fail "predictions: $(jq -c '.[] | [.batch, .softmax, .predicted_seconds]' out)"
# The ranks share the threads equally, with at least one for each; `single` has one rank, and so all threads.
sed 's/host_units: 1/host_units: 8/; /rank_units/d' simple.yaml >threads.yaml
for threads in 1 2 5; do
    expect 0 "" "$ithaca" bench attention $small --seq 64 --threads $threads --ranks 2 --strategy single,ring --machine ./threads.yaml --json
    jq -e --argjson all $threads 'length == 2 and all(.[]; (if .ranks == 1 then $all elif $all == 5 then 4 else 2 end) as $units |
        4 * 4 * 64 * 64 * 32 / (2e9 * $units) / .predicted_seconds - 1 | fabs < 0.1)' out >/dev/null ||
        fail "predictions for $threads threads: $(jq -c '.[] | [.name, .predicted_seconds]' out)"
done
expect 0 "" "$ithaca" bench attention $small --seq 64 --dtype f32 --strategy single --machine ./simple.yaml --json
jq -e '.[0].predicted_seconds == null' out >/dev/null || fail "a prediction without a rate: $(cat out)"
expect 1 "machine 'no-such'" "$ithaca" bench attention $small --machine no-such
grep -q 'class="predicted"' suite.svg && grep -q '>avx2-desktop: [0-9]* processors, ' suite.svg || fail "no predictions in the picture"
expect 0 "measuring it takes about a second" env XDG_CACHE_HOME="$work/empty" "$ithaca" bench attention $small --seq 64 --batch 1,2 \
    --ranks 2 --strategy ring --trace measured.json --json
jq -e '.[0].predicted_seconds > 0' out >/dev/null || fail "no prediction from a measurement: $(cat out)"

# Comparison. The earlier run is made from this run's figures, so each verdict is known. One repeat has no spread.
measure=("$ithaca" bench attention $small --repeat 1 --seq 64 --ranks 2 --strategy single,ulysses,ring,ring_bidir --json)
expect 0 "" "${measure[@]}"
jq '[(.[0] | .seconds = 1e3 | .spread = 0.001), (.[1] | .seconds = 1e-9 | .spread = 0.1), (.[2] | .seconds = 1e3 | .spread = 2),
    (.[3] | .name = "another")]' out >old.json
expect 0 "old.json: its row 4 is not among the rows now: bench attention, name another" "${measure[@]}" --compare old.json
jq -e '[.[].change] == ["faster", "slower", "same", "new"] and .[0].old_seconds == 1000 and .[3].old_seconds == null' out \
    >/dev/null || fail "verdicts: $(jq -c '.[] | [.seconds, .spread, .old_seconds, .change]' out)"
expect 0 "row 4" "$ithaca" bench attention $small --repeat 1 --seq 64 --ranks 2 --strategy single,ulysses,ring,ring_bidir --compare old.json
head -1 out | grep -q 'earlier  change$' && [ "$(awk 'NR > 1 { print $NF }' out | tr '\n' ' ')" = "faster slower same new " ] ||
    fail "verdicts in the table: $(cat out)"
expect 0 "" "$ithaca" bench block --heads 2 --head-dim 32 --ffn-dim 96 --seq 70 --repeat 1 --json
jq '.[].seconds = 1e3' out >block.json
expect 0 "" "$ithaca" bench block --heads 2 --head-dim 32 --ffn-dim 96 --seq 70 --repeat 1 --compare block.json --csv
[ "$(tail -n +2 out | tr -d '\r' | grep -c ',1000,faster,')" = 7 ] || fail "stages: $(cat out)"
grep -q "one repeat has no spread" err || fail "nothing is said about a comparison without a spread: $(cat err)"
# Blocks with another LoRA or softmax are other rows.
for other in "--lora-rank 4" "--softmax online"; do
    expect 0 "" "$ithaca" bench block --heads 2 --head-dim 32 --ffn-dim 96 --seq 70 --repeat 2 $other --compare block.json --json
    jq -e '[.[].change] | unique == ["new"]' out >/dev/null || fail "$other is compared with a run without it: $(jq -c '[.[].change]' out)"
    grep -q "one repeat" err && fail "two repeats have a spread: $(cat err)"
done

# broken CONTENT WORDS: a file that is no earlier run is refused before anything is measured.
broken() {
    printf "$1" >broken.json
    expect 1 "$2" timeout 100 "$ithaca" bench attention --seq 100000 --heads 40 --compare broken.json
    [ -s out ] && fail "something is printed: $(cat out)"
}
broken '[{"seconds": 1, "spread": 0.1},\n {"seconds":}]' "broken.json:2: "
broken '' "broken.json:1: "
broken '{"seconds": 1}' "broken.json: it is not an array of rows"
broken '[{"seconds": 1, "spread": 0.1}, {"seconds": "x"}]' "broken.json: row 2 has no number 'seconds'"
broken '[{"seconds": 1}]' "broken.json: row 1 has no number 'spread'"
broken '[{"seconds": 1, "seconds": 2, "spread": 0}]' "broken.json:1: duplicate"
{ printf '['; yes '[],' | head -c 4194304; } >broken.json
expect 1 "broken.json: it is longer than 4194304 bytes" timeout 100 "$ithaca" bench attention --seq 16 --compare broken.json
expect 1 "lacking.json: No such file" "$ithaca" bench attention --compare lacking.json
mkfifo pipe
expect 1 "pipe: it is not a file" timeout 100 "$ithaca" bench attention --compare pipe

# The picture: a panel for each batch, in it a bar with a name and a line for each row; names are escaped.
[ "$(grep -c '<g class="panel">' suite.svg)" = 4 ] || fail "panels: $(grep -c panel suite.svg)"
[ "$(grep -oE '<rect class="bar( fastest)?"[^>]*><title>' suite.svg | wc -l)" = 32 ] || fail "bars of the picture"
[ "$(grep -oE '<rect class="bar fastest"[^>]*><title>' suite.svg | wc -l)" = 4 ] || fail "one bar of a panel is the fastest"
for batch in 1 2 4 8; do grep -q ">batch $batch, 64 tokens<" suite.svg || fail "no panel of batch $batch"; done
[ "$(grep -c '>ulysses_ring_bidir<' suite.svg)" = 4 ] || fail "names of the picture"
grep -qE '>4 heads of 32, bf16; 4 ranks, [0-9]* threads?; 2 repeats<' suite.svg || fail "the sizes of the picture"
grep -qE '>(seconds|milliseconds|microseconds)<' suite.svg || fail "no unit"
# The widths of the bars of a panel are in proportion to the medians. They are compared with the widest bar.
sed -n '/<g class="panel">/,/<\/g>/p' suite.svg | sed -nE 's/.*<rect class="bar[^>]* width="([0-9.]+)".*<title>([^:]+(:2)?): .*/\2 \1/p' >widths
jq -r '.[] | "\(.name) \(.seconds) \(.batch)"' suite.json | paste -d' ' - widths |
    awk '$1 != $4 { print "names differ: " $0 }
        { row[NR] = $0; if ($5 > widest[$3]) { widest[$3] = $5; scale[$3] = $5 / $2 } }
        END { for (i = 1; i <= NR; i++) { split(row[i], f); d = f[5] / f[2] / scale[f[3]] - 1
            if ((d > 0.03 || d < -0.03) && f[5] > 5) print "not in proportion: " row[i] } }' >wrong
[ "$(wc -l <widths)" = 32 ] && [ ! -s wrong ] || fail "bars: $(cat wrong)"
if command -v xmllint >/dev/null; then xmllint --noout suite.svg || fail "the picture is no XML"; fi
if command -v rsvg-convert >/dev/null; then rsvg-convert suite.svg -o suite.png || fail "the picture cannot be drawn"; fi
expect 0 "" "$ithaca" bench attention $small --seq 64 --softmax online,fixed_m --svg one.svg --json
[ "$(grep -c '<g class="panel">' one.svg)" = 1 ] && grep -q '>auto, online<' one.svg && grep -q '>auto, fixed_m<' one.svg ||
    fail "bars with the same name"
expect 0 "" "$ithaca" bench block --heads 2 --head-dim 32 --ffn-dim 96 --seq 70 --repeat 1 --svg block.svg
grep -q '>self attention<' block.svg || fail "the picture of a block"
expect 1 "'none/a.svg' cannot be written: its folder does not exist" timeout 100 "$ithaca" bench attention --seq 100000 --heads 40 --svg none/a.svg

# The trace of a batch size holds one execution of each of its rows: for batch 2, one computation of each rank.
expect 0 "" "$ithaca" bench attention $small --seq 64 --batch 1,2 --ranks 2 --strategy ring --trace all.json --json
expect 0 "" "$ithaca" bench attention $small --seq 64 --batch 1,2 --ranks 2 --strategy ring --trace two.json --trace-batch 2 --json
computed() { jq '[.traceEvents[] | select(.ph == "X" and .name == "attend")] | length' "$1"; }
[ "$(computed all.json)" = 12 ] && [ "$(computed two.json)" = 2 ] && [ "$(computed measured.json)" = 12 ] ||
    fail "the traces: $(computed all.json), $(computed two.json), $(computed measured.json)"
expect 2 "--trace-batch is 4, which is no batch that --batch lists" "$ithaca" bench attention $small --batch 1,2 --trace t.json --trace-batch 4
expect 2 "--trace-batch needs --trace" "$ithaca" bench attention $small --trace-batch 2
finish
