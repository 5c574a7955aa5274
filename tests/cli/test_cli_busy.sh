#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Waiting threads do not take processors from a busy machine. Beside as many endless loops as there are processors, a
# run takes about as long as with OMP_WAIT_POLICY=passive. If waiting threads spin, it takes 5 to 12 times as long.
# `info` takes rates from undisturbed moments, so that no kernel is faster than its peak.
. cli/lib.sh
cd "$work"

# The loops are in a session of their own, as another user's programs would be.
setsid bash -c 'for _ in $(seq "$(nproc)"); do (while :; do :; done) & done; echo $$ >loops; wait' &
trap 'kill -- "-$(cat "$work/loops")"; rm -rf "$work" "$work.failed"' EXIT
until [ -s loops ]; do sleep 0.05; done

milliseconds() {
    local start
    start=$(date +%s%N)
    "$@" >out 2>err || fail "$* ($(head -c 300 err))"
    echo $((($(date +%s%N) - start) / 1000000))
}
run=("$ithaca" generate --model "$model" --prompt x --steps 2 --output clip.mp4 --quiet)
median() { sort -n "$1" | sed -n 2p; }

# compare: whether a run takes about as long as with OMP_WAIT_POLICY=passive.
compare() {
    rm -f passive adapted
    for _ in 1 2 3; do
        milliseconds env OMP_WAIT_POLICY=passive "${run[@]}" >>passive
        milliseconds env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "${run[@]}" >>adapted
    done
    echo "milliseconds beside loops: $(median adapted), with OMP_WAIT_POLICY=passive $(median passive)"
    [ "$(median adapted)" -le $((2 * $(median passive) + 400)) ]
}
# other programs may disturb it
compare || compare || compare || fail "threads that wait burn the processors"

for _ in 1 2 3; do
    expect 0 "" "$ithaca" info --json
    jq -r '.kernels[] | .name as $name | to_entries[] | select(.key | endswith("_share")) | "\($name) \(.key) \(.value)"' out >shares
    [ -s shares ] || fail "info has no shares of peaks"
    awk '$3 > 1.1' shares | grep . && fail "info finds kernels that are faster than their peaks"
done
finish
