#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One region of more than 2^31 bytes between two processes.
set -eu
. mpi/launch.sh
free=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
[ "$free" -ge 4 ] || skip "$free GiB of memory are available, and the test needs 4"
launch 2 "$build/mpi_large" "$kind" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
[ "$(grep -c 'all bytes are right' "$work/out")" = 2 ]
check_nothing_left
