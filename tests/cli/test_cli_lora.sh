#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# LoRA files on the command line and in a configuration: several, with strengths, for one expert; advice for known
# distilled LoRAs; files for another model are refused before a run.
. cli/lib.sh
run=("$ithaca" generate --model "$model" --prompt x --output "$work/c.mp4")
mkdir "$work/Wan2.2-Lightning"
cp "$golden/lora/kohya.safetensors" "$work/style.safetensors"
cp "$golden/lora/plain.safetensors" "$work/other.safetensors"
cp "$golden/lora/kohya.safetensors" "$work/Wan2.2-Lightning/high_noise_model.safetensors"

# Several options and lists have all files; a file of options is overridden.
"${run[@]}" --print-config --lora a --lora b:0.5,c >"$work/out"
grep -q '^lora: "a,b:0.5,c"' "$work/out" || fail "lora in $(cat "$work/out")"
printf 'lora: [d, "e:2"]\nlora-low: f\n' >"$work/run.yaml"
"${run[@]}" --print-config --config "$work/run.yaml" >"$work/out"
grep -q '^lora: "d,e:2"' "$work/out" && grep -q '^lora-low: "f"' "$work/out" || fail "lora in $(cat "$work/out")"
"${run[@]}" --print-config --config "$work/run.yaml" --lora a >"$work/out"
grep -q '^lora: "a"' "$work/out" || fail "lora in $(cat "$work/out")"

expect 1 "nowhere.safetensors" "${run[@]}" --lora "$work/nowhere.safetensors"
expect 1 "style.safetensors is named twice" "${run[@]}" --lora "$work/style.safetensors" --lora-high "$work/style.safetensors:0.5"
expect 1 "other.safetensors.*another size" "${run[@]}" --lora "$work/other.safetensors:0.5"
cp "$golden/lora/plain.safetensors" "$work/a:b.safetensors" # a colon in the name, and one before the strength
expect 1 "/a:b.safetensors: .*another size" "${run[@]}" --lora "$work/a:b.safetensors:0.5"
expect 1 "/a:b.safetensors: .*another size" "${run[@]}" --lora "$work/a:b.safetensors"
expect 1 "model.safetensors.*no part of a LoRA" "${run[@]}" --lora "$model/text_encoder/model.safetensors"

# Advice names what is not in force, and no more.
lora=$work/Wan2.2-Lightning/high_noise_model.safetensors
expect 1 "Lightning.*needs --steps 4 --shift 5 --guidance 1 --solver euler" "${run[@]}" --lora "$lora" --steps 9 --shift 3 \
    --guidance 4 --solver unipc
expect 1 "Lightning.*needs --steps 4\$" "${run[@]}" --lora "$lora" --steps 9 --shift 5 --guidance 1 --solver euler
expect 1 "another size" "${run[@]}" --lora "$lora" --steps 4 --shift 5 --guidance 1 --solver euler
grep -q "needs" "$work/err" && fail "advice where all is in force: $(cat "$work/err")"
[ -e "$work/c.mp4" ] && fail "a refused run wrote a video"
finish
