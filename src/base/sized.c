/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and fills public structs of callers that were compiled with an older or a newer header (sized.h). */
#include "sized.h"

#include "context.h"

#include <stdalign.h>
#include <string.h>

#define MOST_BYTES 4096 /* no version of a struct has more bytes than this */

static size_t size_of(const void *given)
{
    size_t bytes = 0;
    memcpy(&bytes, given, sizeof bytes);
    return bytes;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

ith_status ith_sized_check(ith_context *context, const char *type, const char *init, const void *given,
                           size_t full_bytes)
{
    if (!given)
        return ith_fail(context, ITH_ERR_ARGUMENT, "the %s is NULL", type);
    size_t bytes = size_of(given);
    if (bytes > sizeof bytes && bytes <= MOST_BYTES && bytes % alignof(size_t) == 0)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "struct_size of the %s is %zu, which it has in no version (here it is %zu): set the struct to %s",
                    type, bytes, full_bytes, init);
}

/* Fails if a struct that is longer than in this library has a byte that is not 0 behind the members known here. */
static ith_status check_unknown(ith_context *context, const char *type, const void *given, size_t full_bytes)
{
    const size_t bytes = size_of(given);
    for (size_t i = full_bytes; i < bytes; i++)
        if (((const unsigned char *)given)[i])
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "the %s has %zu bytes, of which this library (%s) knows %zu, and byte %zu is not 0: a "
                            "later version's field is set",
                            type, bytes, ith_version(), full_bytes, i);
    return ITH_OK;
}

ith_status ith_sized_check_array(ith_context *context, const char *type, const char *init, const void *first,
                                 int64_t count, size_t full_bytes)
{
    ith_status status = count > 0 ? ith_sized_check(context, type, init, first, full_bytes) : ITH_OK;
    const char *at = first;
    for (int64_t i = 0; i < count && !status; i++, at += size_of(first))
        if (size_of(at) != size_of(first))
            status =
                ith_fail(context, ITH_ERR_ARGUMENT,
                         "struct_size of element %lld of the %s is %zu, and %zu of element 0: all elements have the "
                         "same",
                         (long long)i, type, size_of(at), size_of(first));
        else
            status = check_unknown(context, type, at, full_bytes);
    return status;
}

ith_status ith_sized_read(ith_context *context, const char *type, const char *init, const void *given, void *full,
                          size_t full_bytes)
{
    ith_status status = ith_sized_check(context, type, init, given, full_bytes);
    if (status)
        return status;
    size_t bytes = size_of(given);
    status = check_unknown(context, type, given, full_bytes);
    if (status)
        return status;
    memcpy((char *)full + sizeof bytes, (const char *)given + sizeof bytes, least(bytes, full_bytes) - sizeof bytes);
    return ITH_OK;
}

ith_status ith_sized_fill(ith_context *context, const char *type, const char *init, void *out, const void *full,
                          size_t full_bytes)
{
    ith_status status = ith_sized_check(context, type, init, out, full_bytes);
    if (!status)
        memcpy((char *)out + sizeof(size_t), (const char *)full + sizeof(size_t),
               least(size_of(out), full_bytes) - sizeof(size_t));
    return status;
}
