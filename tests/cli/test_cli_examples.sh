#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every configuration in examples/ names a command, which must accept all of its options, also those that stand in
# comments. A plan with its choices must be legal on the number of ranks that it names.
. cli/lib.sh
cd "$work"

for file in "$root"/examples/*.yaml; do
    name=$(basename "$file")
    run=$(sed -nE 's/^#.* ithaca ([a-z ]+) --config examples\/'"$name"'.*/\1/p' "$file" | head -1)
    [ -n "$run" ] || { fail "$name does not say which command takes it"; continue; }
    # The model is not there, so its own values are left open, and nothing else.
    expect 0 "" "$ithaca" $run --config "$file" --print-config
    grep -v "the model's own values are left open" err && fail "$name: $(cat err)"
    for option in $(sed -nE 's/^([a-z-]+):.*/\1/p' "$file"); do
        grep -qE "^$option: .* # .*/$name:[0-9]+\$" out || fail "$name: $option is not in force: $(grep "^$option:" out)"
    done
    # Each option in a comment is added to the file's options by itself, and replaces an option with the same name.
    sed -nE 's/^# ([a-z-]+: [^ ].*)/\1/p' "$file" >comments
    while IFS= read -r line; do
        option=${line%%:*}
        { "$ithaca" $run --help | grep -qE "^ +(-[a-z], )?--$option([= ]|\$)"; } || continue # a sentence, no option
        { grep -vE "^$option:" "$file"; echo "$line"; } >one.yaml
        expect 0 "" "$ithaca" $run --config one.yaml --print-config
        grep -qE "^$option: .+ # one.yaml:[0-9]+\$" out || fail "$name: '$line' is not in force"
    done <comments
done

# The choices of an example run on the small model. Where its command starts several processes, this test has ranks in
# one process.
for file in "$root"/examples/wan*.yaml; do
    name=$(basename "$file")
    ranks=$(sed -nE 's/^# .*mpirun -n ([0-9]+).*/\1/p' "$file" | head -1)
    grep -vE '^(model|output|frames|height|width|area|ranks):' "$file" >choices.yaml
    expect 0 "" "$ithaca" generate --config choices.yaml --model "$model" --prompt x --output "clip.gif" --frames 5 --height 32 \
        --width 32 --steps 1 --ranks "${ranks:-1}" --quiet
done
finish
