#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Long runs: --checkpoint and --resume after signals, after kill -9, on a full disk, over several processes. The video is
# the same as from a run in one piece. ITHACA_KILLS: the number of runs that are killed (4).
. cli/lib.sh
. cli/processes.sh
cd "$work"
kills=${ITHACA_KILLS:-4}
RANDOM=${ITHACA_SEED:-$$}
echo "seed $RANDOM"
prompt='A red circle moves to the right on a black background.'
size=(--height 64 --width 64 --frames 9 --steps 8 --seed 5)
run=("$ithaca" generate --model "$model" --quiet)

# wait_for_step N: waits until the run was saved after step N or later, or has ended.
wait_for_step() {
    local i step
    for ((i = 0; i < 12000; i++)); do
        step=$(grep -aoE '"step":"[0-9]+"' run 2>/dev/null | tr -cd 0-9)
        [ "${step:--1}" -lt "$1" ] && kill -0 $process 2>/dev/null || return 0
        sleep 0.02
    done
    fail "step $1 was not saved: $(head -c 300 err)"
}

# start COMMAND...: starts the command in the background. $process: its number.
start() {
    set -m # so that the process does not inherit an ignored SIGINT
    "$@" >out 2>err </dev/null &
    process=$!
    set +m
}

expect 0 "" "${run[@]}" --prompt "$prompt" "${size[@]}" --output whole.mp4

# A run that a signal stops prints the command that goes on with it. No option needs to be given again.
for signal in INT TERM HUP; do
    start "${run[@]}" --prompt "$prompt" "${size[@]}" --output clip.mp4 --checkpoint run --checkpoint-every 3
    wait_for_step 3
    kill -s $signal $process
    status=0
    wait $process || status=$?
    [ $status = 1 ] || [ $status = 0 ] || fail "SIG$signal: exit status $status"
    [ $status = 0 ] || grep -q -- "--resume 'run' --output 'clip.mp4'" err || fail "SIG$signal: not told of --resume: $(cat err)"
    [ $status = 0 ] || expect 0 "" "${run[@]}" --output clip.mp4 --resume run
    same clip.mp4 whole.mp4
    [ ! -e run ] || fail "the saved run is there after success"
    rm -f clip.mp4 run
done

# If the saved run is a link, the link stays, and the file behind it is removed.
mkdir far
ln -s far/run link
expect 0 "" "${run[@]}" --prompt "$prompt" "${size[@]}" --output clip.mp4 --checkpoint link
[ -L link ] && [ -z "$(ls -A far)" ] || fail "a saved run behind a link: $(ls -A . far)"
rm -r clip.mp4 link far

# A run that is killed again and again at random moments comes to its end.
start "${run[@]}" --prompt "$prompt" "${size[@]}" --output clip.mp4 --checkpoint run
for ((i = 0; i < kills; i++)); do
    wait_for_step 0
    sleep 0.$((RANDOM % 9))
    kill -s KILL $process 2>/dev/null
    wait $process
    [ -e run ] || break
    start "${run[@]}" --output clip.mp4 --resume run
done
status=0
wait $process || status=$?
[ $status = 0 ] || [ ! -e run ] || expect 0 "" "${run[@]}" --output clip.mp4 --resume run
same clip.mp4 whole.mp4
rm -f clip.mp4 run .clip* clip*latents* run.*

# Options that contradict the saved run are refused.
start "${run[@]}" --prompt "$prompt" "${size[@]}" --output clip.mp4 --checkpoint run
wait_for_step 1
kill -s TERM $process
wait $process
if [ -e run ]; then
    expect 1 "steps is 9, and 8 in the saved run run" "${run[@]}" --output clip.mp4 --resume run --steps 9
    expect 1 "seed is 0, and 5 in the saved run run" "${run[@]}" --output clip.mp4 --resume run --seed 0
    sed 's/"frames":"9"/"frames":"3"/' run >changed # the message must blame the file, and not the model's ithaca.yaml
    expect 1 "^ithaca: changed: its metadata was changed or is damaged\$" "${run[@]}" --output clip.mp4 --resume changed
    rm changed
    expect 1 "prompt is not the same in the saved run" "${run[@]}" --output clip.mp4 --resume run --prompt x
    # the message must blame the file, and not an option that nobody has given
    expect 1 "^ithaca: run may be a saved run of another model: " "$ithaca" generate --quiet --model "$model-i2v" \
        --resume run --output clip.mp4
    expect 1 "'run' is there already" "${run[@]}" --output clip.mp4 --checkpoint run --prompt x
    expect 0 "" "${run[@]}" --resume run --dry-run --json
    step=$(grep -aoE '"step":"[0-9]+"' run | tr -cd 0-9)
    jq -e --argjson left $((8 - step)) '.predicted | (.denoise / .denoise_per_step - $left | fabs) < 1e-6' out >/dev/null ||
        fail "the steps that are done are predicted again: $(cat out)"
    # defaults of the model's folder are no contradiction
    cp -r "$model" other && chmod -R u+w other && sed -i 's/^steps:.*/steps: 3/' other/ithaca.yaml
    expect 0 "" "$ithaca" generate --quiet --model other --resume run --output clip.mp4
    same clip.mp4 whole.mp4
fi
expect 1 "none: No such file" "${run[@]}" --resume none
expect 1 "nowhere/run" "${run[@]}" --prompt x --checkpoint nowhere/run
expect 2 "--checkpoint-every needs" "${run[@]}" --prompt x --checkpoint-every 2
expect 2 "--dump needs all steps" "${run[@]}" --resume run --dump dump
expect 2 "--resume is about denoising" "${run[@]}" --resume run --from-latents latents
expect 1 "it is no saved run" "${run[@]}" --resume "$model/vae/diffusion_pytorch_model.safetensors"
rm -f clip.mp4 run

# A preview is a PNG that is replaced after steps. If its folder cannot be written, the run does not begin.
expect 0 "" "${run[@]}" --prompt "$prompt" "${size[@]}" --output clip.mp4 --preview small.png --preview-every 3
same clip.mp4 whole.mp4
[ "$(head -c 8 small.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "the preview is no PNG"
[ "$(head -c 24 small.png | tail -c 8 | od -An -tu1 | tr -s ' ')" = " 0 0 2 64 0 0 0 192" ] || fail "the preview has another size"
expect 2 "--preview-every needs --preview" "${run[@]}" --prompt x --preview-every 2
expect 2 "--preview is about denoising" "${run[@]}" --from-latents latents --preview small.png
expect 1 "nowhere/small.png" "${run[@]}" --prompt x --preview nowhere/small.png

# In several processes rank 0 alone writes the preview, with the pixels of one process; also with the autoencoder of Wan
# 2.2.
for previewed in "$model" "$golden/ti2v/model"; do
    preview=(generate --model "$previewed" --prompt "$prompt" --height 64 --width 64 --frames 9 --steps 3 --precision f32 --quiet)
    expect 0 "" "$ithaca" "${preview[@]}" --output one.gif --preview one.png
    over_sockets 3 "${preview[@]}" --strategy ulysses --output "$work/clip.gif" --preview "$work/small.png"
    ended 0 3
    same one.png small.png
    [ -z "$(ls | grep '^small.png.')" ] || fail "other processes write previews: $(ls)"
    rm -f one.gif clip.gif one.png small.png
done
rm -f clip.mp4

# Two processes save a run, and three processes, or one, resume it.
for processes in 3 1; do
    signal_to="TERM all" signal_after="step [3-8] of" over_sockets 2 generate --model "$model" --prompt "$prompt" \
        "${size[@]}" --output "$work/clip.mp4" --checkpoint "$work/run" --strategy ulysses
    [ -e run ] || continue
    over_sockets $processes generate --model "$model" --quiet --output "$work/clip.mp4" --resume "$work/run"
    ended 0 $processes
    same clip.mp4 whole.mp4
    rm -f clip.mp4 run
done

# A run from images: the printed command goes on with the same images, in one process and in three. Other images are
# refused.
cp "$golden/pictures/rgb.png" first.png
cp "$golden/pictures/alpha.webp" last.webp
from_images=(--prompt "$prompt" --image first.png --last-image last.webp --height 64 --width 96 --frames 9 --steps 300
    --guidance 1,1 --precision f32)
i2v=("$ithaca" generate --model "$golden/i2v/model" --quiet)
expect 0 "" "${i2v[@]}" "${from_images[@]}" --output images.mp4
start "${i2v[@]}" "${from_images[@]}" --output clip.mp4 --checkpoint run
wait_for_step 1
kill -s TERM $process
wait $process
if [ -e run ]; then
    grep "^  ithaca generate" err >command
    cp run kept
    expect 0 "" bash -c "$(sed "s#^  ithaca#'$ithaca'#" command) --quiet"
    same clip.mp4 images.mp4
    cp kept run
    over_sockets 3 generate --model "$golden/i2v/model" --quiet --image "$work/first.png" --last-image "$work/last.webp" \
        --output "$work/clip.mp4" --resume "$work/run" --strategy ulysses
    ended 0 3
    same clip.mp4 images.mp4
    cp kept run
    cp "$golden/pictures/grey.png" first.png
    expect 1 "image differs from the saved run's" "${i2v[@]}" --image first.png --last-image last.webp --resume run
    expect 1 "image differs from the saved run's" "${i2v[@]}" --resume run
fi
rm -f clip.mp4 run kept

# A full disk is found before the first step.
if mkdir disk && mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    expect 1 "its disk has .* free" "${run[@]}" --prompt x "${size[@]}" --output clip.mp4 --checkpoint disk/run
    ln -s disk/run link # the disk is the one behind the link
    expect 1 "its disk has .* free" "${run[@]}" --prompt x "${size[@]}" --output clip.mp4 --checkpoint link
    [ -z "$(ls disk)" ] || fail "a full disk: left behind: $(ls disk)"
    umount disk
    # a disk that becomes full in the middle of a run does not end the run
    mount -t tmpfs -o size=512k none disk
    start "$ithaca" generate --model "$model" --prompt "$prompt" "${size[@]}" --steps 40 --output clip.mp4 --checkpoint disk/run
    for ((i = 0; i < 5000; i++)); do [ -e disk/run ] && break; sleep 0.02; done
    head -c 1000000 /dev/zero >disk/rest 2>/dev/null
    status=0
    wait $process || status=$?
    [ $status = 0 ] || fail "a disk that became full: exit status $status: $(head -c 300 err)"
    grep -q "is not saved: cannot write" err || fail "a disk that became full: no warning: $(head -c 500 err)"
    [ -e clip.mp4 ] || fail "a disk that became full: no video"
    umount disk
else
    echo "no tmpfs can be mounted here: a full disk is not tested"
fi
finish
