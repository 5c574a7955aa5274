#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A module brings FFmpeg, and only a process that reads a picture or writes a video loads it. If the module is missing,
# damaged or of another version, a message names it before the run begins.
. cli/lib.sh
. cli/processes.sh
cd "$work"
know_rates
first=$golden/pictures/alpha.png
small=(generate --model "$model" --prompt circle --height 32 --width 32 --frames 1 --steps 1 --precision f32 --quiet)

# ---- The processes that load it

# The dynamic loader writes the names of the files that it loads to loads.PROCESS.
loader=(env LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loads")

# spared STATUS COMMAND...: the command ends with this status, and does not load FFmpeg.
spared() {
    local want=$1
    shift
    rm -f loads.*
    expect "$want" "" "${loader[@]}" "$@"
    grep -q 'file=libithaca' loads.* || fail "nothing is said of the libraries that are loaded: $*"
    grep -qE 'file=.*(libav|ithaca_media)' loads.* && fail "FFmpeg is loaded: $*"
}
export ITHACA_CPU=baseline
spared 0 "$ithaca" --version
spared 0 "$ithaca" --help
spared 0 "$ithaca" generate --help
spared 0 "$ithaca" info
spared 0 "$ithaca" plan --machine h100-8 --seq 75600
spared 0 "$ithaca" tokenize --model "$model" circle
spared 0 "$ithaca" bench attention --seq 16 --heads 1 --head-dim 8 --repeat 1
spared 1 "$ithaca" attend --input nowhere --output one
spared 2 "$ithaca" paint
spared 2 "$ithaca" generate --prompt circle --nonsense
spared 2 "$ithaca" generate --prompt circle --steps many
spared 0 "$ithaca" bench generate --model "$model" --frames 1 --height 32 --width 32 --steps 1 --repeat 1
unset ITHACA_CPU

rm -f loads.*
LD_DEBUG=files LD_DEBUG_OUTPUT=$work/loads over_sockets 2 "${small[@]}" --output clip.mp4
ended 0 2
grep -qE 'file=libavcodec' "loads.$(cat pid.0)" || fail "process 0 writes a video without FFmpeg"
grep -qE 'file=.*(libav|ithaca_media)' "loads.$(cat pid.1)" && fail "process 1 loads FFmpeg"

# A colon in a name does not begin the address of a protocol.
expect 0 "" "$ithaca" "${small[@]}" --output a:b.mp4
[ -s a:b.mp4 ] || fail "no a:b.mp4: $(ls)"

# ---- Libraries in a folder of their own

mkdir -p lib/ithaca
cp -L "$build/libithaca.so.1" "$build/libithaca_wan.so.1" lib
export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
module=lib/ithaca/ithaca_media_libav.so

# refused WORDS: videos and pictures are refused before a model is opened, and nothing is written.
refused() {
    local before
    before=$(ls -A)
    expect 1 "^ithaca: pictures and videos need .*$1\$" "$ithaca" generate --model nowhere --prompt circle --output new.mp4
    [ "$(wc -l <err)" = 1 ] || fail "more than one line: $(cat err)"
    expect 1 "pictures and videos need .*$1\$" "$ithaca" generate --model nowhere --prompt circle --output new/
    expect 1 "pictures and videos need .*$1\$" "$ithaca" "${small[@]}" --dry-run
    expect 1 "pictures and videos need .*$1\$" "$ithaca" bench generate --model "$golden/i2v/model" --image "$first"
    [ "$(ls -A)" = "$before" ] || fail "files are left: $(ls -A)"
    expect 2 "unrecognized option" "$ithaca" generate --prompt circle --output new.mp4 --nonsense
    expect 0 "" "$ithaca" tokenize --model "$model" circle
}
refused "ithaca_media_libav.so, which is neither in $work/lib/ithaca nor in $work/lib"
over_sockets 2 "${small[@]}" --output new.mp4
ended 1 2
silent 1 1
grep -q "which is neither in" err.0 || fail "process 0 says: $(cat err.0)"

echo text >$module
refused "$work/$module, which cannot be loaded: .*"
cat >other.c <<'END'
#include "media/media_module.h"
extern const ith_media ith_media_table;
const ith_media ith_media_table = {.head = {ITH_MEDIA_MODULE_ABI, "libav"}, .version = "9.8.7"};
END
cc -shared -fPIC -I"$root/src" -I"$root/include" other.c -o $module
refused "$work/$module, which cannot be loaded: it belongs to Ithaca 9.8.7, the program to [0-9.]*"

for module in $module lib/ithaca_media_libav.so; do
    rm -f lib/ithaca/* loads.*
    cp "$build/ithaca_media_libav.so" $module
    expect 0 "" "${loader[@]}" "$ithaca" "${small[@]}" --output moved.mp4
    same clip.mp4 moved.mp4
    grep -q "file=$work/$module" loads.* || fail "$module is not loaded"
done
finish
