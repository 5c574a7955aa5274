#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs can be built with the installed library, through pkg-config and through CMake: the program in the header as
# it is shown there, and the examples. The library needs nothing but libc, libm and OpenMP. The installed tree is moved
# before it is used.
set -eu
build=$1
if grep -q '^ITHACA_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitizer's build is not installed"
    exit 77
fi
root=$(cd .. && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/usr"
libdir=$(dirname "$(find "$work/usr" -name libithaca.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
flags="-std=c11 -Wall -Wextra -Werror $(pkg-config --cflags --libs ithaca)"

find "$work/usr" -name LICENSE | grep -q . || { echo "no LICENSE is installed"; exit 1; }

echo "the loader's search paths" # an empty part would mean the current folder
for file in "$build/ithaca" "$build"/*.so "$work"/usr/bin/ithaca "$libdir"/*.so "$libdir"/ithaca/*.so; do
    [ -e "$file" ] || continue
    path=$(readelf -d "$file" | sed -n 's/.*(R.*PATH).*\[\(.*\)\]/\1/p')
    [[ ! $path || :$path: != *:[!/\$:]* && :$path: != *::* ]] || { echo "$file: $path"; exit 1; }
done
[ ! -e "$work/usr/bin/ithaca" ] || (unset LD_LIBRARY_PATH && "$work/usr/bin/ithaca" --version >/dev/null)

echo "the header's program"
sed -n '1,/^ \* Rules that hold everywhere/s/^ \*     //p' "$work/usr/include/ithaca/ithaca.h" | sed 's|^// \(.*\)|/* \1 */|' \
    >"$work/shown.c"
grep -q 'int main' "$work/shown.c"
cc "$work/shown.c" $flags -o "$work/shown"
"$work/shown"

echo "the examples"
engine=$(pkg-config --exists ithaca_wan && echo yes || true)
for example in "$root"/examples/*.c; do
    name=$(basename "$example" .c) sources=("$example") libraries=$flags arguments=()
    case $name in
    socket_*) continue ;;
    generate_on_processes)
        [ "$engine" ] || continue
        libraries="$flags $(pkg-config --cflags --libs ithaca_wan)" arguments=("$root/models/shapes" 3) ;;
    esac
    case $name in *_on_processes) sources+=("$root"/examples/socket_{transport,meeting}.c) ;; esac
    cc -D_GNU_SOURCE -Wshadow -Wconversion "${sources[@]}" $libraries -lpthread -lm -o "$work/$name"
    "$work/$name" "${arguments[@]}" >"$work/$name.out" || { cat "$work/$name.out"; exit 1; }
done

echo "the example of an engine, whose second thread cannot be started"
cat >"$work/one_thread.c" <<'END'
#include <errno.h>
#include <pthread.h>
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user)
{
    static int calls;
    return calls++ ? EAGAIN : __real_pthread_create(thread, attributes, fn, user);
}
END
cc -D_GNU_SOURCE "$root/examples/under_an_engine.c" "$work/one_thread.c" -Wl,--wrap=pthread_create $flags -lpthread -o "$work/one_thread"
status=0
timeout 60 "$work/one_thread" >"$work/one_thread.out" 2>&1 || status=$?
[ "$status" = 1 ] && grep -q 'rank 0: rank 1 left' "$work/one_thread.out" || { cat "$work/one_thread.out"; exit 1; }

echo "the initialisers, in C and C++"
headers=$(ls "$work/usr/include/ithaca")
{
    for header in $headers; do
        echo "#include <ithaca/$header>"
    done
    echo 'int main() {'
    cat $(printf "$work/usr/include/ithaca/%s " $headers) | sed -n 's/^#define \(ITH_[A-Z0-9_]*\)_INIT .*/\1/p' | while read -r name; do
        type=$(echo "$name" | tr A-Z a-z)
        echo "    static $type ${type}_static = ${name}_INIT; $type ${type}_local = ${name}_INIT;"
        echo "    (void)${type}_static; if (${type}_local.struct_size != sizeof($type)) return 1;"
    done
    echo '    return 0; }'
} >"$work/init.c"
test "$(grep -c static "$work/init.c")" -ge 8
cc -std=c11 -pedantic-errors -Wall -Wextra -Werror $(pkg-config --cflags ithaca) -x c "$work/init.c" -o "$work/init"
"$work/init"
c++ -std=c++17 -pedantic-errors -Wall -Wextra -Werror $(pkg-config --cflags ithaca) -x c++ "$work/init.c" -o "$work/init"
"$work/init"

echo "through CMake"
through_cmake() { # TARGET [COMPONENT]: builds main.c with this target alone
    cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(ithaca REQUIRED${2:+ COMPONENTS $2})
add_executable(user main.c)
target_link_libraries(user ithaca::$1)
EOF
    cmake -S "$work/project" -B "$work/project/$1" -DCMAKE_PREFIX_PATH="$work/usr" >/dev/null
    cmake --build "$work/project/$1" >"$work/project/$1.out" 2>&1 || { cat "$work/project/$1.out"; exit 1; }
    LD_LIBRARY_PATH= "$work/project/$1/user" >/dev/null
}
mkdir "$work/project"
cp "$root/examples/reading_a_plan.c" "$work/project/main.c"
through_cmake ithaca
if [ "$engine" ]; then # every program with wan.h makes a context, with a function of libithaca
    cat >"$work/project/main.c" <<'EOF'
#include <ithaca/wan.h>
int main(void)
{
    ith_context *context = NULL;
    ith_tokenizer *tokenizer = NULL;
    int failed = ith_context_create(NULL, &context) || ith_tokenizer_open(context, "no file", &tokenizer) != ITH_ERR_IO;
    ith_context_destroy(&context);
    return failed;
}
EOF
    through_cmake ithaca_wan wan
fi
# A component that is not there is refused with the reason.
printf 'cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(ithaca REQUIRED COMPONENTS decoder)\n' \
    >"$work/project/CMakeLists.txt"
! cmake -S "$work/project" -B "$work/project/lacking" -DCMAKE_PREFIX_PATH="$work/usr" >"$work/out" 2>&1 &&
    tr -s ' \n' ' ' <"$work/out" | grep -q "ithaca has no component 'decoder'; there is one, wan" ||
    { cat "$work/out"; exit 1; }

echo "dependencies"
needed=$(readelf -d "$libdir/libithaca.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libm|libgomp|libomp|ld-linux[^.]*)\.so' || true)
test -z "$needed" || { echo "libithaca.so needs $needed"; exit 1; }

echo "transports"
for module in "$build"/ithaca_transport_*.so; do
    [ -e "$module" ] || continue
    installed=$libdir/ithaca/$(basename "$module")
    [ -e "$installed" ] || { echo "$installed is not installed"; exit 1; }
    ldd "$installed" | grep 'libithaca\.so' | grep -q "$(realpath "$libdir")" ||
        { echo "$installed does not find the library beside it"; exit 1; }
done

echo "the module for NVIDIA GPUs"
if [ -e "$build/ithaca_device_cuda.so" ]; then
    installed=$libdir/ithaca/ithaca_device_cuda.so
    [ -e "$installed" ] || { echo "$installed is not installed"; exit 1; }
    exported=$(nm -D --defined-only "$installed" | awk '{print $3}')
    [ "$exported" = ith_device_module_table ] || { echo "$installed exports $exported"; exit 1; }
    needed=$(readelf -d "$installed" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -Ev '^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)|ld-linux[^.]*)\.so' || true)
    test -z "$needed" || { echo "$installed needs $needed"; exit 1; }
    ITHACA_DEVICE_MODULE=$installed "$build/test_gpu_module" >"$work/gpu.out" || { cat "$work/gpu.out"; exit 1; }
fi

[ "$engine" ] || exit 0
echo "pictures and videos"
installed=$libdir/ithaca/ithaca_media_libav.so
exported=$(nm -D --defined-only "$installed" | awk '{print $3}')
[ "$exported" = ith_media_table ] || { echo "$installed exports $exported"; exit 1; }
LD_LIBRARY_PATH= "$work/usr/bin/ithaca" generate --model "$root/models/shapes" --prompt circle --frames 1 --height 32 --width 32 \
    --steps 1 --quiet --output "$work/clip.mp4"
test -s "$work/clip.mp4"
