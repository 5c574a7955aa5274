/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the arguments of operations on communicators (comm_arguments.h). */
#include "comm_arguments.h"

#include <stdarg.h>
#include <stdio.h>

const char *ith_because(char reason[ITH_REASON_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, ITH_REASON_BYTES, format, arguments);
    va_end(arguments);
    return reason;
}

const char *ith_wrong_number(const char *name, int64_t number, int64_t bytes, char reason[ITH_REASON_BYTES])
{
    if (number < 0)
        return ith_because(reason, "%s is %lld, and must be 0 or more", name, (long long)number);
    if (number > INT64_MAX / bytes)
        return ith_because(reason, "%s is %lld, more than memory holds", name, (long long)number);
    return NULL;
}

const char *ith_wrong_memory(const char *name, const void *memory, const char *number_name, int64_t number,
                             char reason[ITH_REASON_BYTES])
{
    if (number > 0 && !memory)
        return ith_because(reason, "%s is NULL, and %s is %lld", name, number_name, (long long)number);
    return NULL;
}

/* list, index: where the region is. */
static const char *wrong_region(const char *list, int64_t index, const ith_region *region,
                                char reason[ITH_REASON_BYTES])
{
    const int64_t bytes = ith_region_bytes(region);
    if (bytes < 0)
        return ith_because(reason, "the sizes of %s[%lld].region are negative, or their product does not fit", list,
                           (long long)index);
    if (bytes > 0 && !region->data)
        return ith_because(reason, "%s[%lld].region.data is NULL, and the region has %lld bytes", list,
                           (long long)index, (long long)bytes);
    return NULL;
}

const char *ith_wrong_list(const char *name, const ith_transfer *list, int64_t count, int ranks,
                           char reason[ITH_REASON_BYTES])
{
    char number[32];
    snprintf(number, sizeof number, "the number of %s", name);
    const char *wrong = ith_wrong_number(number, count, sizeof *list, reason);
    if (!wrong && count > 0 && !list)
        wrong = ith_because(reason, "%s is NULL, and their number is %lld", name, (long long)count);
    for (int64_t i = 0; i < count && !wrong; i++) {
        if (list[i].peer < 0 || list[i].peer >= ranks)
            wrong = ith_because(reason, "%s[%lld].peer is %d, and the group has ranks 0 to %d", name, (long long)i,
                                list[i].peer, ranks - 1);
        else
            wrong = wrong_region(name, i, &list[i].region, reason);
    }
    return wrong;
}
