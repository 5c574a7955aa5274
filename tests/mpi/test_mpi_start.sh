#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How groups over MPI begin: they work in an application that uses MPI itself. They are refused if the application
# allows MPI calls in one thread only, under the launcher of another MPI, and if a process has another version of the
# library. If a process of an application dies or hangs in MPI while a group is being connected, the others end in time.
set -eu
. mpi/launch.sh

launch 2 "$build/application_$kind" "$kind" >"$work/out" 2>&1 || complain "an application that uses MPI"
[ "$(grep -c 'the application has ended: 1' "$work/out")" = 2 ] || complain "an application did not end"
! grep refused "$work/out" || complain "an application was refused"

launch 2 "$build/application_$kind" "$kind" single >"$work/out" 2>&1 || complain "an application of one thread"
# an MPI may allow more threads than the application asked for
if grep -q refused "$work/out"; then
    [ "$(grep -c 'refused: .*MPI_THREAD_SERIALIZED' "$work/out")" = 4 ] || complain "the reason of a refusal"
fi

build_start_fault
cat >"$work/second_struck" <<'END'
#!/bin/sh
fault=$1
shift
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" != 1 ] ||
    export LD_PRELOAD="$fault" START_FAULT="$HOW" START_POINT=MPI_Comm_dup START_SECONDS=$SECONDS_TO_END
exec "$@"
END
chmod +x "$work/second_struck"
# stop: the process stops, and dies half a second later. MPICH itself crashes now and then if a process dies before the
# others have attached its shared memory, so with MPICH no process dies at once.
for how in $([ "$kind" = mpich ] || echo kill) stop sleep; do
    HOW=$how SECONDS_TO_END=$([ $how = stop ] && echo 0.5 || echo 20) launch_unsupervised 3 "$work/second_struck" \
        "$work/start_fault.so" "$build/application_$kind" "$kind" 3 >"$work/out" 2>&1 || true
    ended=$([ $how = sleep ] && echo 3 || echo 2)
    [ "$(grep -c 'ended with 1$' "$work/ended")" = "$ended" ] || complain "an application, $how: exit statuses"
    [ "$(grep -c 'refused after [0-4]\.[0-9] s: ' "$work/out")" = "$ended" ] || complain "an application, $how: too late"
    [ $how = sleep ] || [ "$(grep -c 'refused .*: process 1 (.*died' "$work/out")" = 2 ] || complain "an application, $how: who died"
done
# Below both processes end by themselves: if a launcher ends the second process while its MPI starts, a shared segment
# is left. Each has a folder of its own for temporary files, which two processes of Open MPI cannot make at the same
# time. In the second run the MPI of process 1 still starts, and has made a segment, when process 0 has refused to
# connect.
cat >"$work/apart" <<'END'
#!/bin/sh
fault=$1
shift
export TMPDIR="$TMPDIR/$$"
mkdir "$TMPDIR"
[ ! "$LATE" ] || [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" != 1 ] ||
    export LD_PRELOAD="$fault" START_FAULT=sleep START_POINT=shm_unlink START_COUNT=1 START_SECONDS=1.5
exec "$@"
END
chmod +x "$work/apart"
other=mpich
[ "$kind" != mpich ] || other=openmpi
if [ -e "$build/ithaca_transport_$other.so" ]; then
    for late in "" 1; do
        LATE=$late launch_unsupervised 2 "$work/apart" "$work/start_fault.so" "$build/mpi_attend" "$other" 1 2 1 1 \
            >"$work/out" 2>&1 || true
        # an MPICH that was built for PMIx understands the launcher of Open MPI, and MPICH 5 ends the processes itself
        [ "$(grep -c 'ended with 0' "$work/out")" != 2 ] || continue
        [ "$(grep -c 'unsupported PMI version' "$work/out")" != 2 ] || continue
        [ "$(grep -c 'ended with 1' "$work/out")" = 2 ] || complain "the launcher of another MPI${late:+, late}"
        [ "$(grep -c 'has started 2 processes' "$work/out")" = 2 ] || complain "the launcher of another MPI${late:+, late}"
    done
    # Open MPI 5 leaves a segment of each process that its launcher has not started, even of a plain program
    rm -f $(comm -13 <(echo "$segments_before") <(segments) | sed -n 's|^sm_segment|/dev/shm/&|p')
fi

cat >"$work/version.c" <<'END'
const char *ith_version(void);
const char *ith_version(void) { return "9.8.7"; }
END
cc -shared -fPIC "$work/version.c" -o "$work/version.so"
# Process 1 has the other version. With LATE=1 process 0 learns of it from process 1, unless the machine is very busy.
cat >"$work/mixed" <<'END'
#!/bin/sh
version=$1 fault=$2
shift 2
if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = 1 ]; then
    late="MPI_Isend 1 0.6" own=$version
else
    late="MPI_Testall -1 1" own=""
fi
[ ! "$LATE" ] || { set -- $late "$@" && export START_FAULT=sleep START_POINT=$1 START_COUNT=$2 START_SECONDS=$3 && shift 3; }
export LD_PRELOAD="$own ${LATE:+$fault}"
exec "$@"
END
chmod +x "$work/mixed"
for late in "" 1; do
    LATE=$late launch_unsupervised 2 "$work/mixed" "$work/version.so" "$work/start_fault.so" \
        "$build/mpi_attend" "$kind" 1 2 1 1 >"$work/out" 2>&1 || true
    [ "$(grep -c 'ended with 1' "$work/out")" = 2 ] || complain "another version${late:+, known from the other process}"
    [ "$(grep -c "process 1 on $(hostname) has libithaca 9.8.7" "$work/out")" -ge 1 ] || complain "another version"
done
check_nothing_left
