#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dependencies point one way: each folder of src includes only what it may, and files form no circles. File names are unique, and code for one
# instruction set or for GPUs lies in its folder alone. Libraries do not print, and look whether a lock was made.
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

for file in $(git ls-files 'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh'); do
    folder=$(echo "$file" | cut -d/ -f2)
    allowed=${may[$folder]:-}
    [ -n "$allowed" ] || { complain "$file: the folder $folder has no place in the order of layers"; continue; }
    for include in $(sed -nE 's/^ *# *include +"([^"]+)".*/\1/p' "$file"); do
        path=$(realpath -m --relative-to=src "$(dirname "$file")/$include")
        target=${path%%/*}
        [ "src/${path%.*}" = "${file%.*}" ] || pairs+=("${file%.*} src/${path%.*}")
        case " ${allowed%%|*} " in *" $target "*) ;; *) complain "$file: may not include \"$include\"" ;; esac
        used[$folder $target]=1
        [ -e "$(dirname "$file")/$include" ] || complain "$file: \"$include\" is not where it is included from"
    done
    for include in $(sed -nE 's/^ *# *include +<ithaca\/([^>]+)>.*/\1/p' "$file"); do
        case " ${allowed##*|} " in *" $include "*) ;; *) complain "$file: may not include <ithaca/$include>" ;; esac
        used[$folder $include]=1
    done
done
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
    for file in $(git ls-files "src/$layer/*/*"); do
        folder=$(echo "$file" | cut -d/ -f3)
        [[ ${order[$layer]} == *" $folder "* ]] || { complain "$file: the folder $layer/$folder has no place in the order"; continue; }
        allowed="${order[$layer]%%" $folder "*} $folder "
        for include in $(sed -nE 's/^ *# *include +"(\.\.\/[^"]+)".*/\1/p' "$file"); do
            target=$(realpath -m --relative-to="src/$layer" "$(dirname "$file")/$include")
            [[ $target == ../* || $target != */* || $allowed == *" ${target%%/*} "* ]] || complain "$file: may not include \"$include\""
        done
    done
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

[ "$failures" = 0 ] && echo "layers are in order" || exit 1
