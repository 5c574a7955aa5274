/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs, each of which begins with a size_t: the size that it had where the caller was compiled. Later
 * versions of a struct are longer. Bytes that only one side knows count as their default (read) or are left alone
 * (filled). */
#ifndef ITH_BASE_SIZED_H
#define ITH_BASE_SIZED_H

#include "context.h"

/* The fields that the caller gave, over those of *full, which holds the defaults. ITH_ERR_ARGUMENT, with a sentence
 * that names the struct, the size and the macro, for a size that no version can have, and for a longer struct that sets
 * a field which this library does not know. `init` is the macro: ITH_SIZED_READ(context, ith_attn_problem,
 * ITH_ATTN_PROBLEM_INIT, given, &full). */
#define ITH_SIZED_READ(context, type, init, given, full)                                                               \
    ith_sized_read(context, #type, #init, given, full, sizeof(type))
ith_status ith_sized_read(ith_context *context, const char *type, const char *init, const void *given,
                                      void *full, size_t full_bytes);

/* Copies as much of *full as the caller's struct takes; its size stays. The same refusals. */
#define ITH_SIZED_FILL(context, type, init, out, full) ith_sized_fill(context, #type, #init, out, full, sizeof(type))
ith_status ith_sized_fill(ith_context *context, const char *type, const char *init, void *out,
                                      const void *full, size_t full_bytes);

/* Whether ith_sized_fill would do it. */
#define ITH_SIZED_CHECK(context, type, init, given) ith_sized_check(context, #type, #init, given, sizeof(type))
ith_status ith_sized_check(ith_context *context, const char *type, const char *init, const void *given,
                                       size_t full_bytes);

#endif
