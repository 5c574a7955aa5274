#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Four processes that run one model hold its weights once: the mapped pages belong to the system's cache, and no process
# has a copy. So do four ranks of one process.
. cli/lib.sh
cd "$work"
cp -r "$model" own
part=own/transformer/diffusion_pytorch_model-00001-of-00002.safetensors
size=$(stat -c %s "$part")

# begin NAME RANKS: starts a run that would take minutes, and waits for its second step. $process: the number of its
# process.
begin() {
    "$ithaca" generate --model own --prompt x --height 48 --width 48 --frames 1 --steps 10000 --boundary 0 --ranks "$2" \
        --verbose --output "$1.mp4" >"$1.out" 2>"$1.err" </dev/null &
    process=$!
    while kill -0 "$process" 2>/dev/null; do
        grep -q "denoise: step [2-9]" "$1.err" && break
        sleep 0.05
    done
}

# held PROCESS FIELD: the bytes of a field of /proc/PROCESS/smaps, summed over all mappings of the weight file.
held() {
    awk -v part="$part" -v field="$2:" '/^[0-9a-f]+-[0-9a-f]+ / { wanted = index($0, part) }
        wanted && $1 == field { bytes += $2 * 1024 } END { print bytes + 0 }' "/proc/$1/smaps"
}

[ -r /proc/self/smaps ] || { echo "skipped: this system has no /proc/PID/smaps"; exit 77; }
processes=()
for name in a b c d; do
    begin $name 1
    processes+=("$process")
done
shares=0
for process in "${processes[@]}"; do
    resident=$(held "$process" Rss)
    [ "$resident" -ge $((size * 9 / 10)) ] || fail "a process maps $resident of $size bytes: $(tail -c 200 a.err)"
    [ "$(held "$process" Anonymous)" = 0 ] || fail "a process has copies of pages of the file"
    shares=$((shares + $(held "$process" Pss)))
done
echo "four processes hold $shares bytes of the $size of a file"
[ $shares -le $((size * 11 / 10)) ] || fail "four processes hold $shares bytes of a file of $size"
kill -TERM "${processes[@]}"
wait

begin ranks 4
resident=$(held "$process" Pss)
echo "a process with four ranks holds $resident"
[ "$resident" -ge $((size * 9 / 10)) -a "$resident" -le $((size * 11 / 10)) ] || fail "four ranks hold $resident bytes of $size"
kill -TERM "$process"
wait
finish
