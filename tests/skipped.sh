#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the last run of ctest in a build folder did not test, and why: tests/skipped.sh BUILD
# A test NAME@SET is told of only where all of it was skipped: NAME runs what SET leaves out.
set -eu
log=$1/Testing/Temporary/LastTest.log
found=$(awk '
    match($0, /^[0-9]+\/[0-9]+ Test(ing)?: /) { test = substr($0, RLENGTH + 1) }
    test ~ /@/ && !/^skipped: this machine/ { next }
    sub(/^skipped: /, "") && !seen[test, $0]++ { print "  " test ": " $0 }' "$log")
if [ -n "$found" ]; then
    printf 'Skipped on this machine:\n%s\n' "$found"
else
    echo "Nothing was skipped."
fi
