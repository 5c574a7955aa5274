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

# Files of several options and of lists are all used. The command line counts more than a configuration file.
"${run[@]}" --print-config --lora a --lora b:0.5,c >"$work/out"
grep -q '^lora: "a,b:0.5,c"' "$work/out" || fail "lora in $(cat "$work/out")"
printf 'lora: [d, "e:2"]\nlora-low: f\n' >"$work/run.yaml"
"${run[@]}" --print-config --config "$work/run.yaml" >"$work/out"
grep -q '^lora: "d,e:2"' "$work/out" && grep -q '^lora-low: "f"' "$work/out" || fail "lora in $(cat "$work/out")"
"${run[@]}" --print-config --config "$work/run.yaml" --lora a >"$work/out"
grep -q '^lora: "a"' "$work/out" || fail "lora in $(cat "$work/out")"

expect 1 "nowhere.safetensors" "${run[@]}" --lora "$work/nowhere.safetensors"
expect 1 "style.safetensors is named twice" "${run[@]}" --lora "$work/style.safetensors" --lora-high "$work/style.safetensors:0.5"
expect 1 "a LoRA without a file name" "${run[@]}" --lora "$work/style.safetensors,"
for strength in nan -inf 1e999; do
    expect 1 "style.safetensors: a strength of -?(nan|inf); it must be a finite f32 number" "${run[@]}" --lora "$work/style.safetensors:$strength"
done
expect 1 "other.safetensors.*another size" "${run[@]}" --lora "$work/other.safetensors:0.5"
cp "$golden/lora/plain.safetensors" "$work/a:b.safetensors" # a colon in the name, and one before the strength
expect 1 "/a:b.safetensors: .*another size" "${run[@]}" --lora "$work/a:b.safetensors:0.5"
expect 1 "/a:b.safetensors: .*another size" "${run[@]}" --lora "$work/a:b.safetensors"
# A strength that is no number is named, with the form of the option, if the file without it is there.
for strength in x "" 50% 0x1 +1; do
    expect 1 "cannot open $work/style.safetensors:${strength/+/.}: .*; the strength '${strength/+/.}' is no number: FILE:STRENGTH is such as $work/style.safetensors:0.8\$" \
        "${run[@]}" --lora-high "$work/a:b.safetensors,$work/style.safetensors:$strength"
done
expect 1 "; the strength 'x' is no number" "$ithaca" bench generate --model "$model" --prompt x --lora "$work/style.safetensors:x"
expect 0 "left open: .*; the strength 'x' is no number" "${run[@]}" --print-config --lora "$work/style.safetensors:x"
expect 1 "cannot open 85: .*; a comma begins another file, and a strength has a point: FILE:STRENGTH is such as $work/style.safetensors:0.85\$" \
    "${run[@]}" --lora "$work/style.safetensors:0,85"
expect 1 "cannot open 5: .* is such as $work/style.safetensors:-1.5\$" "${run[@]}" --lora "$work/style.safetensors:-1,5"
# Digits that no strength of the file before them goes on with are the name of a file.
for list in :0.5,85 ,85 :.5,5 :1e0,5; do
    expect 1 "cannot open ${list#*,}: No such file or directory\$" "${run[@]}" --lora "$work/style.safetensors$list"
done
expect 1 "cannot open 85: No such file or directory\$" "${run[@]}" --lora "$work/style.safetensors:0" --lora-low 85
expect 1 "cannot open $work/none:x: No such file or directory\$" "${run[@]}" --lora "$work/none:x"
expect 1 "cannot open 85: No such file or directory\$" "${run[@]}" --lora 85
expect 1 "model.safetensors.*no part of a LoRA" "${run[@]}" --lora "$model/text_encoder/model.safetensors"

# Advice names only options whose values are not the advised ones.
lora=$work/Wan2.2-Lightning/high_noise_model.safetensors
expect 1 "Lightning.*needs --steps 4 --shift 5 --guidance 1 --solver euler" "${run[@]}" --lora "$lora" --steps 9 --shift 3 \
    --guidance 4 --solver unipc
expect 1 "Lightning.*needs --steps 4\$" "${run[@]}" --lora "$lora" --steps 9 --shift 5 --guidance 1 --solver euler
expect 1 "another size" "${run[@]}" --lora "$lora" --steps 4 --shift 5 --guidance 1 --solver euler
grep -q "needs" "$work/err" && fail "advice where all is in force: $(cat "$work/err")"
[ -e "$work/c.mp4" ] && fail "a refused run wrote a video"

# Names of files may have control characters, which are commands to a terminal.
odd=$work/$(printf 'lightning\033[31m\177\302\233.safetensors')
cp "$golden/lora/kohya.safetensors" "$odd"
expect 1 "lightning\?\[31m\?\?\?.safetensors is Lightning" "${run[@]}" --lora "$odd" --steps 9
grep -q "$(printf '\033')" "$work/err" && fail "control characters in $(cat -v "$work/err")"

# A LoRA of both experts is advised on once, also where only the second expert's option is another.
cp "$golden/lora/kohya.safetensors" "$work/lightning.safetensors"
expect 1 "lightning.safetensors is Lightning.*needs --guidance 1\$" "${run[@]}" --lora "$work/lightning.safetensors" \
    --steps 4 --shift 5 --guidance 1,4 --solver euler
[ "$(grep -c "is Lightning" "$work/err")" = 1 ] || fail "advice more than once: $(cat "$work/err")"

# The first lines of a run say which transformers each file changes, and how much. A colon that is part of a name does
# not begin a strength.
"$build/make_tiny_model" "$work" || fail "no tiny model"
cd "$work"
know_rates
mkdir 12:30
for name in my:info s:2.x 12:30/x lowpoly style_high other; do cp lora.safetensors $name.safetensors; done
expect 0 "" "$ithaca" generate --model model --image first.png --prompt circle --frames 1 --height 16 --width 16 --steps 1 \
    --output c.mp4 --dry-run --lora my:info.safetensors,s:2.x.safetensors,12:30/x.safetensors,lowpoly.safetensors:0.5 \
    --lora style_high.safetensors:-2 --lora-high other.safetensors:3 --lora-low other.safetensors:4
for line in "my:info.safetensors: strength 1, both experts" "s:2.x.safetensors: strength 1, both experts" \
    "12:30/x.safetensors: strength 1, both experts" "lowpoly.safetensors: strength 0.5, both experts" \
    "style_high.safetensors: strength -2, the high-noise expert" \
    "other.safetensors: strength 3, the high-noise expert" "other.safetensors: strength 4, the low-noise expert"; do
    grep -qx "LoRA $line" out || fail "no '$line' in $(grep LoRA out)"
done
finish
