#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One allocation or one call on a file fails, somewhere in a whole run of the program or of a library that it uses
# (refuse.c): a video from an image, with a LoRA, a saved run and previews. The run ends with a sentence, or succeeds
# all the same. An earlier video is kept until the new video is whole. No other file is left. If the run prints a
# command that goes on, this command makes the video. Calls from the same place count once. ITHACA_REFUSALS=all: every
# place, otherwise a sample.
. cli/lib.sh
if has_sanitizer; then
    echo "skipped: a sanitizer has the allocations of the program"
    exit 77
fi
"$build/make_tiny_model" "$work" || exit 1
cd "$work"
export OMP_WAIT_POLICY=passive
run=(generate --model model --lora lora.safetensors --image first.png --prompt circle --negative square --frames 1 --height 16
    --width 16 --steps 2 --guidance 2,2 --precision f32 --threads 1 --quiet --checkpoint made/run --preview made/small.png
    --output made/clip.mp4)

# begin: makes the folder before a run, with an earlier video
begin() {
    rm -rf made
    mkdir made
    echo earlier >made/clip.mp4
}

begin
expect 0 "" "$ithaca" "${run[@]}"
cp made/clip.mp4 whole.mp4

# go_on COMMAND...: runs the command with which a stopped run goes on
go_on() {
    local status=0
    bash -c "${*/ithaca/$ithaca} --quiet" >/dev/null 2>more || status=$?
    [ $status = 0 ] && cmp -s made/clip.mp4 whole.mp4 || fail "$case: it does not go on: $(cat more)"
}

# judge STATUS: checks the files that a run with this exit status has left. Its sentence is in the file err. If the
# failed allocation belongs to a foreign library, the process may end, or the message may call the file damaged.
judge() {
    local left more own=1
    [[ $case != memory* ]] || grep -E '^/.*\(' err | grep -vE '/(refuse|libc|libstdc\+\+)\.so' | head -1 | grep -q ithaca || own=
    case $1 in
    0) cmp -s made/clip.mp4 whole.mp4 || { [ ! "$own" ] && grep -aq moov made/clip.mp4; } || fail "$case: another video" ;;
    *)
        [ "$(head -c 100 made/clip.mp4)" = earlier ] || fail "$case: the earlier video is lost: $(cat err)"
        [ ! "$own" ] || [ $1 -le 2 ] || fail "$case: exit status $1: $(cat err)"
        [ $1 -gt 2 ] || grep -qE '^(ithaca|libgomp)( generate)?: .' err || fail "$case: no sentence: $(cat err)"
        [[ ! "$own" || $case != memory* ]] || grep -q memory err || fail "$case: memory is not named: $(cat err)"
        ;;
    esac
    left=$(ls -A made | grep -vxE 'clip.mp4|small.png|run|clip.mp4.latents.safetensors')
    [ -z "$left" ] || [ ! "$own" ] || fail "$case: left behind: $left"
    [ ! -e made/small.png ] || tail -c 8 made/small.png | grep -q IEND || fail "$case: half a preview"
    more=$(grep '^  ithaca generate' err)
    [ -z "$more" ] || go_on "$more"
    [ $1 = 0 ] || [ -n "$more" ] || [ ! -e made/run ] || {
        [ ! "$own" ] || fail "$case: the saved run is there and not named: $(cat err)"
        go_on "ithaca generate --model model --lora lora.safetensors --image first.png --resume made/run --output made/clip.mp4"
    }
}

refuse() { # memory|files STEP
    local number status count=0 step=$2
    [ "${ITHACA_REFUSALS:-}" != all ] || step=1
    begin
    LD_PRELOAD=$build/refuse.so REFUSE=$1:0 REFUSE_LIST=$work/list "$ithaca" "${run[@]}" || fail "$1: the run fails anyway"
    [ "$(wc -l <list)" -gt 100 ] || fail "$1: few places: $(wc -l <list)"
    for number in $(awk -v step="$step" 'NR % step == 0' list); do
        case="$1 $number" status=0
        begin
        LD_PRELOAD=$build/refuse.so REFUSE_TRACE=1 REFUSE=$1:$number "$ithaca" "${run[@]}" >/dev/null 2>err </dev/null || status=$?
        judge $status
        count=$((count + 1))
    done
    echo "$1: $count of $(wc -l <list) places"
}
refuse files 11
refuse memory 97
finish
