#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The transport nccl without a GPU: the suite of transports in processes that meet through files; files of earlier runs;
# processes that do not come, that die and that stop; refusals.
set -eu
build=$1
skip() { echo "skipped: $*"; exit 77; }
[ -e "$build/ithaca_transport_nccl.so" ] || skip "the transport nccl is not built"
! grep -q '^ITHACA_SANITIZE:STRING=.' "$build/CMakeCache.txt" || skip "processes run the plain build"
fake=$build/tests/modules/fake_cuda/libcuda.so.1
[ -e "$fake" ] || skip "the stand-in for NCCL is not built"
export ITHACA_PLUGIN_PATH=$build ITHACA_NCCL=$fake OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
unset RANK WORLD_SIZE ITHACA_PROCESS ITHACA_PROCESSES OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID \
    SLURM_STEP_NUM_TASKS ITHACA_TRANSPORT_WHERE
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/meeting"
complain() {
    echo "$*"
    tail -n 20 "$work"/out.*
    exit 1
}

# start N PROGRAM ...: starts N processes. Their output goes to out.NUMBER, their ids to `pids`
start() {
    local processes=$1 i
    shift
    pids=()
    rm -f "$work"/out.*
    for ((i = 0; i < processes; i++)); do
        ITHACA_TRANSPORT_WHERE=file:$work/meeting/here ITHACA_PROCESS=$i ITHACA_PROCESSES=$processes PMI_RANK=$i \
            "$@" >"$work/out.$i" 2>&1 &
        pids+=($!)
    done
}
# finish: waits for the processes; `failed`: the number that failed
finish() {
    local pid
    failed=0
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || failed=$((failed + 1)); done
}
check_nothing_left() { [ -z "$(ls "$work/meeting")" ] || complain "$1: files are left: $(ls "$work/meeting")"; }

for shape in "2 1" "3 1" "5 1" "2 2,3" "2 1"; do
    read -r processes ranks <<<"$shape"
    start "$processes" "$build/mpi_suite" nccl "$ranks"
    finish
    [ "$failed" = 0 ] || complain "the suite on $processes processes of $ranks ranks"
    cat "$work/out.0"
    check_nothing_left "the suite"
    # files that a killed run may have left: with other cookies, and with random bytes
    [ "$shape" != "3 1" ] || { head -c 100000 /dev/urandom >"$work/meeting/here.0"; cp "$work/meeting/here.0" "$work/meeting/here.1"; }
done

# A file of an earlier run of the same shape.
start 2 "$build/mpi_suite" nccl 1
for ((i = 0; i < 500; i++)); do cp "$work/meeting/here.1" "$work/stale" 2>/dev/null && [ -s "$work/stale" ] && break; done
finish
if [ -s "$work/stale" ]; then
    cp "$work/stale" "$work/meeting/here.1"
    start 2 "$build/mpi_suite" nccl 1
    finish
    [ "$failed" = 0 ] || complain "a stale file"
    check_nothing_left "a stale file"
fi

# fault HOW: one of three processes dies or stops while all exchange; the others must name it
fault() {
    local how=$1 i
    start 3 "$build/mpi_fault" nccl 1 1 "$how" 0.3 2 20 exchange
    finish
    for i in 0 2; do
        grep -qE "^rank $i after .*rank 1[ :(]" "$work/out.$i" || complain "$how: rank $i does not name rank 1"
    done
    rm -f "$work/meeting"/*
}
for how in kill exit stop; do fault $how; done

# One process does not come.
ITHACA_TRANSPORT_WHERE=file:$work/meeting/here ITHACA_PROCESS=0 ITHACA_PROCESSES=2 \
    "$build/mpi_fault" nccl 1 1 none 0 2 1 exchange >"$work/out.0" 2>&1 || true
grep -q "process 1 of 2 did not come to .*here.1 within 1 s: there is no file" "$work/out.0" || complain "a missing process"
check_nothing_left "a missing process"

# refused WORDS VARIABLE=VALUE ...: a single process must end with WORDS
refused() {
    local words=$1
    shift
    rm -f "$work"/out.*
    ! env "$@" "$build/mpi_suite" nccl 1 >"$work/out.0" 2>&1 || complain "$* is not refused"
    grep -qF "$words" "$work/out.0" || complain "$*: the sentence lacks: $words"
}
refused "file:PATH" ITHACA_PROCESS=0
refused "no launcher" ITHACA_TRANSPORT_WHERE=mpi
refused "set ITHACA_PROCESS" ITHACA_TRANSPORT_WHERE=file:$work/meeting/here
refused "ITHACA_PROCESSES is \"2\"" ITHACA_TRANSPORT_WHERE=file:$work/meeting/here ITHACA_PROCESS=2 ITHACA_PROCESSES=2
refused "cannot be written" ITHACA_TRANSPORT_WHERE=file:$work/none/here ITHACA_PROCESS=1 ITHACA_PROCESSES=2
refused "NCCL cannot be used" ITHACA_TRANSPORT_WHERE=file:$work/meeting/here ITHACA_NCCL=/none.so ITHACA_PROCESS=0 ITHACA_PROCESSES=1
check_nothing_left "refusals"
echo "passed"
