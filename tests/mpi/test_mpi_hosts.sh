#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts, which are network namespaces of this machine (tests/hosts/hosts.sh). Runs give the video of one
# process; the default is ulysses inside hosts and a ring across them; a run ends when a link is cut.
set -eu
. mpi/launch.sh
ithaca=$build/ithaca program=$build/ithaca model=$(realpath ../models/shapes) hosts=$(realpath hosts/hosts.sh)
[ -x "$ithaca" ] || skip "the program is not built (ITHACA_ENGINE)"
build_start_fault
cd "$work"
complain() {
    echo "$*"
    for file in out err err.*; do [ ! -e $file ] || { echo "-- $file" && tail -n 20 $file; }; done
    exit 1
}
# on_hosts OPTION... -- ARGUMENT...: runs the program on hosts; each process has a file for standard error.
cat >each <<'END'
#!/bin/bash
trap '' USR1 # MPICH's launcher reports a death by it, which would end a process before MPI_Init
name=$(hostname).${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec 2>"err.$name"
kill_at_work() { # kills it when it shares the weights with other processes of its host
    local pid
    until pid=$(pgrep -P $$ -x ithaca) && grep -q memfd:ithaca "/proc/$pid/maps"; do sleep 0.1; done
    sleep 1
    kill -9 "$pid"
}
[ "${kill_name:-}" != "$name" ] || kill_at_work &
[ "${stop_name:-}" != "$name" ] || export LD_PRELOAD=$PWD/start_fault.so START_FAULT=stop START_POINT=MPI_Ibarrier START_SECONDS=9
"$@"
status=$?
# Open MPI 5 ends a process with 14, after its sentence, if the daemon of its host has died
[ $status != 14 ] || ! grep -q "^ithaca: " "err.$name" || status=1
echo $status >"status.$name"
exit $status
END
chmod +x each
on_hosts() {
    local -a options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    rm -f err.* status.*
    status=0
    env "$mark" timeout -k 5 100 "$hosts" -m "$kind" "${options[@]}" ./each "$program" "$@" >out 2>err </dev/null || status=$?
    [ $status != 77 ] || skip "$(grep -h skipped err)"
}

small=(generate --model "$model" --prompt "A red circle" --height 64 --width 64 --frames 5 --threads 1)
"$ithaca" "${small[@]}" --steps 3 --output one.mp4 --dump one.dump --quiet
for options in "-n 2" "-n 3 --shard-weights" "-n 2 -p 2 --shard-weights" "-n 2 -p 2 --cfg parallel"; do
    set -- $options
    own=()
    while [ $# -gt 0 ] && [[ $1 != --* ]]; do own+=("$1") && shift; done
    on_hosts "${own[@]}" -r 1gbit -- "${small[@]}" --steps 3 --output several.mp4 --dump several.dump --strategy ulysses "$@" --quiet
    [ $status = 0 ] || complain "$options: exit status $status"
    cmp -s one.dump several.dump || complain "$options: other bits"
    cmp -s one.mp4 several.mp4 || complain "$options: another video"
done

# The model lies on the first host alone.
cat >local_model <<END
#!/bin/bash
[ "\$(hostname)" = host0 ] || set -- "\$@" --model nowhere
exec "$ithaca" "\$@"
END
chmod +x local_model
program=./local_model
for options in "-n 2" "-n 2 -p 2 --cfg parallel"; do
    set -- $options
    own=()
    while [ $# -gt 0 ] && [[ $1 != --* ]]; do own+=("$1") && shift; done
    on_hosts "${own[@]}" -r 1gbit -- "${small[@]}" --steps 3 --output several.mp4 --dump several.dump --strategy ulysses --shard-weights "$@" --quiet
    [ $status = 0 ] || complain "$options, the model on one disk: exit status $status"
    cmp -s one.dump several.dump && cmp -s one.mp4 several.mp4 || complain "$options, the model on one disk: another video"
done
on_hosts -n 2 -r 1gbit -w -- "${small[@]}" --steps 3 --output lost.mp4 --quiet
[ $status != 0 ] || complain "a run without the model succeeded"
cat err.* | grep -q "rank 1 on host1: cannot open nowhere.*; with --shard-weights" || complain "no hint at --shard-weights"
program=$ithaca

on_hosts -n 2 -p 2 -r 1gbit -- "${small[@]}" --steps 1 --output several.mp4 --map
[ $status = 0 ] || complain "two processes on each of two hosts: exit status $status"
grep -q "ulysses_ring over 4 ranks, ulysses 2 x ring 2" out || complain "not ulysses inside hosts and ring across them"
grep -hE "^ *[0-9]+ +host1 " err.* | wc -l | grep -qx 2 || complain "--map does not show two processes on host1"

# If one process ends, launchers may end the others before these print their sentences. Options forbid it.
export ITHACA_HOSTS_MPIRUN=$recovery

# Kills the process that loads the layers of a host, or a process that reads them from its memory.
shared() { # shared memory without a name of those processes of this test that still run
    local process
    for process in $(pids '.*'); do grep -lsE "memfd:ithaca" "/proc/$process/maps" || true; done | wc -l
}
for kill_name in host1.2 host0.1; do
    export kill_name
    on_hosts -n 2 -p 2 -r 1gbit -w -- "${small[@]}" --steps 10000 --output lost.mp4 --timeout 5 --shard-weights --quiet
    [ "$(cat status.* | sort | uniq -c | xargs)" = "3 1 1 137" ] || complain "$kill_name killed: exit statuses: $(cat status.*)"
    [ "$(cat err.* | grep -c "^ithaca: .*rank ${kill_name#*.} (host ${kill_name%.*}.* died")" -ge 3 ] ||
        complain "$kill_name killed: who died is not told"
    [ "$(shared)" = 0 ] || complain "$kill_name killed: shared memory is left"
done
unset kill_name

# A process stops after the end of its work, when the others wait for it before they finalise MPI. They end with their
# own status, although nothing on their host shows that it stopped. It is killed 9 s after it has stopped.
for stop_name in host1.1 host0.0; do
    export stop_name
    on_hosts -n 2 -r 1gbit -w -- "${small[@]}" --steps 2 --output stopped.mp4 --timeout 4 --quiet
    other=$([ $stop_name = host0.0 ] && echo host1.1 || echo host0.0)
    [ "$(cat status.$other)" = 0 ] && rm stopped.mp4 || complain "$stop_name stops at the end: the other process ends with $(cat status.$other)"
    earlier=$(($(date -r "status.$stop_name" +%s%N) - $(date -r "status.$other" +%s%N)))
    [ $earlier -gt 2000000000 ] || complain "$stop_name stops at the end: the other process waits until it is killed"
done
unset stop_name

# Host 1 is cut off. Every process ends within the limit, and names the rank of the other side.
# cut SECONDS ARGUMENT...: cuts the link after this time. A cut before the processes begin, or after their end, has no
# effect.
cuts=0 connected=0 named=0
cut() {
    local begin=$(date +%s) host other
    rm -f lost.mp4*
    on_hosts -n 3 -r 1gbit -c "$1:1" -- "${small[@]}" --output lost.mp4 --timeout $limit_of_cut --quiet "${@:2}"
    [ $(($(date +%s) - begin)) -lt 45 ] || complain "cut after $1 s: the run ended late"
    [ "$(ls err.* 2>/dev/null | wc -l)" = 3 ] && [ "$(cat status.* | sort -u)" != 0 ] || return 0
    cuts=$((cuts + 1))
    [ "$(cat status.* | sort -u)" = 1 ] || complain "cut after $1 s: exit statuses: $(cat status.*)"
    cat err.* | grep -q "^ithaca: \(rank\|process\)" || complain "cut after $1 s: no process says why it has ended"
    ! cat err.* | grep -q "^ithaca: rank" || connected=$((connected + 1))
    for host in 0 1 2; do
        other="1 \\(host host1"
        [ $host != 1 ] || other="[02] \\(host host[02]"
        other="^ithaca: rank $host on host$host: .*rank $other|^ithaca: process $host: .*[^0-9]$([ $host != 1 ] && echo 1 || echo "[02]")[^0-9]"
        grep "^ithaca: " err.host$host.* | grep -vqE "$other" && complain "cut after $1 s: host $host names another rank"
        named=$((named + $(grep -cE "$other" err.host$host.* || true)))
    done
    [ ! -e lost.mp4 ] && ! ls -A | grep -qE "partial|tmp\\." || complain "cut after $1 s: a file is left: $(ls -A)"
}
for limit_of_cut in 2 4 8; do # a busy machine takes longer to connect the processes
    [ $connected != 0 ] || cut $((limit_of_cut + 1)) --steps 10000
done
[ $connected = 1 ] || complain "nothing was cut"
limit_of_cut=2
# ITHACA_HOSTS_CUTS: the number of runs whose link is cut at a random moment (0)
RANDOM=${ITHACA_SEED:-$$}
for ((i = 0; i < ${ITHACA_HOSTS_CUTS:-0}; i++)); do
    cut $((RANDOM % 4)).$((RANDOM % 900 + 100)) --frames 33 --height 128 --width 128 --steps 40
done
echo "$cuts links were cut, $connected of them between connected processes; $named processes name the right one"
# a hosts.sh of another tree may be running
! ip netns list | grep -q "^ithaca-" || pgrep -f hosts/hosts.sh >/dev/null || complain "a namespace is left"
