#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run does not replace files that it reads, or frames of its own folder. Unfinished runs leave a saved run and print
# the command that goes on. If weights make no picture, the latents are kept.
. cli/lib.sh
cp -r "$model" "$work/model"
cp "$golden/lora/kohya.safetensors" "$work/style.safetensors"
cp "$golden/lora/plain.safetensors" "$work/other.safetensors"
cd "$work"
know_rates
run=("$ithaca" generate --model model --prompt x --height 64 --width 64 --frames 1 --steps 2 --quiet)

# Checksums of all files except the output of commands.
sums() { find . -type f ! -name out ! -name err ! -name sums -exec md5sum {} + | sort; }
sums >sums
expect 1 "--dump and a LoRA name the same file" "${run[@]}" --output o.gif --lora style.safetensors:0.5 --dump ./style.safetensors
expect 1 "--trace and a LoRA name the same file" "${run[@]}" --output o.gif --lora-high other.safetensors,style.safetensors --trace style.safetensors
expect 1 "--dump 'model/vae/config.json' is there already, in the folder of --model" "${run[@]}" --output o.gif --dump model/vae/config.json
ln -s model/vae/config.json link
expect 1 "in the folder of --model" "${run[@]}" --output o.gif --trace link
expect 1 "in the folder of --tokenizer" "$ithaca" generate --model "$model" --tokenizer model/tokenizer --prompt x --trace "$(ls -d model/tokenizer/* | head -1)"
expect 1 "in the folder of --model" "$ithaca" bench generate --model model --trace model/model_index.json --steps 1 --frames 1 --repeat 1
expect 1 "in the folder of --model" "$ithaca" bench generate --model model --svg model/vae/config.json --steps 1 --frames 1 --repeat 1
mkdir frames
expect 1 "--preview 'frames/frame_0000.png' has the name of a frame in the folder of --output" "${run[@]}" --output frames/ --preview frames/frame_0000.png
expect 1 "--preview 'frames/frame_0000.png' has the name of a frame" "${run[@]}" --output frames --preview frames/frame_0000.png
(cd frames && expect 1 "--dump 'frame_0003.png' has the name of a frame" "$ithaca" generate --model ../model --prompt x --output ./ --dump frame_0003.png)
sums | cmp -s - sums || fail "refused outputs have changed files: $(sums | diff - sums)"
# The output of an earlier run may be replaced, even if it lies in the model's folder.
for _ in 1 2; do expect 0 "" "${run[@]}" --output model/o.gif --keep-latents; done
rm model/o.gif*

# ---- Wrong seeds and options that contradict

expect 1 "--count 2 needs a seed for each video" "${run[@]}" --count 2 --seed 18446744073709551615 --output o.gif
expect 2 "--count goes on with videos of --prompt" "$ithaca" generate --model model --count 2 --resume run.safetensors
expect 2 "--count and --from-latents exclude each other" "$ithaca" generate --model model --count 2 --from-latents l.safetensors
for option in frames height steps seed shift; do
    expect 2 "--$option is about denoising, which --from-latents leaves out" "$ithaca" generate --model model --from-latents l --$option 5
done
expect 2 "'0' is not a number from 0.001 to 1000" "${run[@]}" --shift 0
expect 2 "'10001' is not a whole number from 1 to 10000" "${run[@]}" --steps 10001

# ---- Unfinished runs

long=("$ithaca" generate --model model --prompt x --height 64 --width 64 --frames 1 --steps 3000 --threads 1)
"${long[@]}" --ranks 2 --device cpu --shard-weights --fps 3 --crf 40 --output "it's slow.mp4" --checkpoint run.safetensors >out 2>err &
process=$!
until [ -e run.safetensors ] || ! kill -0 $process 2>/dev/null; do sleep 0.02; done
kill -TERM $process
wait $process
grep -qF -- "--device 'cpu' --ranks '2' --shard-weights --resume 'run.safetensors' --fps '3' --crf '40' --output 'it'\\''s slow.mp4'" err || fail "the command that goes on: $(tail -2 err)"
[ ! -e "it's slow.mp4" ] && [ ! -e "it's slow.mp4.latents.safetensors" ] || fail "left behind: $(ls)"
expect 1 "run.safetensors is a run that was saved at step [0-9]+ of 3000: its latents are noise still" \
    "$ithaca" generate --model model --from-latents run.safetensors --output noise.gif
[ ! -e noise.gif ] || fail "a video of noise"

expect 0 "" "$ithaca" generate --model model --prompt x --height 64 --width 64 --frames 1 --steps 1 --seed 7 --dump other.st --output one.gif --quiet
expect 1 "^ithaca: --noise other.st is not the noise with which the saved run run.safetensors began\$" \
    "$ithaca" generate --model model --resume run.safetensors --noise other.st --output one.gif

# ---- Weights that make no picture

# find_tensor FILE TENSOR: prints the position of a tensor's first number in a .safetensors file.
find_tensor() {
    local header
    header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    echo $((8 + header + $(tail -c +9 "$1" | head -c "$header" | jq ".[\"$2\"].data_offsets[0]")))
}
file=$(ls model/vae/*.safetensors)
at=$(find_tensor "$file" decoder.conv_out.bias)
printf '\0\0\300\177\0\0\300\177' >nan
printf '\0\0\200\377\0\0\200\377' >infinity # -inf in f32
for case in "1 nan" "2 nan" "1 infinity"; do
    read -r ranks numbers <<<"$case"
    dd if=$numbers of="$file" bs=1 seek=$at conv=notrunc status=none
    expect 1 "frame 1 is no picture: the decoder has made numbers that are not finite" "${run[@]}" --output black.gif --ranks $ranks
    [ ! -e black.gif ] || fail "a black video"
    [ -e black.gif.latents.safetensors ] || fail "the latents were not kept"
    rm black.gif.latents.safetensors
done

# ---- Weights with which denoising goes wrong

# A run that goes on would go wrong again, so no command is offered. A saved run without a step is removed.
damage() {
    local file
    file=$(grep -l proj_out.bias model/$1/*.safetensors)
    dd if=nan of="$file" bs=1 seek="$(find_tensor "$file" proj_out.bias)" conv=notrunc status=none
}
wrong=("${run[@]}" --steps 4 --boundary 0.8 --output wrong.gif)
damage transformer_2
expect 1 "latents are not finite after step [2-4] of 4" "${wrong[@]}" --checkpoint wrong.st
grep -q "^'wrong.st' holds step [1-3] of 4. A run that goes on from there would go wrong again: remove the file" err || fail "no advice: $(cat err)"
grep -q "ithaca generate" err && fail "a run that goes wrong again is offered: $(cat err)"
[ -e wrong.st ] || fail "the saved run was removed"
expect 1 "latents are not finite" "$ithaca" generate --model model --resume wrong.st --quiet --output wrong.gif
grep -q "^'wrong.st' holds step [1-3] of 4." err && [ -e wrong.st ] || fail "a run that went on: $(cat err)"
damage transformer
expect 1 "latents are not finite after step 1 of 4" "${wrong[@]}" --checkpoint first.st
[ "$(wc -l <err)" = 1 ] && [ ! -e first.st ] || fail "a run without a step is kept: $(cat err)"
finish
