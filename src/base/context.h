/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of contexts that are private to the libraries: errors, memory, interruption, and the state that a context
 * shares with its clones. The public functions are in ithaca/ithaca.h. */
#ifndef ITH_BASE_CONTEXT_H
#define ITH_BASE_CONTEXT_H

#include <ithaca/ithaca.h>

/* Records an error sentence in the context and returns status, so that a failure is one line: return ith_fail(ctx,
 * ITH_ERR_..., "..."). A sentence that is too long for ITH_ERROR_BYTES loses its middle. If context is NULL, the error
 * sentence is recorded for the calling thread, for ith_context_error(NULL). */
#define ITH_ERROR_BYTES 1024
ith_status ith_fail(ith_context *context, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks that a pointer is not NULL. If it is, records the error sentence "NAME is NULL" and returns
 * ITH_ERR_ARGUMENT. */
ith_status ith_need(ith_context *context, const void *pointer, const char *name);
/* Checks three arguments of a function that makes an object: the context, `from`, whose name is given, and out. */
ith_status ith_need_to_make(ith_context *context, const void *from, const char *name, const void *out);

/* Puts the formatted text and ": " before the error sentence that is already in the context. Returns status. */
ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Passes a line to the caller's log function, if the caller wants lines of this level. */
void ith_log(ith_context *context, ith_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The error sentence of the context's last failure; ith_context_error returns it to callers of the library. */
const char *ith_context_sentence(const ith_context *context);
/* Copies the error sentence, for a thread other than the thread that uses the context. */
void ith_context_copy_sentence(ith_context *context, char sentence[ITH_ERROR_BYTES]);

/* The thread pool of the caller, which runs the loops of this context, and its argument *user. NULL: OpenMP runs
 * them. */
ith_parallel_fn ith_context_parallel(const ith_context *context, void **user);

/* Bytes that the context and all its clones hold now, and the most that they held at any time. */
int64_t ith_context_bytes(const ith_context *context);
int64_t ith_context_peak_bytes(const ith_context *context);
/* To find the peak of one piece of work: the first function sets the peak to the bytes that are held now, and returns
 * the peak so far. After the work the second function, with this value, makes the peak the most at any time again. */
int64_t ith_context_restart_peak(ith_context *context);
void ith_context_raise_peak(ith_context *context, int64_t bytes);

/* Counts `bytes` more, or fewer if negative, as held: memory that does not come from the allocator. */
void ith_context_count(ith_context *context, int64_t bytes);

/* Allocates count * size_bytes bytes, aligned to 64. On failure or overflow returns NULL and records an error sentence
 * that names `what` (ITH_ERR_MEMORY). A pointer for 0 bytes must be freed too. */
void *ith_alloc(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Bytes that ith_alloc adds to each allocation. They count as held. */
#define ITH_ALLOC_HEADER 64
/* Like ith_alloc, with all bytes set to 0. */
void *ith_alloc_zero(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Frees memory of ith_alloc, ith_alloc_zero, ith_strdup or ith_format. pointer may be NULL. */
void ith_free(ith_context *context, void *pointer);
/* The bytes that an allocation holds, with its header; 0 for NULL. */
int64_t ith_alloc_bytes(const void *pointer);
/* A copy of text, to be freed with ith_free. */
char *ith_strdup(ith_context *context, const char *text);
/* Formats a new string like printf, to be freed with ith_free. On failure returns NULL, as ith_alloc does. */
char *ith_format(ith_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether one of the contexts is a clone of the other, or both are clones of a third one, directly or indirectly. */
bool ith_context_is_family(const ith_context *context, const ith_context *other);

/* ith_context_hold adds a reference and returns context; ith_context_release removes one, and the last release frees
 * the context. An object holds the context that it was made with; ith_context_destroy removes only the caller's
 * reference. Any thread may call both. */
ith_context *ith_context_hold(ith_context *context);
void ith_context_release(ith_context *context);

/* Fails with ITH_ERR_UNSUPPORTED in every process except the process that created the first context of the family: the
 * threads of that process do not exist in a forked child. */
ith_status ith_context_check_process(ith_context *context);
/* Notes that `process` uses a team of OpenMP's threads, if no process is noted yet. Returns the process that is noted.
 * If that is another process, this process was forked from it. */
long ith_context_note_team(const ith_context *context, long process);

/* The rank that a context works for, which gives its row in a trace. A clone begins with the rank of its parent, any
 * other context with 0. */
int ith_context_rank(const ith_context *context);
void ith_context_set_rank(ith_context *context, int rank);

/* The device that computes for the context (kernels/device_use.h); NULL: the processor. Clones made later inherit it.
 */
struct ith_device_use *ith_context_device_use(const ith_context *context);
void ith_context_set_device_use(ith_context *context, struct ith_device_use *device);

/* The time limit of connecting processes (ith_context_set_connect_timeout in ithaca/transport.h), in seconds. */
double ith_context_connect_limit(const ith_context *context);
void ith_context_set_connect_limit(ith_context *context, double seconds);

/* ---- The family: a context, its parent and all their clones ---- */

/* ith_context_keep allocates zeroed memory, aligned to 64, that does not count as held; NULL with an error sentence on
 * failure. The context, or any context that shares its state by cloning, may free it with ith_context_drop, which
 * accepts NULL. */
void *ith_context_keep(ith_context *context, int64_t bytes, const char *what);
void ith_context_drop(ith_context *context, void *block);
/* The flight records (comm/flight.h) of the ranks of this family: a list whose elements begin with this struct and lie
 * in memory of ith_context_keep. The family frees the records that are left. The first function locks the list and
 * returns the address of its head. */
typedef struct ith_kept {
    struct ith_kept *next;
} ith_kept;
ith_kept **ith_context_lock_flights(ith_context *context);
void ith_context_unlock_flights(ith_context *context);
/* The memory in which this context notes the computation of its rank (ith_activity in observer.h); NULL: none. */
struct ith_activity *ith_context_activity(const ith_context *context);
void ith_context_set_activity(ith_context *context, struct ith_activity *activity);
/* The trace (trace.h) that a context and its clones record; NULL: none. The second function sets it and returns the
 * previous trace. The trace is freed with the last of these contexts. */
struct ith_trace *ith_context_trace(const ith_context *context);
struct ith_trace *ith_context_set_trace(ith_context *context, struct ith_trace *trace);
/* Requests to stop every computation of a context and its clones. The first function makes a request, and the second
 * withdraws it. The third tells whether there is a request, and also asks the context's observer (observer.h). Any
 * thread may call them, and a signal handler the first two. Long loops ask every few milliseconds and return
 * ITH_ERR_INTERRUPTED. */
void ith_context_interrupt(ith_context *context);
void ith_context_end_interruption(ith_context *context);
bool ith_context_interrupted(const ith_context *context);
/* Records the error sentence "stopped on request" and returns ITH_ERR_INTERRUPTED. */
ith_status ith_fail_interrupted(ith_context *context);
/* Returns ith_fail_interrupted if the context is interrupted, otherwise ITH_OK. */
ith_status ith_context_check(ith_context *context);
/* The observer of the context (observer.h), or NULL. Clones made later inherit it. */
struct ith_observer *ith_context_observer(const ith_context *context);
void ith_context_set_observer(ith_context *context, struct ith_observer *observer);
/* Locks the memory for wisdom (plan/wisdom.h) that a context shares with its clones, and returns it. It is
 * zeroed at first, and every call passes the same `bytes`. Other threads wait until ith_context_unlock_wisdom. Without
 * memory it returns NULL, records an error sentence, and holds no lock. */
void *ith_context_lock_wisdom(ith_context *context, int64_t bytes);
void ith_context_unlock_wisdom(ith_context *context);

#endif
