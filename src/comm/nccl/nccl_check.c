/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of NCCL and CUDA (nccl_state.h). */
#include "nccl_state.h"

#include <time.h>

/* If a rank dies, or sends data that another rank does not take, NCCL reports an error that names no rank. The inner
 * transport has this time to find the reason. */
#define GRACE_SECONDS 0.5
#define NAP_SECONDS 0.005

/* Waits a little for a failure of the inner transport, or for records that contradict the request. */
static bool has_failed(nccl_state *s, nccl_request *request)
{
    const ith_transport *inner = s->world->inner;
    const char *sentence;
    for (int i = 0; i < (int)(GRACE_SECONDS / NAP_SECONDS); i++) {
        inner->alive(s->inner);
        if (inner->failure(s->inner, &sentence) || ith_nccl_take_records(s, request, 0))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = (long)(NAP_SECONDS * 1e9)}, NULL);
    }
    return false;
}

ith_status ith_nccl_check(nccl_state *s, nccl_request *request, ncclResult_t result, const char *call)
{
    char name[NCCL_NAME], operation[NCCL_OPERATION];
    if (result == ncclSuccess || result == ncclInProgress)
        return ITH_OK;
    if (has_failed(s, request))
        return ith_nccl_settle(s->world);
    const char *more = ith_nccl.get_last_error(NULL);
    return ith_nccl_fail(s, ITH_ERR_IO, "%s of %s failed in %s: %.200s%s%.300s", call, ith_nccl_name(s, s->rank, name),
                         ith_nccl_operation(s, request, operation), ith_nccl.get_error_string(result),
                         more && more[0] ? ": " : "", more ? more : "");
}

ith_status ith_nccl_check_cuda(nccl_state *s, const nccl_request *request, CUresult result, const char *call)
{
    char name[NCCL_NAME], operation[NCCL_OPERATION];
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return ITH_OK;
    if (ith_cuda_driver.get_error_string(result, &text) != CUDA_SUCCESS || !text)
        text = "unknown error";
    return ith_nccl_fail(s, result == CUDA_ERROR_OUT_OF_MEMORY ? ITH_ERR_MEMORY : ITH_ERR_IO,
                         "%s of %s failed in %s: %.200s", call, ith_nccl_name(s, s->rank, name),
                         ith_nccl_operation(s, request, operation), text);
}
