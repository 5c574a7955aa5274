#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Attention in several processes has the bits of ranks in one process: random problems under random plans.
# ITHACA_MPI_PLANS: their number in each shape (40).
set -eu
. mpi/launch.sh
plans=${ITHACA_MPI_PLANS:-40} seed=${ITHACA_SEED:-$(date +%N)}
seed=$((10#$seed % 1000000))
echo "ITHACA_SEED=$seed"
for shape in "2 1" "3 1" "2 2" "4 1" "2 3" "8 1"; do
    set -- $shape
    launch "$1" "$build/mpi_attend" "$kind" "$2" $(($1 * $2)) "$seed" "$plans" >"$work/out" 2>&1 || { echo "processes and ranks: $shape"; cat "$work/out"; exit 1; }
    [ "$(grep -c 'equal bits' "$work/out")" = "$1" ] || { cat "$work/out"; exit 1; }
    # if a plan has a ulysses axis of two, processes of two ranks use it in place
    [ "$shape $plans" != "2 2 40" ] || ! grep -q ' 0 mixed' "$work/out" || { echo "no plan is mixed"; exit 1; }
done
check_nothing_left
