/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a size that must be a multiple of another number (multiple.h). */
#include "multiple.h"

#include "../../base/context.h"
#include "../../base/size.h"

ith_status ith_multiple_check(ith_context *context, const char *name, int64_t value, int64_t base, int64_t multiple,
                              int64_t most)
{
    int64_t least = base ? base : multiple;
    if (value >= least && value <= most && (value - base) % multiple == 0)
        return ITH_OK;
    int64_t last = most - (most - base) % multiple;
    int64_t below = value < least ? least : ith_min64(value - ((value - base) % multiple), last);
    const char *rule = base ? "one more than a multiple" : "a multiple";
    if (value < least || value >= last)
        return ith_fail(
            context, ITH_ERR_ARGUMENT, "%s is %lld; it must be %s of %lld from %lld to %lld: the nearest is %lld", name,
            (long long)value, rule, (long long)multiple, (long long)least, (long long)last, (long long)below);
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld; it must be %s of %lld: the nearest are %lld and %lld", name,
                    (long long)value, rule, (long long)multiple, (long long)below, (long long)(below + multiple));
}
