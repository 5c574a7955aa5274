/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the results of the caller's functions (callback.h). */
#include "callback.h"

void ith_callback_begin(ith_context *context)
{
    ith_fail(context, ITH_OK, "%s", "");
}

ith_status ith_callback_end(ith_context *context, int returned, const char *name, const char *item, int64_t number)
{
    const ith_status status = (ith_status)returned;
    if (returned > ITH_OK || returned < ITH_ERR_INTERNAL)
        return ith_fail(context, ITH_ERR_ABORTED,
                        "%s returned %d for %s %lld, which is no ith_status: it counts as a failure", name, returned,
                        item, (long long)number);
    if (status && !ith_context_error(context)[0])
        return ith_fail(context, status, "%s returned %s for %s %lld", name, ith_status_name(status), item,
                        (long long)number);
    return status;
}
