#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every tracked C and CUDA file has the format of .clang-format (`make format`), and no line of more than 120 columns,
# which clang-format does not break in comments. Other versions of clang-format break lines elsewhere.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }
files=$(git ls-files '*.c' '*.h' '*.cc' '*.inc' '*.cu' '*.cuh')
! LC_ALL=C.UTF-8 grep -nE '^.{121}' $files || { echo "these lines have more than 120 columns"; exit 1; }
clang-format --version 2>/dev/null | grep -q ' version 14\.' || { echo "skipped: there is no clang-format 14"; exit 77; }
echo "$files" | grep -v '\.inc$' | xargs clang-format --dry-run -Werror || { echo "make format mends these lines"; exit 1; }
echo "every file has the format"
