#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every example of a configuration in examples/ names a command that takes it: all of its options, and also the ones that
# stand in it as comments. A plan with its choices is legal on as many ranks as it names.
. cli/lib.sh
cd "$work"

for file in "$root"/examples/*.yaml; do
    name=$(basename "$file")
    run=$(sed -nE 's/^#.* ithaca ([a-z ]+) --config examples\/'"$name"'.*/\1/p' "$file" | head -1)
    [ -n "$run" ] || { fail "$name does not say which command takes it"; continue; }
    # A model that is not there leaves its own values open, and nothing else.
    expect 0 "" "$ithaca" $run --config "$file" --print-config
    grep -v "the model's own values are left open" err && fail "$name: $(cat err)"
    for option in $(sed -nE 's/^([a-z-]+):.*/\1/p' "$file"); do
        grep -qE "^$option: .* # .*/$name:[0-9]+\$" out || fail "$name: $option is not in force: $(grep "^$option:" out)"
    done
    # Each commented option on its own, beside the others unless it stands among them too.
    sed -nE 's/^# ([a-z-]+: [^ ].*)/\1/p' "$file" >comments
    while IFS= read -r line; do
        option=${line%%:*}
        { "$ithaca" $run --help | grep -qE "^ +(-[a-z], )?--$option([= ]|\$)"; } || continue # a sentence with a colon
        { grep -vE "^$option:" "$file"; echo "$line"; } >one.yaml
        expect 0 "" "$ithaca" $run --config one.yaml --print-config
        grep -qE "^$option: .+ # one.yaml:[0-9]+\$" out || fail "$name: '$line' is not in force"
    done <comments
done

# The choices of an example run on the small model: the ranks of the processes that its command starts are one process here.
for file in "$root"/examples/wan*.yaml; do
    name=$(basename "$file")
    ranks=$(sed -nE 's/^# .*mpirun -n ([0-9]+).*/\1/p' "$file" | head -1)
    grep -vE '^(model|output|frames|height|width|area|ranks):' "$file" >choices.yaml
    expect 0 "" "$ithaca" generate --config choices.yaml --model "$model" --prompt x --output "clip.gif" --frames 5 --height 32 \
        --width 32 --steps 1 --ranks "${ranks:-1}" --quiet
done
finish
