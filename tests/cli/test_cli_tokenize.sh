#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca tokenize gives the golden ids, for arguments and for lines of standard input.
. cli/lib.sh

tokens=$golden/shapes/tokenizer.json
mapfile -d '' -t texts < <(jq -j '.[].text + "\u0000"' "$tokens")
jq -r '.[].ids | map(tostring) | join(" ")' "$tokens" >"$work/want"
expect 0 "" "$ithaca" tokenize --model "$model" -- "${texts[@]}"
same "$work/want" "$work/out"

jq -r '.[] | select(.text | contains("\n") | not) | .text' "$tokens" >"$work/lines"
jq -r '.[] | select(.text | contains("\n") | not) | .ids | map(tostring) | join(" ")' "$tokens" >"$work/want"
"$ithaca" tokenize --model "$model" <"$work/lines" >"$work/out" 2>"$work/err" || fail "lines: $(cat "$work/err")"
same "$work/want" "$work/out"
printf 'last line without an end' | "$ithaca" tokenize --model "$model" | grep -q ' 1$' || fail "the last line"
[ -z "$("$ithaca" tokenize --model "$model" </dev/null)" ] || fail "no line in, a line out"

# A tokenizer needs no model. Beside another file of a model it is not enough.
for tokenizer in "$model/tokenizer" "$model"/tokenizer/*.model; do
    "$ithaca" tokenize --tokenizer "$tokenizer" <"$work/lines" >"$work/out" 2>"$work/err" || fail "$tokenizer: $(cat "$work/err")"
    same "$work/want" "$work/out"
done
expect 1 "^ithaca: cannot open not/there: No such file" "$ithaca" tokenize --tokenizer not/there a
expect 1 "^ithaca: cannot open $model/vae/spiece.model: No such file .*; its folder has no tokenizer.json either" \
    "$ithaca" tokenize --tokenizer "$model/vae" a
expect 1 "text 1: .*UTF-8" "$ithaca" tokenize --tokenizer "$model/tokenizer" $'not \xff\xfe fine'
expect 2 "--model is needed, or --dit" "$ithaca" tokenize --tokenizer "$model/tokenizer" --vae x a

# If the reader of the output goes away, the command ends, although it has more input.
yes | timeout 20 "$ithaca" tokenize --model "$model" 2>"$work/err" | head -1 >"$work/out"
status=${PIPESTATUS[1]}
[ "$status" = 1 ] && [ ! -s "$work/err" ] || fail "its reader has left: exit status $status, $(cat "$work/err")"

expect 1 "text 2: .*UTF-8" "$ithaca" tokenize --model "$model" fine $'not \xff\xfe fine'
expect 1 "^ithaca: cannot read /dev/null" "$ithaca" tokenize --tokenizer /dev/null --model "$model" a
expect 1 "^ithaca: cannot open not/there: No such file" "$ithaca" tokenize --tokenizer not/there --model "$model" a
mkdir "$work/cut" && ln -s "$model"/* "$work/cut" && rm "$work/cut/tokenizer" || fail "no copy of the model"
expect 1 "^ithaca: --tokenizer is needed .*umt5-xxl.*: cannot open $work/cut/tokenizer: No such file" \
    "$ithaca" tokenize --model "$work/cut" a
mkdir "$work/cut/tokenizer"
expect 1 "^ithaca: --tokenizer is needed .*: cannot open $work/cut/tokenizer/spiece.model: No such file .*tokenizer.json" \
    "$ithaca" tokenize --model "$work/cut" a
expect 2 "--model is needed, or --dit, or --dit-high and --dit-low, or --tokenizer alone" "$ithaca" tokenize a
printf 'a\nb\0c\n' | "$ithaca" tokenize --model "$model" >"$work/out" 2>"$work/err" && fail "NUL is taken"
grep -q "text 2: .*NUL" "$work/err" || fail "NUL: $(cat "$work/err")"
(has_sanitizer || ulimit -v 4000000
 head -c 1G /dev/zero | tr '\0' x | "$ithaca" tokenize --model "$model" 2>"$work/err") && fail "an endless line"
grep -q "text 1: .*longer than 1048576 bytes" "$work/err" || fail "an endless line: $(cat "$work/err")"
finish
