#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command under mpirun on several made-up hosts: network namespaces of this machine with host names of their own,
# joined by a switch whose links have a rate and a delay. Each host has its own part of the cores; if there are more hosts than
# cores, some hosts have the same core. Removes them at the end. Needs root.
#
#     tests/hosts/hosts.sh [-n HOSTS] [-p PROCESSES] [-r RATE] [-d DELAY] [-m openmpi|mpich] [-t CONTROL] [-c SECONDS:HOST] [-w]
#         COMMAND...
#
#   -n 2         hosts: host0, host1, ...; mpirun itself runs on host0
#   -p 1         processes on each host
#   -r 1gbit     rate of each host's link, each way, as tc spells it
#   -d 0         delay of each packet in milliseconds; netem does it where the kernel has it, tests/hosts/delay_line.c
#                otherwise
#   -m openmpi   the MPI whose mpirun is used
#   -t reno      TCP's congestion control on the hosts, as sysctl spells it; this machine's own if left out. Most have the
#                whole rate at any time, but bbr stops for 0.2 s in each 10 s, and finds the rate of each connection by trial
#   -c 5:1       cuts the link of host 1 after 5 seconds. Output of that host is lost then, as mpirun carries it
#   -w           ends mpirun when all processes of the command have ended; otherwise it may wait for ever if one has died
#
# ITHACA_HOSTS_MPIRUN: more options for mpirun.
# Exit status: the command's; 77 where namespaces cannot be made, with the reason.
set -u
hosts=2 processes=1 rate=1gbit delay=0 mpi=openmpi control="" cut="" ends_mpirun=""
while getopts n:p:r:d:m:t:c:w option; do
    case $option in
    n) hosts=$OPTARG ;;
    p) processes=$OPTARG ;;
    r) rate=$OPTARG ;;
    d) delay=$OPTARG ;;
    m) mpi=$OPTARG ;;
    t) control=$OPTARG ;;
    c) cut=$OPTARG ends_mpirun=1 ;;
    w) ends_mpirun=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || {
    echo "hosts.sh: which command?" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
group=ithaca-$$
network=10.177.0

skip() {
    echo "skipped: $*" >&2
    exit 77
}

space_of() { # HOST
    echo "$group-host$1"
}

work=$(mktemp -d)
line=""
remove_all() {
    [ -z "$line" ] || kill "$line" 2>/dev/null
    for space in $(ip netns list | awk '{print $1}' | grep "^$group-"); do
        ip netns pids "$space" | xargs -r kill -9 2>/dev/null
        ip netns del "$space"
    done
    rm -rf "$work" /etc/netns/"$group"-*
}

# Gives a host's link its rate, and its delay where netem exists. The burst has room for one packet of 64 KiB: a larger
# burst would pass at the speed of memory after each pause, which happens on no network.
shape() { # SPACE DEVICE
    ip netns exec "$1" tc qdisc add dev "$2" root handle 1: tbf rate "$rate" burst 70k latency 200ms
    [ "$how" != netem ] || ip netns exec "$1" tc qdisc add dev "$2" parent 1: netem delay "${delay}ms" limit 100000
}

# Joins a host to the switch by a pair of virtual network cards.
join_switch() { # HOST
    local space port=port$1
    space=$(space_of "$1")
    ip -n "$group-switch" link add "$port" type veth peer name eth0 netns "$space"
    ip -n "$group-switch" link set "$port" master switch up
    shape "$group-switch" "$port"
    shape "$space" eth0
}

# Joins all hosts by a program that holds every packet for the time of the delay.
join_line() {
    local names=() i
    cc -O2 -o "$work/delay_line" "$here/delay_line.c"
    for ((i = 0; i < hosts; i++)); do names+=("$group-$i"); done
    # Names of network cards have at most 15 characters.
    names=("${names[@]/#ithaca-/i}")
    "$work/delay_line" "$delay" "${names[@]}" &
    line=$!
    for ((i = 0; i < hosts; i++)); do
        until ip link show "${names[i]}" >/dev/null 2>&1; do sleep 0.01; done
        ip link set "${names[i]}" netns "$(space_of $i)" name eth0
        shape "$(space_of $i)" eth0
    done
}

make_hosts() {
    local i j space
    for ((i = 0; i < hosts; i++)); do
        space=$(space_of $i)
        ip netns add "$space" || skip "network namespaces cannot be made"
        [ -z "$control" ] || ip netns exec "$space" sysctl -qw "net.ipv4.tcp_congestion_control=$control" || skip "no $control"
        mkdir -p "/etc/netns/$space"
        echo "127.0.0.1 localhost" >"/etc/netns/$space/hosts"
        for ((j = 0; j < hosts; j++)); do
            echo "$network.$((j + 1)) host$j" >>"/etc/netns/$space/hosts"
        done
    done
    if [ "$how" = line ]; then
        join_line
    else
        ip netns add "$group-switch"
        ip -n "$group-switch" link add switch type bridge || skip "the kernel has no bridge"
        ip -n "$group-switch" link set switch up
        for ((i = 0; i < hosts; i++)); do join_switch $i; done
    fi
    for ((i = 0; i < hosts; i++)); do
        space=$(space_of $i)
        ip -n "$space" link set lo up
        ip -n "$space" address add "$network.$((i + 1))/24" dev eth0
        ip -n "$space" link set eth0 up
    done
}

# The numbers of the cores that this script may use.
list_cores() {
    local range
    for range in $(awk '/^Cpus_allowed_list/ {gsub(",", " ", $2); print $2}' /proc/self/status); do
        seq "${range%-*}" "${range#*-}"
    done
}

# Writes the cores of each host into a file, as taskset takes them.
divide_cores() {
    local -a cores
    local i first end
    mapfile -t cores < <(list_cores)
    for ((i = 0; i < hosts; i++)); do
        first=$((i * ${#cores[@]} / hosts)) end=$(((i + 1) * ${#cores[@]} / hosts))
        [ $end -gt $first ] || end=$((first + 1))
        (IFS=, && echo "${cores[*]:first:end-first}") >"$work/cores.host$i"
    done
}

# mpirun calls this in the place of ssh: [OPTION...] HOST COMMAND...
write_agent() {
    cat >"$work/agent" <<AGENT
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec taskset -c "\$(cat "$work/cores.\$host")" ip netns exec "$group-\$host" unshare --uts bash -c 'hostname "\$0"; exec bash -c "\$*"' "\$host" "\$*"
AGENT
    chmod +x "$work/agent"
}

run_command() {
    local list="" i
    for ((i = 0; i < hosts; i++)); do list+=${list:+,}host$i:$processes; done
    local -a mpirun
    if [ "$mpi" = openmpi ]; then
        mpirun=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm_rsh_agent "$work/agent" --mca
            btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --bind-to none --host "$list")
    else
        # UCX tells hosts apart by the kernel's boot id, which is the same here. So only TCP makes UCX use the links.
        mpirun=(mpirun.mpich -launcher ssh -launcher-exec "$work/agent" -iface eth0 -genv UCX_TLS tcp,self
            -genv UCX_NET_DEVICES eth0 -hosts "$list")
    fi
    mpirun+=(${ITHACA_HOSTS_MPIRUN:-})
    command -v "${mpirun[0]}" >/dev/null || skip "${mpirun[0]} is not there"
    "$work/agent" host0 "$(printf '%q ' "${mpirun[@]}" -n $((hosts * processes)) "$@")" &
    local run=$!
    [ -z "$cut" ] || cut_link
    [ -z "$ends_mpirun" ] || end_mpirun "$run" "$(basename "$1")"
    wait $run
}

# Whether a process of that name runs on any host.
runs_somewhere() { # NAME
    local i pid
    for ((i = 0; i < hosts; i++)); do
        for pid in $(ip netns pids "$(space_of $i)"); do
            [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$1" ] || return 0
        done
    done
    return 1
}

# Cuts a link after the given time.
cut_link() {
    sleep "${cut%%:*}"
    ip -n "$(space_of "${cut##*:}")" link set eth0 down
}

# Ends mpirun when all processes of the command have ended, because it may wait for ever for a host that it has lost. If
# a link is cut before the processes have begun, they never begin.
end_mpirun() { # PID-OF-MPIRUN NAME-OF-COMMAND
    while [ -z "$cut" ] && kill -0 "$1" 2>/dev/null && ! runs_somewhere "$2"; do sleep 0.1; done
    while runs_somewhere "$2"; do sleep 0.1; done
    sleep 1 # lets mpirun end by itself
    kill -9 "$1" 2>/dev/null
}

[ "$(id -u)" = 0 ] || skip "only root makes network namespaces"
command -v ip >/dev/null && command -v tc >/dev/null || skip "iproute2 is not there"
trap remove_all EXIT
trap 'exit 1' INT TERM HUP
how=none
if [ "$delay" != 0 ]; then
    how=line
    ip netns add "$group-try" || skip "network namespaces cannot be made"
    ip netns exec "$group-try" tc qdisc add dev lo root netem delay 1ms 2>/dev/null && how=netem
    ip netns del "$group-try"
fi
make_hosts
divide_cores
write_agent
run_command "$@"
