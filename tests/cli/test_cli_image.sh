#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca generate --image: the size of the video, the same bits on ranks and processes, and refusals.
. cli/lib.sh
. cli/processes.sh
cd "$work"
pictures=$golden/pictures
i2v=(generate --model "$golden/i2v/model" --prompt "A red circle" --frames 9 --steps 3 --threads 1 --precision f32 --quiet)
ti2v=(generate --model "$golden/ti2v/model" --prompt "A red circle" --frames 9 --steps 3 --threads 1 --precision f32 --quiet)
first=$pictures/turned_jpg_6.jpg last=$pictures/alpha.webp

# ---- The size of a video from an upright picture of 24 x 40 pixels

size() { # WIDTH HEIGHT OPTIONS...
    local width=$1 height=$2
    shift 2
    expect 0 "" "$ithaca" generate --model "$golden/i2v/model" --prompt a --image "$first" --frames 1 --dry-run --json "$@"
    grep -q "\"width\": $width," out && grep -q "\"height\": $height," out || fail "no $width x $height: $(cat out)"
}
know_rates
size 48 96 --area 6144
size 64 112 --width 64
size 32 48 --height 48
size 32 32 --height 32 --width 32

# Given sizes count more than the sizes in the model's folder: the picture is square, and ithaca.yaml has 128 x 128.
square() { # WIDTH HEIGHT OPTIONS...
    local width=$1 height=$2
    shift 2
    expect 0 "" "$ithaca" generate --model "$root/models/shapes-i2v" --prompt a --image "$root/models/shapes-i2v/first.png" \
        --frames 1 --dry-run --json "$@"
    grep -q "\"width\": $width," out && grep -q "\"height\": $height," out || fail "no $width x $height: $(cat out)"
}
square 128 128
square 64 64 --area 4096
square 64 64 --height 64
square 64 64 --width 64
square 96 64 --width 96 --height 64
printf 'area: 4096\n' >area.yaml
square 64 64 --config area.yaml
expect 0 "" "$ithaca" generate --model "$root/models/shapes-i2v" --prompt a --image "$root/models/shapes-i2v/first.png" \
    --area 4096 --print-config
grep -q '^height: 64 ' out && grep -q '^width: 64 ' out || fail "--print-config has other sizes: $(grep -E 'height|width' out)"
cp out printed.yaml
square 64 64 --config printed.yaml
expect 2 "leave both or --area out" "$ithaca" "${i2v[@]}" --image "$first" --area 4096 --height 64 --width 64 --output x.gif
expect 2 "leave --width or --area out" "$ithaca" "${i2v[@]}" --image "$first" --area 4096 --width 64 --output x.gif

# ---- The same bits on any number of ranks, in threads and in processes

expect 0 "" "$ithaca" "${i2v[@]}" --image "$first" --last-image "$last" --height 64 --width 96 --output one.gif --dump one.dump
for cfg in batch parallel sequential; do
    expect 0 "" "$ithaca" "${i2v[@]}" --image "$first" --last-image "$last" --height 64 --width 96 --ranks 4 --cfg $cfg \
        --strategy ulysses --output ranks.gif --dump ranks.dump
    same one.dump ranks.dump
done
over_sockets 2 "${i2v[@]}" --image "$first" --last-image "$last" --height 64 --width 96 --strategy ulysses --output p.gif --dump p.dump
ended 0 2
same one.dump p.dump
same one.gif p.gif

expect 0 "" "$ithaca" "${ti2v[@]}" --image "$first" --area 6144 --output one.gif --dump one.dump
over_sockets 3 "${ti2v[@]}" --image "$first" --area 6144 --strategy ulysses --output p.gif --dump p.dump
ended 0 3
same one.dump p.dump
expect 0 "" "$ithaca" "${ti2v[@]}" --height 96 --width 64 --output text.gif --dump text.dump
! cmp -s one.dump text.dump || fail "the image changes nothing"

# A model with an image encoder; also where the process of rank 1 lacks the model's files.
clip=(generate --prompt "A red circle" --image "$first" --last-image "$last" --frames 9 --steps 3 --height 48 --width 64 --threads 1
    --precision f32)
expect 0 "image: image 2 of 2, 100.0 %" "$ithaca" "${clip[@]}" --model "$golden/flf2v21" --output one.gif --dump one.dump
clip+=(--quiet)
expect 0 "" "$ithaca" "${clip[@]}" --model "$golden/flf2v21" --ranks 4 --cfg parallel --strategy ulysses --output ranks.gif --dump ranks.dump
same one.dump ranks.dump
over_sockets 2 "${clip[@]}" --model "$golden/flf2v21" --strategy ulysses --output p.gif --dump p.dump
ended 0 2
same one.dump p.dump
processes_differ="1 --model elsewhere" over_sockets 2 "${clip[@]}" --model "$golden/flf2v21" --shard-weights --strategy ulysses \
    --output p.gif --dump p.dump
ended 0 2
same one.dump p.dump
expect 0 "" "$ithaca" "${clip[@]}" --model "$golden/flf2v21" --last-image "$first" --output other.gif --dump other.dump
! cmp -s one.dump other.dump || fail "the last image changes nothing"
expect 0 "" "$ithaca" info --model "$golden/flf2v21" --json
jq -e '.model | .kind == "Wan2.1-FLF2V (custom size)" and .least_images == 2 and .most_images == 2 and .files.image_encoder.tensors > 10' \
    out >/dev/null || fail "info --json: $(cat out)"
expect 0 "" "$ithaca" "${clip[@]}" --model "$golden/flf2v21" --dry-run

# In a batch, the image encoder reads the images of each line.
printf '{"prompt": "A red circle", "%s": "%s", "output": "%s.gif"}\n' image "$last" line_1 image "$first" line_2 >lines
batch=(generate --model "$golden/i2v21" --frames 9 --steps 3 --height 48 --width 64 --threads 1 --precision f32 --quiet)
expect 0 "" "$ithaca" "${batch[@]}" --prompts lines
expect 0 "" "$ithaca" "${batch[@]}" --prompt "A red circle" --image "$first" --output alone.gif
same alone.gif line_2.gif
! cmp -s line_1.gif line_2.gif || fail "the lines of a batch have the same video"

# Stretched and cut images differ.
expect 0 "" "$ithaca" "${i2v[@]}" --image "$first" --height 64 --width 96 --output a.gif
expect 0 "" "$ithaca" "${i2v[@]}" --image "$first" --height 64 --width 96 --fit stretch --output b.gif
! cmp -s a.gif b.gif || fail "--fit changes nothing"

# ---- Refusals

expect 1 "makes videos from an image, and --image is needed" "$ithaca" "${i2v[@]}" --output x.gif
expect 1 "takes a first image and no last one" "$ithaca" "${ti2v[@]}" --last-image "$first" --output x.gif
expect 1 "takes a first image and no last one" "$ithaca" "${clip[@]}" --model "$golden/i2v21" --output x.gif
expect 1 "and --last-image is needed" "$ithaca" generate --model "$golden/flf2v21" --prompt a --image "$first" --output x.gif
expect 1 "the model has no image encoder" "$ithaca" "${i2v[@]}" --image "$first" --image-encoder "$golden/i2v21/image_encoder" --output x.gif
expect 1 "takes no image" "$ithaca" generate --model "$model" --prompt a --image "$first" --output x.gif
expect 1 "no PNG, JPEG or WebP" "$ithaca" "${i2v[@]}" --image "$golden/prompts.json" --output x.gif
expect 1 "No such file" "$ithaca" "${i2v[@]}" --image nowhere.png --output x.gif
expect 1 "it is animated; a single picture is needed" "$ithaca" "${i2v[@]}" --image "$pictures/animated.webp" --output x.gif
expect 2 "none of auto, cover, stretch" "$ithaca" "${i2v[@]}" --image "$first" --fit cut --output x.gif
processes_differ="1 --image $pictures/rgb.png" over_sockets 2 "${i2v[@]}" --image "$first" --height 32 --width 32 --output x.gif
ended 1 2
grep -q "image on rank 1 and on rank 0 differ" err.0 || fail "another image on rank 1: $(cat err.0)"
[ ! -e x.gif ] || fail "a refused run has written a video"
finish
