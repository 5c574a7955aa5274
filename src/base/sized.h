/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of public structs. Each struct begins with a size_t that holds the size of the struct in the header that the
 * caller was compiled with. Newer versions of a struct are longer. When the library reads a shorter struct, the missing
 * members have their defaults. When the library fills a struct, it writes only the members that the struct has. */
#ifndef ITH_BASE_SIZED_H
#define ITH_BASE_SIZED_H

#include <ithaca/ithaca.h>

/* Copies the members of *given over the defaults in *full. ITH_ERR_ARGUMENT if no version of the struct has this size,
 * or if the struct is longer than in this library and an unknown byte is not 0; the error sentence names the struct,
 * its size and the macro `init`. Example: ITH_SIZED_READ(context, ith_attn_problem, ITH_ATTN_PROBLEM_INIT, given,
 * &full). */
#define ITH_SIZED_READ(context, type, init, given, full)                                                               \
    ith_sized_read(context, #type, #init, given, full, sizeof(type))
ith_status ith_sized_read(ith_context *context, const char *type, const char *init, const void *given, void *full,
                          size_t full_bytes);

/* Copies *full into the caller's struct, as far as that struct reaches; its size stays. ITH_ERR_ARGUMENT if no version
 * of the struct has its size. */
#define ITH_SIZED_FILL(context, type, init, out, full) ith_sized_fill(context, #type, #init, out, full, sizeof(type))
ith_status ith_sized_fill(ith_context *context, const char *type, const char *init, void *out, const void *full,
                          size_t full_bytes);

/* Returns the status that ITH_SIZED_FILL would return, and writes nothing. */
#define ITH_SIZED_CHECK(context, type, init, given) ith_sized_check(context, #type, #init, given, sizeof(type))
ith_status ith_sized_check(ith_context *context, const char *type, const char *init, const void *given,
                           size_t full_bytes);

/* Checks that all structs of an array have the same size, and checks each as ITH_SIZED_READ does. */
ith_status ith_sized_check_array(ith_context *context, const char *type, const char *init, const void *first,
                                 int64_t count, size_t full_bytes);

#endif
