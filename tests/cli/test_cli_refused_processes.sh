#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One allocation of one process of several fails (refuse.c), after the processes are connected: either all processes
# succeed, or all end in time, and the first one says that memory was lacking, or that the process is gone. No process
# blames another for an operation in which it takes no part. Calls from the same place count once. ITHACA_REFUSALS=all:
# every place, otherwise a sample of the larger commands.
. cli/lib.sh
. cli/processes.sh
if has_sanitizer; then
    echo "skipped: a sanitizer has the allocations of the program"
    exit 77
fi
cd "$work"
export OMP_WAIT_POLICY=passive

# judge PROCESSES: checks how the processes have ended.
judge() {
    local number good=0
    for ((number = 0; number < $1; number++)); do
        [ "$(cat status.$number)" != 0 ] || good=$((good + 1))
    done
    [ $good != "$1" ] || return
    grep -q 'plans, [1-9][0-9]* failed' out.0 && return # a verdict of verify: the plan could not be made
    [ $good = 0 ] || fail "$case: some processes succeed: $(head -c 300 err.*)"
    grep -q '^ithaca: .' err.0 || fail "$case: no sentence: $(head -c 300 err.*)"
    grep -q 'in another operation' err.* && fail "$case: the cause is not named: $(head -c 300 err.*)"
    grep -qE 'memory|is gone|the system lets this process start|could not be started' err.0 ||
        fail "$case: memory is not named: $(head -c 300 err.*)"
}

# refuse PROCESSES STEP ARGUMENT...: refuses the allocations of process 1, the last one first.
refuse() {
    local processes=$1 step=$2 number count=0
    shift 2
    rm -f list
    REFUSE_LIST=$work/list refuse_in="1 memory:0" over_sockets "$processes" "$@"
    ended 0 "$processes"
    [ "${ITHACA_REFUSALS:-}" != all ] || step=1
    for number in $(tac list | awk -v step="$step" 'NR % step == 0'); do
        case="$1 $2: allocation $number"
        refuse_in="1 memory:$number" over_sockets "$processes" "$@"
        grep -q "did not connect" err.0 && break
        judge "$processes"
        count=$((count + 1))
    done
    echo "$1: $count of $(wc -l <list) places"
    [ $count -gt 5 ] || fail "$1: few places"
}
refuse 3 1 attend --input "$golden/attention/self_d128.safetensors" --output o --strategy ulysses_ring --quiet --timeout 6
refuse 2 6 bench attention --seq 64 --heads 2 --head-dim 16 --repeat 1 --strategy ulysses,ring --threads 1 --timeout 6
refuse 2 2 verify --seq 17 --kernel f32_ref --timeout 6
finish
