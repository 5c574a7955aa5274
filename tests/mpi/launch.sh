# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of this folder. A test is called with the build folder and the kind of MPI:
#   . mpi/launch.sh            sets build and kind; ends with 77 where this MPI cannot be used
#   launch N PROGRAM ...       runs N processes, under the time limit `limit` (300 s)
#   launch_unsupervised N ...  the same, but the launcher learns only a second later that a process has died: each runs in
#                              a shell, which prints "ended with STATUS" first, and writes it into $work/ended. It has
#                              written its number into $work/begun. The shells ignore SIGUSR1, with which Hydra ends
#                              processes
#   pids PATTERN               the numbers of the test's processes whose program's name matches
#   complain SENTENCE          fails, with the output of the last run: the files out and err of $work
#   check_nothing_left         fails if a process, a shared segment or a file of the launches is left
#   build_start_fault          compiles tests/mpi/start_fault.c as $work/start_fault.so
# If the system allows it, the test has a /dev/shm of its own, so that it sees no segments of other programs.
if [ ! "${ITHACA_OWN_SHM:-}" ] && unshare -m true 2>/dev/null; then
    ITHACA_OWN_SHM=1 exec unshare -m bash -c 'mount -t tmpfs tmpfs /dev/shm; exec bash "$0" "$@"' "$0" "$@"
fi
build=$1 kind=$2 limit=300
export XDG_CACHE_HOME=$build/no_cache # no test reads the user's wisdom and machine description
skip() { echo "skipped: $*"; exit 77; }
complain() {
    echo "$*"
    for file in "$work/out" "$work/err"; do [ ! -e "$file" ] || tail -n 40 "$file"; done
    exit 1
}

# The launcher of this kind of MPI. mpirun or mpiexec may belong to it.
find_launcher() {
    local name
    for name in "mpirun.$kind" "mpiexec.$kind" mpirun mpiexec; do
        command -v "$name" >/dev/null || continue
        case $kind in
        openmpi) "$name" --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE|PRRTE' || continue ;;
        mpich) "$name" --version 2>/dev/null | grep -q HYDRA || continue ;;
        esac
        echo "$name"
        return
    done
}

[ -e "$build/ithaca_transport_$kind.so" ] || skip "the transport $kind is not built: tools/install_dependencies.sh installs its MPI"
launcher=$(find_launcher)
[ "$launcher" ] || skip "there is no launcher of $kind"

work=$(mktemp -d)
mark=ITHACA_TEST_LAUNCH=$work
segments() { ls /dev/shm | grep -E '^(vader_segment|sm_segment|ucx|mpich|psm|pmix|osc_)' || true; }
segments_before=$(segments)
pids() {
    local environ
    for environ in $(grep -lzsxF "$mark" /proc/[0-9]*/environ); do
        [[ ! "$(basename "$(readlink "${environ%environ}exe")")" =~ ^($1)$ ]] || basename "${environ%/environ}"
    done
}
end_processes() { kill -9 $(pids '.*') 2>/dev/null || true; }
trap 'end_processes; rm -rf "$work"' EXIT
mkdir "$work/tmp"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive ITHACA_PLUGIN_PATH=$build

launch_with() {
    local options=$1 count=$2
    shift 2
    env "$mark" TMPDIR="$work/tmp" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout -k 5 "$limit" "$launcher" $options -n "$count" "$@"
}

# The usual options of the launcher, and the one with which the others go on if a process dies.
usual="" recovery=-disable-auto-cleanup
if [ "$kind" = openmpi ]; then
    usual="--oversubscribe --bind-to none" recovery=--enable-recovery
    if ! "$launcher" --version | grep -qE '\) 4\.'; then # from version 5 on; TCP complains on machines without a network
        usual="$usual --mca btl ^tcp" recovery="--runtime-options continuous"
    fi
fi
launch() { launch_with "$usual" "$@"; }

# Ubuntu 24.04 has a MPICH whose launcher starts processes that do not find one another.
cat >"$work/size.c" <<'END'
#include <mpi.h>
int main(void)
{
    int size = 0;
    MPI_Init(0, 0);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Finalize();
    return size != 2;
}
END
"mpicc.$kind" "$work/size.c" -o "$work/size" 2>/dev/null || mpicc "$work/size.c" -o "$work/size"
launch 2 "$work/size" >"$work/out" 2>&1 ||
    skip "processes that $launcher starts do not find one another, even without Ithaca"
launch_unsupervised() {
    local count=$1
    shift
    : >"$work/ended"
    : >"$work/begun"
    ITHACA_TEST_ENDED=$work/ended ITHACA_TEST_BEGUN=$work/begun launch_with "$usual $recovery" "$count" sh -c 'trap "" USR1
        echo $$ >>"$ITHACA_TEST_BEGUN"; "$0" "$@"; status=$?
        echo "ended with $status" >>"$ITHACA_TEST_ENDED"; echo "ended with $status"; [ $status = 1 ] || sleep 1' "$@"
}

check_nothing_left() {
    local process wait segment left
    for ((wait = 0; wait < 10; wait++)); do
        left=""
        for process in $(pids '.*'); do left="$left $process $(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline")"; done
        [ "$left" ] || break
        sleep 0.2
    done
    [ -z "$left" ] || { echo "processes are left: $left"; return 1; }
    left=$(find "$work/tmp" \( -type f -o -type s \) ! -name 'pmix-gds-*' | head -3) # a file of Open MPI's own launcher
    [ -z "$left" ] || { echo "files are left: $left"; return 1; }
    # a segment that a process still has mapped belongs to another program that uses MPI
    for ((wait = 0; wait < 100; wait++)); do
        left=""
        for segment in $(comm -13 <(echo "$segments_before") <(segments)); do
            grep -qs "/dev/shm/$segment" /proc/[0-9]*/maps || left="$left $segment"
        done
        [ "$left" ] || break
        sleep 0.1
    done
    [ -z "$left" ] || { echo "shared segments are left: $left"; return 1; }
}

build_start_fault() {
    ${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -w mpi/start_fault.c -o "$work/start_fault.so" -ldl
}
