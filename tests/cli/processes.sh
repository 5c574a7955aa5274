# SPDX-License-Identifier: Apache-2.0
# Runs the program as several processes. Included after lib.sh.
export ITHACA_PLUGIN_PATH=$build/tests/modules/transports

# over_sockets PROCESSES ARGUMENT...: the program as processes with one rank each, which Unix sockets connect. Standard
# output of process N is left in $work/out.N, standard error in $work/err.N, its exit status in $work/status.N.
#   processes_differ="N ARGUMENT..."   more arguments for process N
#   refuse_in="N KIND:NUMBER"          one call of process N fails (refuse.c)
#   signal_to="SIGNAL N", signal_after=WORDS   sends a signal to process N, or to all of them, half a second after process
#                                      0 has printed WORDS; $work/took gets the milliseconds from then until process 0
#                                      ends. A stopped process is killed then.
over_sockets() {
    local processes=$1 number pids=()
    shift
    rm -rf "$work/meeting" "$work"/out.* "$work"/err.* "$work"/status.* "$work"/pid.*
    mkdir "$work/meeting"
    for ((number = 0; number < processes; number++)); do
        start_process $number "$processes" "$@" &
        pids+=($!)
    done
    [ -z "${signal_to:-}" ] || signal_processes "$processes" ${signal_to} "${pids[0]}"
    wait "${pids[@]}"
}

# start_process NUMBER PROCESSES ARGUMENT...: starts process NUMBER.
start_process() {
    local number=$1 processes=$2 more=() status=0
    shift 2
    [ "${processes_differ%% *}" = "$number" ] && more=(${processes_differ#* })
    [ "${refuse_in%% *}" = "$number" ] && export LD_PRELOAD=$build/refuse.so REFUSE=${refuse_in#* }
    export ITHACA_PROCESS=$number ITHACA_PROCESSES=$processes
    export ITHACA_TRANSPORT_WHERE="$work/meeting $number $processes"
    "$ithaca" "$@" --transport socket "${more[@]}" >"$work/out.$number" 2>"$work/err.$number" </dev/null &
    echo $! >"$work/pid.$number"
    wait $! 2>/dev/null || status=$?
    echo $status >"$work/status.$number"
}

# signal_processes PROCESSES SIGNAL NUMBER|all FIRST: FIRST is the process that waits for process 0.
signal_processes() {
    local targets=$3 begin number i
    [ "$3" != all ] || targets=$(seq 0 $(($1 - 1)))
    for ((i = 0; ; i++)); do
        grep -qE "$signal_after" "$work/err.0" 2>/dev/null && break
        [ $i -lt 3000 ] || { fail "process 0 has not printed '$signal_after': $(head -c 300 "$work/err.0")" && break; }
        sleep 0.1
    done
    sleep 0.5
    begin=$(date +%s%N)
    for number in $targets; do kill -s "$2" "$(cat "$work/pid.$number")"; done
    wait "$4"
    echo $((($(date +%s%N) - begin) / 1000000)) >"$work/took"
    [ "$2" != STOP ] || kill -s KILL "$(cat "$work/pid.$3")"
}
processes_differ="" refuse_in="" signal_to=""

# ended STATUS PROCESSES: every process had this exit status.
ended() {
    local number
    for ((number = 0; number < $2; number++)); do
        [ "$(cat "$work/status.$number")" = "$1" ] ||
            fail "process $number ended with $(cat "$work/status.$number") instead of $1: $(head -c 300 "$work/err.$number")"
    done
}

# silent FIRST LAST: these processes printed nothing.
silent() {
    local number
    for ((number = $1; number <= $2; number++)); do
        [ -s "$work/out.$number" ] || [ -s "$work/err.$number" ] &&
            fail "process $number printed: $(head -c 300 "$work/out.$number" "$work/err.$number")"
    done
}
