#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Passes on the output of ctest, and before its closing lines tells what was not tested, and why:
#   (cd BUILD && ctest) | tests/skipped.sh BUILD
# A test NAME@SET is told of only where all of it was skipped: NAME runs what SET leaves out.
set -eu
log=$1/Testing/Temporary/LastTest.log
closing=$(mktemp)
trap 'rm -f "$closing"' EXIT
exec 3>"$closing"
into=1
while IFS= read -r line; do
    case $line in *" tests passed, "*" tests failed out of "*) into=3 ;; esac
    printf '%s\n' "$line" >&"$into"
done
found=$(awk '
    match($0, /^[0-9]+\/[0-9]+ Test(ing)?: /) { test = substr($0, RLENGTH + 1) }
    test ~ /@/ && !/^skipped: this machine/ { next }
    sub(/^skipped: /, "") && !seen[test, $0]++ { print "  " test ": " $0 }' "$log")
if [ -n "$found" ]; then
    printf '\nSkipped on this machine:\n%s\n' "$found"
else
    printf '\nNothing was skipped.\n'
fi
cat "$closing"
