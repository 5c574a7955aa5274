/* SPDX-License-Identifier: Apache-2.0 */
/* The life of MPI in this process (mpi_start.h). */
#include "mpi_start.h"

#include "mpi_finalize.h"
#include "mpi_link.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define END_SECONDS 1.0 /* the longest wait for the other processes at exit after a failure */
/* The longest wait for MPI_Init_thread after another process has refused to connect. If this process exited within
 * MPI_Init_thread, it would leave segments of shared memory. */
#define REFUSED_SECONDS 5.0

static bool started;         /* an earlier call of ith_mpi_start has succeeded */
static bool unusable;        /* MPI cannot be used any more */
static bool short_end;       /* MPI_Finalize at exit may take END_SECONDS at most (ith_mpi_shorten_end) */
static double limit_seconds; /* the limit of each wait at exit for a process that does not answer */

/* The call of MPI_Init_thread. A separate thread makes it, which may outlive the function that waits for it. */
static struct {
    int level, code;
    MPI_Comm comm; /* a copy of MPI_COMM_WORLD for the first group; MPI_COMM_NULL: none */
    atomic_bool done;
} init = {.level = MPI_THREAD_SINGLE, .comm = MPI_COMM_NULL};

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Frees the closed links. If no group has failed, it waits for the other processes, as MPI_Finalize does, but ends if
 * one of them dies, or gives no sign for the time limit. Returns whether MPI can still be used. */
static bool end_links(void)
{
    if (!unusable && !ith_mpi_links_in_use() &&
        ith_mpi_free_closed(ith_mpi_closed_failed() ? END_SECONDS : -1, limit_seconds))
        return true;
    ith_mpi_forget_closed();
    unusable = true;
    return false;
}

/* MPI_Finalize would wait for ever for a process that has died. Without it segments of shared memory may stay. */
static void finalize_at_exit(void)
{
    int finalized = 1;
    if (pthread_mutex_trylock(&ith_mpi_lock))
        return; /* a thread of a group that has not ended is in MPI */
    if (!MPI_Finalized(&finalized) && !finalized && (end_links() || short_end))
        ith_mpi_finalize(short_end ? END_SECONDS : limit_seconds);
    pthread_mutex_unlock(&ith_mpi_lock);
}

/* Called at the beginning of the MPI_Finalize of an application. */
static int end_with_application(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    pthread_mutex_lock(&ith_mpi_lock);
    end_links();
    pthread_mutex_unlock(&ith_mpi_lock);
    return MPI_SUCCESS;
}

void ith_mpi_give_up(void)
{
    unusable = true;
}

bool ith_mpi_has_given_up(void)
{
    return unusable;
}

void ith_mpi_shorten_end(void)
{
    short_end = true;
}

/* ---- The beginning --------------------------------------------------------------------------------------------- */

/* Another MPI in the program, loaded before this module, may take the place of the one that the module was built with.
 */
static ith_status check_library(char *sentence, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
#ifdef OPEN_MPI
    const bool wants_open_mpi = true;
#else
    const bool wants_open_mpi = false;
#endif
    MPI_Get_library_version(version, &length);
    if ((strstr(version, "Open MPI") != NULL) == wants_open_mpi)
        return ITH_OK;
    snprintf(sentence, bytes, "this program has loaded another MPI already, whose transport is to be used: %.100s",
             version);
    return ITH_ERR_UNSUPPORTED;
}

/* A launcher of another MPI starts processes that do not know of one another. */
static ith_status check_launcher(char *sentence, size_t bytes)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && size == 1; i++) {
        const char *value = getenv(sizes[i]);
        if (!value || atoi(value) <= 1)
            continue;
        snprintf(
            sentence, bytes,
            "the launcher has started %s processes (%s), but for this MPI each of them is alone: use the transport "
            "and the launcher of one MPI (openmpi: mpirun.openmpi; mpich: mpiexec.mpich; Slurm: srun --mpi=pmix or "
            "--mpi=pmi2)",
            value, sizes[i]);
        return ITH_ERR_UNSUPPORTED;
    }
    return ITH_OK;
}

/* Some components of Open MPI take its functions from the global scope, which a module's libraries are not in. */
static void make_library_global(void)
{
    Dl_info library;
    if (dladdr((void *)(uintptr_t)&MPI_Init_thread, &library) && library.dli_fname)
        dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* the handle is kept */
}

/* An application that has initialised MPI finalises it too, which ends the links first. */
static ith_status join_application(char *sentence, size_t bytes)
{
    int level = MPI_THREAD_SINGLE, key = 0;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(sentence, bytes,
                 "the program has initialised MPI for calls of one thread only: MPI_Init_thread with "
                 "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE is needed");
        return ITH_ERR_UNSUPPORTED;
    }
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_with_application, &key, NULL) == MPI_SUCCESS)
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    return ITH_OK;
}

/* Settings of MPI that suit datagrams, unless the user has set the same variables. A copy from the memory of another
 * process (CMA; Open MPI 5 calls the layer smsc) ends this process if the other has died. UCX moves datagrams faster if
 * it sends them at once than by a rendezvous, which needs calls of both processes (docs/perflog.md). */
static void set_defaults(void)
{
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_smsc", "^cma,knem,xpmem", 0);
    setenv("UCX_TLS", "^cma", 0);
#ifndef OPEN_MPI
    setenv("UCX_RNDV_THRESH", "inf", 0);
#endif
}

/* Initialises MPI, and makes the first communicator. MPICH 5 connects the processes then: if one of them dies, no call
 * of MPI returns on the others, not even MPI_Test, so only a thread of its own may make this call. */
static void *call_init(void *user)
{
    (void)user;
    init.code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &init.level);
    if (init.code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        if (init.level >= MPI_THREAD_SERIALIZED && MPI_Comm_dup(MPI_COMM_WORLD, &init.comm) != MPI_SUCCESS)
            init.comm = MPI_COMM_NULL; /* a later call fails too, and its failure is explained */
    }
    atomic_store(&init.done, true);
    return NULL;
}

MPI_Comm ith_mpi_take_comm(void)
{
    MPI_Comm comm = init.comm;
    init.comm = MPI_COMM_NULL;
    return comm;
}

/* Waits for MPI_Init_thread, which itself waits for all processes of the launcher. */
static ith_status await_init(mpi_presence *presence, double seconds, char *sentence, size_t bytes)
{
    const struct timespec nap = {.tv_nsec = 200000};
    double end = ith_watch_now() + seconds;
    char blame[256];
    while (!atomic_load(&init.done)) {
        if (!ith_mpi_presence_look(presence, sentence, bytes))
            return ITH_ERR_ABORTED;
        if (ith_watch_now() > end) {
            ith_mpi_presence_explain(presence, NULL, blame, sizeof blame);
            snprintf(sentence, bytes, "MPI_Init_thread waited %.3g s for other processes: %s", seconds, blame);
            return ITH_ERR_TIMEOUT;
        }
        nanosleep(&nap, NULL);
    }
    return ITH_OK;
}

/* Calls MPI_Init_thread and waits for it. After a failure MPI cannot be used in this process; if MPI has started
 * nevertheless, it is finalised at exit. */
static ith_status start_library(mpi_presence *presence, double seconds, char *sentence, size_t bytes)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_init, NULL)) {
        snprintf(sentence, bytes, "no thread could be started for MPI_Init_thread");
        return ITH_ERR_MEMORY;
    }
    pthread_detach(thread);
    ith_status status = await_init(presence, seconds, sentence, bytes);
    unusable = status != ITH_OK;
    if (ith_mpi_presence_refused(presence))
        ith_mpi_await(&init.done, ith_watch_now() + REFUSED_SECONDS);
    if (atomic_load(&init.done) && init.code == MPI_SUCCESS)
        atexit(finalize_at_exit);
    return status;
}

static ith_status initialize(mpi_presence *presence, double seconds, char *sentence, size_t bytes)
{
    make_library_global();
    set_defaults();
    ith_status status = start_library(presence, seconds, sentence, bytes);
    if (status)
        return status;
    if (init.code != MPI_SUCCESS) {
        snprintf(sentence, bytes, "MPI_Init_thread failed");
        return ITH_ERR_IO;
    }
    if (init.level >= MPI_THREAD_SERIALIZED)
        return ITH_OK;
    snprintf(sentence, bytes, "this MPI does not offer MPI_THREAD_SERIALIZED");
    return ITH_ERR_UNSUPPORTED;
}

ith_status ith_mpi_start(mpi_presence *presence, double seconds, char *sentence, size_t bytes)
{
    int initialized = 0, finalized = 0;
    ith_status status = check_library(sentence, bytes);
    if (status)
        return status;
    limit_seconds = seconds > limit_seconds ? seconds : limit_seconds;
    if (!unusable)
        MPI_Finalized(&finalized);
    if (finalized || unusable) {
        snprintf(sentence, bytes, "%s",
                 finalized
                     ? "MPI has been finalised in this process"
                     : "an earlier group of this process has lost a process, so MPI cannot be used again: start the "
                       "processes anew");
        return ITH_ERR_UNSUPPORTED;
    }
    MPI_Initialized(&initialized);
    if (!started)
        status = initialized ? join_application(sentence, bytes) : initialize(presence, seconds, sentence, bytes);
    if (!status)
        status = check_launcher(sentence, bytes);
    started |= !status;
    return status;
}
