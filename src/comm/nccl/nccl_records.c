/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the records of other ranks with the lists of this rank (nccl_state.h). */
#include "nccl_state.h"

#include "../wire/watch.h"

#include <string.h>

/* Compares the records that have come with this rank's list of receives. */
static ith_status compare(nccl_state *s, nccl_request *r)
{
    char names[2][NCCL_NAME], operation[NCCL_OPERATION];
    for (int peer = 0; peer < s->size; peer++) {
        const nccl_record *theirs = &r->in[peer], *mine = &r->expected[peer];
        if (!memcmp(mine, theirs, sizeof *mine))
            continue;
        return ith_nccl_fail(s, ITH_ERR_ARGUMENT,
                             "%s sends %lld regions of %lld bytes in all to %s in %s, and that rank receives %lld of "
                             "%lld bytes from it, or regions of other sizes",
                             ith_nccl_name(s, peer, names[0]), (long long)theirs->regions, (long long)theirs->bytes,
                             ith_nccl_name(s, s->rank, names[1]), ith_nccl_operation(s, r, operation),
                             (long long)mine->regions, (long long)mine->bytes);
    }
    return ITH_OK;
}

ith_status ith_nccl_take_records(nccl_state *s, nccl_request *r, double seconds)
{
    bool done = false;
    if (!r->awaiting)
        return ITH_OK;
    if (s->world->inner->wait(s->inner, r->posted.request, seconds, &done))
        return ith_nccl_settle(s->world);
    r->awaiting = !done;
    r->matched_at = ith_watch_now();
    return done ? compare(s, r) : ITH_OK;
}
