# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of the program. A test is run in tests/ with the build folder as its argument.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work" "$work.failed" "$work.root" "$work.build" "$work.cache"' EXIT

# plain FOLDER NAME: prints the path of a folder. Tests put paths into lists of words, so a path with spaces becomes a
# link without: $work.NAME.
plain() {
    local path
    path=$(realpath "$1")
    case $path in *[[:space:]]*) ln -s "$path" "$work.$2" && path=$work.$2 ;; esac
    echo "$path"
}
root=$(plain .. root)
build=$(plain "$1" build)
ithaca=$build/ithaca
model=$root/models/shapes
golden=$root/tests/golden
export XDG_CACHE_HOME=$work/cache # no test reads the user's wisdom and machine description

# fail WORDS...: a file remembers the failure, so that one in a subshell counts, too.
fail() {
    echo "FAILED: $*"
    touch "$work.failed"
}

# expect STATUS WORDS COMMAND...: the exit status, and an extended regular expression on standard error. Standard output
# is left in $work/out, standard error in $work/err.
expect() {
    local want=$1 words=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" = "$want" ] || fail "exit status $status instead of $want: $* ($(head -c 300 "$work/err"))"
    [ -z "$words" ] || grep -qE -- "$words" "$work/err" || fail "no '$words' on standard error: $* ($(head -c 300 "$work/err"))"
}

# same FILE FILE: the files must be equal.
same() {
    cmp -s "$1" "$2" || fail "$1 and $2 differ"
}

# has_sanitizer: whether the program was built with a sanitizer, which takes more address space than 'ulimit -v' allows.
has_sanitizer() {
    grep -q '^ITHACA_SANITIZE:STRING=.' "$build/CMakeCache.txt"
}

# heeds PROCESS SIGNAL: whether a process runs the program and handles the signal itself. The program blocks a signal
# that it waits for.
heeds() {
    local mask
    mask=$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ "/proc/$1/exe" -ef "$ithaca" ] && [ $((0x${mask:-0} >> ($(kill -l "$2") - 1) & 1)) = 1 ]
}

# await_heed PROCESS SIGNAL: waits until the process heeds the signal, or has ended.
await_heed() {
    while kill -0 "$1" 2>/dev/null && ! heeds "$1" "$2"; do sleep 0.01; done
}

# know_machine: puts the description of a machine into the user's cache, so that no command measures the machine first.
know_machine() {
    export XDG_CACHE_HOME=$work/cache
    mkdir -p "$work/cache/ithaca"
    cp "$root/machines/avx2-desktop.yaml" "$work/cache/ithaca/machine.yaml"
}

# know_rates: the same, with rates of the small models, so that a prediction measures nothing. A test that is not about
# predictions calls it: each measurement takes up to a second of the processors. The cache lies outside of $work.
know_rates() {
    local dtype size machine=$work.cache/ithaca/machine.yaml
    export XDG_CACHE_HOME=$work.cache
    mkdir -p "$work.cache/ithaca"
    cp "$root/machines/avx2-desktop.yaml" "$machine"
    for dtype in f32 bf16; do
        for size in 32 64; do
            sed -i "/^attention:/a\\  - {kernel: f32_avx2, dtype: $dtype, softmax: online, head_dim: $size, gflops: 50}" "$machine"
        done
        for size in 128 192; do
            sed -i "/^products:/a\\  - {work: linear, dtype: $dtype, rows: 1024, features: $size, gflops: 50}" "$machine"
        done
    done
}

finish() {
    [ ! -e "$work.failed" ] && echo "$(basename "$0"): all is well" || exit 1
}
