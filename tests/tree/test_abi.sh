#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The binary interface: the libraries export the functions of their headers under a version, and nothing else; structs are
# laid out as tests/tree/ithaca.abi says; a program that was compiled against a header in which every struct lacks its
# last field runs with today's library, and gets the same results.
set -eu
build=$1
if grep -q '^ITHACA_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitizer's libraries export symbols of its own"
    exit 77
fi
root=$(cd .. && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers="ithaca transport cost tune"
libraries="libithaca"
flags=("-L$build" -lithaca)
engine=""
if [ -e "$build/libithaca_wan.so" ]; then
    headers="ithaca transport cost tune wan files bench video_cost"
    libraries="libithaca libithaca_wan"
    flags=("-L$build" -lithaca_wan -lithaca -DWITH_ENGINE)
    engine=$root/models/shapes
fi
export LD_LIBRARY_PATH=$build

functions_of() { # HEADER...
    (cd "$root/include/ithaca" && cat "$@") | grep -v '^#' | tr '\n' ' ' | grep -o 'ITH_API[^;]*' | grep -o 'ith_[a-z_0-9]* *(' |
        tr -d ' (' | sort -u
}

exports_of() { # LIBRARY
    nm -D --defined-only --with-symbol-versions "$build/$1.so" | awk '$2 != "A" {print $3}' | sort
}

echo "what the libraries export"
diff <(functions_of ithaca.h transport.h cost.h tune.h | sed 's/$/@@ITHACA_0.2/') <(exports_of libithaca)
if [ "$engine" ]; then
    diff <(functions_of wan.h files.h bench.h video_cost.h | sed 's/$/@@ITHACA_0.2/') <(exports_of libithaca_wan)
    if nm -D --undefined-only "$build/libithaca_wan.so" | grep ' ith_' | grep -v '@ITHACA_0.2'; then
        echo "libithaca_wan needs private symbols"
        exit 1
    fi
fi

echo "names, versions and layouts as before"
{
    for library in $libraries; do
        exports_of "$library" | sed "s/^/$library /"
    done
    cc -std=c11 -I"$root/include" ${engine:+-DWITH_ENGINE} "$root/tests/tree/abi_structs.c" -o "$work/structs"
    "$work/structs"
} >"$work/abi.txt"
if [ "${ITHACA_RENEW_ABI:-}" = 1 ]; then
    cp "$work/abi.txt" "$root/tests/tree/ithaca.abi"
fi
known=$root/tests/tree/ithaca.abi
if [ -z "$engine" ]; then
    cut -d' ' -f1 "$work/abi.txt" | sort -u | grep -Fwf - "$known" | grep -v '^libithaca_wan' >"$work/known.txt"
    known=$work/known.txt
fi
if ! diff "$known" "$work/abi.txt"; then
    echo "The binary interface has changed. New functions and new fields at the end: renew it (ITHACA_RENEW_ABI=1)."
    echo "Anything else breaks programs: raise the SONAME"
    exit 1
fi
readelf -d "$build/libithaca.so" | grep -q 'SONAME.*libithaca.so.1'

echo "a program that was compiled against an earlier header"
mkdir -p "$work/trimmed/ithaca"
for header in $headers; do
    awk -f "$root/tests/tree/trim_header.awk" "$root/include/ithaca/$header.h" >"$work/trimmed/ithaca/$header.h"
done
if grep -Eq '(o_batch_stride|parallel_user|compression_error);' "$work/trimmed/ithaca/ithaca.h"; then
    echo "the header still has the last fields"
    exit 1
fi
client=$root/tests/tree/old_client.c
cc -std=c11 -Wall -Wextra -Werror -D_GNU_SOURCE -I"$root/include" "$client" "${flags[@]}" -o "$work/today"
cc -std=c11 -Wall -Wextra -Werror -D_GNU_SOURCE -I"$work/trimmed" "$client" "${flags[@]}" -o "$work/earlier"
"$work/today" ${engine:+"$engine"} >"$work/today.txt"
"$work/earlier" ${engine:+"$engine"} >"$work/earlier.txt"
diff "$work/today.txt" "$work/earlier.txt"
test "$(wc -l <"$work/today.txt")" -ge 3
