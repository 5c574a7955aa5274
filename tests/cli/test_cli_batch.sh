#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several videos with one command: --prompts and --count. Each video is the same as from a command of its own. If a
# video fails, the others are made all the same. A batch that was stopped can go on.
. cli/lib.sh
. cli/processes.sh
cd "$work"
know_rates
size=(--height 32 --width 32 --frames 5 --steps 3)
run=("$ithaca" generate --model "$model" "${size[@]}")

cat >prompts <<'LINES'
A red circle moves to the right.

{"prompt": "A green square.", "seed": 7, "frames": 1, "guidance": [2, 1.5], "solver": "dpm++"}
  {"prompt": "A red circle moves to the right.", "negative": "blue", "output": "own.gif", "fps": 5.5}
LINES
expect 0 "" "${run[@]}" --quiet --prompt "A red circle moves to the right." --output one.mp4
expect 0 "" "${run[@]}" --quiet --prompt "A green square." --seed 7 --frames 1 --guidance 2,1.5 --solver dpm++ --output two.mp4
expect 0 "" "${run[@]}" --quiet --prompt "A red circle moves to the right." --negative blue --fps 5.5 --output three.gif
expect 0 "\[2 of 3\] clip-002.mp4" "${run[@]}" --prompts prompts
same clip-001.mp4 one.mp4
same clip-002.mp4 two.mp4
same own.gif three.gif
grep -q '3 of 3 videos made, 0 were there, 0 failed' out || fail "no summary: $(tail -2 out)"
[ "$(grep -c '^text' err)" -le 12 ] || fail "text was encoded more than once: $(grep ^text err)"
left=$(ls -A | grep -vxE 'clip-00[12].mp4|own.gif|one.mp4|two.mp4|three.gif|prompts|out|err|cache')
[ -z "$left" ] || fail "left behind: $left"

# videos that are there already are skipped
rm clip-002.mp4
expect 0 "" "${run[@]}" --prompts prompts --resume run.st --dry-run --json
jq -es 'length == 1 and .[0].output == "clip-002.mp4"' out >/dev/null || fail "a dry run of videos that are there: $(cat out)"
expect 0 "own.gif is there already: skipped" "${run[@]}" --prompts prompts --resume run.st
same clip-002.mp4 two.mp4
grep -q '1 of 3 videos made, 2 were there, 0 failed' out || fail "no summary: $(tail -2 out)"
rm clip-* own.gif

# seeds
begun=$(date +%s.%N)
expect 0 "" "${run[@]}" --quiet --prompt "A red circle moves to the right." --count 2 --seed 4 --output some/ --json
ended=$(date +%s.%N)
jq -es "map(.seconds.total) | add <= $ended - $begun" out >/dev/null || fail "the videos took longer than the command: $(cat out)"
[ -e some-001/frame_0004.png ] && [ -e some-002/frame_0004.png ] || fail "--count: no frames: $(ls)"
jq -es 'length == 2 and .[0].sampling.seed == 4 and .[1].sampling.seed == 5' out >/dev/null || fail "--count: $(cat out)"
expect 0 "" "${run[@]}" --quiet --prompt "A red circle moves to the right." --seed 5 --output five/
same some-002/frame_0004.png five/frame_0004.png

# a dry run
expect 0 "" "${run[@]}" --prompts prompts --dry-run
grep -q '^clip-002.mp4: 1 frame of 32 x 32, 3 steps, seed 7;' out || fail "dry run: $(cat out)"
grep -q '^3 videos' out || fail "dry run: $(cat out)"
[ ! -e clip-001.mp4 ] || fail "a dry run made a video"
# of several processes, whose links are not measured here: no sum of times is made up
XDG_CACHE_HOME=$work/unknown over_sockets 2 generate --model "$model" "${size[@]}" --prompts "$work/prompts" --dry-run
ended 0 2
grep -qx '3 videos; no time is predicted: the links between these processes are not known; --dry-run of one video measures them' \
    out.0 || fail "a dry run of two processes: $(cat out.0)"
# one video
head -n 1 prompts >single
expect 0 "" "${run[@]}" --prompts single --dry-run
grep -q '^1 video, predicted [0-9]' out || fail "a dry run of one video: $(cat out)"
rm single
# as JSON, with the rates of the first video for all of its size
expect 0 "" "${run[@]}" --prompt a --count 2 --seed 4 --dry-run --json
jq -es 'length == 2 and .[1].output == "clip-002.mp4" and .[0].predicted == .[1].predicted and .[1].memory.free_bytes > 0' \
    out >/dev/null || fail "dry run: $(cat out)"
# a video that is too large for this machine, and a model with a file that was cut
printf '%s\n' '{"prompt": "a"}' '{"prompt": "a", "height": 4096, "width": 4096, "frames": 4001}' >large
expect 0 "" "${run[@]}" --prompts large --dry-run
grep -A1 '^clip-002.mp4: 4001 frames of 4096 x 4096' out | grep -q '^    this run holds .* would do' || fail "dry run: $(cat out)"
cp -r "$model" damaged
truncate -s -1 damaged/vae/*.safetensors
for format in "" --json; do
    expect 1 "vae" "$ithaca" generate --model damaged "${size[@]}" --prompts prompts --dry-run $format
done
rm -r damaged large

# lines that end as on Windows, two videos of each, and saved runs in a folder with a dot in its name
printf 'A circle.\r\n\t{"prompt": "x", "seed": 78, "output": "own.gif"}\t\r\n' >several
mkdir saved.d
expect 0 "" "${run[@]}" --prompts several --count 2 --checkpoint saved.d/run --dry-run
[ "$(sed -nE 's/^([^:]*): .*(seed [0-9]+);.*/\1 \2/p' out | paste -sd,)" = \
    "clip-001.mp4 seed 0,clip-002.mp4 seed 1,own-001.gif seed 78,own-002.gif seed 79" ] || fail "two videos of each line: $(cat out)"
rmdir saved.d
rm several

# Lines come from standard input and from pipes, too.
mkfifo pipe
(sleep 0.5 && cat prompts >pipe) &
for lines in - pipe; do
    cat prompts | "${run[@]}" --prompts $lines --dry-run >out 2>err || fail "--prompts $lines: $(cat err)"
    grep -q '^clip-002.mp4: 1 frame of 32 x 32, 3 steps, seed 7;' out && grep -q '^3 videos' out || fail "--prompts $lines: $(cat out)"
done
expect 1 "-: has no line" "${run[@]}" --prompts -
expect 1 "it is not a file or a pipe" "${run[@]}" --prompts /dev/zero
over_sockets 2 generate --model "$model" "${size[@]}" --prompts - --dry-run
grep -q -- "-: it can be read once, and each process of the run reads the prompts" "$work/err.0" || fail "two processes: $(cat "$work/err.0")"

# errors are found before the first video, and named with their line
refuse() { # WORDS LINE
    printf 'A red circle.\n\n%s\n' "$2" >wrong
    expect 1 "$1" "${run[@]}" --quiet --prompts wrong
    [ ! -e clip-001.mp4 ] || fail "a video in spite of a wrong line: $2"
}
refuse 'wrong:3: the line: it has a carriage return inside' $'A circle.\rA square.'
refuse 'wrong:3: no JSON object' '{"prompt": '
refuse 'wrong:3: no JSON object: duplicate' '{"prompt": "x", "seed": 1, "seed": 2}'
refuse "wrong:3: steps: 'x' is not a whole number" '{"prompt": "x", "steps": "x"}'
refuse 'wrong:3: nonsense: there is no such option' '{"prompt": "x", "nonsense": 1}'
refuse 'wrong:3: there is no such option' '{"prompt": "x", "": 3}'
refuse 'wrong:3: sed: there is no such option; the nearest is seed' '{"prompt": "x", "sed": 3}'
refuse 'wrong:3: ranks: it belongs to the whole batch' '{"prompt": "x", "ranks": 2}'
refuse 'wrong:3: frames: its value is neither' '{"prompt": "x", "frames": {}}'
for value in '[]' '["2"]' "[$(printf '1.2345678901234567, %.0s' {1..60})1]"; do
    refuse 'wrong:3: guidance: its value is neither' "{\"prompt\": \"x\", \"guidance\": $value}"
done
refuse 'wrong:3: .*a seed above 9223372036854775807 needs quotes' '{"prompt": "x", "seed": 18446744073709551615}'
refuse 'wrong:3: .*character .u0000, which no option takes' '{"prompt": "x\u0000y"}'
refuse 'wrong:3: a prompt is needed' '{"seed": 1}'
refuse "frames is 3; it must be" '{"prompt": "x", "frames": 3}'
refuse "have the same output, 'clip-001.mp4'" '{"prompt": "x", "output": "clip-001.mp4"}'
refuse "have the same output, './clip-001.mp4'" '{"prompt": "x", "output": "./clip-001.mp4"}'
refuse "nowhere/x.mp4" '{"prompt": "x", "output": "nowhere/x.mp4"}'
printf 'A circle.\n\0A square.\n' >zero
expect 1 "zero:2: the line: it has a zero byte" "${run[@]}" --prompts zero
: >empty
head -c 2000000 /dev/zero | tr '\0' x >endless
expect 1 "endless:1: the line: it is longer than 1048576 bytes" "${run[@]}" --prompts endless
yes a | head -n 10001 >many
expect 1 "many:10001: the line: one command makes 10000 videos at most" "${run[@]}" --prompts many
expect 1 "empty: has no line" "${run[@]}" --prompts empty
expect 1 "none: cannot be read: No such file" "${run[@]}" --prompts none
echo '{"prompt": "x", "seed": "18446744073709551615"}' >marked
expect 0 "" "${run[@]}" --prompts marked --dry-run
grep -q 'seed 18446744073709551615' out || fail "a large seed in quotes: $(cat out)"
printf '\xef\xbb\xbf{"prompt": "x", "seed": 77, "steps": 1}\n' >marked
expect 0 "" "${run[@]}" --prompts marked --dry-run
grep -q ', 1 step, seed 77;' out || fail "a file with a byte order mark: $(cat out)"
# Files that cat has joined: each has its mark, the second one nothing else. Words alone are a prompt without a mark.
printf '\xef\xbb\xbf{"prompt": "x", "seed": 77, "steps": 1}\n\xef\xbb\xbf\n\xef\xbb\xbf\xef\xbb\xbf {"prompt": "y", "seed": 78, "steps": 1}\n' >marked
expect 0 "" "${run[@]}" --prompts marked --dry-run
[ "$(grep -o 'step, seed 7[78]' out | tr -d '\n')" = "step, seed 77step, seed 78" ] && grep -q '^2 videos' out || fail "joined files: $(cat out)"
printf 'circle\n\xef\xbb\xbfA red circle moves to the right.\n' >marked
expect 0 "" "${run[@]}" --quiet --prompts marked --seed 0 --output marked.mp4
same marked-002.mp4 one.mp4
echo '{"prompt": "x", "frames": 1, "steps": 1, "shift": 3.0000001234}' >exact
expect 0 "" "${run[@]}" --prompts exact --quiet --json --output exact.gif
jq -e '.sampling.shift == 3.0000001234' out >/dev/null || fail "digits of a number are lost: $(cat out)"
expect 1 "ithaca: --count 2 needs a seed for each video" "${run[@]}" --prompt x --count 2 --seed 18446744073709551615
expect 2 "exclude each other" "${run[@]}" --prompts prompts --prompt x
expect 2 "--prompts and --dump exclude" "${run[@]}" --prompts prompts --dump dump
expect 2 "--prompt is needed" "${run[@]}" --count 3
expect 2 "--checkpoint-every needs" "${run[@]}" --prompts prompts --checkpoint-every 2
expect 2 "--preview-every needs" "${run[@]}" --prompts prompts --preview-every 2
expect 2 "--seed and --noise exclude" "${run[@]}" --prompts prompts --noise noise --seed 2
expect 2 "--crf is the quality of an mp4" "${run[@]}" --prompts prompts --output x.gif --crf 2
printf '%s\n' '{"prompt": "a", "output": "line.gif", "crf": 3}' >quality
expect 1 "quality:1: crf: it is the quality of an mp4, and 'line.gif' is none" "${run[@]}" --prompts quality --dry-run
echo '{"prompt": "a", "output": "frames/", "fps": 3}' >quality
expect 1 "quality:1: fps: it is the speed of an mp4 or a GIF, and 'frames/' is none" "${run[@]}" --prompts quality --dry-run
mkdir empty-folder
echo '{"prompt": "a", "output": "empty-folder", "frames": 1}' >quality
expect 0 "" "${run[@]}" --prompts quality --resume run.st --dry-run
grep -q 'there already' out && fail "an empty folder counts as a video: $(cat out)"
rmdir empty-folder
printf '%s\n' '{"prompt": "a", "output": "line.gif"}' '{"prompt": "a"}' >quality
expect 0 "" "${run[@]}" --prompts quality --crf 3 --dry-run

expect 0 "" "${run[@]}" --prompt x --count 2 --output frames// --dry-run
grep -q '^frames-002//: ' out || fail "numbers of folders: $(cat out)"
echo '{"prompt": "a", "fit": "stretch"}' >fitted
expect 1 "fitted:1: fit: it needs an image" "${run[@]}" --prompts fitted --dry-run

# A line has a seed or a noise. A seed of a line counts more than the noise of the command.
echo '{"prompt": "a", "seed": 3, "noise": "none"}' >noisy
expect 1 "noisy:1: seed and noise exclude each other" "${run[@]}" --prompts noisy --dry-run
echo '{"prompt": "a", "noise": "none"}' >noisy
expect 1 "noisy:1: noise: --count makes noise from several seeds" "${run[@]}" --prompts noisy --count 2 --dry-run
echo '{"prompt": "a", "seed": 3}' >noisy
expect 0 "" "${run[@]}" --prompts noisy --noise none --dry-run
grep -q 'seed 3' out || fail "the seed of a line beside --noise: $(cat out)"
expect 2 "must have the same name" "${run[@]}" --prompts prompts --checkpoint a --resume b

# If the noise of a video is not there, nothing is begun. If its numbers cannot be used, the others are made all the same.
printf '%s\n' 'A red circle moves to the right.' '{"prompt": "x", "noise": "strange"}' '{"prompt": "A green square.", "seed": 7, "frames": 1, "guidance": [2, 1.5], "solver": "dpm++"}' >broken
expect 1 "broken:2: no video is begun because of this line" "${run[@]}" --prompts broken
grep -q "cannot open strange: No such file" err || fail "the noise is not named: $(cat err)"
[ ! -e clip-001.mp4 ] || fail "a video was made before the noise was missed"
python3 -c 'import struct, sys
header = b"{\"noise\": {\"dtype\": \"F32\", \"shape\": [16, 2, 4, 4], \"data_offsets\": [0, 2048]}}"
sys.stdout.buffer.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", float("nan")) * 512)' >strange
expect 1 "strange: noise holds numbers that are not finite" "${run[@]}" --prompts broken
grep -q 'clip-002.mp4 was not made' err || fail "the video that failed is not named: $(cat err)"
grep -q '2 of 3 videos made, 0 were there, 1 failed' out || fail "no summary: $(tail -2 out)"
same clip-001.mp4 one.mp4
same clip-003.mp4 two.mp4
rm clip-*
# the first of many videos that failed are named, and the others counted
for i in {1..23}; do echo '{"prompt": "x", "noise": "strange"}'; done >broken
expect 1 "^3 more were not made" "${run[@]}" --quiet --prompts broken
[ "$(grep -c 'mp4 was not made' err)" = 20 ] || fail "not 20 videos are named: $(tail -25 err)"

# stop_in_second OPTION...: stops a batch in its second video. $status: its exit status.
stop_in_second() {
    : >err
    set -m
    "${run[@]}" --prompts prompts "$@" >out 2>err </dev/null &
    local process=$! i
    set +m
    for ((i = 0; i < 10000; i++)); do grep -q 'step 3 of' err && grep -q '2 of 3' err && break; sleep 0.02; done
    kill -s TERM $process
    status=0
    wait $process || status=$?
}

# a batch that was stopped in the second video goes on there
stop_in_second --steps 40 --checkpoint run.st
[ $status = 1 ] || [ $status = 0 ] || fail "SIGTERM: exit status $status"
cp clip-001.mp4 first.mp4
expect 0 "" "${run[@]}" --steps 40 --prompts prompts --resume run.st --dry-run
done=$(grep -aoE '"step": ?"[0-9]+"' run-002.st | grep -oE '[0-9]+')
[ -e clip-002.mp4 ] || grep -q "^clip-002.mp4: 1 frame of 32 x 32, $((40 - ${done:-0})) steps" out ||
    fail "${done:-0} steps are done, and not the others left: $(cat out)"
expect 0 "clip-001.mp4 is there already" "${run[@]}" --steps 40 --prompts prompts --resume run.st
expect 0 "" "${run[@]}" --steps 40 --quiet --prompt "A green square." --seed 7 --frames 1 --guidance 2,1.5 --solver dpm++ --output whole.mp4
same clip-001.mp4 first.mp4
same clip-002.mp4 whole.mp4
[ -z "$(ls run*.st 2>/dev/null)" ] || fail "saved runs are left: $(ls run*)"
rm clip-* own.gif

# a batch without saved runs that was stopped in the second video: the first video is there, so no message may say that
# nothing was written
stop_in_second --steps 400
[ $status = 1 ] && [ -e clip-001.mp4 ] || fail "SIGTERM in the second video: exit status $status: $(tail -3 err)"
grep -q 'Nothing was written' err && fail "a video is there: $(tail -4 err)"
grep -q 'clip-002.mp4 was not made' err || fail "the video that was stopped is not named: $(tail -4 err)"
rm -f clip-* own.gif

# several processes
over_sockets 2 generate --model "$model" "${size[@]}" --prompts "$work/prompts" --output "$work/clip.mp4" --strategy ulysses
ended 0 2
same clip-001.mp4 one.mp4
same clip-002.mp4 two.mp4
rm clip-* own.gif

# in several processes, too, if no machine has the memory for a video, the others are made all the same
printf '%s\n' 'A red circle moves to the right.' '{"prompt": "x", "height": 8192, "width": 8192, "frames": 4001, "output": "large/"}' \
    '{"prompt": "A green square.", "seed": 7, "frames": 1, "guidance": [2, 1.5], "solver": "dpm++"}' >broken
over_sockets 2 generate --model "$model" "${size[@]}" --prompts "$work/broken" --output "$work/clip.mp4" --strategy ulysses
ended 1 2
grep -q 'memory' err.0 || fail "the video that is too large is not explained: $(cat err.0)"
grep -q 'large/ was not made' err.0 || fail "the video that is too large is not named: $(cat err.0)"
grep -q '2 of 3 videos made, 0 were there, 1 failed' out.0 || fail "no summary: $(tail -2 out.0)"
silent 1 1
same clip-001.mp4 one.mp4
same clip-003.mp4 two.mp4
rm clip-*

# Rank 0 alone says which videos are there: another host may have older files of these names.
mkdir elsewhere && touch elsewhere/clip-001.mp4
processes_differ="1 --output $work/elsewhere/clip.mp4" over_sockets 2 generate --model "$model" "${size[@]}" --prompts "$work/prompts" \
    --resume "$work/run.st" --output "$work/clip.mp4" --strategy ulysses
ended 0 2
same clip-001.mp4 one.mp4
rm -rf clip-* own.gif elsewhere

# if a process dies in the second video, the first video stays, and the videos that were not made are named
for steps in 3 400; do
    printf '{"prompt": "A red circle moves to the right.", "steps": %s}\n' $steps
done >mortal
echo '{"prompt": "x"}' >>mortal
signal_to="KILL 1" signal_after="\[2 of 3\]" over_sockets 2 generate --model "$model" "${size[@]}" --prompts "$work/mortal" \
    --output "$work/clip.mp4" --strategy ulysses
[ "$(cat status.0)" = 1 ] || fail "a dead process: exit status $(cat status.0)"
grep -q 'clip-002.mp4 was not made' err.0 && grep -q 'clip-003.mp4 was not made' err.0 || fail "not named: $(cat err.0)"
! grep -q 'clip-001.mp4 was not made' err.0 || fail "the finished video is named"
same clip-001.mp4 one.mp4
[ ! -e clip-002.mp4 ] && [ ! -e clip-003.mp4 ] || fail "videos without a process: $(ls)"
finish
