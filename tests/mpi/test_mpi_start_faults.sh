#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process dies or stops before it is connected. Every other process ends within the time limit, with a sentence that
# names the process and its host. tests/mpi/start_fault.c makes the fault at a point: a call of the transport module.
# ITHACA_MPI_STARTS=all: every point; otherwise a few of them.
set -eu
. mpi/launch.sh
build_start_fault
limit=30
cat >"$work/struck" <<'END'
#!/bin/bash
# struck VICTIM HOW POINT COUNT PROGRAM...: runs the program, with the fault in process VICTIM. Point "begin": before
# the program
victim=$1 how=$2 point=$3 count=$4
shift 4
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = "$victim" ] || exec "$@"
if [ "$point" = begin ]; then
    : >"$START_MARK"
    [ "$how" = kill ] || { (trap "" HUP; sleep "$START_SECONDS"; kill -9 $$) >/dev/null 2>&1 & }
    kill -s "$([ "$how" = kill ] && echo KILL || echo STOP)" $$
fi
LD_PRELOAD=$STRUCK START_FAULT=$how START_POINT=$point START_COUNT=$count exec "$@"
END
chmod +x "$work/struck"
export STRUCK=$work/start_fault.so START_MARK=$work/mark

# strike VICTIM HOW POINT COUNT: makes the fault in one of three processes. On a busy machine they may reach a limit
# before this point; then it is tried again with a longer limit. Open MPI's mpirun may wait for ever in its PMIx server
# for a process that died while it reported there. Then the output of processes that have ended is lost, so the fault is
# tried again.
strike() {
    local status
    for limit_of_group in 2 4 8; do
        status=0
        rm -f "$START_MARK"
        START_SECONDS=$((limit_of_group + 4)) launch_unsupervised 3 "$work/struck" "$@" \
            "$build/mpi_fault" "$kind" 1 0 none 1 $limit_of_group $limit_of_group exchange >"$work/out" 2>&1 || status=$?
        if [ $status = 137 ] && [ "$(wc -l <"$work/ended")" = "$(wc -l <"$work/begun")" ]; then
            hung=$((hung + 1))
            rm -rf "$work"/tmp/*
            continue
        fi
        [ ! -e "$START_MARK" ] && [ "$(grep -c "^rank .* ITH_OK" "$work/out")" != 3 ] || break
    done
}

# start_fault VICTIM HOW POINT COUNT
start_fault() {
    local victim=$1 how=$2
    local case="$how at process $victim, $3 $4"
    strike "$@"
    if [ "$(grep -c "^rank .* ITH_OK" "$work/out")" = 3 ]; then
        unreached=$((unreached + 1))
        return
    fi
    # both others are connected if the fault came after the victim's last message
    grep -E "^(rank [0-9]|not connected) .*after" "$work/out" >"$work/lines" || true
    [ "$(wc -l <"$work/lines")" = 2 ] || complain "$case: $(wc -l <"$work/lines") processes have ended"
    [ "$(grep -c '^ended with 1$' "$work/ended")" = 2 ] || complain "$case: exit statuses"
    ! grep -vE "process(es)? $victim[^0-9,]|[Rr]ank $victim \(|for rank $victim[^0-9]" "$work/lines" || complain "$case: the wrong process"
    grep "$(hostname)" "$work/lines" | wc -l | grep -qx 2 || grep -q "^rank" "$work/lines" || complain "$case: no host"
    # measured from the fault, because MPI starts slowly on a busy machine. Loading MPI takes up to a second, and so does
    # telling processes that come late
    awk -v limit="$limit_of_group" -v struck="$(date -r "$START_MARK" +%s.%N)" '$NF - struck > limit + 2 { exit 1 }' "$work/lines" ||
        complain "$case: too late"
    check_nothing_left || complain "$case"
    faults=$((faults + 1))
}

# connect, listen and accept4 count sockets of both kinds: sockets inside the host, and control connections
points="begin 1;listen 1;MPI_Init_thread 1;MPI_Init_thread -1;MPI_Comm_dup 1;MPI_Comm_dup -1;listen 2;MPI_Irecv 1;MPI_Isend 2"
points="$points;MPI_Isend -2;MPI_Isend 3;MPI_Isend -4;connect 2;connect -3;connect 4;accept4 1;accept4 -1;accept4 -2"
points="$points;sendmsg 1;sendmsg -1;sendmsg 2;sendmsg -2;epoll_ctl 2"
faults=0 unreached=0 hung=0
IFS=';'
for point in $points; do
    IFS=' '
    if [ "${ITHACA_MPI_STARTS:-}" = all ]; then
        for how in kill stop; do
            for victim in 0 1 2; do start_fault $victim $how $point; done
        done
        continue
    fi
    case $point in
    "begin 1") start_fault 1 kill $point ;;
    "MPI_Isend 2") start_fault 0 kill $point ;;
    "MPI_Init_thread 1" | "MPI_Isend -4") start_fault 2 stop $point ;;
    "MPI_Comm_dup -1" | "sendmsg 1") start_fault 0 kill $point ;;
    esac
done
# If a process can open no port, all processes name it.
strike 1 fail epoll_ctl 1
[ "$(grep -c "^not connected.*process 1 on $(hostname): a port .*: Too many open files" "$work/out")" = 3 ] || complain "a process without a port"
check_nothing_left || complain "a process without a port"
# A process stops after the end of the group, when the others wait for it. They end with their own status all the same.
# The victim is killed 4 s after that limit.
if [ "${ITHACA_MPI_STARTS:-}" != all ]; then
    for point in "MPI_Ibarrier 1" "MPI_Finalize 1"; do
        strike 1 stop $point
        [ "$(grep -c "^rank .* ITH_OK" "$work/out")" = 3 ] || complain "a stop at the end, $point: results"
        [ "$(grep '^ended with' "$work/out" | head -2 | sort -u)" = "ended with 0" ] || complain "a stop at the end, $point: the others do not end first"
        check_nothing_left || complain "a stop at the end, $point"
        faults=$((faults + 1))
    done
fi
[ "$unreached" = 0 ] || [ "${ITHACA_MPI_STARTS:-}" = all ] || complain "$unreached faults did not come"
echo "$faults faults, $unreached points that a process did not reach; the launcher hung $hung times"
