#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every tracked C and CUDA file has the format of .clang-format (`make format`). Other versions of clang-format break lines
# elsewhere.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }
clang-format --version 2>/dev/null | grep -q ' version 14\.' || { echo "skipped: there is no clang-format 14"; exit 77; }
git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror || { echo "make format mends these lines"; exit 1; }
echo "every file has the format"
