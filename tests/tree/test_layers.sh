#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dependencies point one way: each folder of src includes only what it may, and files form no circles. File names are unique, and code for one
# instruction set or for GPUs lies in its folder alone. Libraries do not print, and look whether a lock was made. Tests have one generator.
set -u
cd "$(dirname "$0")/../.."
[ -d .git ] || [ -f .git ] || { echo "skipped: this is no git checkout"; exit 77; }
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }

# For each folder of src: the folders from which it may include, and the public headers that it may use
declare -A may=(
    [base]="base|ithaca.h"
    [kernels]="kernels base|transport.h"
    [comm]="comm base|ithaca.h transport.h"
    [attention]="attention kernels comm base|"
    [plan]="plan attention kernels comm base|"
    [cost]="cost plan attention comm base|cost.h"
    [tune]="tune plan kernels comm base|tune.h"
    [files]="files kernels base|files.h"
    [linear]="linear kernels base|"
    [wan]="wan linear files cost comm kernels base|ithaca.h files.h wan.h bench.h video_cost.h"
    [media]="media base|ithaca.h"
    [oracle]="oracle|ithaca.h"
    [cli]="cli media oracle|ithaca.h transport.h cost.h tune.h files.h wan.h bench.h video_cost.h"
)
declare -A used=() # [FOLDER NAME]: an include needs the permission
pairs=()           # "A B": file A, or its header, includes file B, or its header; without endings

# includes PATTERN...: lists the includes of the tracked files with these names, one a line: the file, what it includes, the
# included path without "." and ".." (from src, for "..."; without ithaca/, for <...>), and whether it is there. Each file
# has a line with "-" besides.
includes() {
    git ls-files "$@" | xargs awk '
        function plain(path,    parts, n, i, out, kept) {
            n = split(path, parts, "/")
            for (i = 1; i <= n; i++) {
                if (parts[i] == "..") kept--
                else if (parts[i] != "." && parts[i] != "") out[++kept] = parts[i]
            }
            path = out[1]
            for (i = 2; i <= kept; i++) path = path "/" out[i]
            return path
        }
        FNR == 1 { print FILENAME, "-", "-", 1 }
        match($0, /^ *# *include +"[^"]+"/) {
            name = substr($0, 1, RLENGTH); sub(/^[^"]*"/, "", name); sub(/"$/, "", name)
            folder = FILENAME; sub(/[^\/]*$/, "", folder)
            path = plain(folder name)
            there = (getline line <path) >= 0; close(path)
            sub(/^src\//, "", path)
            print FILENAME, "\"" name "\"", path, there
        }
        match($0, /^ *# *include +<ithaca\/[^>]+>/) {
            name = substr($0, 1, RLENGTH); sub(/^[^<]*<ithaca\//, "", name); sub(/>$/, "", name)
            print FILENAME, "<ithaca/" name ">", name, 1
        }'
}

while read -r file include path there; do
    folder=${file#src/} && folder=${folder%%/*}
    allowed=${may[$folder]:-}
    if [ -z "$allowed" ]; then
        complain "$file: the folder $folder has no place in the order of layers"
    elif [ "$include" = - ]; then
        continue
    elif [ "${include:0:1}" = '"' ]; then
        [ "src/${path%.*}" = "${file%.*}" ] || pairs+=("${file%.*} src/${path%.*}")
        case " ${allowed%%|*} " in *" ${path%%/*} "*) ;; *) complain "$file: may not include $include" ;; esac
        used[$folder ${path%%/*}]=1
        [ "$there" = 1 ] || complain "$file: $include is not where it is included from"
    else
        case " ${allowed##*|} " in *" $path "*) ;; *) complain "$file: may not include $include" ;; esac
        used[$folder $path]=1
    fi
done < <(includes 'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh')
for folder in "${!may[@]}"; do
    for name in ${may[$folder]//|/ }; do
        [ "${used[$folder $name]:-}" ] || complain "nothing in src/$folder needs the permission to include $name"
    done
done

# A file and its header count as one. No such files include one another in a circle.
circles=$(printf '%s\n' "${pairs[@]}" | tsort 2>&1 > /dev/null) || complain "files that include one another in a circle:" $circles

# The folders within the two largest layers: each may include from the folders before it in its list, and
# from itself.
declare -A order=(
    [wan]=" names lora part text source dit vae sample image vision model run cost bench "
    [cli]=" file support option launch shared_option machine attend verify plan tune generate bench info "
)
for layer in "${!order[@]}"; do
    while read -r file include path there; do
        folder=${file#src/$layer/} && folder=${folder%%/*}
        [[ ${order[$layer]} == *" $folder "* ]] || { complain "$file: the folder $layer/$folder has no place in the order"; continue; }
        allowed="${order[$layer]%%" $folder "*} $folder "
        target=${path#$layer/}
        [[ $include != '"../'* || $path != $layer/*/* || $allowed == *" ${target%%/*} "* ]] || complain "$file: may not include $include"
    done < <(includes "src/$layer/*/*")
done

for name in $(git ls-files 'src/*' 'include/*' | xargs -n1 basename | grep -v CMakeLists.txt | sort | uniq -d); do
    complain "more than one file is called $name"
done

for file in $(grep -lE 'immintrin\.h|arm_neon\.h|_mm(256|512)_' $(git ls-files 'src/*.c' 'src/*.h')); do
    case "$file" in src/kernels/cpu/*) ;; *) complain "$file: instruction sets belong under src/kernels/cpu" ;; esac
done

# Only the modules for NVIDIA GPUs, and the tests of NCCL, use CUDA.
for file in $(git ls-files '*.cu' '*.cuh') $(git grep -lE '^ *# *include *[<"](cuda|cooperative_groups|nccl|cudnn|cublas)' -- '*.c' '*.h' '*.cc'); do
    case "$file" in src/kernels/cuda/* | src/comm/nccl/* | tests/nccl/*) ;; *) complain "$file: CUDA belongs under src/kernels/cuda and src/comm/nccl" ;; esac
done
for include in $(grep -hE '^ *# *include +"' $(git ls-files src include tests bench examples | grep -E '\.(c|h|cc|cu|cuh|inc|in)$' | grep -v '^src/kernels/cuda/') | grep -oE '"[^"]*\bcuda/[^"]*"'); do
    complain "$include is included outside of src/kernels/cuda"
done

# Only the program prints messages and ends the process.
for file in $(git ls-files 'src/*.c' 'src/*.cc' 'src/*.cu' 'src/*.cuh' | grep -v '^src/cli/'); do
    ! grep -nE '(^|[^>.[:alnum:]_])(exit|abort|_exit|printf|puts|perror) *\(' "$file" || complain "$file: a library does not print or exit"
done

# A lock that could not be made is an error; PTHREAD_MUTEX_INITIALIZER cannot fail.
! grep -nE '^ *(\(void\) *)?pthread_[a-z]+_init *\(' $(git ls-files 'src/*.c') || complain "nobody looks at the result of pthread_*_init"

# Tests have one generator of random numbers, whose numbers are the same on every machine.
! grep -nE '\b(s?rand|rand_r|s?random|[deijlmn]rand48) *\(' $(git ls-files 'tests/*.c' 'tests/*.h') || complain "tests/support/random.h has the random numbers of tests"

[ "$failures" = 0 ] && echo "layers are in order" || exit 1
