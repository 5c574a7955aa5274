#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The suite of transports over MPI: 3 and 4 ranks in as many processes, and two ranks in some or all processes.
# ITHACA_MPI_SHAPES: other numbers, as "PROCESSES,RANKS[,RANKS...];...".
set -eu
. mpi/launch.sh
echo "${ITHACA_MPI_SHAPES:-3,1;2,2,1;2,2;4,1}" | tr ';' '\n' >"$work/shapes"
while IFS=, read -r processes ranks; do
    set -- "$processes" "$ranks"
    echo "processes: $1, ranks in each: $2"
    launch "$1" "$build/mpi_suite" "$kind" "$2" >"$work/out" 2>&1 </dev/null || { cat "$work/out"; exit 1; }
    [ "$(grep -c ': 0 failed' "$work/out")" = "$1" ] || { cat "$work/out"; exit 1; }
    grep -m1 ': 0 failed' "$work/out"
done <"$work/shapes"

# Processes run on two hosts in turn, so their numbers are not their MPI ranks: every second process has another host
# name.
cat >"$work/in_turn" <<'END'
#!/bin/sh
[ $((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % 2)) = 0 ] || exec unshare -u sh -c 'hostname other && exec "$@"' sh "$@"
exec "$@"
END
chmod +x "$work/in_turn"
if unshare -u hostname other 2>/dev/null; then
    echo "two hosts in turn"
    launch 3 "$work/in_turn" "$build/mpi_suite" "$kind" 1 >"$work/out" 2>&1 </dev/null || { cat "$work/out"; exit 1; }
    [ "$(grep -c ': 0 failed' "$work/out")" = 3 ] || { cat "$work/out"; exit 1; }
fi
check_nothing_left
