#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca generate from end to end on the small checkpoint: kinds of output, ranks, saved latents, interruption, failures.
. cli/lib.sh
cd "$work"
know_rates
small="--model $model --height 64 --width 64 --frames 5 --steps 3 --threads 2"
prompt="A red circle moves to the right on a black background."

# generate STATUS WORDS OUTPUT OPTION...: makes a small video; status and words as for `expect`.
generate() {
    local status=$1 words=$2 output=$3
    shift 3
    expect "$status" "$words" "$ithaca" generate $small --prompt "$prompt" --output "$output" "$@"
}

# left NAME...: the folder holds only these names, and files of the tests.
left() {
    local there want=$*
    there=$(echo $(ls -A | grep -vxE 'out|err' | sort))
    [ "$there" = "$want" ] || fail "left behind: $there instead of $want"
}

# An mp4 whose metadata say how it was made, and the summary.
generate 0 "denoise: step 3 of 3" clip.mp4 --seed 7 --precision f32
grep -q "decode: frame 5 of 5" err || fail "no line about the last frame"
grep -q "predicted peak memory" err || fail "no predicted memory"
grep -qx "precision f32" err || fail "not said which precision: $(cat err)"
grep -q "^shift 3: ithaca.yaml of the model folder" err || fail "not said where the shift comes from: $(cat err)"
for words in "clip.mp4: 5 frames of 64 x 64 at 12 frames" "seed 7; steps 3; shift 3; guidance 3,1.5" load plan inference \
    conditioning "denoise .*3 steps" "VAE decode .*compute .*writing" "peak memory .*predicted"; do
    grep -qE "$words" out || fail "the summary lacks '$words': $(cat out)"
done
grep -qa ftypisom clip.mp4 || fail "clip.mp4 is no mp4"
grep -qa "$prompt" clip.mp4 || fail "no prompt in the metadata"
grep -qa "seed 7; steps 3" clip.mp4 || fail "no seed in the metadata"
left clip.mp4
cp clip.mp4 first.mp4
generate 0 "" clip.mp4 --seed 7 --precision f32 --quiet
[ -s out ] || [ -s err ] && fail "--quiet talks"
same clip.mp4 first.mp4
generate 0 "" clip.mp4 --seed 8 --precision f32
cmp -s clip.mp4 first.mp4 && fail "another seed gives the same video"
rm ./*.mp4

# bf16 on a machine without bf16 instructions. auto prints its choice and the reason.
ITHACA_CPU=baseline generate 0 "precision bf16: .*multiplied in f32" clip.gif --precision bf16
ITHACA_CPU=baseline generate 0 "precision f32: chosen because" clip.gif
cp clip.gif first.gif
ITHACA_CPU=baseline generate 0 "" clip.gif --precision f32
same clip.gif first.gif
generate 0 "precision .*: chosen because" clip.gif
rm ./*.gif

# The root folder is no folder of frames. A dry run checks the name as a run does, and writes nothing even if this check
# fails.
ln -s / root
for name in / // /./ root root/; do
    generate 1 "output '$name' is the root folder" $name --dry-run
done
rm root

generate 0 "" clip.gif --json
[ "$(head -c 6 clip.gif)" = GIF89a ] || fail "clip.gif is no GIF"
jq -e '.frames == 5 and .height == 64 and .width == 64 and .fps == 12 and .output == "clip.gif" and
    .sampling.steps == 3 and .sampling.guidance == [3, 1.5] and .sampling.seed == 0 and
    (.seconds | .total >= .inference and .inference >= .denoise and .denoise > 0 and .decode > 0) and
    (.memory | .predicted_bytes > 0 and .peak_bytes > 0 and .resident_bytes >= .peak_bytes / 4)' out >/dev/null ||
    fail "the JSON lacks something: $(cat out)"
rm clip.gif

# PNGs. With ulysses they are the same on any number of ranks.
generate 0 "" one/ --precision f32
[ "$(ls one | tr '\n' ' ')" = "frame_0000.png frame_0001.png frame_0002.png frame_0003.png frame_0004.png " ] ||
    fail "PNGs: $(ls one)"
generate 0 "" two/ --precision f32 --ranks 2 --strategy ulysses
diff -r one two || fail "two ranks of ulysses give other bits"
generate 1 "already holds frames" one/
generate 0 "" ring/ --ranks 2 --strategy ring --cfg sequential
rm -r one two ring
left

# Every option of attention, on the command line and in a file, is found in the plan.
generate 0 "" clip.gif --json --ranks 4 --strategy ulysses_ring_bidir --ulysses 2 --ring 2 --softmax fixed_m \
    --no-smoothing --exchange copy --chunks 3 --no-fold --kernel f32_ref --block-q 64 --block-kv 128 \
    --block-kv-compute 32 --block-kv-compute-in 1 --direction uni --effort measure --wisdom wisdom
for words in "ulysses_ring over 4 ranks, ulysses 2 x ring 2, exchange copy in 6 chunks, batch not folded, uni" \
    "softmax fixed_m (not smoothed), kernel f32_ref (named), tiles of 64 queries and 128/32/1 keys"; do
    jq -r .plan out | grep -qF "$words" || fail "not as asked for: $(jq -r .plan out)"
done
[ -e wisdom ] || fail "no wisdom was saved"
cp clip.gif first.gif
cat >c.yaml <<END
ranks: 4
strategy: ulysses_ring
ulysses: 2
ring: 2
direction: uni
softmax: fixed_m
no-smoothing: true
exchange: copy
chunks: 3
no-fold: true
kernel: f32_ref
effort: measure
wisdom: wisdom
block-q: 64
block-kv: 128
block-kv-compute: 32
block-kv-compute-in: 1
END
generate 0 "" clip.gif --config c.yaml
same clip.gif first.gif
generate 2 "fold" clip.gif --fold --no-fold
generate 2 "strategy" clip.gif --strategy zigzag
generate 1 "abacus" clip.gif --kernel abacus
generate 1 "wisdom" clip.gif --wisdom c.yaml
rm clip.gif first.gif c.yaml wisdom wisdom.lock

# --crf is of an mp4 alone, and --fps of an mp4 or a GIF. A --config that has served an mp4 may have them.
mkdir there
for output in clip.gif clip.GIF frames/ there still.png; do
    generate 2 "--crf is the quality of an mp4, and '$output' is none" $output --crf 30
done
for output in frames/ there still.png; do
    generate 2 "--fps is the speed of an mp4 or a GIF, and '$output' is none" $output --fps 30
done
printf '%s\n' 'crf: 30' 'fps: 30' >c.yaml
generate 0 "" clip.gif --config c.yaml --dry-run
generate 0 "" there --config c.yaml --dry-run
rm -r c.yaml there

# A .png is a video of one frame. More frames are refused before the run.
generate 0 "" still.png --frames 1
generate 0 "" frames/ --frames 1
same still.png frames/frame_0000.png
generate 1 "'still.png' cannot be written: a .png holds one frame, and the video has more" still.png --frames 5
same still.png frames/frame_0000.png
rm -r still.png frames

# Options without the thing that they are about
expect 2 "--fit needs --image" "$ithaca" generate --model "$model" --prompt x --fit stretch
expect 2 "--area needs --image" "$ithaca" generate --model "$model" --prompt x --area 4096
for option in --keep-packed "--strategy ring" "--block-q 64" --no-fold "--effort measure"; do
    expect 2 "${option% *} is about denoising, which --from-latents leaves out" "$ithaca" generate --model "$model" \
        --from-latents none $option
done

# If a record cannot be written after the video, the end says that the video is complete.
generate 1 "cannot write /dev/full: No space" clip.mp4 --frames 1 --steps 2 --quiet --trace /dev/full
grep -qx "The video is complete: clip.mp4" err && [ -s clip.mp4 ] || fail "a trace that fails after the video: $(cat err)"
generate 1 "^All videos are complete.$" clip.mp4 --frames 1 --steps 2 --quiet --trace /dev/full --count 2
rm clip*.mp4

# Every name that the file system takes will do. The latents have its start, and another name for each output.
long=$(printf '%0250d' 0)
generate 0 "" "$long"a.mp4 --frames 1 --steps 2 --keep-latents --checkpoint "$long".run
generate 0 "" "$long"b.gif --frames 1 --steps 2 --keep-latents
generate 0 "" "$long"ccccc/ --frames 1 --steps 2
for name in "$long"{a.mp4,b.gif,ccccc/frame_0000.png}; do [ -e "$name" ] || fail "no output of the name $name"; done
[ "$(ls | grep -c '^0*-[0-9a-f]*[.]latents[.]safetensors$')" = 2 ] || fail "latents of long names: $(ls)"
rm -r 00*

# Options in files: the command line counts more than --config, and --config more than the model's ithaca.yaml.
printf 'steps: 2\nguidance: 1\nfps: 24\noutput: from_config.gif\n' >c.yaml
expect 0 "step 2 of 2" "$ithaca" generate --model "$model" --config c.yaml --prompt x --height 32 --width 32 --frames 1 \
    --fps 30 --json
jq -e '.fps == 30 and .sampling.steps == 2 and .sampling.guidance == [1, 1] and .sampling.shift == 3' out >/dev/null ||
    fail "precedence: $(cat out)"
left c.yaml from_config.gif
rm c.yaml from_config.gif

# Latents that are kept, decoded later, and dumped.
generate 0 "" whole/ --keep-latents --dump dump.safetensors --precision f32
left dump.safetensors whole whole.latents.safetensors
cp whole.latents.safetensors kept
mv whole first
generate 0 "" whole/ --seed 9 --precision f32 # latents of an earlier run stay, and this run keeps none
cmp whole.latents.safetensors kept || fail "a run without --keep-latents touched latents that an earlier one kept"
rm -r kept whole
mv first whole
left dump.safetensors whole whole.latents.safetensors
expect 0 "" "$ithaca" generate --model "$model" --from-latents whole.latents.safetensors --output again/ --precision f32
diff -r whole again || fail "saved latents decode to other frames"
expect 0 "" "$ithaca" generate --model "$model" --from-latents dump.safetensors --output dumped/ --precision f32
diff -r whole dumped || fail "dumped latents decode to other frames"
generate 0 "" noise/ --noise dump.safetensors --precision f32
diff -r whole noise || fail "dumped noise gives other frames"
expect 0 "" "$ithaca" generate --model "$model" --from-latents whole.latents.safetensors --output clip.mp4
grep -qa "$prompt" clip.mp4 || fail "the prompt does not survive in saved latents"
for dry in "" --dry-run; do
    expect 1 "a .png holds one frame" "$ithaca" generate --model "$model" --from-latents whole.latents.safetensors --output one.png $dry
    grep -q decode "$work/err" && fail "saved latents were decoded for a .png: $(cat "$work/err")"
    [ ! -e one.png ] || fail "the first frame of a video remained as a .png"
done
truncate -s -1 dump.safetensors
expect 1 "dump.safetensors" "$ithaca" generate --model "$model" --from-latents dump.safetensors --output cut.mp4
rm -r dumped noise again clip.mp4 whole dump.safetensors

# A trace of all ranks.
generate 0 "" clip.mp4 --ranks 2 --trace trace.json
jq -e '[.traceEvents[] | select(.ph == "X") | .name] | (map(select(. == "step")) | length == 6) and
    (map(select(. == "block")) | length == 36) and (map(select(. == "decode")) | length == 2) and
    (["text", "qkv", "self attention", "cross attention", "ffn"] - . == [])' trace.json >/dev/null ||
    fail "the trace lacks something"
left clip.mp4 trace.json whole.latents.safetensors
rm clip.mp4 trace.json

# If the standard streams are closed, no file of the run gets their numbers, because messages would be written into it.
generate 0 "" a.mp4 --dump a --trace t --verbose
("$ithaca" generate $small --prompt "$prompt" --output b.mp4 --dump b --trace t --verbose --json <&- >&- 2>&-) &&
    fail "a closed standard output is no failure"
same a.mp4 b.mp4
same a b
jq -e . t >/dev/null || fail "the trace holds something else"
rm a.mp4 b.mp4 a b t

# A run that keeps no latents does not touch latents that an earlier run kept.
cp whole.latents.safetensors clip.mp4.latents.safetensors
generate 0 "" clip.mp4 --seed 5
same whole.latents.safetensors clip.mp4.latents.safetensors
left clip.mp4 clip.mp4.latents.safetensors whole.latents.safetensors
generate 0 "" clip.mp4 --seed 5 --keep-latents
cmp -s whole.latents.safetensors clip.mp4.latents.safetensors && fail "--keep-latents keeps older latents"
rm clip.mp4 clip.mp4.latents.safetensors

# Of two runs at a time with the same output, each has its own latents.
generate 0 "" clip.mp4 --seed 1 --steps 60 --keep-latents --quiet && mv clip.mp4.latents.safetensors latents-of-1
generate 0 "" clip.mp4 --seed 2 --keep-latents --quiet && mv clip.mp4.latents.safetensors latents-of-2
"$ithaca" generate $small --prompt "$prompt" --output clip.mp4 --seed 1 --steps 60 --keep-latents >/dev/null 2>first &
for _ in $(seq 600); do
    grep -q "denoise: step 1" first && break
    sleep 0.02
done
kill -STOP $!
generate 0 "" clip.mp4 --seed 2 --keep-latents --quiet
kill -CONT $!
wait $! || fail "the first of two runs: $(cat first)"
same clip.mp4.latents.safetensors latents-of-1
same clip.mp4.latents-2.safetensors latents-of-2
rm clip.mp4 clip.mp4.latents* latents-of-* first
left whole.latents.safetensors

# Threads have enough stack even if the shell gives the main thread little.
expect 0 "" bash -c 'ulimit -s 64; exec "$@"' - "$ithaca" generate $small --prompt x --output narrow/ --quiet --frames 1
rm -r narrow

# A disk that becomes full while the video or the latents are written.
expect 1 "'full.mp4' cannot be written: .*File too large" bash -c 'ulimit -f 1; exec "$@"' - "$ithaca" generate \
    --model "$model" --from-latents whole.latents.safetensors --output full.mp4 --quiet --crf 0
expect 1 "full.mp4.latents.safetensors" bash -c 'ulimit -f 4; exec "$@"' - "$ithaca" generate $small --prompt x \
    --output full.mp4 --quiet --frames 17
left whole.latents.safetensors

# on_small_disk KB STATUS WORDS LEFT OPTION...: the same on a file system of KB kB. LEFT: the files that must be left
# there.
on_small_disk() {
    local kb=$1 status=$2 words=$3 want=$4
    shift 4
    mkdir small
    expect "$status" "$words" unshare -rm bash -c 'mount -t tmpfs -o size=$1k tmpfs small && shift && cd small || exit 77
        status=0
        "$@" || status=$?
        ls -A >../there
        exit $status' - "$kb" "$ithaca" generate --quiet "$@"
    [ "$(echo $(cat there))" = "$want" ] || fail "left on a full disk: $(echo $(cat there)) instead of $want"
    rm -r small there
}
if unshare -rm true 2>/dev/null; then
    on_small_disk 64 0 "" "clip.mp4" $small --prompt x --output clip.mp4
    on_small_disk 4 1 "clip.mp4.latents.safetensors: No space left" "" $small --prompt x --output clip.mp4
    on_small_disk 12 1 "'clip.mp4' cannot be written: .*No space left" clip.mp4.latents.safetensors $small --prompt x \
        --output clip.mp4
    on_small_disk 4 1 "'clip.gif' cannot be written: .*No space left" "" --model "$model" --output clip.gif \
        --from-latents ../whole.latents.safetensors
    on_small_disk 4 1 "'clip/' cannot be written: .*No space left" "" --model "$model" --output clip/ \
        --from-latents ../whole.latents.safetensors
    on_small_disk 64 1 "d.safetensors: No space left" clip.mp4.latents.safetensors $small --prompt x --output clip.mp4 \
        --dump d.safetensors
    on_small_disk 24 1 "t.json: No space left" clip.mp4 $small --prompt x --output clip.mp4 --trace t.json
else
    echo "skipped: a small file system needs user namespaces (unshare -rm), which are off here"
fi
left whole.latents.safetensors
rm whole.latents.safetensors

generate 1 "frames.*17.*21|frames.*9.*13|nearest" clip.mp4 --frames 18
generate 1 "height.*96.*112|nearest" clip.mp4 --height 100
generate 0 "" $'clip\xe9.gif' --json # a name that is no UTF-8
jq -e '.output == "clip?.gif"' out >/dev/null || fail "JSON has another name: $(cat out)"
[ -s $'clip\xe9.gif' ] && rm $'clip\xe9.gif' || fail "no video"
generate 0 "" $'clip\xe9.gif' --json --dry-run
jq -e '.output == "clip?.gif"' out >/dev/null || fail "JSON of a dry run has another name: $(cat out)"
generate 1 "the prompt is not UTF-8" clip.mp4 --prompt $'\xff\xfe'
generate 1 "the negative prompt is not UTF-8" clip.mp4 --guidance 3 --negative $'\xff'
generate 1 "none" clip.mp4 --noise none
generate 1 "GB at its peak.*GB.*force" large/ --height 8192 --width 8192 --frames 4093
generate 1 "ulysses|mesh|ranks" clip.mp4 --ranks 4 --ulysses 3
left

# interrupt SIGNAL LINE COMMAND...: sends the signal when the line has been printed. On a busy machine this script may see
# the line when clip.mp4 is complete; then it tries again.
interrupt() {
    local signal=$1 line=$2 status process try
    shift 2
    for try in 1 2 3 4 5; do
        status=0
        set -m # so that the process does not inherit an ignored SIGINT
        "$@" >out 2>err &
        process=$!
        set +m
        for _ in $(seq 6000); do
            grep -q "$line" err && break
            sleep 0.05
        done
        kill -s "$signal" "$process"
        wait "$process" || status=$?
        [ "$status" = 0 ] && [ -s clip.mp4 ] && [ "$try" -lt 5 ] || break
        rm clip.mp4
    done
    [ "$status" = 1 ] || fail "interrupted with $signal after '$line': exit status $status: $(tail -n 3 err)"
}
interrupt INT "denoise: step 2 " "$ithaca" generate $small --prompt x --steps 5000 --output clip.mp4
grep -q "Nothing was written" err || fail "interrupted: $(tail -n 3 err)"
left
interrupt TERM "decode: frame" "$ithaca" generate $small --prompt x --frames 201 --steps 1 --output clip.mp4 \
    --trace trace.json
grep -q -- "--from-latents 'clip.mp4.latents.safetensors'" err || fail "not told how to go on: $(tail -n 3 err)"
left clip.mp4.latents.safetensors trace.json
jq -e 'any(.traceEvents[]; .name == "decode")' trace.json >/dev/null || fail "no trace of a run that was stopped"

# Progress on a terminal is a bar.
if command -v script >/dev/null; then
    script -qec "$ithaca generate $small --prompt x --output bar.mp4" /dev/null </dev/null >out 2>&1
    grep -qE '\[=+> *\] step 1/3, .* left' out || fail "no bar on a terminal"
    grep -q "step 1 of 3" out && fail "lines on a terminal"
else
    echo "skipped: no script(1) here to make a terminal"
fi
finish
