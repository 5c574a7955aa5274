#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run in several processes that a signal stops, or that loses a process, goes on from its saved run with the same
# bits, in as many processes or fewer. mpirun itself gets SIGINT or SIGTERM, as from a terminal or a batch system; or
# each process gets it; or one process is killed.
set -eu
. mpi/launch.sh
ithaca=$build/ithaca model=$(realpath ../models/shapes)
[ -x "$ithaca" ] || skip "the program is not built (ITHACA_ENGINE)"
cd "$work"
command=("$ithaca" generate --model "$model" --quiet --threads 1)
steps=160 # more than a fast machine computes before the signal comes
sizes=(--prompt "A red circle" --height 64 --width 64 --frames 9 --steps $steps --seed 3 --strategy ulysses)
saved_step() { grep -aoE '"step":"[0-9]+"' run.st 2>/dev/null | head -1 | tr -dc 0-9; }
"${command[@]}" "${sizes[@]}" --output whole/

signal_launcher() { kill -s "$1" $(pids 'orterun|prterun|prte|mpirun.*|mpiexec.*'); }
signal_processes() { kill -s "$1" $(pids ithaca); }
kill_last() { kill -9 "$(pids ithaca | tail -1)"; }

# stop HOW STEP PROCESSES: HOW happens to a run in three processes after this step was saved. The run goes on in this
# number of processes.
stop() {
    local run_pid status step i
    rm -rf run.st clip
    set -m # so that the launcher does not inherit an ignored SIGINT
    launch 3 "${command[@]}" "${sizes[@]}" --output clip/ --checkpoint run.st --timeout 10 >out 2>err </dev/null &
    run_pid=$!
    set +m
    for ((i = 0; i < 20000; i++)); do
        step=$(saved_step || true)
        [ "${step:-0}" -lt "$2" ] || break
        sleep 0.01
    done
    $1 || complain "$1: the run ended too early"
    status=0
    wait $run_pid || status=$?
    [ ! -e clip ] || complain "$1: the run came to its end (status $status)" # launchers may give 0 after a failure, too
    [ -e run.st ] && [ "$(saved_step)" -ge "$2" ] && [ "$(saved_step)" -lt $steps ] || complain "$1: no checkpoint: $(ls)"
    check_nothing_left || complain "$1"
    echo "$1 after step $2: saved at step $(saved_step) of $steps"
    launch "$3" "${command[@]}" --strategy ulysses --output clip/ --resume run.st >out 2>err </dev/null ||
        complain "$1: $3 processes do not go on"
    diff -rq whole clip || complain "$1: $3 processes make another video"
    [ ! -e run.st ] || complain "$1: the checkpoint is left"
}
stop "signal_launcher TERM" 2 1
stop "signal_launcher INT" 3 3
stop "signal_processes TERM" 4 2
stop kill_last 5 2
