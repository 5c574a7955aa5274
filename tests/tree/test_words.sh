#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One word has one meaning (docs/glossary.md). Words that only this project used, or that had several meanings, must not
# come back into identifiers, comments and messages.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }

# A regular expression of grep -E and the words to use instead.
words=(
    '\bcards?\b|_card|card_' "record"
    'forsak' "leave, fail, abort"
    '\btold\b' "the field's word: sees, reads, gets"
    '\bWAY_|\bway_' "transfer state"
    'let_go|\blets? go\b' "release, free"
    '\bseats?\b|seat_|_seat' "world rank"
    '\bdoors?\b' "interface, wrapper"
    '(head|query|key|kv)[ _]problems?\b' "query head, kv head"
    'keys_count' "kv_heads, kv_rows or kv_count"
    '\bith_block\b' "ith_region"
    '\bith_attn_run\b' "ith_attn_call"
    'runs? of keys' "KV block"
    '_body\.h' "a template: *_tmpl.c"
    'unfolded|unsmoothed' "folded, smoothed"
    '\bwhat one\b|\bso many\b|\bthat of\b|\bthose of\b' "a noun"
)

failures=0
for place in include $(ls -d src/*/); do
    place=${place%/}
    for ((i = 0; i < ${#words[@]}; i += 2)); do
        files=$(git ls-files "$place/*.c" "$place/*.h" "$place/*.cc" "$place/*.cu" "$place/*.cuh")
        found=$(grep -nE -- "${words[i]}" $files /dev/null) && status=0 || status=$?
        if [ $status -gt 1 ]; then
            echo "grep cannot look for '${words[i]}' in $place"
            failures=$((failures + 1))
        elif [ $status = 0 ]; then
            echo "$found"
            echo "  instead: ${words[i + 1]}"
            failures=$((failures + 1))
        fi
    done
done
[ "$failures" = 0 ] && echo "no word has come back" || exit 1
