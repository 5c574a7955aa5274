#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca tune: the files that it writes, and later commands that use them; budgets, signals, kills, several at once;
# refusals.
. cli/lib.sh
cache=$XDG_CACHE_HOME/ithaca
small="--seq 256 --heads 2 --head-dim 16 --ffn-dim 32 --threads 1 --dtype f32"
tune() { # STATUS WORDS OPTION...
    local status=$1 words=$2
    shift 2
    expect "$status" "$words" "$ithaca" tune $small "$@"
}

echo "what is found is kept, and not measured again"
tune 0 "" --budget 400 --ranks 2 --json
jq -e '.complete and .tiles[0].from == "measured" and .strategies[0].from == "measured" and .tiles[0].keys == 256' \
    "$work/out" >/dev/null || fail "the report: $(cat "$work/out")"
jq -e '.tiles[0] | .best_seconds <= .usual_seconds' "$work/out" >/dev/null || fail "a slower choice was taken"
grep -q "^tiles .* f32 head_dim=16 softmax=online keys=256: block_q " "$cache/wisdom" || fail "no tiles in the wisdom"
grep -q "^strategy f32 " "$cache/wisdom" || fail "no strategy in the wisdom"
cp "$cache/wisdom" "$work/wisdom"
cp "$cache/machine.yaml" "$work/machine.yaml"
tune 0 "" --budget 400 --ranks 2 --json
jq -e '.tiles[0].from == "wisdom" and .strategies[0].from == "wisdom"' "$work/out" >/dev/null || fail "measured again"
same "$work/wisdom" "$cache/wisdom"
same "$work/machine.yaml" "$cache/machine.yaml"
tune 0 "" --budget 40
grep -qE "^[a-z0-9_]+ +f32 +online +256 " "$work/out" || fail "the table: $(cat "$work/out")"

echo "the report names a file whose name is no UTF-8"
cp "$cache/wisdom" "$work"/$'wisd\xf6m'
tune 0 "" --budget 40 --wisdom "$work"/$'wisd\xf6m' --json
jq -e '.wisdom | contains("wisd?m")' "$work/out" >/dev/null || fail "the report: $(cat "$work/out")"

echo "the description of the machine is one that plan reads"
expect 0 "" "$ithaca" plan --seq 4096 --heads 2 --head-dim 16 --dtype f32 --ranks 2 --json
jq -e '.[0].seconds_attention > 0' "$work/out" >/dev/null || fail "plan: $(head -c 300 "$work/out")"
[ ! -s "$work/err" ] || fail "plan measured: $(cat "$work/err")"

echo "what is written is what was read"
sed -e '/^levels:/,$d' "$work/machine.yaml" >"$work/kept.yaml"
cat >"$work/rest" <<'END'
levels:
  - name: "a \"b\" \\ #: x"
    ranks: 2
    shares_memory: true
    bytes_per_second: 0.1
    latency_seconds: 1.2345678901234567e-17
    overlap: 0.30000000000000004
  - name: "deep"
    ranks: 4
    group_bytes_per_second: 1.7976931348623157e+29
    copy_bytes_per_second: 12345678901234.5
  - name: "deepest"
    between_hosts: true

attention:
  - kernel: "unknown"
    dtype: f16
    softmax: fixed_m
    head_dim: 77
    block_q: 9007199254740993
    block_kv: 2
    block_kv_compute: 3
    block_kv_compute_in: 4
    gflops: 3.3333333333333335
    call_seconds: 1e-30
    pack_bytes_per_second: 7
    offset_bytes_per_second: 8

products:
  - work: convolution
    dtype: f32
    rows: 3
    features: 5
    gflops: 0.7
END
cat "$work/rest" >>"$work/kept.yaml"
expect 0 "" "$ithaca" tune ${small/--ffn-dim 32/} --budget 40 --attention-only --machine "$work/kept.yaml"
grep -q 'head_dim: 16' "$work/kept.yaml" || fail "nothing was measured"
# new rows stand before the old rows
for section in levels products; do
    same <(sed -n "/^$section:/,/^$/p" "$work/rest") <(sed -n "/^$section:/,/^$/p" "$work/kept.yaml")
done
same <(sed -n '/kernel: "unknown"/,/^$/p' "$work/rest") <(sed -n '/kernel: "unknown"/,/^$/p' "$work/kept.yaml")

echo "other commands read the wisdom, and leave it alone"
bench="bench attention --seq 256 --heads 2 --head-dim 16 --dtype f32 --threads 1 --repeat 1 --json"
# spoil FILE [EDIT]: writes wisdom with a block_q of 48, and with the checksum that the error message expects. There is no
# message if 48 was measured.
spoil() {
    sed 's/: block_q [0-9]*/: block_q 48/; '"${2:-}" "$work/wisdom" >"$1"
    "$ithaca" $bench --wisdom "$1" >/dev/null 2>"$work/err"
    local sum
    sum=$(grep -o 'checksum [0-9a-f]*$' "$work/err")
    [ -z "$sum" ] || sed -i "s/^checksum .*/$sum/" "$1"
}
spoil "$cache/wisdom"
expect 0 "" "$ithaca" $bench
jq -e '.[0].block_q == 48' "$work/out" >/dev/null || fail "the wisdom is not used: $(cat "$work/out")"
expect 0 "" "$ithaca" $bench --wisdom none
jq -e '.[0].block_q != 48' "$work/out" >/dev/null || fail "--wisdom none reads wisdom"
expect 0 "" "$ithaca" $bench --wisdom "$work/another"
jq -e '.[0].block_q != 48' "$work/out" >/dev/null || fail "another file of wisdom is not alone"

echo "a model is also found by its files"
for component in transformer:dit-high transformer_2:dit-low vae:vae text_encoder:text-encoder tokenizer:tokenizer; do
    files="${files:-} --${component#*:} $model/${component%:*}"
done
for how in "--model $model" "$files"; do
    expect 0 "" "$ithaca" tune $how --dtype f32 --threads 1 --attention-only --machine none --budget 0.01 --json
    jq -c '[.tiles[] | .head_dim, .keys]' "$work/out" >"$work/sizes.${#how}"
    grep -q "[1-9]" "$work/sizes.${#how}" || fail "no sizes: $(cat "$work/out")"
done
same "$work/sizes.$((8 + ${#model}))" "$work/sizes.${#files}"

echo "a video is computed with tuned tiles; block_q leaves its bits as they are"
kernel=$(sed -n 's/^tiles \([^ ]*\) .*/\1/p' "$work/wisdom" | head -1)
size=$(jq '.attention_head_dim' "$model/transformer/config.json")
spoil "$work/model.wisdom" "s/head_dim=16/head_dim=$size/"
film() { # DUMP OPTION...
    expect 0 "" "$ithaca" generate --model "$model" --prompt x --steps 1 --precision f32 --threads 1 --kernel "$kernel" --quiet \
        --output "$work/clip.gif" --dump "$work/$1" --json "${@:2}"
}
film tuned.dump --wisdom "$work/model.wisdom"
plan=$(jq -r .plan "$work/out")
grep -q "tiles of 48 queries" <<<"$plan" || fail "no tuned tiles: $plan"
film usual.dump --wisdom none $(sed -n 's!.* queries and \([0-9]*\)/\([0-9]*\)/\([0-9]*\) keys.*!--block-kv \1 --block-kv-compute \2 --block-kv-compute-in \3!p' <<<"$plan")
! jq -r .plan "$work/out" | grep -q "tiles of 48 queries" || fail "--wisdom none has tuned tiles"
same "$work/usual.dump" "$work/tuned.dump"

echo "a file of the cache that cannot be used is passed over with a warning"
sed -i 's/ usual_rate / usual_rate 1/' "$cache/wisdom"
expect 0 "warning: .*/ithaca/wisdom, line [0-9]+: the file was changed or damaged" "$ithaca" $bench
expect 1 "/ithaca/wisdom, line [0-9]+: the file was changed or damaged" "$ithaca" tune $small --budget 1
# a key of the file keeps its name, which is an option's on the command line
sed 's/block_kv_compute_in [0-9]*/block_kv_compute_in 2000/' "$work/wisdom" >"$cache/wisdom"
expect 1 "/ithaca/wisdom, line [0-9]+: block_kv_compute_in is 2000" "$ithaca" tune $small --budget 1
cp "$work/wisdom" "$cache/wisdom"

echo "budgets"
start=$(date +%s)
tune 0 "the budget of 0.05 seconds has ended before" --budget 0.05 --again --seq 256,1000,4000 --json
[ $(($(date +%s) - start)) -lt 60 ] || fail "a budget of 0.05 seconds took a minute"
jq -e '.complete | not' "$work/out" >/dev/null || fail "a budget of 0.05 seconds was enough"

# the budget may end while the numbers of wide heads are made
for budget in 0.1 0.15 0.15 0.2; do
    expect 0 "budget of" "$ithaca" tune --seq 16 --heads 1 --head-dim 65536 --dtype f32 --kernel f32_ref --threads 1 --attention-only \
        --budget $budget --machine none --wisdom "$work/wide"
done
echo "signals keep what is complete"
rm -r "$cache"
"$ithaca" tune $small --seq 256,512,1024,2048,4096,8192 --budget 1000 >"$work/out" 2>"$work/err" &
tuner=$!
for i in $(seq 2000); do
    grep -qs '^tiles ' "$cache/wisdom" && break
    sleep 0.1
done
kill -TERM $tuner
wait $tuner
[ $? = 1 ] || fail "a signal did not end the tuner with status 1"
grep -q "interrupted by SIGTERM" "$work/err" || fail "no word of the signal: $(cat "$work/err")"
grep -q '^tiles ' "$cache/wisdom" || fail "what was complete is lost"

echo "it ends soon also where kernels are slow"
for pause in 0.5 2; do
    rm -rf "$cache"
    ITHACA_CPU=baseline "$ithaca" tune --budget 30 >"$work/out" 2>"$work/err" &
    tuner=$!
    sleep $pause
    begin=$(date +%s%N)
    kill -TERM $tuner
    wait $tuner
    [ $? = 1 ] && grep -q "interrupted by SIGTERM" "$work/err" || fail "SIGTERM after $pause seconds: $(cat "$work/err")"
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $took -lt 2000 ] || fail "SIGTERM after $pause seconds: it took $took ms to end"
done

echo "killed at any moment, it goes on where it was"
rm -r "$cache"
for pause in 0.05 0.3 0.7 1.3; do
    "$ithaca" tune $small --seq 300,600 --budget 1000 >/dev/null 2>&1 &
    tuner=$!
    sleep $pause
    lines=$(cat "$cache/wisdom.journal" 2>/dev/null | grep -c .)
    kill -KILL $tuner
    wait $tuner 2>/dev/null
    [ "$(cat "$cache/wisdom.journal" 2>/dev/null | grep -c .)" -ge "$lines" ] || fail "the journal has lost lines"
done
tune 0 "" --seq 300,600 --budget 1000 --json
jq -e '.complete' "$work/out" >/dev/null || fail "killed tuners have left something behind: $(cat "$work/err")"

echo "infinite rates in a damaged journal do not hide its other rates"
journal="$cache/wisdom.journal"
rm "$cache/wisdom"
tune 0 "" --budget 1000
sed -n '2,$s/ [^ ]*$/ inf/p' "$journal" >"$work/infinite"
[ -s "$work/infinite" ] || fail "no rates in the journal"
cat "$work/infinite" >>"$journal"
lines=$(grep -c . "$journal")
rm "$cache/wisdom"
tune 0 "" --budget 1000
[ "$(grep -c . "$journal")" = "$lines" ] || fail "rates of the journal were measured again"

echo "eight at once lose nothing"
rm -r "$cache"
sizes="8 16 24 32 40 48 56 64"
for size in $sizes; do
    "$ithaca" tune --seq 256 --heads 1 --head-dim "$size" --dtype f32 --threads 1 --attention-only --budget 600 \
        --machine none >/dev/null 2>"$work/err$size" &
done
wait
for size in $sizes; do
    grep -q "head_dim=$size softmax=online keys=256: " "$cache/wisdom" || fail "head size $size is lost: $(cat "$work/err$size")"
done
expect 0 "" "$ithaca" $bench --wisdom "$cache/wisdom"

echo "files that later commands can use, whatever the umask and the length of their names"
small_tune=(tune --seq 16 --heads 1 --head-dim 16 --dtype f32 --threads 1 --attention-only --kernel f32_ref --budget 60 --machine none)
expect 0 "" "$ithaca" "${small_tune[@]}" --wisdom "$work/$(printf '%0255d' 0)"
bash -c 'ulimit -f 0; exec "$@"' - "$ithaca" "${small_tune[@]}" --wisdom "$work/full" 2>&1 >/dev/null |
    grep -q "cannot write .*full.journal: File too large" || fail "a journal on a full disk"
[ ! -e "$work/full.journal" ] || fail "a journal without its first line is left"
if [ $(id -u) = 0 ] && setpriv --reuid 1000 --clear-groups "$ithaca" --version >/dev/null 2>&1; then
    chmod 755 "$work" && mkdir -m 777 "$work/open"
    for round in 1 2; do
        expect 0 "" env XDG_CACHE_HOME="$work/open/cache" setpriv --reuid 1000 --clear-groups bash -c 'umask 777; exec "$@"' - \
            "$ithaca" "${small_tune[@]}"
    done
fi

echo "refusals"
long=$(printf "%04096d" 0)
expect 1 "--machine: the name of the file has [0-9]+ bytes, and may have [0-9]+" "$ithaca" tune $small --machine "$work/$long" --budget 5
expect 0 "" "$ithaca" tune --model "$root/models/shapes-i2v" --budget 0.2 --machine none --wisdom "$work/of-images" # needs no image
expect 2 "--problem excludes --model" "$ithaca" tune --model "$model" --problem wan2.1-1.3b-480p --budget 1
expect 2 "--model is needed, or --dit, or --dit-high and --dit-low" "$ithaca" tune --vae "$model/vae" --budget 1
expect 2 "wan2.1-1.3b-480p" "$ithaca" tune --problem none-such --budget 1
expect 2 "budget" "$ithaca" tune --budget 0
expect 1 "no_such_kernel" "$ithaca" tune $small --kernel no_such_kernel --budget 5
expect 2 "--attention-only excludes --ffn-dim" "$ithaca" tune $small --attention-only
expect 2 "--timeout needs several processes" "$ithaca" tune $small --timeout 5
expect 2 "--wisdom none leaves no file" "$ithaca" tune $small --wisdom none
echo "a letter" >"$work/letter"
expect 1 "letter, line 1: this is not wisdom: remove the file, or name another with --wisdom" \
    "$ithaca" tune $small --wisdom "$work/letter"
[ "$(cat "$work/letter")" = "a letter" ] || fail "a file that is no wisdom was replaced"
# Wisdom of another machine or version is replaced.
for line in 1 2; do
    sed "$line"'s/$/ of old/' "$work/wisdom" >"$work/foreign"
    (head -1 "$cache/wisdom.journal" && echo "a rate of the old machine") >"$work/foreign.journal"
    expect 1 "foreign, line $line: this wisdom is of another" "$ithaca" $bench --wisdom "$work/foreign"
    expect 0 "warning: .*foreign, line $line: this wisdom is of another .*; it is replaced" \
        "$ithaca" "${small_tune[@]}" --wisdom "$work/foreign"
    expect 0 "" "$ithaca" $bench --wisdom "$work/foreign"
    grep -q old "$work/foreign.journal" && fail "the journal of another machine was kept"
done
echo "levels: [" >"$cache/machine.yaml"
expect 1 "machine.yaml" "$ithaca" tune $small --budget 5
finish
