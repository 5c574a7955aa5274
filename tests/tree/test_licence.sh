#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every tracked source file, script and build file names its licence in its first three lines; LICENSE has the text of
# this licence.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }
failures=0
for file in $(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.inc' '*.sh' '*.py' '*.cmake' '*CMakeLists.txt' '*Makefile'); do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' || { echo "$file does not name its licence"; failures=1; }
done
grep -q 'Apache License' LICENSE && grep -q 'Version 2.0, January 2004' LICENSE || { echo "LICENSE is another text"; failures=1; }
[ "$failures" = 0 ] && echo "every file names its licence" || exit 1
