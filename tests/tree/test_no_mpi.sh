#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# MPI stays in its modules: neither the libraries nor the program need it, and a module needs no MPI but its own.
set -eu
build=$1
needs() { readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'; }
for file in "$build"/libithaca.so "$build"/libithaca_wan.so "$build"/ithaca; do
    [ -e "$file" ] || continue
    ! ldd "$file" | grep -E '^\s*lib(mpi|mpich|open-rte|open-pal|pmix)[._-]' || { echo "$file needs MPI"; exit 1; }
done
modules=0
for kind in openmpi mpich; do
    module=$build/ithaca_transport_$kind.so
    [ -e "$module" ] || continue
    modules=$((modules + 1))
    own=$(needs "$module" | grep -E '^lib(mpi|mpich)[._-]' || true)
    [ "$(echo "$own" | wc -w)" = 1 ] || { echo "$module needs: $own"; exit 1; }
    exported=$(nm -D --defined-only "$module" | awk '{print $3}' | grep -v '^__' || true)
    [ "$exported" = ith_transport_module_table ] || { echo "$module exports $exported"; exit 1; }
    private=$(nm -D --undefined-only "$module" | awk '{print $2}' | grep '^ith_' | sed 's/@.*//' | sort)
    known=$(nm -D --defined-only "$build/libithaca.so" | awk '{print $3}' | sed 's/@.*//' | sort)
    [ -z "$(comm -23 <(echo "$private") <(echo "$known"))" ] || { echo "$module needs private functions"; exit 1; }
done
[ "$modules" != 0 ] || { echo "skipped: no module of an MPI is built: tools/install_dependencies.sh installs Open MPI and MPICH"; exit 77; }
