#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Only modules need MPI: neither the libraries nor the program need it, and each module needs only its own MPI. The
# transport over NCCL needs neither MPI nor NCCL nor CUDA when it is loaded.
set -eu
build=$1
needs() { readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'; }
for file in "$build"/libithaca.so "$build"/libithaca_wan.so "$build"/ithaca; do
    [ -e "$file" ] || continue
    ! ldd "$file" | grep -E '^\s*lib(mpi|mpich|open-rte|open-pal|pmix)[._-]' || { echo "$file needs MPI"; exit 1; }
done
# The module exports its table, and needs no function of libithaca that is not public.
check_symbols() {
    local exported private known
    exported=$(nm -D --defined-only "$1" | awk '{print $3}' | grep -v '^__' || true)
    [ "$exported" = ith_transport_module_table ] || { echo "$1 exports $exported"; exit 1; }
    private=$(nm -D --undefined-only "$1" | awk '{print $2}' | grep '^ith_' | sed 's/@.*//' | sort)
    known=$(nm -D --defined-only "$build/libithaca.so" | awk '{print $3}' | sed 's/@.*//' | sort)
    [ -z "$(comm -23 <(echo "$private") <(echo "$known"))" ] || { echo "$1 needs private functions"; exit 1; }
}
module=$build/ithaca_transport_nccl.so
if [ -e "$module" ]; then
    ! needs "$module" | grep -E '^lib(mpi|mpich|nccl|cuda|cudart)[._-]' || { echo "$module needs a library of GPUs or MPI"; exit 1; }
    check_symbols "$module"
fi
modules=0
for kind in openmpi mpich; do
    module=$build/ithaca_transport_$kind.so
    [ -e "$module" ] || continue
    modules=$((modules + 1))
    own=$(needs "$module" | grep -E '^lib(mpi|mpich)[._-]' || true)
    [ "$(echo "$own" | wc -w)" = 1 ] || { echo "$module needs: $own"; exit 1; }
    check_symbols "$module"
done
[ "$modules" != 0 ] || { echo "skipped: no module of an MPI is built: tools/install_dependencies.sh installs Open MPI and MPICH"; exit 77; }
