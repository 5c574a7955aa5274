/* SPDX-License-Identifier: Apache-2.0 */
/* What the library's own files need of a context. The public half is in ithaca/ithaca.h. */
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

/* Puts `prefix: ` before the sentence of a failure that is being passed on. Returns status. */
ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void ith_log(ith_context *context, ith_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The sentence of the last failure, for ith_context_error. */
const char *ith_context_sentence(const ith_context *context);

/* What runs the loops of this context; NULL: OpenMP. */
ith_parallel_fn ith_context_parallel(const ith_context *context, void **user);

/* Bytes held by the family now, and the most that it ever held. */
int64_t ith_context_bytes(const ith_context *context);
int64_t ith_context_peak_bytes(const ith_context *context);

/* count * size bytes, aligned to 64. NULL with a recorded sentence (ITH_ERR_MEMORY) on failure or overflow; a pointer
 * that must be freed also for 0 bytes. `what` names the thing in the sentence. */
void *ith_alloc(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Bytes that every ith_alloc takes, and counts, besides those that were asked for. */
#define ITH_ALLOC_HEADER 64
/* The same, zeroed. */
void *ith_alloc_zero(ith_context *context, int64_t count, int64_t size_bytes, const char *what);
/* Frees and accepts NULL. */
void ith_free(ith_context *context, void *pointer);
/* A copy of text, to be freed with ith_free. */
char *ith_strdup(ith_context *context, const char *text);
/* printf into a new string, to be freed with ith_free; NULL as ith_alloc. */
char *ith_format(ith_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is made with a context holds it until it is destroyed itself: ith_context_destroy gives back only the caller's
 * hold. Returns context. Any thread. */
ith_context *ith_context_hold(ith_context *context);
void ith_context_release(ith_context *context);

/* ITH_ERR_UNSUPPORTED with a sentence in a process other than that which made the first context of the family: its
 * threads are not there after a fork. */
ith_status ith_context_check_process(ith_context *context);

/* The rank that the context works for, which is its row in a trace; 0 at first, and its parent's for a clone. */
int ith_context_rank(const ith_context *context);
void ith_context_set_rank(ith_context *context, int rank);

/* What a context, its parent and all their clones have in common. It goes with the last of them, and is not
 * counted as memory in use. */

/* bytes of zeros, aligned to 64; NULL with a recorded sentence. To be released by ith_context_drop of any of the
 * family, which accepts NULL. */
void *ith_context_keep(ith_context *context, int64_t bytes, const char *what);
void ith_context_drop(ith_context *context, void *block);
/* See trace.h; NULL: nothing is recorded. The setter returns the one before; the last is dropped with the family. */
struct ith_trace *ith_context_trace(const ith_context *context);
struct ith_trace *ith_context_set_trace(ith_context *context, struct ith_trace *trace);
/* A request to stop everything that is computed with the family's contexts. Both may be called from any thread; the
 * setter also from a signal handler. Long loops ask every few milliseconds and return ITH_ERR_INTERRUPTED. To ask also
 * asks the context's observer. */
void ith_context_interrupt(ith_context *context, bool interrupted);
bool ith_context_interrupted(const ith_context *context);
/* ITH_ERR_INTERRUPTED, with the sentence "stopped on request". */
ith_status ith_fail_interrupted(ith_context *context);
/* The same if the context is interrupted, otherwise ITH_OK. */
ith_status ith_context_check(ith_context *context);
/* See observer.h; NULL: nobody observes. Of the context and of clones made later. */
struct ith_observer *ith_context_observer(const ith_context *context);
void ith_context_set_observer(ith_context *context, struct ith_observer *observer);
/* The family's block for wisdom, of as many bytes in every call, zeros at first. Nobody else has it until it is
 * unlocked. NULL, and not locked, with a recorded sentence if there is no memory for it. */
void *ith_context_lock_wisdom(ith_context *context, int64_t bytes);
void ith_context_unlock_wisdom(ith_context *context);

#endif
