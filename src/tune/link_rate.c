/* SPDX-License-Identifier: Apache-2.0 */
/* Measures messages between ranks (link_rate.h). Exchanges follow one another in slices of about half a millisecond, in
 * both directions at the same time; the fastest slice counts. */
#include "link_rate.h"

#include "../base/clock.h"
#include "../base/size.h"
#include "../plan/agree.h"

#include <math.h>
#include <string.h>

enum {
    SMALL_BYTES = 8,        /* a message whose time is the latency */
    FIRST_BYTES = 64 << 10, /* the first message whose time gives a rate; longer ones follow */
    MOST_BYTES = 16 << 20,
    LEAST_SLICES = 3,
    MOST_SLICES = 300,
    MOST_IN_SLICE = 64
};
static const double SLICE_SECONDS = 0.0005, CLEAR_SECONDS = 0.002;

/* Ranks [0, pairs) exchange messages of `bytes` bytes with ranks [width, width + pairs). */
typedef struct link {
    ith_context *context;
    ith_comm *comm;
    int width, pairs;
    int64_t bytes;
    char *data;                 /* two messages of MOST_BYTES; NULL on ranks that never exchange */
    ith_transfer send, receive; /* of the exchange that is under way */
} link;

static bool takes_part(const link *l)
{
    int rank = ith_comm_rank(l->comm);
    return rank % l->width < l->pairs && rank < 2 * l->width;
}

/* Posts one exchange with the rank at the other end. */
static ith_status post(link *l, ith_request **request)
{
    int rank = ith_comm_rank(l->comm), peer = rank < l->width ? rank + l->width : rank - l->width;
    if (!takes_part(l))
        return ith_comm_post(l->comm, NULL, 0, NULL, 0, request);
    l->send = l->receive = (ith_transfer){peer, {.data = l->data, .count = {1, 1}, .bytes = l->bytes}};
    l->receive.region.data = l->data + MOST_BYTES;
    return ith_comm_post(l->comm, &l->send, 1, &l->receive, 1, request);
}

/* One piece of work that all ranks repeat. */
typedef ith_status (*step_fn)(link *link, void *user);

static ith_status exchange(link *l, void *user)
{
    (void)user;
    ith_request *request = NULL;
    ith_status status = post(l, &request);
    return status ? status : ith_comm_wait(l->comm, &request);
}

/* Repeats the step `count` times, and sets *time to the time of one step. */
static ith_status time_slice(link *l, step_fn step, void *user, int count, double *time)
{
    ith_status status = ith_comm_barrier(l->comm);
    double begin = ith_clock_seconds();
    for (int i = 0; !status && i < count; i++)
        status = step(l, user);
    *time = (ith_clock_seconds() - begin) / count;
    return status;
}

/* Collective. Finds the fastest time of a step: the largest of the fastest times of the ranks that take part. Rank 0
 * finds from two first steps how many steps make a slice, and how many slices there are. */
static ith_status time_step(link *l, step_fn step, void *user, double seconds, double *out)
{
    double time = 0, least = INFINITY;
    ith_status status = time_slice(l, step, user, 1, &time);
    if (!status)
        status = time_slice(l, step, user, 1, &time);
    time = fmax(time, 1e-8);
    int counts[2] = {(int)fmin(fmax(SLICE_SECONDS / time, 1), MOST_IN_SLICE)};
    counts[1] = (int)fmin(fmax(seconds / (time * counts[0]), LEAST_SLICES), MOST_SLICES);
    if (!status)
        status = ith_comm_broadcast(l->comm, counts, sizeof counts, 0);
    for (int i = 0; !status && i < counts[1]; i++) {
        status = time_slice(l, step, user, counts[0], &time);
        least = fmin(least, time);
    }
    float slowest = takes_part(l) ? (float)least : 0;
    if (!status)
        status = ith_comm_allreduce(l->comm, &slowest, 1, ITH_REDUCE_MAX);
    *out = fmax(slowest, 1e-9);
    return status;
}

/* ---- Rates ----------------------------------------------------------------------------------------------------- */

/* Finds the time of a message that `pairs` ranks send at the same time. Messages become longer until their time is
 * clearly above the latency; l->bytes is then their length. */
static ith_status time_message(link *l, int pairs, double latency, double seconds, double *time)
{
    ith_status status = ITH_OK;
    l->pairs = pairs;
    for (l->bytes = FIRST_BYTES; !status; l->bytes *= 4) {
        status = time_step(l, exchange, NULL, seconds / 6, time);
        if (*time > fmax(CLEAR_SECONDS, 20 * latency) || *time > seconds / 6 || 4 * l->bytes > MOST_BYTES)
            break;
    }
    return status;
}

/* Work of the processor that takes about as long as a message, in pieces between which the transport may move data, as
 * a plan does it. */
typedef struct busy {
    int64_t pieces;
    double sum;
    bool sends; /* whether a message is under way meanwhile */
} busy;

static ith_status compute(link *l, void *user)
{
    enum { PIECE = 20000 };
    busy *b = user;
    ith_request *request = NULL;
    ith_status status = b->sends ? post(l, &request) : ITH_OK;
    for (int64_t i = 0; !status && i < b->pieces; i++) {
        for (int n = 0; n < PIECE; n++)
            b->sum = b->sum * 0.999 + 1;
        ith_comm_alive(l->comm);
    }
    return status ? status : ith_comm_wait(l->comm, &request);
}

/* Finds how much longer ranks compute if a message of `message` seconds travels meanwhile. */
static ith_status time_exposed(link *l, double message, double seconds, double *exposed)
{
    busy work = {.pieces = 1, .sends = false};
    double alone = 0, together = 0;
    ith_status status = time_step(l, compute, &work, seconds / 8, &alone);
    work.pieces = (int64_t)fmin(fmax(1.25 * message / alone, 1), 1e6);
    if (!status)
        status = ith_comm_broadcast(l->comm, &work.pieces, sizeof work.pieces, 0);
    if (!status)
        status = time_step(l, compute, &work, seconds / 4, &alone);
    work.sends = true;
    if (!status)
        status = time_step(l, compute, &work, seconds / 2, &together);
    *exposed = fmin(fmax(together - alone, 0), message);
    return status;
}

/* bytes / seconds, or 0, which stands for "no limit", if the time is only a small part of the whole. */
static double rate_of(double bytes, double seconds, double whole)
{
    return seconds > whole / 20 ? bytes / seconds : 0;
}

static ith_status measure(link *l, double seconds, ith_link_rate *rate)
{
    double message = 0, group = 0, exposed = 0, group_bytes = 0;
    l->pairs = 1, l->bytes = SMALL_BYTES;
    ith_status status = time_step(l, exchange, NULL, seconds / 8, &rate->latency_seconds);
    if (!status && l->width > 1)
        status = time_message(l, l->width, rate->latency_seconds, seconds / 4, &group);
    group_bytes = (double)l->bytes;
    if (!status)
        status = time_message(l, 1, rate->latency_seconds, seconds / 4, &message);
    if (!status)
        status = time_exposed(l, message, seconds / 4, &exposed);
    if (status)
        return status;
    const double bytes = (double)l->bytes, travel = fmax(message - rate->latency_seconds, message / 2);
    const double copied = group_bytes / bytes * fmin(exposed, travel);
    rate->copy_bytes_per_second = rate_of(bytes, fmin(exposed, travel), travel);
    rate->bytes_per_second = rate_of(bytes, travel - fmin(exposed, travel), travel);
    if (l->width > 1)
        rate->group_bytes_per_second = rate_of(l->width * group_bytes, group - rate->latency_seconds - copied, group);
    return ITH_OK;
}

ith_status ith_link_measure(ith_context *context, ith_comm *comm, int width, double seconds, ith_link_rate *rate)
{
    link l = {.context = context, .comm = comm, .width = width};
    *rate = (ith_link_rate){0};
    ith_status status = ITH_OK;
    if (ith_comm_rank(comm) < 2 * width) {
        l.data = ith_alloc_zero(context, 2, MOST_BYTES, "timing messages");
        status = l.data ? ITH_OK : ITH_ERR_MEMORY;
    }
    status = ith_agree(context, comm, status);
    if (!status)
        status = ith_pass_on(context, comm, measure(&l, seconds, rate));
    ith_free(context, l.data);
    return status;
}

/* ---- The fixed cost of an execution ---------------------------------------------------------------------------- */

/* A plan with one query on each rank, which attends to one key that every rank has. */
typedef struct tiny {
    ith_plan *plan;
    float q[16], k[16], v[16], o[16];
} tiny;

static ith_status execute(link *l, void *user)
{
    (void)l;
    tiny *t = user;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    tensors.q = t->q, tensors.k = t->k, tensors.v = t->v, tensors.o = t->o;
    return ith_plan_execute(t->plan, &tensors);
}

ith_status ith_start_measure(ith_context *context, ith_comm *comm, double seconds, double *start_seconds)
{
    link all = {.context = context, .comm = comm, .width = ith_comm_size(comm), .pairs = ith_comm_size(comm)};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    tiny t = {.plan = NULL};
    problem.heads = 1, problem.head_dim = sizeof t.q / sizeof *t.q;
    problem.q_len = ith_comm_size(comm), problem.kv_len = 1;
    problem.replicated_kv = true;
    options.threads = 1;
    ith_status status = ith_plan_create(context, &problem, &options, comm, &t.plan);
    if (!status)
        status = ith_pass_on(context, comm, time_step(&all, execute, &t, seconds, start_seconds));
    ith_plan_destroy(&t.plan);
    return status;
}
