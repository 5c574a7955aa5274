/* Timed exchanges. */
#include "transit.h"

#include "../base/clock.h"
#include "../comm/block.h"

static void count_bytes(ith_transit *t, const ith_comm *comm, const ith_transfer *sends, int counted)
{
    for (int i = 0; i < counted; i++)
        if (sends[i].peer != comm->rank)
            t->counters->sent_bytes += ith_block_bytes(&sends[i].block);
}

static void one_done(ith_transit *t)
{
    if (--t->under_way == 0)
        t->counters->exchange_seconds += ith_clock_seconds() - t->since_seconds;
}

void ith_transit_begin(ith_transit *t, ith_plan_counters *counters)
{
    *t = (ith_transit){.counters = counters};
}

ith_status ith_transit_post(ith_transit *t, ith_comm *comm, const ith_transfer *sends, int send_count, int counted,
                            const ith_transfer *receives, int receive_count, ith_request **request)
{
    if (t->status)
        return t->status;
    t->status = comm->ops->exchange(comm, sends, send_count, receives, receive_count, request);
    if (t->status)
        return t->status;
    count_bytes(t, comm, sends, counted);
    if (t->under_way++ == 0)
        t->since_seconds = ith_clock_seconds();
    return ITH_OK;
}

void ith_transit_test(ith_transit *t, ith_comm *comm, ith_request **request)
{
    bool done = false;
    if (!*request || t->status)
        return;
    t->status = comm->ops->test(comm, request, &done);
    if (done)
        one_done(t);
}

ith_status ith_transit_wait(ith_transit *t, ith_comm *comm, ith_request **request)
{
    if (!*request)
        return t->status;
    double start = ith_clock_seconds();
    ith_status status = comm->ops->wait(comm, request);
    one_done(t);
    t->counters->waiting_seconds += ith_clock_seconds() - start;
    t->status = t->status ? t->status : status;
    return t->status;
}
