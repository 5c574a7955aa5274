#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGINT, SIGTERM and SIGHUP come at random moments of a run with large frames and weights that load slowly. The run
# ends within a second with exit status 1 (0 if it had just finished). No incomplete file has the name of an output,
# saved latents are kept, and no temporary file is left. ITHACA_SIGNALS: the number of moments (3; with 9 each signal is
# tried with each kind of output and each command). ITHACA_SIDE: pixels of a frame's side (384).
. cli/lib.sh
cd "$work"
moments=${ITHACA_SIGNALS:-3}
signals=(INT TERM HUP)
RANDOM=${ITHACA_SEED:-$$}
echo "seed $RANDOM"

# now: prints the time in milliseconds.
now() { echo $(($(date +%s%N) / 1000000)); }

# end SIGNAL AFTER COMMAND...: starts the command, and sends the signal AFTER milliseconds later; with +AFTER, this long
# after the command heeds the signal. $status: the exit status. $took: the milliseconds from the signal to the end.
# $unheeded: whether the signal came before the command heeded it.
end() {
    local signal=$1 after=${2#+} process begin
    local from=${2%"$after"}
    shift 2
    set -m # so that the process does not inherit an ignored SIGINT
    "$@" >out 2>err </dev/null &
    process=$!
    set +m
    [ -z "$from" ] || await_heed $process $signal
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    unheeded=no
    heeds $process $signal || unheeded=yes
    begin=$(now)
    kill -s "$signal" "$process" 2>/dev/null
    status=0
    wait "$process" || status=$?
    took=$(($(now) - begin))
}

# end_soon SIGNAL AFTER COMMAND...: the same, repeated if it took too long, because other programs may have held it up.
end_soon() {
    local n
    for ((n = 0; n < 5; n++)); do
        rm -rf "${outputs[@]}" "${outputs[@]/%/.latents.safetensors}" clip.latents.safetensors
        end "$@"
        [ $took -gt $enough ] || break
    done
}

# A run without signals shows the files that it writes, its time, and how busy the machine is. $enough: a second if the
# run has the processors to itself, and longer on a busy machine, as other work slows the run down.
side=${ITHACA_SIDE:-384}
large=(--model "$model" --prompt x --height "$side" --width "$side" --frames 5 --steps 2 --quiet)
outputs=(clip.mp4 clip.gif clip/)
begin=$(now)
TIMEFORMAT='%R %U %S'
{ time expect 0 "" "$ithaca" generate "${large[@]}" --output clip.mp4 --keep-latents >&3; } 3>&1 2>times
whole_run=$(($(now) - begin))
enough=$(awk -v n="$(nproc)" '{ busy = $1 * n / ($2 + $3) / 1.5; print int(1000 * (busy > 1 ? busy : 1)) }' times)
mv clip.mp4.latents.safetensors latents
mv clip.mp4 first.mp4
# SIGUSR1, by which MPICH's launcher shows that another process has died, does not end a run.
end USR1 $((whole_run / 2)) "$ithaca" generate "${large[@]}" --output clip.mp4
[ $status = 0 ] || fail "SIGUSR1 after half of a run: exit status $status"
same clip.mp4 first.mp4
rm -f clip.mp4

slowest=0
for ((i = 0; i < moments; i++)); do
    signal=${signals[i % 3]}
    after=$((RANDOM * whole_run / 32768))
    output=${outputs[(i + i / 3) % 3]}
    end_soon $signal $after "$ithaca" generate "${large[@]}" --output $output
    output=${output%/}
    what="$output, SIG$signal after $after of $whole_run ms"
    [ $took -le $enough ] || fail "$what: it took $took ms to end"
    [ $took -gt $slowest ] && slowest=$took
    case $status in
    0) [ $output != clip.mp4 ] || same clip.mp4 first.mp4
       [ $output != clip ] || [ "$(ls clip | wc -l)" = 5 ] || fail "$what: frames are missing: $(ls clip)" ;;
    1) [ ! -e $output ] || fail "$what: a video in spite of exit status 1" ;;
    143 | 130 | 129) [ $unheeded = yes ] || fail "$what: exit status $status" ;;
    *) fail "$what: exit status $status: $(head -c 300 err)" ;;
    esac
    if [ -e $output.latents.safetensors ]; then
        cmp -s latents $output.latents.safetensors || fail "$what: other latents"
        grep -q -- "--from-latents '$output.latents.safetensors'" err || fail "$what: not told of the latents"
    elif [ $status = 1 ]; then
        grep -qE "Nothing was written|interrupted by SIG$signal" err || fail "$what: not told what was kept: $(head -c 300 err)"
    fi
    left=$(ls -A | grep -vxE "out|err|times|latents|first.mp4|$output|$output.latents.safetensors")
    [ -z "$left" ] || fail "$what: left behind: $left"
    rm -rf $output $output.latents.safetensors
done
echo "$moments signals, the slowest end after $slowest ms ($enough are enough)"

# Weights that take long to convert: the same model with feed-forward layers 128 times as wide, all zero.
cp -r "$model" slow
transformer=slow/transformer
for file in "$transformer"/*.safetensors; do tail -c +9 "$file" | head -c "$(od -An -t u8 -N 8 "$file" | tr -d ' ')"; done |
    jq -csj 'add | del(.__metadata__) | to_entries | reduce .[] as $t ({at: 0, tensors: {}};
        ($t.value.shape | map(if . == 768 then 98304 else . end)) as $shape |
        (($shape | reduce .[] as $n (1; . * $n)) * (if $t.value.dtype == "F32" then 4 else 2 end)) as $bytes |
        .tensors[$t.key] = {dtype: $t.value.dtype, shape: $shape, data_offsets: [.at, .at + $bytes]} | .at += $bytes) |
        .tensors' >header
rm "$transformer"/*.safetensors "$transformer"/*.index.json
bytes=$(stat -c %s header)
{ for ((i = 0; i < 8; i++)); do printf "\\x$(printf '%02x' $((bytes >> 8 * i & 255)))"; done; cat header; } \
    >"$transformer/diffusion_pytorch_model.safetensors"
truncate -s $((8 + bytes + $(jq 'map(.data_offsets[1]) | max' header))) "$transformer/diffusion_pytorch_model.safetensors"
sed -i 's/"ffn_dim": 768/"ffn_dim": 98304/' "$transformer/config.json"
loading=("$ithaca" generate --model slow --keep-packed --prompt x --height 64 --width 64 --frames 1 --steps 2 --output clip.mp4)
begin=$(now)
expect 0 "" "${loading[@]}"
whole_run=$(($(now) - begin))
slowest=0
for ((i = 0; i < moments; i++)); do
    signal=${signals[i % 3]}
    after=$((RANDOM * whole_run / 32768))
    end_soon $signal $after "${loading[@]}"
    what="loading, SIG$signal after $after of $whole_run ms"
    [ $took -le $enough ] || fail "$what: it took $took ms to end"
    [ $took -gt $slowest ] && slowest=$took
    [ $status = 1 ] || [ $status = 0 -a -e clip.mp4 ] || [ $unheeded = yes ] || fail "$what: exit status $status"
    [ $status = 0 ] || [ ! -e clip.mp4 ] || fail "$what: a video in spite of exit status $status"
    left=$(ls -A | grep -vxE 'out|err|times|latents|first.mp4|clip.mp4|clip.mp4.latents.safetensors|slow|header')
    [ -z "$left" ] || fail "$what: left behind: $left"
    rm -f clip.mp4.latents.safetensors
done
rm -r slow
echo "$moments signals while it converts weights, the slowest end after $slowest ms ($enough are enough)"

# Commands that compute attention alone. On a busy machine they begin late, so the signal waits until they heed it.
head=$(printf '{"q":{"dtype":"F32","shape":[1,30000,8,128],"data_offsets":[0,122880000]},"k":{"dtype":"F32","shape":[1,30000,8,128],"data_offsets":[122880000,245760000]},"v":{"dtype":"F32","shape":[1,30000,8,128],"data_offsets":[245760000,368640000]}}')
{ printf "$(printf '\\x%02x\\x%02x' $((${#head} % 256)) $((${#head} / 256)))\\0\\0\\0\\0\\0\\0"; printf '%s' "$head"; } >input
truncate -s $((8 + ${#head} + 368640000)) input
# stop_early SIGNAL ARGUMENT...
stop_early() {
    local signal=$1
    shift
    end_soon $signal +500 "$ithaca" "$@"
    [ $status = 1 ] && [ $took -le $enough ] && grep -q "interrupted by SIG$signal" err ||
        fail "$1, SIG$signal: exit status $status after $took ms: $(cat err)"
    [ ! -e o ] || fail "$1 wrote in spite of SIG$signal"
}
for ((i = 0; i < 3 && i < moments; i += moments < 9 ? 3 : 1)); do
    stop_early ${signals[i]} attend --input input --output o
    stop_early ${signals[(i + 1) % 3]} bench attention --seq 20000 --repeat 100
    stop_early ${signals[(i + 2) % 3]} verify --seq 2000
done
ls -A | grep -q tmp && fail "something temporary is left: $(ls -A)"

# Many ranks: the signal comes while their start is measured for the prediction, while they agree, or while they
# compute.
for after in 500 1500 3000; do
    end_soon TERM +$after "$ithaca" generate --model "$model" --prompt x --ranks 400 --steps 200 --output clip.mp4
    [ $status = 1 ] || fail "400 ranks, SIGTERM after $after ms: exit status $status, $(tail -1 err)"
    [ $took -le $enough ] || fail "400 ranks, SIGTERM after $after ms: it ended after $took ms"
done

# A second signal of the same kind ends the process at once, as the system does. With nohup the program ignores SIGHUP.
mkfifo lines
set -m
"$ithaca" generate "${large[@]}" --steps 1000 --output clip.mp4 >out 2>err &
process=$!
set +m
sleep 0.5
kill -s TERM $process
kill -s TERM $process
status=0
wait $process || status=$?
[ $status = 143 ] || [ $status = 1 ] || fail "two SIGTERM: exit status $status"
(trap '' HUP && exec "$ithaca" tokenize --model "$model" <lines >out 2>err) &
process=$!
exec 3>lines
sleep 0.3
kill -s HUP $process
echo "a line" >&3
exec 3>&-
status=0
wait $process || status=$?
[ $status = 0 ] && [ -s out ] || fail "an ignored SIGHUP: exit status $status"
finish
