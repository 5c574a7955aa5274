#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process dies, ends without a word, or stops, at a random time: every other rank ends within the time limit, with a
# sentence that names the right rank, whether or not the launcher ends the others. Nothing is left behind.
# ITHACA_MPI_FAULTS: how often each case is tried (1).
set -eu
. mpi/launch.sh
times=${ITHACA_MPI_FAULTS:-1} seed=${ITHACA_SEED:-$(date +%N)}
RANDOM=$((10#$seed % 32768))
echo "ITHACA_SEED=$seed"
limit_of_group=1
complain() {
    echo "$*"
    cat "$work/out"
    exit 1
}

# fault LAUNCH PROCESSES RANKS HOW: RANKS ranks in each process, of which a random one suffers the fault
fault() {
    local how=$4 victim=$((RANDOM % $2 * $3)) seconds=0.$((RANDOM % 300 + 100)) begin=$(date +%s%N) named lines
    local case="$1, $2 processes of $3 ranks, $how at rank $victim after $seconds s"
    $1 "$2" "$build/mpi_fault" "$kind" "$3" "$victim" "$how" "$seconds" "$limit_of_group" >"$work/out" 2>&1 &&
        [ "$1" = launch ] && complain "$case: the launcher says that all is well"
    local took=$((($(date +%s%N) - begin) / 1000000))
    [ "$took" -lt 8000 ] || complain "$case: took $took ms"
    # a launcher that ends a stopped process may wake it first
    awk -v first="$victim" -v ranks="$3" '/^rank [0-9]+ after/ && ($2 < first || $2 >= first + ranks)' "$work/out" >"$work/lines"
    lines=$(wc -l <"$work/lines")
    if [ "$1" != launch ]; then
        [ "$lines" = $((($2 - 1) * $3)) ] || complain "$case: $lines ranks have ended"
        [ "$(grep -c '^ended with 1$' "$work/out")" = $(($2 - 1)) ] || complain "$case: exit statuses"
    fi
    named="rank $victim \\("
    [ "$3" = 1 ] || named="ranks $victim to $((victim + $3 - 1)) \\("
    [ "$how" != stop ] || named="for rank ($victim|$((victim + $3 - 1)))[^0-9]"
    # a launcher may end some ranks, whose death others see
    [ "$1" = launch ] || ! grep -vE "$named" "$work/lines" || complain "$case: the wrong rank"
    awk -v at="$seconds" -v limit="$limit_of_group" '$4 > at + limit + 1 { exit 1 }' "$work/lines" ||
        complain "$case: too late"
    check_nothing_left || complain "$case"
}

for ((i = 0; i < times; i++)); do
    fault launch_unsupervised 3 1 kill
    fault launch_unsupervised 2 2 exit
    fault launch_unsupervised 3 1 stop
    fault launch 3 1 kill
    fault launch 2 2 stop
done
echo "$((5 * times)) faults"
