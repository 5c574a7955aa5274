#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One word has one meaning (docs/glossary.md). Words that only this project used, or that had several meanings, must not
# come back into identifiers, comments and messages. Tests, tools and documents, too, use nouns instead of pronouns.
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
    '\bso many\b' "a number, or a noun"
)
pronouns='\bwhat one\b|\bthat of\b|\bthose of\b'

failures=0
# search WORDS INSTEAD FILE...: fails if one of these files has such a word.
search() {
    local words=$1 instead=$2 found status
    shift 2
    found=$(grep -nE -- "$words" "$@" /dev/null) && status=0 || status=$?
    if [ $status -gt 1 ]; then
        echo "grep cannot look for '$words'"
        failures=$((failures + 1))
    elif [ $status = 0 ]; then
        echo "$found"
        echo "  instead: $instead"
        failures=$((failures + 1))
    fi
}

mapfile -t sources < <(git ls-files include src | grep -E '\.(c|h|cc|cu|cuh)$')
for ((i = 0; i < ${#words[@]}; i += 2)); do search "${words[i]}" "${words[i + 1]}" "${sources[@]}"; done

# CONTRIBUTING.md and this file name the pronouns; docs/perflog.md is a record.
mapfile -t others < <(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.sh' '*.py' '*.md' '*.yaml' |
    grep -vxE 'CONTRIBUTING\.md|docs/perflog\.md|tests/tree/test_words\.sh')
search "$pronouns" "a noun" "${others[@]}"
[ "$failures" = 0 ] && echo "no word has come back" || exit 1
