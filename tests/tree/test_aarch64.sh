#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libithaca for 64-bit ARM: Debian's cross compiler builds it without a warning, and its kernels and plans are tested
# under qemu. Of the attention kernels only NEON's are tested, and with a fifth of the sizes, unless
# ITHACA_KERNEL_STEP=1 (`make check-long`): qemu is slow, and plain C is tested elsewhere.
set -eu
skip() { echo "skipped: $*"; exit 77; }
build=$1/aarch64
source=$(cd "$(dirname "$0")/../.." && pwd)

for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$tool" >/dev/null || skip "no $tool here"
done
! grep -q '^ITHACA_SANITIZE:.*=.' "$1/CMakeCache.txt" || skip "sanitizers look at the native build"

cmake -S "$source" -B "$build" -G Ninja --toolchain "$source/cmake/aarch64.cmake" -DITHACA_ENGINE=OFF \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-Werror >/dev/null
tests="test_base test_rowops test_keyops test_attn_kernels test_product_kernels test_modules test_lifetime test_connect test_plan"
ninja -C "$build" ithaca $tests >"$build/log" || { cat "$build/log"; exit 1; }
ITHACA_TEST_KERNEL=f32_neon ITHACA_KERNEL_STEP=${ITHACA_KERNEL_STEP:-5} ctest --test-dir "$build" --output-on-failure --no-tests=error -j4 -R "^($(echo $tests | tr ' ' '|'))\$"
