#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program in processes that mpirun starts. Attention and denoising have the bits of ranks of one process; one
# process prints each message; a failing run ends with a sentence. ITHACA_MPI_SHAPES=all: every number of processes and
# ranks, in every precision.
set -eu
. mpi/launch.sh
ithaca=$build/ithaca golden=$(realpath golden) model=$(realpath ../models/shapes)
[ -x "$ithaca" ] || skip "the program is not built (ITHACA_ENGINE)"
unset OMP_NUM_THREADS
cd "$work"
# raw FILE: the data without the header, whose metadata says which plan it was.
raw() { tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"; }
# expect STATUS WORDS PROCESSES ARGUMENT...: the exit status, and an extended regular expression on standard error.
expect() {
    local want=$1 words=$2 processes=$3 status=0
    shift 3
    launch "$processes" "$ithaca" "$@" >out 2>err </dev/null || status=$?
    [ "$status" = "$want" ] || complain "exit status $status instead of $want: $*"
    [ -z "$words" ] || grep -qE -- "$words" err || complain "no '$words' on standard error: $*"
}

# processes, ranks of each, precisions
shapes="2 2 bf16;3 1 f32;4 1 bf16"
[ "${ITHACA_MPI_SHAPES:-}" != all ] || shapes=$(printf '%s f32 bf16;' "2 1" "2 2" "3 1" "3 2" "4 1" "4 2" "8 1")
small=(--model "$model" --prompt "A red circle" --height 64 --width 64 --frames 5 --steps 3 --threads 1 --quiet)
IFS=';'
for shape in $shapes; do
    IFS=' '
    set -- $shape
    ranks=$(($1 * $2))
    for options in "--strategy ulysses" "--strategy ring --softmax fixed_m"; do
        "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output one --ranks $ranks $options --quiet
        expect 0 "attention in" "$1" attend --input "$golden/attention/keymask_d64.safetensors" --output several --ranks "$2" $options
        cmp -s <(raw one) <(raw several) || complain "attend $options, processes and ranks $1 $2: other bits"
    done
    for precision in "${@:3}"; do
        "$ithaca" generate "${small[@]}" --output one.gif --dump one.dump --precision $precision --ranks $ranks
        expect 0 "" "$1" generate "${small[@]}" --output several.gif --dump several.dump --precision $precision --ranks "$2"
        [ ! -s out ] && [ ! -s err ] || complain "--quiet prints"
        cmp -s one.dump several.dump || complain "generate $precision, processes and ranks $1 $2: other bits"
        cmp -s one.gif several.gif || complain "generate $precision, processes and ranks $1 $2: another video"
    done
done
unset IFS

for strategy in ulysses ring; do
    "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output one --ranks 3 --exchange copy --strategy $strategy --compress 8bit --quiet
    expect 0 "^compression changed the messages of rank 0 by [2-9]\.[0-9]e-03" 3 \
        attend --input "$golden/attention/keymask_d64.safetensors" --output several --strategy $strategy --compress 8bit
    cmp -s <(raw one) <(raw several) || complain "$strategy, compressed messages: other bits"
done

# Rank 0 encodes the image for all processes, and writes the previews.
for kind_of_model in i2v ti2v; do
    from_image=(--model "$golden/$kind_of_model/model" --image "$golden/pictures/rgb.png" --prompt "A red circle" --height 64 --width 96
        --frames 5 --steps 2 --threads 1 --precision f32 --quiet)
    expect 0 "" 3 generate "${from_image[@]}" --output several.gif --dump several.dump --preview several.png
    "$ithaca" generate "${from_image[@]}" --output one.gif --dump one.dump --ranks 3 --preview one.png
    cmp -s one.dump several.dump || complain "generate --image, $kind_of_model: other bits"
    cmp -s one.png several.png || complain "generate --preview, $kind_of_model: other pixels"
done

# One process would take 0.8 of the free memory, each of four about half as much, so four do not fit on one host. A run
# that is not refused ends after 60 s of processor time.
large=(generate --model "$model" --prompt x --height 1024 --width 1024 --steps 1 --threads 1 --precision f32 --output large.gif)
frames=401
for _ in 1 2; do
    "$ithaca" "${large[@]}" --frames $frames --dry-run --json >out
    frames=$(jq ".memory | 0.8 * .free_bytes / .predicted_bytes * $frames / 4 | floor * 4 + 1" out)
done
(ulimit -t 60; expect 1 "the 4 processes of this host hold .* at their peak, this one .*: .* would do with" 4 "${large[@]}" --frames "$frames")

expect 0 "" 2 verify --seq 33 --kernel f32_ref --ranks 2
grep -q "^[0-9]* plans, 0 failed" out && grep -q "4 x 1" out && grep -q " mixed " out || complain "verify"
expect 0 "" 2 bench attention --seq 256 --repeat 2 --strategy single,ulysses --machine avx2-desktop --json
jq -e 'length == 2 and .[1].ranks == 2 and (.[1].rel_l2 < 0.01)' out >/dev/null || complain "bench"
expect 0 "^1 .* [0-9-]+" 2 attend --input "$golden/attention/one_row.safetensors" --output several --map
[ "$(wc -l <err)" = 4 ] || complain "--map"

# The rates of links between processes are written into the machine's description, which does not change otherwise.
expect 1 "has no description yet" 2 tune --machine lacking.yaml
printf 'name: "m"\nhost_units: 7\nattention:\n  - kernel: "k"\n    dtype: bf16\n    softmax: online\n    head_dim: 128\n    gflops: 9\n' >m.yaml
expect 0 "" 2 tune --machine m.yaml --budget 3 --json
jq -e '[.levels[].name] == ["host"] and .levels[0].latency_seconds > 0' out >/dev/null || complain "the report of links"
grep -q '^host_units: 7$' m.yaml && grep -q 'kernel: "k"' m.yaml && grep -q 'name: "host"' m.yaml || complain "the description: $(cat m.yaml)"
expect 0 "" 2 tune --machine m.yaml --budget 3 --ranks 2
grep -q "^process " out && grep -q "^host " out || complain "the table of links"
echo "nonsense: 3" >bad.yaml
expect 1 "bad.yaml:1: nonsense: there is no such option" 2 tune --machine m.yaml --config bad.yaml
expect 2 "f32, bf16 and f16 can be tuned for" 2 tune --machine m.yaml --dtype auto
"$ithaca" plan --machine ./m.yaml --seq 4096 --ranks 2 --json | jq -e '.[0].seconds_attention > 0' >/dev/null || complain "a plan with these links"
"$ithaca" generate "${small[@]}" --output dry.gif --dry-run --json >one
expect 0 "" 2 generate "${small[@]}" --output dry.gif --dry-run --json
jq -e '.predicted.denoise > 0' out >/dev/null && [ ! -e dry.gif ] || complain "a dry run"

# An error of all processes, or of one, gives one line (launchers add their own lines).
spoken=("${small[@]:0:${#small[@]}-1}") # without --quiet
expect 0 "^no time is predicted: the links between these processes are not known" 2 generate "${spoken[@]}" --output several.gif
expect 2 "unrecognized option" 2 generate --no-such-option
expect 1 "^ithaca: cannot open nowhere" 2 generate --prompt x --model nowhere
[ "$(grep -c "^ithaca: " err)" = 1 ] || complain "more than one line"

# The launcher binds all processes to one core, while other cores are idle.
if [ "$(nproc)" -gt 1 ] && command -v taskset >/dev/null; then
    core=$(taskset -cp $$ | sed -E 's/.*: *([0-9]+).*/\1/')
    for bound in 0 1; do
        launch 2 $([ $bound = 0 ] || echo taskset -c "$core") "$ithaca" bench attention --seq 64 --heads 2 --repeat 1 --machine avx2-desktop >out 2>err </dev/null ||
            complain "a benchmark of attention failed"
        [ "$(grep -cE '^ithaca: the launcher has bound rank 0 on .* to one core.*--bind-to none' err)" = $bound ] ||
            complain "bound to one core: $bound, and the warning says otherwise"
    done
fi
cat >one_alone <<'END'
#!/bin/sh
own=$1
shift
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 1 ] && set -- "$@" $own
exec "$@"
END
chmod +x one_alone
# alone STATUS WORDS OPTION...: process 1 alone has these options.
alone() {
    local want=$1 words=$2 status=0
    launch 2 ./one_alone "${*:3}" "$ithaca" generate "${small[@]}" --output several.gif >out 2>err || status=$?
    [ $status = "$want" ] && grep -qE "$words" err || complain "one process with ${*:3}: exit status $status"
    [ "$(grep -cE "^ithaca( generate)?: " err)" = 1 ] || complain "more than one line"
}
alone 1 "^ithaca: rank 1 on [^ ]+: cannot open nowhere" --model nowhere
alone 2 "^ithaca generate: rank 1 on [^ ]+: unrecognized option" --no-such-option
ITHACA_PLUGIN_PATH= expect 1 "number [01] of 2, and no transport can connect them.*$kind: not found" 2 generate "${small[@]}"

# A process is killed, or the launcher gets a signal.
# during HOW STATUSES: does HOW to a long run after its first step, and expects these exit statuses of its processes. The
# preview shows that the step is done. A launcher may end the shell of a process before the shell notes the status.
during() {
    local run i
    rm -f several.gif* statuses begun.png
    launch_unsupervised 2 sh -c '"$@"; echo $? >>statuses' - \
        "$ithaca" generate "${small[@]}" --steps 10000 --output several.gif --preview begun.png --timeout 5 >out 2>err &
    run=$!
    for ((i = 0; i < 600; i++)); do [ ! -e begun.png ] || break; sleep 0.1; done
    [ -e begun.png ] || complain "$1: no preview"
    $1
    wait $run || true
    grep -qxE "$2" <<<"$(echo $(sort -n statuses))" || complain "$1: exit statuses $(echo $(sort -n statuses)) instead of $2"
    [ ! -e several.gif ] || complain "$1: a video"
}

# A process is killed while all decode. Fewer processes, or one, go on from the latents, with the same bits.
decoding=(--model "$model" --prompt "A red circle" --height 128 --width 128 --frames 33 --steps 2 --threads 1 --quiet)
"$ithaca" generate "${decoding[@]}" --output whole/
cat >numbered <<'END'
#!/bin/sh
echo $$ >"pid.${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}"
exec "$@"
END
chmod +x numbered
launch_unsupervised 3 ./numbered "$ithaca" generate "${decoding[@]}" --strategy ulysses --output cut.mp4 --timeout 5 >out 2>err &
run=$!
for ((i = 0; i < 30000; i++)); do [ ! -e cut.mp4.latents.safetensors ] || break; sleep 0.01; done
kill -9 "$(cat pid.1)"
wait $run || true
[ ! -e cut.mp4 ] && [ -e cut.mp4.latents.safetensors ] || complain "no latents are left of a run that was killed: $(ls)"
# A shell may print "Killed" in the middle of a line.
sed 's/Killed$//' err | tr -d '\n' | grep -q -- "--from-latents 'cut.mp4.latents.safetensors'" ||
    complain "the command that goes on is not printed"
for processes in 2 1; do
    expect 0 "" $processes generate --model "$model" --from-latents cut.mp4.latents.safetensors --output on/ --quiet --threads 1
    diff -rq on whole && rm -r on || complain "$processes processes go on from latents: another video"
done

kill_one() { kill -9 "$(pids ithaca | tail -1)"; }
interrupt_all() { kill -TERM $(pids ithaca); }
during kill_one "(1 )?137"
grep -qE "^ithaca: rank [01] on [^ ]+: .*rank [01] .*died" err || complain "not said who died"
during interrupt_all "1( 1)?"
[ "$(grep -c "^ithaca: .*stopped" err)" = 1 ] && grep -q "Nothing was written" err || complain "not one message about a signal"
check_nothing_left
