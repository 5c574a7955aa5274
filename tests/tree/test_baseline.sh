#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every processor can ask every attention kernel for its sizes, because plans are made for other machines too: kernels are
# described in objects that use no instruction set beyond the baseline.
set -eu
build=$1
for tool in objdump nm; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
failed=0
complain() { echo "$*" && failed=1; }
described=0
while read -r object; do
    kernels=$(nm "$object" | grep -cE ' [DRdr] ith_k_attn_' || true)
    [ "$kernels" -gt 0 ] || continue
    described=$((described + kernels))
    # instructions of AVX and later are written with a v; instructions of BMI are named (andnps is one of SSE)
    wide=$(objdump -d --no-show-raw-insn "$object" |
        awk -F'\t' '$2 ~ /^(v|andn([^p]|$)|bextr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|tdp|tile|ldtilecfg)/ { print $2; exit }')
    [ -z "$wide" ] || complain "$object describes a kernel, and has an instruction beyond the baseline: $wide"
done < <(find "$build/src" -path '*kernels*' -name '*.o')
[ "$described" -gt 1 ] || complain "only $described kernels were found"
exit $failed
