#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca plan: machines by name and by file, every error of a machine's file, the table and the JSON of plans.
. cli/lib.sh
export XDG_CACHE_HOME=$work/cache
cd "$work"

# Plans can be made for every machine in machines/, by name and by file, and its README.md has a row for each.
for file in "$root"/machines/*.yaml; do
    name=$(basename "$file" .yaml)
    expect 0 "" "$ithaca" plan --machine "$name" --seq 75600 --ranks 8 --json
    cp out named
    expect 0 "" "$ithaca" plan --machine "$file" --seq 75600 --ranks 8 --json
    same out named
    grep -q "^| \`$name\` |" "$root/machines/README.md" || fail "machines/README.md has no row of $name"
    grep -q "^name: $name$" "$file" || fail "$file has another name"
done
cp "$root/machines/h100-8.yaml" "$work/H.YAML" # capitals, as on some systems
(cd "$work" && expect 0 "" "$ithaca" plan --machine H.YAML --seq 16)
mkdir -p "$work/own/machines" # a program with machines of its own
cp "$ithaca" "$work/own" && cp "$work/H.YAML" "$work/own/machines" && cp "$root/machines/h100-8.yaml" "$work/own/machines/h.yaml"
LD_LIBRARY_PATH=$build expect 1 "no machine 'H'; there are h, and files" "$work/own/ithaca" plan --machine H --seq 16
expect 1 "no machine 'none'; there are .*h100-8, .*tpu-v7x-8" "$ithaca" plan --machine none --seq 16
expect 2 "--problem or --seq is needed" "$ithaca" plan --machine h100-8
expect 2 "--problem excludes --seq" "$ithaca" plan --machine h100-8 --problem wan2.2-a14b-720p --seq 16
expect 2 "need --problem" "$ithaca" plan --machine h100-8 --seq 16 --cfg batch
expect 2 "need --problem" "$ithaca" plan --machine h100-8 --seq 16 --lora-rank 16
# A LoRA costs time in a large model, because it is not merged there.
for rank in 0 64; do
    expect 0 "" "$ithaca" plan --machine h100-8 --problem wan2.2-a14b-720p --lora-rank $rank --json
    grep -o '"seconds_step": [0-9.]*' out | head -1 | cut -d' ' -f2 >step-$rank
done
awk '{ step[NR] = $1 } END { exit !(step[2] > 1.003 * step[1] && step[2] < 1.1 * step[1]) }' step-0 step-64 ||
    fail "a LoRA of rank 64 changes a step from $(cat step-0) to $(cat step-64) s"
# Options that would have no effect are refused.
for option in "--heads 8" "--head-dim 64" "--batch 2" "--dtype f32"; do
    expect 2 "--problem excludes ${option% *}" "$ithaca" plan --machine h100-8 --problem wan2.2-a14b-720p $option
done
expect 2 "--repeat: '1000001' is not a whole number from 1 to 1000000" "$ithaca" plan --seq 64 --simulate --repeat 1000001
for option in "--jitter 0.1" "--slow-rank 1" "--slow-factor 3" "--repeat 2" "--seed 1"; do
    expect 2 "${option% *} needs --simulate" "$ithaca" plan --machine h100-8 --seq 16 $option
done
expect 2 "--slow-factor: '0.5' is not a number from 1 to 1000" "$ithaca" plan --machine h100-8 --seq 16 --simulate --slow-rank 1 --slow-factor 0.5
expect 2 "--slow-factor needs --slow-rank" "$ithaca" plan --machine h100-8 --seq 16 --simulate --slow-factor 3
expect 2 "--seed needs --jitter" "$ithaca" plan --machine h100-8 --seq 16 --simulate --seed 3
expect 2 "--json excludes --rows" "$ithaca" plan --machine h100-8 --seq 16 --json --rows 3
expect 2 "--json excludes --explain" "$ithaca" plan --machine h100-8 --seq 16 --json --explain
"$ithaca" plan --machine h100-8 --seq 16 --json --print-config >c.yaml
expect 0 "" "$ithaca" plan --config c.yaml
expect 2 "--problem: no problem is called 'spiral'; there are wan2.2-a14b-720p" "$ithaca" plan --machine h100-8 --problem spiral
"$ithaca" plan --problem spiral 2>&1 | grep -q "measuring" && fail "the machine is measured for a problem that is not there"

# machines/README.md explains every key of a description.
for key in name source like ranks host_units rank_units busy_share memory_bytes row_bytes_per_second start_seconds even_heads unit_hosts levels \
    attention products shares_memory between_hosts bytes_per_second group_bytes_per_second latency_seconds setup_seconds \
    copy_bytes_per_second overlap kernel dtype softmax head_dim block_q block_kv block_kv_compute block_kv_compute_in gflops \
    call_seconds pack_bytes_per_second offset_bytes_per_second work rows features; do
    grep -q "^| \`$key\` |" "$root/machines/README.md" || fail "machines/README.md does not explain $key"
done

# refused WORDS: the description on standard input is refused, with its line.
refused() {
    cat >m.yaml
    expect 1 "^ithaca: m.yaml$1" timeout 60 "$ithaca" plan --machine m.yaml --seq 16
}
good='name: m
host_units: 8
attention:
  - {kernel: k, dtype: bf16, softmax: online, head_dim: 128, gflops: 100}
'
printf '%s' "$good" >m.yaml
expect 0 "" "$ithaca" plan --machine m.yaml --seq 16
refused ":5: byte_per_second: the machine has no such key; the nearest is 'row_bytes_per_second'" <<<"${good}byte_per_second: 1"
refused ":5: host_units: it is set twice" <<<"${good}host_units: 4"
refused ":2: host_units: 'many' is not a whole number from 0 on" <<<"${good/8/many}"
refused ":2: host_units: '-8' is not a whole number" <<<"${good/8/-8}"
refused ":2: host_units: '8.5' is not a whole number" <<<"${good/8/8.5}"
refused ":2: host_units: '' is not a whole number" <<<"${good/8/}"
refused ":2: host_units: 'a list or a mapping' is not a whole number" <<<"${good/8/[8]}"
refused ":2: the machine's host_units is 0" <<<"${good/8/0}"
for value in nan .nan inf .inf -1 1e999 0x10; do
    refused ":4: gflops: '$value' is not a number from 0 on" <<<"${good/100/$value}"
done
refused ":4: gflops of row of attention 0 " <<<"${good/100/0}"
refused ":4: dtype: 'f64' is not one of f32 bf16 f16" <<<"${good/bf16/f64}"
refused ":4: dtype: 'auto' is not one of" <<<"${good/bf16/auto}"
refused ":4: softmax: 'auto' is not one of online fixed_m" <<<"${good/online/auto}"
refused ":4: head_dim: a row of attention needs this key" <<<"${good/head_dim: 128, /}"
refused ":4: headdim: a row of attention has no such key; the nearest is 'head_dim'" <<<"${good/head_dim/headdim}"
refused ":2: name: the machine needs this key" <<<"${good/name: m/# nameless}"
refused ":1: name: '' is not a text of at most 63 bytes" <<<"${good/name: m/name: \"\"}"
refused ":1: name: 'xxx.*' is not a text of at most 63 bytes" <<<"${good/name: m/name: $(printf 'x%.0s' $(seq 64))}"
refused ":5: levels: '7' is not a list of at most 4096 mappings" <<<"${good}levels: 7"
refused ":5: a level: it is not a mapping" <<<"${good}levels: [thing]"
refused ":5: shares_memory: 'yes' is not true or false" <<<"${good}levels: [{name: l, shares_memory: yes}]"
refused ":7: ranks of level 1 " <<<"${good}levels:
  - {name: a, ranks: 4}
  - {name: b, ranks: 6}"
refused ":5: work: 'add' is not one of linear convolution" <<<"${good}products: [{work: add, dtype: f32, gflops: 1}]"
refused ":1: the machine: it is not a mapping" <<<"- a"
refused ":1: the file is empty" <<<""
refused ":1: the machine: it is not a mapping" <<<"~"
refused ":2: " <<<"name: [m"
refused ":5: the machine: a key is not a word" <<<"${good}? [a]
: 1"

# The key `like`: a chain of machines, and wrong values: the file itself, a missing machine, a path.
printf 'name: n\nlike: m\nhost_units: 4\n' >n.yaml
printf '%s' "$good" >m.yaml
expect 0 "" "$ithaca" plan --machine n.yaml --seq 16 --explain
grep -q "Machine: n" out || fail "a machine that is like another has no name of its own"
printf 'name: n\nlike: n\n' >n.yaml
expect 1 "n.yaml:2: like: too many machines" timeout 60 "$ithaca" plan --machine n.yaml --seq 16
printf 'name: n\nlike: other\n' >n.yaml
expect 1 "other.yaml: No such file" "$ithaca" plan --machine n.yaml --seq 16
printf 'name: n\nlike: ../m\n' >n.yaml
expect 1 "n.yaml:2: like: '../m' is not the name of a machine" "$ithaca" plan --machine n.yaml --seq 16

# Large files, many rows, and YAML aliases of aliases.
{ printf '%s' "$good"; yes '# filler' | head -c 1100000; } >m.yaml
expect 1 "m.yaml: it is longer than" "$ithaca" plan --machine m.yaml --seq 16
{ printf '%s' "$good"; for i in $(seq 4096); do echo "  - {kernel: k, dtype: bf16, softmax: online, head_dim: 128, gflops: 1}"; done; } >m.yaml
expect 1 "m.yaml:4: a row of attention: it has 4097 items, and may have 4096" timeout 60 "$ithaca" plan --machine m.yaml --seq 16
{ echo 'a: &a [x,x,x,x,x,x,x,x,x]'; for i in b c d e f g h; do p=$(echo $i | tr b-h a-g); echo "$i: &$i [*$p,*$p,*$p,*$p,*$p,*$p,*$p,*$p,*$p]"; done
    echo 'levels: *h'; } >m.yaml
expect 1 "m.yaml:1: a: the machine has no such key" timeout 60 "$ithaca" plan --machine m.yaml --seq 16
printf '%slevels: &l [*l, *l]\n' "$good" >m.yaml
expect 1 "m.yaml:5: " timeout 60 "$ithaca" plan --machine m.yaml --seq 16
mkfifo pipe.yaml
expect 1 "pipe.yaml: it is not a file" timeout 60 "$ithaca" plan --machine pipe.yaml --seq 16
head -c 3000 /dev/urandom >m.yaml
expect 1 "m.yaml" timeout 60 "$ithaca" plan --machine m.yaml --seq 16

# The JSON has exactly these keys; legal plans come first, the fastest first.
expect 0 "" "$ithaca" plan --machine h100-8x16 --seq 75600 --heads 40 --ranks 64 --json
jq -e 'all(.[]; keys == (["strategy", "ulysses", "ring", "direction", "chunks", "softmax", "cfg", "legal", "rule",
    "seconds_attention", "seconds_step", "seconds_video", "sent_bytes", "memory_bytes", "hidden_share"] | sort))' out >/dev/null ||
    fail "keys of the JSON"
jq -e '[.[] | .legal] as $l | ($l | sort | reverse) == $l and any(.[]; .legal) and any(.[]; .legal | not)' out >/dev/null ||
    fail "legal plans do not come first"
jq -e '[.[] | select(.legal) | .seconds_attention] as $s | ($s | sort) == $s and $s[0] > 0' out >/dev/null || fail "order of plans"
jq -e 'all(.[]; if .legal then .rule == null and .ulysses * .ring == 64 and .memory_bytes > 0 and .sent_bytes > 0 and
    .hidden_share >= 0 and .hidden_share <= 1 else (.rule | length) > 9 and .seconds_attention == null end)' out >/dev/null ||
    fail "fields of the JSON"
# The list for a video has the three ways to compute the guidance branches, and seconds of a step and of the video.
expect 0 "" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 16 --json
jq -e '([.[] | select(.legal) | .cfg] | unique) == ["batch", "parallel", "sequential"]' out >/dev/null || fail "cfg: $(head -c 300 out)"
jq -e '[.[] | select(.legal) | .seconds_video] as $s | ($s | sort) == $s' out >/dev/null || fail "order of videos"
jq -e 'all(.[] | select(.legal); .seconds_video > 40 * .seconds_step and .seconds_step > 40 * .seconds_attention and
    .ulysses * .ring == (if .cfg == "parallel" then 8 else 16 end) and .memory_bytes > 1e9)' out >/dev/null || fail "figures of videos"
jq '[.[] | select(.legal)][0].seconds_video' out >full
expect 0 "" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 16 --steps 20 --json
jq -e --slurpfile full full '[.[] | select(.legal)][0].seconds_video / $full[0] | . > 0.45 and . < 0.6' out >/dev/null || fail "--steps 20"
expect 0 "" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 16 --cfg parallel --explain
for word in "^parallel" "A step takes" "The video wan2.2-a14b-480p takes" "One attention with the best plan" "Machine: h200-8x16"; do
    grep -q "$word" out || fail "--explain has no '$word': $(cat out)"
done
grep -q "^batch" out && fail "--cfg parallel lists batch"
grep -q "with 1 pass of 40 layers on each rank" out || fail "the passes of a step: $(grep "A step takes" out)"
expect 0 "" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 2 --cfg sequential --explain
grep -q "with 2 passes of 40 layers on each rank" out || fail "the passes of a step: $(grep "A step takes" out)"
expect 0 "" "$ithaca" plan --machine h100-8 --seq 75600 --explain
grep -q "No exchange takes time" out || fail "one rank exchanges something: $(cat out)"
expect 1 "3 is odd" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 3 --cfg parallel
expect 0 "" "$ithaca" plan --machine h200-8x16 --problem wan2.2-a14b-480p --ranks 3 --json
jq -e 'any(.[]; .legal) and all(.[] | select(.cfg == "parallel"); (.legal | not) and (.rule | test("3 is odd")))' out >/dev/null ||
    fail "parallel on 3 ranks: $(head -c 500 out)"

# 100,000 ranks take seconds of processor time at most, also under a sanitizer.
expect 0 "" bash -c 'ulimit -t 5; exec "$@"' - "$ithaca" plan --machine avx2-10gbit --problem wan2.2-a14b-720p --ranks 100000 --json
jq -e 'any(.[]; .legal and .ulysses == 8 and .ring == 12500)' out >/dev/null || fail "100,000 ranks: $(head -c 300 out)"

# A simulation of the best plan takes the predicted time without jitter, and longer with a slow rank. The same seed
# gives the same times.
simulated() { expect 0 "" "$ithaca" plan --machine h100-8 --seq 75600 --ranks 8 --simulate --json "$@"; }
expect 0 "" "$ithaca" plan --machine h100-8 --seq 75600 --ranks 8 --json
jq '.[0]' out >predicted
simulated
jq -e --slurpfile p predicted 'length == 1 and .[0].strategy == $p[0].strategy and .[0].ring == $p[0].ring and
    (.[0].seconds_attention / $p[0].seconds_attention - 1 | fabs) < 0.02' out >/dev/null || fail "simulation: $(cat out predicted)"
simulated --slow-rank 3 --slow-factor 3
jq -e --slurpfile p predicted '.[0].seconds_attention > 1.5 * $p[0].seconds_attention' out >/dev/null || fail "a slow rank: $(cat out)"
simulated --jitter 0.2 --repeat 3 --seed 4 --trace trace.json
cp out first
simulated --jitter 0.2 --repeat 3 --seed 4
same first out
jq -e '.traceEvents | length > 20' trace.json >/dev/null || fail "the trace of a simulation: $(head -c 300 trace.json)"
expect 0 "" "$ithaca" plan --machine h100-8 --seq 75600 --ranks 8 --simulate
grep -qE "^Simulated on all ranks, .* 1\.0[0-9]* times|^Simulated on all ranks, .* 0\.99" out || fail "the table of a simulation: $(tail -3 out)"
# A simulation of a video takes the predicted time. With each cfg the linear layers of a slow rank hold up the others.
for cfg in batch parallel; do
    of_video="$ithaca plan --machine h100-8 --problem wan2.2-a14b-480p --ranks 8 --cfg $cfg --json"
    expect 0 "" $of_video
    jq '.[0]' out >predicted
    expect 0 "" $of_video --simulate --repeat 2 --trace trace.json
    jq -e --slurpfile p predicted 'length == 1 and (.[0].seconds_step / $p[0].seconds_step - 1 | fabs) < 0.02' out >/dev/null ||
        fail "simulation of a video, $cfg: $(cat out predicted)"
    jq -e '[.traceEvents[] | select(.name == "other work")] | length > 0 and length % 2 == 0' trace.json >/dev/null || fail "trace of layers, $cfg"
    expect 0 "" $of_video --simulate --slow-rank 3 --slow-factor 3
    jq -e --slurpfile p predicted '.[0].seconds_step / $p[0].seconds_step | . > 2.8 and . < 3.01' out >/dev/null || fail "a slow rank of a video, $cfg: $(cat out)"
done
expect 2 "--trace needs --simulate" "$ithaca" plan --machine h100-8 --seq 16 --trace t
expect 1 "cannot be written" "$ithaca" plan --machine h100-8 --seq 16 --simulate --trace /none/t

# If an option makes a choice, the list has only plans with this choice.
expect 0 "" "$ithaca" plan --machine h100-8x16 --seq 75600 --ranks 64 --strategy ring --direction uni --softmax online --json
jq -e '[.[] | select(.legal)] | length == 1 and .[0].ring == 64' out >/dev/null || fail "--strategy ring: $(cat out)"
# The table has as many rows as --rows says, and gives the number of the others.
expect 0 "" "$ithaca" plan --machine h100-8 --seq 75600 --ranks 8 --rows 3
[ "$(grep -c flash3 out)" = 3 ] && grep -qE '^[0-9]+ more legal plans: ' out || fail "--rows 3: $(cat out)"
expect 0 "" "$ithaca" plan --machine h100-8 --seq 16 --rows 1
grep -qE '^1 more legal plan: --rows 2 shows all$' out || fail "--rows 1 of 2: $(cat out)"
expect 1 "at most 8, the ranks of the machine h100-8" "$ithaca" plan --machine h100-8 --seq 16 --ranks 9
expect 1 "no plan is legal: .*no rate of .*f32" "$ithaca" plan --machine h100-8 --seq 16 --dtype f32 --strategy single
grep -q "no rate of .*f32" out || fail "a type without rates: $(cat out)"
# The refusal of a kernel without rates names each kernel that has rates once.
expect 1 "no rate of kernel flash9 for bf16: there are rates of flash3 for bf16$" "$ithaca" plan --machine h100-8 --seq 16 --kernel flash9
expect 1 "no rate of any kernel for f32: there are rates of flash3 for bf16$" "$ithaca" plan --machine h100-8 --seq 16 --dtype f32

# This machine is measured if the cache has no description of it.
expect 0 "measuring it" "$ithaca" plan --seq 4096 --heads 4 --ranks 2
grep -q "ulysses" out || fail "a plan of this machine: $(cat out)"
expect 0 "measuring it" "$ithaca" plan --problem wan2.1-1.3b-480p --ranks 2 --json
jq -e '.[0].legal and .[0].seconds_video > 1' out >/dev/null || fail "a video on this machine: $(head -c 300 out)"
mkdir -p cache/ithaca
cp "$root/machines/h100-8.yaml" cache/ithaca/machine.yaml
expect 0 "" "$ithaca" plan --seq 4096 --heads 4 --ranks 2
grep -q flash3 out || fail "the description in the cache is not used"
[ -s err ] && fail "the description in the cache: $(cat err)"
# Where no plan is legal, a sentence says why, and the nearest thing that works. The refused plans are still listed.
none="$ithaca plan --machine avx2-desktop --seq 1000 --heads 4"
expect 1 "no plan is legal: strategy single is for one rank, and there are 8: ulysses, ring" $none --ranks 8 --strategy single
grep -q "^Not legal" out || fail "the refused plans are not listed: $(cat out)"
expect 1 "no plan is legal: ring is 3, .*the nearest that does is 2" $none --ranks 4 --ring 3 --json
jq -e 'length > 0 and all(.[]; .legal | not)' out >/dev/null || fail "the refused plans are not listed: $(cat out)"
for mode in "" --json --simulate; do
    expect 1 "no plan is legal: .*ulysses_ring.* 7 ranks .*: ulysses and ring have one axis" $none --ranks 7 --strategy ulysses_ring $mode
    expect 1 "no plan is legal: .*ulysses_ring.* 35 ranks " $none --ranks 35 --strategy ulysses_ring $mode
done
expect 1 "no plan is legal: strategy single is for one rank" "$ithaca" plan --problem wan2.1-1.3b-480p --ranks 8 \
    --strategy single --machine h100-8

# A script may vary --ranks: a choice that has no effect on one rank leaves out no plan, as --help says.
expect 0 "" "$ithaca" plan --machine avx2-desktop --seq 64 --heads 4 --ranks 1 --chunks 2 --direction bidir --json
jq -e 'length > 0 and all(.[]; .strategy == "single" and .legal)' "$work/out" >/dev/null || fail "one rank with --chunks: $(cat "$work/out")"
for command in plan attend "bench attention" generate; do
    "$ithaca" $command --help | tr -s ' \n' ' ' >"$work/help"
    grep -q "without effect where the mesh has no ring" "$work/help" && grep -q "without effect where none are exchanged" "$work/help" ||
        fail "$command --help does not say when --direction and --chunks have no effect"
done
finish
