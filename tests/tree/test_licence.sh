#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every tracked source file, script and build file names its licence in its first three lines; LICENSE has the text of
# this licence.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }
failures=0
nameless=$(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.inc' '*.sh' '*.py' '*.cmake' '*CMakeLists.txt' '*Makefile' | xargs awk '
    FNR == 1 { names[FILENAME] = 0 }
    /SPDX-License-Identifier: Apache-2\.0/ && FNR <= 3 { names[FILENAME] = 1 }
    FNR == 3 { nextfile }
    END { for (i = 1; i < ARGC; i++) if (!names[ARGV[i]]) print ARGV[i] " does not name its licence" }')
[ -z "$nameless" ] || { echo "$nameless"; failures=1; }
grep -q 'Apache License' LICENSE && grep -q 'Version 2.0, January 2004' LICENSE || { echo "LICENSE is another text"; failures=1; }
[ "$failures" = 0 ] && echo "every file names its licence" || exit 1
