#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of GPUs from a build folder that may come from another machine: tools/gpu_run.sh BUILD LOGS [NAME..]
#
# Call it from the root of the project. The programs build/test_gpu_*, test_device_* and test_*_device run on the first
# GPU, one after the other. If NAMEs are given, only programs run whose names contain one of them. A line is printed for
# each program: its name, its seconds, the outcome. Whole outputs are in LOGS/NAME.log. Libraries that this machine
# lacks are found in BUILD/gpu_libraries, where `tools/gpu_run.sh --pack BUILD` copies the libraries of the machine that built
# the programs. ITHACA_TEST_SECONDS: how long the groups of cases of test_device_plans may take together (60). The exit
# status is 1 if a program failed.
set -u

programs_of() { # BUILD
    find "$1" -maxdepth 1 -type f -perm -u+x \( -name 'test_gpu_*' -o -name 'test_device_*' -o -name 'test_*_device' \) | sort
}

# Copies the libraries of the programs that other Linux systems may lack: all but the compiler's.
pack() { # BUILD
    mkdir -p "$1/gpu_libraries"
    for program in $(programs_of "$1") "$1"/ithaca; do
        ldd "$program" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}'
    done | sort -u | grep -vE "/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so|^$(realpath "$1")/" |
        while read -r library; do cp -L "$library" "$1/gpu_libraries/"; done
    du -sh "$1/gpu_libraries"
}

if [ "${1:-}" = --pack ]; then
    pack "${2:?the build folder}"
    exit
fi
build=$(realpath "${1:?the build folder}") logs=${2:?a folder for outputs}
shift 2
mkdir -p "$logs"
logs=$(realpath "$logs")
[ -d tests ] || { echo "to be called from the root of the project"; exit 2; }
export OMP_WAIT_POLICY=passive ITHACA_TEST_DEVICE=cuda ITHACA_DEVICE_MODULE=$build/ithaca_device_cuda.so
failed=0
wanted() { # NAME PATTERN..
    local name=$1 pattern
    shift
    [ $# = 0 ] && return 0
    for pattern in "$@"; do [[ $name == *"$pattern"* ]] && return 0; done
    return 1
}
printf '%-28s %8s  %s\n' test seconds outcome
for program in $(programs_of "$build"); do
    name=$(basename "$program")
    wanted "$name" "$@" || continue
    begin=$(date +%s.%N)
    (cd tests && LD_LIBRARY_PATH=$build:$build/gpu_libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        timeout "${ITHACA_TEST_TIMEOUT:-120}" "$program") >"$logs/$name.log" 2>&1
    status=$?
    case $status in
        0) outcome=passed ;;
        77) outcome="$(grep -m1 '^skipped' "$logs/$name.log" | head -c 150)" ;;
        124) outcome="FAILED: it took too long" ;;
        *) outcome="FAILED ($status): $(grep -m1 -E 'FAILED|ERROR|error' "$logs/$name.log" | head -c 200)" ;;
    esac
    case $status in 0 | 77) ;; *) failed=1 ;; esac
    printf '%-28s %8.1f  %s\n' "$name" "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')" "$outcome"
done
exit $failed
