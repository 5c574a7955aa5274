#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca generate --dry-run: the plan, memory and predicted time, without weights and without output; and the predicted
# time beside the measured one in the summary of a run.
. cli/lib.sh
command -v python3 >/dev/null || { echo "skipped: python3 reads JSON here"; exit 77; }
cd "$work"
export XDG_CACHE_HOME=$work/cache
prompt="A red circle moves to the right on a black background."

# dry STATUS WORDS OPTION...: a dry run of the model in $folder
folder=$model
dry() {
    local status=$1 words=$2
    shift 2
    expect "$status" "$words" "$ithaca" generate --model "$folder" --prompt "$prompt" --height 64 --width 64 --frames 9 \
        --steps 3 --threads 2 --dry-run --output clip.mp4 "$@"
}

dry 0 ""
for words in "9 frames of 64 x 64" "plan .*single over 1 rank" "kernel" "predicted time" "conditioning" \
    "denoise .*3 steps" "VAE decode" "inference" "memory .* MB in this process; .* MB can be taken here" "weight files"; do
    grep -qE "$words" out || fail "the report lacks '$words': $(cat out)"
done
[ -z "$(ls | grep -vE '^(out|err|cache)$')" ] || fail "a dry run wrote $(ls)"

dry 1 "no component of .* has files of the variant 'nope', such as transformer/diffusion_pytorch_model.nope.safetensors" --variant nope
expect 1 "variant is 'fp16': it chooses among the files of a folder" "$ithaca" generate --dit "$model/transformer" --variant fp16 \
    --prompt x --dry-run --output clip.mp4

# A run whose weights are refused measures nothing before.
cp -r "$model" "$work/wide"
jq 'del(.base_dim)' "$model/vae/config.json" >"$work/wide/vae/config.json"
refused="has the shape .*; the configuration asks for"
expect 1 "$refused" "$ithaca" generate --model wide --prompt x --frames 5 --steps 2 --output wide.gif
grep -q "predicted peak memory" err || fail "the run is not announced: $(cat err)"
grep -q "predicted time" err && fail "a run that is refused measures: $(cat err)"
expect 1 "$refused" "$ithaca" generate --model wide --prompt x --frames 5 --steps 2 --count 2 --output wide.gif
grep -q "predicted time" err && fail "a batch that is refused measures: $(cat err)"
rm -r "$work/wide"

# A description of this machine in the cache is used. Most runs here have one, because measuring takes time.
know_machine
dry 0 ""
grep -q "ithaca tune keeps" out || fail "the kept description does not count: $(cat out)"

# The parts add up to the whole, and the memory is the same as in the prediction of a run.
for options in "" "--ranks 2 --strategy ulysses" "--ranks 4 --strategy ring --cfg parallel" "--cfg sequential --precision f32"; do
    dry 0 "" --json $options
    cp out dry.json
    expect 0 "" "$ithaca" generate --model "$model" --prompt "$prompt" --height 64 --width 64 --frames 9 --steps 3 \
        --threads 2 --output clip.mp4 --json $options
    python3 - <<'END' || fail "the numbers of a dry run with '$options': $(cat dry.json)"
import json
dry, run = json.load(open("dry.json")), json.load(open("out"))
p = dry["predicted"]
near = lambda a, b: abs(a - b) <= 1e-9 * abs(b) + 1e-12
assert dry["dry_run"] and dry["memory"]["predicted_bytes"] == run["memory"]["predicted_bytes"]
assert dry["memory"]["free_bytes"] > dry["memory"]["predicted_bytes"]
assert near(p["inference"], p["conditioning"] + p["denoise"] + p["decode_compute"] + p["decode_writing"])
assert near(p["denoise"], 3 * p["denoise_per_step"])
layer = p["layer"]
assert near(layer["seconds"], sum(v for k, v in layer.items() if k != "seconds"))
assert all(v > 0 for v in (p["denoise"], p["decode_compute"], layer["self_attention"], layer["linear"]))
assert dry["plan"]["strategy"] in run["plan"] and dry["plan"]["kernel"] in run["plan"]
q = run["predicted_seconds"]
assert q["denoise"] > 0 and q["operations"] == p["operations"]
END
done
rm -f clip.mp4
know_rates

# OMP_NUM_THREADS limits the threads, and --threads counts more.
for threads in "" 3; do
    expect 0 "" env OMP_NUM_THREADS=1 "$ithaca" generate --model "$model" --prompt "$prompt" --height 64 --width 64 --dry-run --json \
        ${threads:+--threads $threads}
    jq -e ".threads == ${threads:-1}" out >/dev/null || fail "OMP_NUM_THREADS=1, --threads '$threads': $(grep threads out)"
done

# Advice about memory names options as the command line has them. Each that it names can be given.
if ! has_sanitizer; then
    (ulimit -v 2000000; "$ithaca" generate --model "$model" --prompt "$prompt" --frames 401 --height 1280 --width 1280 --keep-packed --dry-run) \
        >out 2>err || fail "little memory: $(cat err)"
    grep -qE 'this run holds .* would do with .*--(cfg sequential|precision bf16|frames [0-9]+).*; --force tries it all the same$' out ||
        fail "advice about memory: $(grep 'this run holds' out)"
    grep 'this run holds' out | grep -qE '[a-z]_[a-z]|[^-](cfg|precision|frames|force) ' && fail "advice in words of the library: $(grep 'this run holds' out)"
fi

# A prompt without words is used, and mentioned: a variable may lack its value.
for blank in "" $' \t\n'; do
    expect 0 "" "$ithaca" generate --model "$model" --prompt "$blank" --height 32 --width 32 --frames 1 --steps 1 --output other.mp4 --dry-run
    grep -q "^the prompt is empty: no text says what the video shows\$" out || fail "an empty prompt: $(cat out)"
done

# With saved latents only decoding is predicted.
expect 0 "" "$ithaca" generate --model "$model" --prompt "$prompt" --height 64 --width 64 --frames 9 --steps 1 --output clip.mp4 --keep-latents --quiet
expect 0 "" "$ithaca" generate --model "$model" --from-latents clip.mp4.latents.safetensors --output other.mp4 --dry-run --json
python3 -c 'import json; p = json.load(open("out"))["predicted"]; assert p["denoise"] == 0 and p["decode_compute"] > 0' ||
    fail "the prediction of saved latents: $(cat out)"
[ ! -e other.mp4 ] || fail "a dry run wrote a video"

# The weights are not read: files whose weights are holes are enough. A file that is too short is named.
mkdir -p copy/vae
cp -rs "$model"/* copy/ 2>/dev/null
weights=copy/vae/diffusion_pytorch_model.safetensors
length=$(stat -Lc %s "$weights")
header=$((8 + $(od -An -t u8 -N 8 "$weights")))
rm "$weights"
head -c $header "$model/vae/diffusion_pytorch_model.safetensors" >"$weights"
truncate -s "$length" "$weights"
folder=copy
dry 0 ""
grep -q "predicted time" out || fail "no prediction for weights that are holes"
truncate -s $((length - 1000)) "$weights"
dry 1 "vae/diffusion_pytorch_model.safetensors"
grep -q "predicted time" out || fail "no prediction for weights that are cut: $(cat out)"
dry 1 "vae/diffusion_pytorch_model.safetensors" --json
python3 -c 'import json; d = json.load(open("out")); assert "vae" in d["weights_fault"] and d["predicted"]["denoise"] > 0' ||
    fail "the report of a cut file: $(cat out)"
folder=$model

# A dry run refuses everything that a run would refuse.
dry 1 "frames" --frames 8
dry 1 "none: No such file" --noise none
dry 1 "heads|ranks" --ranks 2 --ulysses 3 --ring 1
# More memory than the machine has is reported.
expect 0 "" "$ithaca" generate --model "$model" --prompt "$prompt" --height 4096 --width 4096 --frames 4001 --dry-run --json
python3 -c 'import json; m = json.load(open("out"))["memory"]; assert m["predicted_bytes"] > m["free_bytes"] and "would" in m["lack"]' ||
    fail "too little memory: $(cat out)"

# A long run is measured twice before it begins, the second time for longer, and its time is announced too.
rm -f "$XDG_CACHE_HOME/ithaca/machine.yaml"
"$ithaca" generate --model "$model" --prompt "$prompt" --steps 5000 --output long.gif >out 2>&1 &
process=$!
for _ in $(seq 600); do
    ! grep -q "predicted peak memory" out && kill -0 $process 2>/dev/null || break
    sleep 0.05
done
kill -TERM $process
wait $process
grep -q "predicted peak memory.*predicted time" out || fail "no predicted time of a long run: $(cat out)"

# If the description in the cache is broken, a message names it, and the run goes on.
printf 'host_units: many\n' >"$XDG_CACHE_HOME/ithaca/machine.yaml"
dry 0 "machine.yaml:1"
grep -q "predicted time" out || fail "a broken description ends the prediction: $(cat out)"
finish
