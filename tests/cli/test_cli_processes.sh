#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program as several processes, which Unix sockets connect: they give the bits of ranks in one process; one process
# prints each message; errors of a single process; processes that are killed or interrupted; shares of the cores.
. cli/lib.sh
. cli/processes.sh
cd "$work"
# Some processes below may have few open files, so the caller's are closed first. 255 is bash's own.
for file in /proc/$$/fd/*; do
    file=${file##*/}
    [ $file -le 2 ] || [ $file = 255 ] || eval "exec $file>&-"
done

# raw FILE: the data without the header, whose metadata says which plan it was.
raw() { tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"; }

# ---- Results

input=$golden/attention/mask_d64.safetensors
[ -e "$input" ] || input=$golden/attention/keymask_d64.safetensors
for strategy in ulysses ring; do
    expect 0 "" "$ithaca" attend --input "$input" --output one --ranks 3 --strategy $strategy --exchange copy --quiet
    over_sockets 3 attend --input "$input" --output several --strategy $strategy --quiet
    ended 0 3
    silent 0 2
    same <(raw one) <(raw several)
done
# Only the process of rank 0 needs the input.
for file in "$golden"/attention/*.safetensors; do
    expect 0 "" "$ithaca" attend --input "$file" --output one --ranks 2 --strategy ulysses --quiet
    processes_differ="1 --input $work/nowhere" over_sockets 2 attend --input "$file" --output several --strategy ulysses --quiet
    ended 0 2
    same <(raw one) <(raw several)
done

small=(generate --model "$model" --prompt "A red circle" --height 64 --width 64 --frames 5 --steps 3 --threads 1 --precision f32)
expect 0 "" "$ithaca" "${small[@]}" --ranks 3 --output one.gif --dump one.dump --quiet
over_sockets 3 "${small[@]}" --output several.gif --dump several.dump
ended 0 3
silent 1 2
same one.gif several.gif
same one.dump several.dump
grep -q "3 ranks, 3 threads" err.0 || fail "the report says: $(cat err.0)"
grep -q "denoise: step 3 of 3" err.0 || fail "no progress: $(cat err.0)"
grep -q "^several.gif: 5 frames" out.0 || fail "no summary: $(cat out.0)"
over_sockets 2 "${small[@]}" --output again.gif --keep-latents --quiet
ended 0 2
same one.gif again.gif
processes_differ="1 --from-latents nowhere" over_sockets 2 generate --model "$model" \
    --from-latents again.gif.latents.safetensors --output again.gif --precision f32 --quiet
ended 0 2
same one.gif again.gif
ls -A | grep -qE 'tmp|partial' && fail "something temporary is left: $(ls -A)"

over_sockets 2 verify --seq 17,40 --kernel f32_ref
ended 0 2
silent 1 1
[ "$(grep -c "^batch 2" out.0)" = 2 ] || fail "verify printed: $(cat out.0)"
grep -q "ulysses *2 x 1 .* same *ok" out.0 || fail "no plan of two ranks: $(cat out.0)"
tail -1 out.0 | grep -q "plans, 0 failed" || fail "verify ended with: $(tail -1 out.0)"
over_sockets 2 verify --kernel f32_ref --json
ended 0 2
jq -e '.failed == 0 and ([.problems[].plans[] | select(.ranks == 2)] | length > 4)' out.0 >/dev/null || fail "verify --json: $(cat out.0)"

over_sockets 2 bench attention --seq 256 --heads 4 --head-dim 32 --repeat 2 --strategy single,ulysses,ring --json --threads 1
ended 0 2
silent 1 1
# A ring sends the keys and values of half of the sequence. ulysses sends half of a rank's rows of q, k, v and o.
jq -e 'length == 3 and ([.[] | .rel_l2 < 0.01] | all) and .[0].ranks == 1 and .[1].ranks == 2 and .[1].threads == 2 and
    .[1].sent_bytes == 4 * 128 * 4 * 32 * 2 / 2 and .[2].sent_bytes == 2 * 128 * 4 * 32 * 2 and
    ([.[] | .memory_bytes - .predicted_memory_bytes < 1000] | all)' out.0 >/dev/null || fail "bench --json: $(cat out.0)"
# The prediction for one rank counts the threads of its own process.
cat >rate.yaml <<'END'
name: rate
host_units: 8
levels:
  - {name: threads, shares_memory: true}
  - {name: network, between_hosts: true}
attention:
  - {kernel: exact, dtype: bf16, softmax: online, head_dim: 32, block_q: 16, block_kv: 64, gflops: 2}
END
over_sockets 2 bench attention --seq 64 --heads 4 --head-dim 32 --repeat 1 --strategy single --machine ./rate.yaml --json --threads 1
ended 0 2
jq -e '4 * 4 * 64 * 64 * 32 / 2e9 / .[0].predicted_seconds - 1 | fabs < 1e-3' out.0 >/dev/null || fail "a rank alone: $(cat out.0 err.0)"

# ---- Where the processes run

over_sockets 2 attend --input "$input" --output several --map --quiet
ended 0 2
silent 1 1
[ "$(wc -l <err.0)" = 3 ] || fail "--map says: $(cat err.0)"
# cores PROCESS: the cores of a process in the map.
cores() { awk -v p="$1" '$1 == p && NR > 1 { print $6 }' err.0; }
if [ "$(nproc)" -gt 1 ] && [ -z "${OMP_PROC_BIND:-}${OMP_PLACES:-}" ]; then
    [ -n "$(cores 0)" ] && [ "$(cores 0)" != "$(cores 1)" ] || fail "two processes on the same cores: $(cat err.0)"
    awk -v n="$(nproc)" 'NR > 1 { t += $5 } END { exit t != n }' err.0 || fail "not as many threads as cores: $(cat err.0)"
fi
ITHACA_TOGETHER=1 over_sockets 3 attend --input "$input" --output several --map --quiet --threads 2
ended 0 3
awk 'NR > 1 && $5 != 2 { bad = 1 } END { exit bad }' err.0 || fail "--threads is not the number of a process: $(cat err.0)"
expect 0 "^0 .* 0-2 " "$ithaca" attend --input "$input" --output one --ranks 3 --map --quiet

# ---- Errors that are found before anything is computed

over_sockets 2 "${small[@]}" --no-such-option --nor-this-one --config nowhere.yaml
ended 2 2
silent 1 1
grep -q "no-such-option" err.0 || fail "a usage error is not printed: $(cat err.0)"
for wrong in "1 --no-such-option" "0 --no-such-option" "1 --sequ" "1 --seq=few" "1 --heads"; do # in one process alone
    processes_differ=$wrong over_sockets 2 verify --seq 17 --timeout 20
    ended 2 2
    silent 1 1
    grep -qE "^ithaca verify: rank ${wrong%% *} on [^ ]+: .*(${wrong#* }|${wrong#*=})" err.0 && [ "$(wc -l <err.0)" = 2 ] ||
        fail "process $wrong: $(cat err.0)"
done
grep -qE "^ithaca verify: rank 1 on [^ ]+: option '--heads' requires an argument\$" err.0 || fail "an option without its argument: $(cat err.0)"
processes_differ="1 --$(printf 'é%.0s' {1..40})" over_sockets 2 verify --seq 17 --timeout 20 # cut between letters
grep -qF "unrecognized option '--$(printf 'é%.0s' {1..31})'" err.0 || fail "a long word: $(cat err.0)"
for letter in "" x; do
    processes_differ="1 $letter$(printf 'é%.0s' {1..300})" over_sockets 2 verify --seq 17 --timeout 20
    grep -q "rank 1 on [^ ]*: '${letter}é" err.0 && ! grep -q '[?]' err.0 || fail "a long word without dashes: $(cat err.0)"
done
processes_differ="1 --p" over_sockets 2 "${small[@]}" --timeout 20
ended 2 2
grep -qE "^ithaca generate: rank 1 on [^ ]+: option '--p' is ambiguous\$" err.0 || fail "an ambiguous option: $(cat err.0)"
ITHACA_PROCESS=0 ITHACA_PROCESSES=2 ITHACA_TRANSPORT_WHERE="$work/nobody 0 2" expect 1 "^ithaca: process 0: unrecognized option" \
    "$ithaca" verify --no-such-option --transport socket --timeout 1 # and the other one does not come
grep -q "the transport socket did not connect" "$work/err" || fail "nobody came: $(cat "$work/err")"
processes_differ="1 --no-such-option" over_sockets 2 verify --print-config --timeout 20 # needs no other process
ended 0 1
[ "$(cat status.1)" = 2 ] && grep -q "^timeout: 20" out.0 || fail "--print-config beside wrong usage: $(cat status.1) $(cat err.?)"
has_sanitizer || ITHACA_PROCESS=0 ITHACA_PROCESSES=2 expect 2 "^ithaca info: invalid option -- 'Z'" \
    bash -c 'ulimit -n 4; exec "$@"' - "$ithaca" info -Z # no room for a file
over_sockets 2 verify --print-config
ended 0 2
silent 1 1
grep -q "^timeout: " out.0 || fail "--print-config: $(cat out.0)"
over_sockets 2 verify --help
ended 0 2
silent 1 1
[ ! -s err.0 ] && grep -q -- --seq out.0 || fail "--help: $(cat err.0)"
over_sockets 2 generate --prompt x
ended 2 2
silent 1 1
grep -q "^ithaca generate: --model is needed" err.0 && grep -q -- "--help" err.0 || fail "a usage error: $(cat err.0)"
over_sockets 2 attend --output x
ended 2 2
silent 1 1
over_sockets 2 attend --help
ended 0 2
silent 1 1
over_sockets 2 generate --model nowhere --prompt x
ended 1 2
silent 1 1
grep -q "^ithaca: cannot open nowhere" err.0 || fail "an error of all processes: $(cat err.0)"
[ "$(wc -l <err.0)" = 1 ] || fail "more than one line: $(cat err.0)"

# refused WORDS DIFFERENCE ARGUMENT...: process 1 of 2 gets the arguments DIFFERENCE too. One sentence names this
# process.
refused() {
    local words=$1 difference=$2
    shift 2
    processes_differ="1 $difference" over_sockets 2 "$@"
    ended 1 2
    silent 1 1
    [ "$(wc -l <err.0)" = 1 ] && grep -qE -- "$words" err.0 || fail "no '$words': $(cat err.0)"
    [ ! -e clip.mp4 ] && [ ! -e clip.mp4.latents.safetensors ] || fail "$words: something was written"
}
refused "rank 1 on [^ ]+: cannot open elsewhere.*; with --shard-weights rank 0 alone needs the model" "--model elsewhere" "${small[@]}" --quiet
refused "rank 1 on [^ ]+: .*elsewhere.*; every process needs the files that options name" "--vae elsewhere" "${small[@]}" --quiet
processes_differ="1 --model elsewhere" over_sockets 2 bench generate --model "$model" --steps 1 --frames 1 --height 32 --width 32 --repeat 1 --shard-weights
ended 0 2
grep -q "^whole " out.0 || fail "a benchmark of a model that is lent: $(cat err.0)"
refused "rank 1 on [^ ]+: .*nowhere.yaml" "--config nowhere.yaml" "${small[@]}" --quiet
refused "steps is 4 on rank 1 and 3 on rank 0: .*\(rank 1 runs on [^ ]+\)" "--steps 4" "${small[@]}" --quiet
refused "--shard-weights differs between rank 1 on [^ ]+ and rank 0" "--shard-weights" "${small[@]}" --quiet
refused "--dry-run differs between rank 1 on [^ ]+ and rank 0" "--dry-run" "${small[@]}" --quiet
refused "--prompts or --count differs between rank 1 on [^ ]+ and rank 0" "--count 2" "${small[@]}" --quiet
printf 'a\nb\n' >two
printf 'a\nb\nc\n' >three
refused "--prompts or --count differs" "--prompts three" generate --model "$model" --prompts two --quiet
refused "rank 1 on [^ ]+: nofile: cannot be read" "--prompts nofile" generate --model "$model" --prompts two --quiet
refused "--repeat differs between" "--repeat 2" bench generate --model "$model" --steps 1 --frames 1 --height 32 --width 32 --repeat 1
refused "rank 1 on [^ ]+: .*nowhere.yaml" "--config nowhere.yaml" verify --seq 17
refused "--seq differs between rank 1 on [^ ]+ and rank 0" "--seq 17,19" verify --seq 17,18
refused "--heads differs between rank 1 on [^ ]+ and rank 0" "--heads 3" bench attention --seq 100
refused "--strategy differs between rank 1 on [^ ]+ and rank 0" "--strategy ulysses,single" bench attention --seq 100 --strategy ulysses,ring
cp -r "$model" changed
printf x >>"$(ls changed/vae/*.safetensors | head -1)"
refused "rank 1.* on " "--model changed" "${small[@]}" --quiet

# Process 1 runs another command, or may open hardly more files than its standard streams. Then it still prints a
# sentence.
cat >other <<'END'
#!/bin/sh
[ "$ITHACA_PROCESS" = 1 ] || exec "$ITHACA" "$@"
case $HOW in
few) ulimit -n 5; exec "$ITHACA" "$@" --timeout 0.5 ;;
*) shift; exec "$ITHACA" $HOW --transport socket ;;
esac
END
chmod +x other
ITHACA=$ithaca HOW="bench attention --seq 17" ithaca=$work/other over_sockets 2 verify --seq 17
ended 1 2
grep -qE "^ithaca: rank 1 on [^ ]+ runs 'ithaca bench', and rank 0 runs 'ithaca verify'" err.0 || fail "another command: $(cat err.0)"
ITHACA=$ithaca HOW=few ithaca=$work/other over_sockets 2 verify --seq 17 --timeout 1
ended 1 2
grep -q "^ithaca: process 1: " err.1 || fail "a process that may open few files says: $(cat err.1)"

# ---- Launchers

expect 2 "none of auto, local, mpi" "$ithaca" attend --input "$input" --output one --transport pigeon
SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 expect 1 "srun --mpi=pmix" "$ithaca" attend --input "$input" --output one
SLURM_PROCID=0 SLURM_NTASKS=4 expect 0 "" "$ithaca" attend --input "$input" --output one # a batch script
SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 expect 0 "" "$ithaca" attend --input "$input" --output one --transport local
PMI_RANK=0 PMI_SIZE=1 expect 0 "" "$ithaca" attend --input "$input" --output one
rm -f one
for variables in "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3" "PMI_RANK=1 PMI_SIZE=3" "PMIX_RANK=1 SLURM_STEP_NUM_TASKS=3"; do
    expect 1 "number 1 of 3.*not found" env $variables ITHACA_PLUGIN_PATH= "$ithaca" attend --input "$input" --output one
done
ITHACA_MPI=nompi expect 1 "openmpi or mpich" "$ithaca" attend --input "$input" --output one --transport mpi
[ ! -e one ] || fail "a process alone has made a run of its own"

# ---- Failures of a run

# during WORDS SIGNAL PROCESS ARGUMENT...: runs the program as two processes. Sends a signal to one of them, or to all,
# after WORDS were printed.
during() {
    local words=$1 signal=$2 process=$3
    shift 3
    signal_after=$words signal_to="$signal $process" over_sockets 2 "$@"
}
# during_soon MILLISECONDS WORDS SIGNAL PROCESS ARGUMENT...: the same; all must end within the time. Other programs may
# hold them up, so the best of a few attempts counts.
during_soon() {
    local most=$1 n
    shift
    for ((n = 0; n < 5; n++)); do
        during "$@"
        [ "$(cat took)" -gt "$most" ] || return
    done
    fail "SIG$2 to $3: it took $(cat took) ms to end"
}
long=("${small[@]}" --steps 10000 --output clip.mp4 --timeout 2)
during_soon 3000 "denoise: step" KILL 1 "${long[@]}"
[ "$(cat status.1)" = 137 ] || fail "the killed process ended with $(cat status.1)"
[ "$(cat status.0)" = 1 ] || fail "the other process ended with $(cat status.0)"
grep -qE "^ithaca: rank 0 on [^ ]+: rank 1 " err.0 || fail "not said who died: $(cat err.0)"
during "denoise: step" STOP 1 "${long[@]}"
[ "$(cat status.0)" = 1 ] && grep -qE "^ithaca: rank 0 on [^ ]+: .*rank 1.* 2 s" err.0 || fail "a stopped process: $(cat err.0)"
for process in 0 1 all; do
    during_soon 2000 "denoise: step" TERM $process "${long[@]}"
    ended 1 2
    cat err.0 err.1 >both
    grep -q "Nothing was written" both || fail "not said what was kept ($process): $(cat both)"
    [ "$(grep -c "^ithaca: " both)" = 1 ] || fail "not one message about a signal to $process: $(cat both)"
    [ ! -e clip.mp4 ] || fail "a video in spite of SIGTERM"
done
for command in "bench attention --seq 6000 --repeat 100" "verify --seq 1500"; do
    during "^process" TERM all $command --map
    ended 1 2
    cat err.0 err.1 >both
    [ "$(grep -c "interrupted by SIGTERM" both)" = 1 ] && [ "$(grep -c "^ithaca: " both)" = 1 ] || fail "$command: $(cat both)"
done

# ---- Traces and flight records

# All processes write one trace. It names each rank with its host, and has the rank's rows.
over_sockets 3 attend --input "$input" --output several --strategy ring --quiet --trace trace.json --flight-record flight
ended 0 3
silent 0 2
jq -e '.traceEvents as $e | [range(3)] | all(. as $rank | [$e[] | select(.pid == $rank)] |
    any(.[]; .name == "process_name" and (.args.name | test("^rank \($rank) [(].+[)]$"))) and
    ([.[] | select(.name == "thread_name") | .args.name] | contains(["computing", "waiting"])))' trace.json >/dev/null ||
    fail "the trace lacks a rank or a row: $(head -c 600 trace.json)"
[ -z "$(ls flight* trace.json.* 2>/dev/null)" ] || fail "a run that succeeded left $(ls flight* trace.json.*)"
# After a failure each process that still lives writes a trace and a flight record of its own.
during "denoise: step" KILL 1 "${long[@]}" --trace trace.json --flight-record flight
[ -z "$(ls flight.* trace.json.* 2>/dev/null)" ] || fail "a process that was killed wrote $(ls flight.* trace.json.*)"
jq -e '.traceEvents | any(.name == "step")' trace.json >/dev/null || fail "no trace of a run that failed"
jq -se 'any(.[]; .rank == 0 and .ranks == 2 and (.doing | test("^denoising step")) and .parts >= .part and
    (.failure | test("rank 1"))) and any(.[]; .state == "done" and .peers == [1])' flight >/dev/null ||
    fail "the flight record: $(head -c 600 flight)"
rm -f flight trace.json
signal_after="denoise: step" signal_to="STOP 1" over_sockets 3 "${long[@]}" --trace trace.json --flight-record flight
[ "$(ls -d flight* trace.json* | tr '\n' ' ')" = "flight flight.2 trace.json trace.json.2 " ] ||
    fail "the processes wrote $(ls -d flight* trace.json*)"
for rank in 0 2; do
    file=flight.$rank
    jq -se "any(.[]; .rank == $rank and .ranks == 3 and .status == \"ITH_ERR_TIMEOUT\" and
        (.failure | test(\"rank [02].* waited .* s for rank \")))" "${file%.0}" >/dev/null ||
        fail "the flight record of rank $rank: $(head -c 600 "${file%.0}")"
done
rm -f flight* trace.json*
finish
