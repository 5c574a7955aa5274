/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a context. Only files of this folder see them. */
#ifndef ITH_BASE_CONTEXT_STATE_H
#define ITH_BASE_CONTEXT_STATE_H

#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define ITH_ALIGNMENT 64 /* of contexts and of allocations */

/* Bytes that a context and all its clones hold now, and the most that they held at any time. */
typedef struct ith_memory_count {
    atomic_int_fast64_t current_bytes, peak_bytes;
} ith_memory_count;

/* The state that a context and all its clones share. It lies in the first context, the root. Memory of contexts and of
 * this state is not counted. */
typedef struct ith_family {
    ith_memory_count count;
    _Atomic(struct ith_trace *) trace;
    atomic_int interruptions;  /* requests to stop that were not withdrawn */
    pid_t process;             /* the process that created the root */
    atomic_long *team_process; /* the variable in context_life.c of the library that created the root */
    pthread_mutex_t wisdom_lock;
    void *wisdom; /* an ith_wisdom, protected by wisdom_lock; NULL: none yet */
    pthread_mutex_t flights_lock;
    ith_kept *flights;                    /* records of ranks, protected by flights_lock */
    _Atomic(struct ith_lent_file *) lent; /* files that other processes have sent (lent_files.h); NULL: none */
} ith_family;

/* A context: the functions that its caller gave, its settings, and its error sentence. */
struct ith_context {
    ith_allocator allocator;
    ith_log_fn log;
    void *log_user;
    ith_log_level log_level;
    ith_parallel_fn parallel;
    void *parallel_user;
    uint32_t cpu;                  /* the instruction sets that kernels may use, as bits of ith_cpu_feature */
    int rank;                      /* the rank's number in the trace */
    double connect_limit;          /* seconds; 0: none was set */
    struct ith_device_use *device; /* NULL: the processor */
    struct ith_observer *observer;
    struct ith_activity *activity;
    atomic_int holders;  /* number of references; the last release frees the context */
    atomic_flag writing; /* set while a thread writes to `error` */
    /* the first context, from which this one is cloned directly or indirectly; a context that is no clone points to
     * itself */
    ith_context *root;
    ith_family *family;
    ith_family own; /* the state that this context shares with its clones; used only if it is no clone */
    char error[ITH_ERROR_BYTES];
};

/* The head of the list of files that other processes have sent to the family (lent_files.h). */
_Atomic(struct ith_lent_file *) *ith_context_lent(const ith_context *context);

/* The allocator of contexts that were given none. */
extern const ith_allocator ith_system_allocator;
/* Takes memory that is aligned to ITH_ALIGNMENT from an allocator. Some instructions need this alignment. Returns
 * NULL if the allocator gives no memory, or memory with a smaller alignment; *reason then says which of the two. */
void *ith_allocator_take(const ith_allocator *allocator, size_t bytes, const char **reason);

#endif
