#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libithaca_wan with libithaca: a failure without a context has its sentence, whichever of the libraries failed; both
# refuse threads in a forked child; a libithaca of another version is refused.
set -eu
build=$1
if grep -q '^ITHACA_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitizer's libraries need its run-time library first"
    exit 77
fi
if [ ! -e "$build/libithaca_wan.so" ]; then
    echo "skipped: the engine is not built"
    exit 77
fi
root=$(cd .. && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build
cc -std=c11 -Wall -Wextra -Werror -I"$root/include" "$root/tests/tree/two_libraries.c" -L"$build" -lithaca_wan -lithaca \
    -o "$work/program"

echo "sentences without a context"
"$work/program" "$root/models/shapes" >"$work/here.txt"
grep -qx 'ITH_OK: ' "$work/here.txt"

echo "a forked child"
cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$root/include" "$root/tests/tree/forked_child.c" -L"$build" -lithaca_wan \
    -lithaca -o "$work/forked"
for first in plan engine; do
    "$work/forked" "$root/models/shapes" $first || { echo "$first: check $? failed"; exit 1; }
done

echo "a limit of OpenMP's"
OMP_THREAD_LIMIT=1 "$work/forked" "$root/models/shapes" limited

echo "a libithaca of another version"
cat >"$work/version.c" <<'END'
const char *ith_version(void);
const char *ith_version(void) { return "9.8.7"; }
END
cc -shared -fPIC "$work/version.c" -o "$work/version.so"
LD_PRELOAD=$work/version.so "$work/program" "$root/models/shapes" >"$work/other.txt"
grep -q '^ITH_ERR_UNSUPPORTED: .*libithaca, .* 9\.8\.7' "$work/other.txt"
