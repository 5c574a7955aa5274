/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a context that are private to the libraries: errors, memory, interruption, and the state that a family
 * of contexts shares. The public ones are in ithaca/ithaca.h. */
#ifndef ITH_BASE_CONTEXT_H
#define ITH_BASE_CONTEXT_H

#include <ithaca/ithaca.h>

/* Records the sentence and returns status, so that a failure is one line: return ith_fail(ctx, ITH_ERR_..., "...").
 * The sentence is cut at ITH_ERROR_BYTES. Without a context it is the thread's: ith_context_error(NULL). */
#define ITH_ERROR_BYTES 1024
ith_status ith_fail(ith_context *context, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ITH_ERR_ARGUMENT, and the sentence "NAME is NULL", if pointer is. */
ith_status ith_need(ith_context *context, const void *pointer, const char *name);

/* Puts the formatted text and ": " before the sentence of a failure that is passed on. Returns status. */
ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void ith_log(ith_context *context, ith_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The sentence of the last failure, for ith_context_error. */
const char *ith_context_sentence(const ith_context *context);

/* The caller's pool that runs the loops of this context; NULL: OpenMP does. */
ith_parallel_fn ith_context_parallel(const ith_context *context, void **user);

/* Bytes held by the family now, and the most that it ever held. */
int64_t ith_context_bytes(const ith_context *context);
int64_t ith_context_peak_bytes(const ith_context *context);

/* Allocates count * size_bytes bytes, aligned to 64. Returns NULL on failure or overflow and records a sentence that
 * names `what` (ITH_ERR_MEMORY). A pointer for 0 bytes must be freed too. */
void *ith_alloc(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Bytes that ith_alloc adds to each allocation, and counts. */
#define ITH_ALLOC_HEADER 64
/* The same, zeroed. */
void *ith_alloc_zero(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Frees and accepts NULL. */
void ith_free(ith_context *context, void *pointer);
/* A copy of text, to be freed with ith_free. */
char *ith_strdup(ith_context *context, const char *text);
/* printf into a new string, to be freed with ith_free; NULL on failure, as from ith_alloc. */
char *ith_format(ith_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether both are of one family: clones of one another or of the same one. */
bool ith_context_is_family(const ith_context *context, const ith_context *other);

/* Adds a reference, and removes one; the last one frees the context. An object holds the context that it was made with;
 * ith_context_destroy removes the caller's reference only. ith_context_hold returns context. Any thread. */
ith_context *ith_context_hold(ith_context *context);
void ith_context_release(ith_context *context);

/* ITH_ERR_UNSUPPORTED with a sentence in any process but the one that created the family's root: after a fork its
 * threads do not exist. */
ith_status ith_context_check_process(ith_context *context);

/* The rank that the context works for, which is its row in a trace; 0 at first, and its parent's for a clone. */
int ith_context_rank(const ith_context *context);
void ith_context_set_rank(ith_context *context, int rank);

/* ---- The family: a context, its parent and all their clones ---- */

/* Zeroed memory, aligned to 64, that is not counted as in use; NULL with a recorded sentence on failure. Any context of
 * the family releases it with ith_context_drop, which accepts NULL. */
void *ith_context_keep(ith_context *context, int64_t bytes, const char *what);
void ith_context_drop(ith_context *context, void *block);
/* The trace of the family (trace.h); NULL: nothing is recorded. The setter returns the previous one. The last one is
 * freed with the family. */
struct ith_trace *ith_context_trace(const ith_context *context);
struct ith_trace *ith_context_set_trace(ith_context *context, struct ith_trace *trace);
/* Sets or clears the request to stop every computation of the family, and reads it. Any thread may call both, a signal
 * handler the setter. Long loops read it every few milliseconds and return ITH_ERR_INTERRUPTED. Reading also asks the
 * context's observer (observer.h). */
void ith_context_interrupt(ith_context *context, bool interrupted);
bool ith_context_interrupted(const ith_context *context);
/* ITH_ERR_INTERRUPTED, with the sentence "stopped on request". */
ith_status ith_fail_interrupted(ith_context *context);
/* Returns ith_fail_interrupted if the context is interrupted, otherwise ITH_OK. */
ith_status ith_context_check(ith_context *context);
/* The observer of the context (observer.h), or NULL. Clones made later inherit it. */
struct ith_observer *ith_context_observer(const ith_context *context);
void ith_context_set_observer(ith_context *context, struct ith_observer *observer);
/* Locks the family's memory for wisdom and returns it: zeros at first, and `bytes` is the same in every call. Other
 * threads wait until it is unlocked. Returns NULL without a lock, and records a sentence, if there is no memory. */
void *ith_context_lock_wisdom(ith_context *context, int64_t bytes);
void ith_context_unlock_wisdom(ith_context *context);

#endif
