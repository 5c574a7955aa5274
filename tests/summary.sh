#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Passes on the output of ctest. Before its closing lines it lists the tests that were skipped, with the reasons, and prints
# the last 40 lines of each test that failed:
#   (cd BUILD && ctest) | tests/summary.sh BUILD
# A test NAME@SET is listed only if all of it was skipped, because the test NAME runs the parts that SET leaves out.
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
awk '
    /^[0-9]+\/[0-9]+ Test: / { test = $3; count = 0 }
    { lines[count++ % 40] = $0 }
    /^Test Failed/ {
        print "\nFailed: " test
        for (i = count > 40 ? count - 40 : 0; i < count; i++) print "  " lines[i % 40] }' "$log"
cat "$closing"
