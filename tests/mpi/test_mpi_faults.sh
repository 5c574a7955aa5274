#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process dies, exits without a message, stops or pauses, at a random time. Every other rank ends within the time limit, with
# a sentence that names the right rank, whether or not the launcher ends the others. Nothing is left behind. None enters
# a barrier of MPI, in which MPICH 5 would crash if a process has died: here this call kills the process.
# ITHACA_MPI_FAULTS: the number of random faults after the fixed faults (0).
set -eu
. mpi/launch.sh
random=${ITHACA_MPI_FAULTS:-0} seed=${ITHACA_SEED:-$(date +%N)}
RANDOM=$((10#$seed % 32768))
echo "ITHACA_SEED=$seed"
limit_of_start=20 faults=0
build_start_fault
cat >"$work/guarded" <<END
#!/bin/sh
LD_PRELOAD=$work/start_fault.so START_FAULT=kill START_POINT=MPI_Ibarrier exec "$build/mpi_fault" "\$@"
END
chmod +x "$work/guarded"

# fault LAUNCH PROCESSES RANKS HOW WORK: RANKS ranks in each process, of which a random one suffers the fault. A busy
# machine may hold up other ranks too, so longer limits are tried as well.
fault() {
    local victim=$((RANDOM % $2 * $3)) seconds=0.$((RANDOM % 300 + 100))
    for limit_of_group in 1 4 16; do
        if (suffer "$@"); then
            faults=$((faults + 1))
            return
        fi
    done
    exit 1
}

# suffer ARGUMENT...: makes the fault; arguments and variables as for `fault`
suffer() {
    local how=$4 begin=$(date +%s%N) named lines
    local case="$1, $2 processes of $3 ranks, $5, $how at rank $victim after $seconds s"
    $1 "$2" "$work/guarded" "$kind" "$3" "$victim" "$how" "$seconds" "$limit_of_group" $limit_of_start "$5" >"$work/out" 2>&1 &&
        [ "$1" = launch ] && complain "$case: the launcher says that all is well"
    local took=$((($(date +%s%N) - begin) / 1000000))
    [ "$took" -lt $((8000 + limit_of_start * 1000)) ] || complain "$case: took $took ms"
    # a launcher that ends a stopped process may wake it first
    awk -v first="$victim" -v ranks="$3" '/^rank [0-9]+ after/ && ($2 < first || $2 >= first + ranks)' "$work/out" >"$work/lines"
    lines=$(wc -l <"$work/lines")
    if [ "$1" != launch ]; then
        [ "$lines" = $((($2 - 1) * $3)) ] || complain "$case: $lines ranks have ended"
        local failed=$(($2 - 1))
        [ "$how" != pause ] || failed=$2 # this process goes on, and ends too
        [ "$(grep -c '^ended with 1$' "$work/out")" = $failed ] || complain "$case: exit statuses"
    fi
    named="rank $victim \\("
    [ "$3" = 1 ] || named="ranks $victim to $((victim + $3 - 1)) \\("
    [[ "$how" != [sp]* ]] || named="for rank ($(seq -s '|' "$victim" $((victim + $3 - 1))))[^0-9]"
    # a launcher may end some ranks, and others may see their deaths
    [ "$1" = launch ] || ! grep -vE "$named" "$work/lines" || complain "$case: the wrong rank"
    awk -v at="$seconds" -v limit="$limit_of_group" '$4 > at + limit + 1 { exit 1 }' "$work/lines" ||
        complain "$case: too late"
    # ranks begin at slightly different times
    awk -v at="$seconds" '$4 < at - 0.1 { exit 1 }' "$work/lines" || complain "$case: an end without a fault"
    awk -v how="$how" -v at="$seconds" -v right="$named" '{ print how, $4 - at, $0 ~ right }' "$work/lines" >>"$work/all"
    check_nothing_left || complain "$case"
}

# draw CHOICE...: sets `drawn` to a random choice
draw() {
    local choices=("$@")
    drawn=${choices[RANDOM % $#]}
}
random_fault() {
    local launch shape how
    draw launch launch_unsupervised launch_unsupervised launch_unsupervised
    launch=$drawn
    draw "3 1" "2 2" "4 1" "2 3"
    shape=$drawn
    draw kill exit stop pause
    how=$drawn
    draw exchange bf16 8bit
    [[ $shape == *" 1" ]] || draw exchange mixed mixed bf16 8bit
    fault $launch $shape $how $drawn
}

fault launch_unsupervised 3 1 kill exchange
fault launch_unsupervised 2 2 exit bf16
fault launch_unsupervised 3 1 stop 8bit
fault launch_unsupervised 2 2 kill mixed
fault launch_unsupervised 2 2 stop mixed
fault launch_unsupervised 3 1 pause exchange
fault launch 2 2 kill mixed
fault launch 2 2 stop exchange
for ((i = 0; i < random; i++)); do random_fault; done
awk -v faults="$faults" '{ n[$1]++; right[$1] += $3; if ($2 > most[$1]) most[$1] = $2 }
    END { print faults, "faults"
          for (how in n) printf "%s: %d ranks ended, %d named the rank, the last %.2f s after the fault\n", how, n[how], right[how], most[how] }' "$work/all"
