/* SPDX-License-Identifier: Apache-2.0 */
/* Timed exchanges. */
#include "transit.h"

#include "../../base/clock.h"
#include "../../base/trace.h"

static void count_bytes(ith_transit *t, const ith_comm *comm, const ith_transfer *sends, int counted)
{
    for (int i = 0; i < counted; i++)
        if (sends[i].peer != comm->rank)
            t->counters->sent_bytes += ith_region_bytes(&sends[i].region);
}

static void one_done(ith_transit *t, const ith_context *context)
{
    if (--t->under_way > 0)
        return;
    t->counters->exchange_seconds += ith_clock_seconds() - t->since_seconds;
    ith_trace_end(context, t->traced, "under way", ITH_TRACE_EXCHANGE);
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
    t->status = ith_comm_post(comm, sends, send_count, receives, receive_count, request);
    if (t->status)
        return t->status;
    count_bytes(t, comm, sends, counted);
    if (t->under_way++ == 0) {
        t->since_seconds = ith_clock_seconds();
        t->traced = ith_trace_begin(comm->context);
    }
    return ITH_OK;
}

void ith_transit_test(ith_transit *t, ith_comm *comm, ith_request **request)
{
    bool done = false;
    if (!*request || t->status)
        return;
    t->status = ith_comm_test(comm, request, &done);
    if (done)
        one_done(t, comm->context);
}

ith_status ith_transit_wait(ith_transit *t, ith_comm *comm, ith_request **request)
{
    if (!*request)
        return t->status;
    double start = ith_clock_seconds(), traced = ith_trace_begin(comm->context);
    ith_status status = ith_comm_wait(comm, request);
    one_done(t, comm->context);
    t->counters->waiting_seconds += ith_clock_seconds() - start;
    ith_trace_end(comm->context, traced, "wait", "wait");
    t->status = t->status ? t->status : status;
    return t->status;
}

void ith_transit_end(const ith_transit *t, const ith_context *context)
{
    if (t->counters->exchange_seconds > 0)
        ith_trace_counter(context, "share of exchanges hidden",
                          1 - t->counters->waiting_seconds / t->counters->exchange_seconds);
}
