/* SPDX-License-Identifier: Apache-2.0 */
/* Measures messages between ranks (link_rate.h), in both directions at the same time. Between ranks of one process the
 * fastest slice of about half a millisecond counts. Between processes messages follow one another until their rate is
 * steady, because a link may carry the first ones faster than all that come later. */
#include "link_rate.h"

#include "../base/clock.h"
#include "../base/median.h"
#include "../plan/agree.h"

#include <math.h>

enum {
    SMALL_BYTES = 8,        /* a message whose time is the latency */
    FIRST_BYTES = 64 << 10, /* the first message whose time gives a rate; longer ones follow */
    LONG_BYTES = 2 << 20,
    MOST_BYTES = 16 << 20,
    LEAST_SLICES = 3,
    MOST_SLICES = 300,
    MOST_IN_SLICE = 64,
    LEAST_REPEATS = 3,
    MOST_REPEATS = 64,
    MOST_PASSES = 5 /* until the time of a message is steady */
};
static const double SLICE_SECONDS = 0.0005, CLEAR_SECONDS = 0.002;
static const double LONG_SECONDS = 0.02;
static const double STEADY = 0.1; /* times are steady if two passes differ by less than this share */

/* Ranks [0, pairs) exchange messages of `bytes` bytes with ranks [far, far + pairs). */
typedef struct link {
    ith_context *context;
    ith_comm *comm;
    int width, far, pairs; /* width: the most pairs */
    int64_t bytes;
    char *data;                 /* two messages of MOST_BYTES; NULL on ranks that never exchange */
    ith_transfer send, receive; /* of the exchange that is under way */
} link;

static bool takes_part(const link *l)
{
    int rank = ith_comm_rank(l->comm);
    return rank < l->pairs || (rank >= l->far && rank < l->far + l->pairs);
}

/* Posts one exchange with the rank at the other end. */
static ith_status post(link *l, ith_request **request)
{
    int rank = ith_comm_rank(l->comm), peer = rank < l->far ? rank + l->far : rank - l->far;
    if (!takes_part(l))
        return ith_comm_post(l->comm, NULL, 0, NULL, 0, request);
    l->send = l->receive = (ith_transfer){peer, ith_region_of(l->data, l->bytes)};
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
static ith_status time_steps(link *l, step_fn step, void *user, int count, double *time)
{
    ith_status status = ITH_OK;
    double begin = ith_clock_seconds();
    for (int i = 0; !status && i < count; i++)
        status = step(l, user);
    *time = (ith_clock_seconds() - begin) / count;
    return status;
}

/* The same, and all ranks begin together. */
static ith_status time_slice(link *l, step_fn step, void *user, int count, double *time)
{
    ith_status status = ith_comm_barrier(l->comm);
    return status ? status : time_steps(l, step, user, count, time);
}

/* The largest of the times of the ranks that take part, on all ranks. */
static ith_status longest(const link *l, double mine, double *out)
{
    float time = takes_part(l) ? (float)mine : 0;
    ith_status status = ith_comm_allreduce(l->comm, &time, 1, ITH_REDUCE_MAX);
    *out = fmax(time, 1e-9);
    return status;
}

/* Collective. Finds the fastest time of a step: the largest of the fastest times of the ranks that take part. Rank 0
 * finds from two first steps how many steps make a slice, and how many slices there are. Their number in a slice is
 * even, because ranks that begin at different times wait for one another in every second exchange. */
static ith_status time_step(link *l, step_fn step, void *user, double seconds, double *out)
{
    double time = 0, least = INFINITY;
    ith_status status = time_slice(l, step, user, 1, &time);
    if (!status)
        status = time_slice(l, step, user, 1, &time);
    time = fmax(time, 1e-8);
    int counts[2] = {(int)fmin(fmax(SLICE_SECONDS / time / 2, 1), MOST_IN_SLICE / 2) * 2};
    counts[1] = (int)fmin(fmax(seconds / (time * counts[0]), LEAST_SLICES), MOST_SLICES);
    if (!status)
        status = ith_comm_broadcast(l->comm, counts, sizeof counts, 0);
    for (int i = 0; !status && i < counts[1]; i++) {
        status = time_slice(l, step, user, counts[0], &time);
        least = fmin(least, time);
    }
    return status ? status : longest(l, least, out);
}

/* The mean of the middle half. A link that is loaded in both directions has fast and slow times, and a median
 * would be one of them. */
static double middle_mean(double *numbers, int count)
{
    const int left_out = count / 4;
    double sum = 0;
    ith_median(numbers, count); /* sorts them */
    for (int i = left_out; i < count - left_out; i++)
        sum += numbers[i];
    return sum / (count - 2 * left_out);
}

/* Collective. Repeats the step for about `seconds`, and finds its typical time from the moment at which the first rank
 * leaves a barrier. */
static ith_status time_pass(link *l, step_fn step, void *user, double seconds, double *out)
{
    double times[MOST_REPEATS] = {0}, time = 0;
    ith_status status = time_slice(l, step, user, 1, &time);
    int count = (int)fmin(fmax(seconds / fmax(time, 1e-8), LEAST_REPEATS), MOST_REPEATS);
    if (!status)
        status = ith_comm_broadcast(l->comm, &count, sizeof count, 0);
    for (int i = 0; !status && i < count; i++)
        status = time_slice(l, step, user, 1, &times[i]);
    return status ? status : longest(l, middle_mean(times, count), out);
}

/* Repeats passes until the time of a step is steady, and finds the mean of the last two: the time grows while the link
 * carries the first messages faster than all that come later, and falls while the transport finds its pace. */
static ith_status time_steady(link *l, step_fn step, void *user, double seconds, double *out)
{
    double before = 0, time = 0;
    ith_status status = time_pass(l, step, user, seconds, &time);
    for (int i = 1; !status && i < MOST_PASSES && fabs(time - before) > STEADY * time; i++) {
        before = time;
        status = time_pass(l, step, user, seconds, &time);
    }
    *out = (before + time) / 2;
    return status;
}

/* ---- Ranks of one process -------------------------------------------------------------------------------------- */

/* Messages become longer until their time is clearly above the latency. The ranks copy the messages themselves, so
 * the rest of the time is the copy. */
static ith_status measure_copies(link *l, double seconds, ith_link_rate *rate)
{
    double time = 0;
    ith_status status = time_step(l, exchange, NULL, seconds / 4, &rate->latency_seconds);
    const double clear = fmax(CLEAR_SECONDS, 20 * rate->latency_seconds);
    for (l->bytes = FIRST_BYTES; !status; l->bytes *= 4) {
        status = time_step(l, exchange, NULL, seconds / 8, &time);
        if (time > clear || time > seconds / 8 || 4 * l->bytes > MOST_BYTES)
            break;
    }
    rate->copy_bytes_per_second = (double)l->bytes / fmax(time - rate->latency_seconds, time / 2);
    return status;
}

/* ---- Ranks of several processes -------------------------------------------------------------------------------- */

/* Sets l->bytes to the length of a message whose time is clearly above the latency. The time is also so long that it
 * hardly counts if the transport has to wait for a processor now and then. */
static ith_status find_length(link *l, double latency, double seconds)
{
    double time = 0, cold = 0;
    ith_status status = ITH_OK;
    for (l->bytes = FIRST_BYTES; !status; l->bytes *= 2) {
        status = time_slice(l, exchange, NULL, 1, &cold);
        if (!status)
            status = time_slice(l, exchange, NULL, 1, &time);
        if (!status)
            status = longest(l, fmin(time, cold), &time);
        const bool is_long = time > fmax(LONG_SECONDS, 10 * latency);
        if ((is_long && (l->bytes >= LONG_BYTES || time > seconds / 2)) || 2 * l->bytes > MOST_BYTES)
            break;
    }
    return status;
}

/* Finds the time of long messages that `pairs` ranks send at the same time, less the time of empty ones. */
static ith_status time_messages(link *l, int pairs, double latency, double empty, double seconds, double *time)
{
    l->pairs = pairs;
    ith_status status = find_length(l, latency, seconds);
    if (!status)
        status = time_steady(l, exchange, NULL, seconds / 4, time);
    *time = fmax(*time - empty, *time / 2);
    return status;
}

/* Work of the processor that takes longer than a message, in pieces between which the transport may move data, as a
 * plan does it. Ranks that exchange nothing leave their processors to the others. */
typedef struct busy {
    int64_t pieces;
    double sum;
    bool sends;              /* whether a message is under way meanwhile */
    double working, waiting; /* seconds of the last step: its work, and the wait for the message behind it */
} busy;

static ith_status compute(link *l, void *user)
{
    enum { PIECE = 20000 };
    busy *b = user;
    ith_request *request = NULL;
    ith_status status = b->sends ? post(l, &request) : ITH_OK;
    double begin = ith_clock_seconds();
    for (int64_t i = 0; !status && takes_part(l) && i < b->pieces; i++) {
        for (int n = 0; n < PIECE; n++)
            b->sum = b->sum * 0.999 + 1;
        ith_comm_alive(l->comm);
    }
    b->working = ith_clock_seconds() - begin;
    begin = ith_clock_seconds();
    if (!status)
        status = ith_comm_wait(l->comm, &request);
    b->waiting = ith_clock_seconds() - begin;
    return status;
}

/* The times of work beside messages. */
typedef struct hidden {
    double copies;  /* how much longer the work takes beside a message */
    double working; /* the work beside a message */
    double waiting; /* the wait for the message behind the work */
} hidden;

/* Works without a message and beside one in turn, so that other programs slow down both alike. Takes the medians. */
static ith_status time_pairs(link *l, busy *work, int pairs, hidden *out)
{
    double more[MOST_REPEATS], working[MOST_REPEATS], waiting[MOST_REPEATS], time = 0;
    ith_status status = ITH_OK;
    for (int i = 0; !status && i < pairs; i++) {
        work->sends = false;
        status = time_slice(l, compute, work, 1, &time);
        const double alone = work->working;
        work->sends = true;
        if (!status)
            status = time_slice(l, compute, work, 1, &time);
        more[i] = work->working - alone, working[i] = work->working, waiting[i] = work->waiting;
    }
    if (!status)
        status = longest(l, ith_median(more, pairs), &out->copies);
    if (!status)
        status = longest(l, ith_median(working, pairs), &out->working);
    return status ? status : longest(l, middle_mean(waiting, pairs), &out->waiting);
}

/* Finds how much longer ranks compute if a message of `message` seconds travels meanwhile (*copies), and which share of
 * the message's time on the link passes while they compute (*overlap). apart: the time between the first rank and the
 * last that leave a barrier. */
static ith_status time_hidden(link *l, double message, double apart, double seconds, double *copies, double *overlap)
{
    busy work = {.pieces = 1, .sends = false};
    hidden found = {0};
    double piece = 0;
    int pairs = (int)fmin(fmax(seconds / (2.5 * message), LEAST_REPEATS), MOST_REPEATS);
    ith_status status = time_step(l, compute, &work, seconds / 8, &piece);
    int64_t counts[2] = {(int64_t)fmin(fmax(1.25 * message / piece, 1), 1e6), pairs};
    if (!status)
        status = ith_comm_broadcast(l->comm, counts, sizeof counts, 0);
    work.pieces = counts[0];
    if (!status)
        status = time_pairs(l, &work, (int)counts[1], &found);
    *copies = fmin(fmax(found.copies, 0), message);
    const double waiting = fmax(found.waiting - fmax(apart, 0), 0);
    *overlap = waiting > message / 10 ? fmax(message - waiting, 0) / found.working : 1;
    *overlap = fmin(*overlap, 1);
    return status;
}

/* bytes / seconds, or 0, which stands for "no limit", if the time is only a small part of the whole. */
static double rate_of(double bytes, double seconds, double whole)
{
    return seconds > whole / 20 ? bytes / seconds : 0;
}

/* A message takes setup + bytes / rate besides its latency. The times of a short and a long message give both. */
static ith_status measure_messages(link *l, double seconds, ith_link_rate *rate)
{
    double one = 0, group = 0, copies = 0, empty = 0, shorter = 0;
    ith_status status = time_step(l, exchange, NULL, seconds / 8, &rate->latency_seconds);
    if (!status)
        status = time_pass(l, exchange, NULL, seconds / 8, &empty);
    l->bytes = FIRST_BYTES;
    if (!status)
        status = time_steady(l, exchange, NULL, seconds / 16, &shorter);
    shorter = fmax(shorter - empty, 0);
    if (!status && l->width > 1)
        status = time_messages(l, l->width, rate->latency_seconds, empty, seconds, &group);
    const double group_bytes = l->width * (double)l->bytes;
    if (!status)
        status = time_messages(l, 1, rate->latency_seconds, empty, seconds, &one);
    if (!status)
        status = time_hidden(l, one, empty - rate->latency_seconds, 2 * seconds, &copies, &rate->overlap);
    if (status)
        return status;
    const double bytes = (double)l->bytes;
    const double travel = one > 1.25 * shorter ? (one - shorter) * bytes / (bytes - FIRST_BYTES) : one;
    rate->setup_seconds = fmax(one - travel, 0);
    const double shared = fmax(group - rate->setup_seconds, group / 2);
    rate->copy_bytes_per_second = rate_of(bytes, copies, travel);
    rate->bytes_per_second = rate_of(bytes, travel - copies, travel) > 0 ? bytes / travel : 0;
    if (l->width > 1 && group_bytes / shared < 0.95 * l->width * bytes / travel)
        rate->group_bytes_per_second = group_bytes / shared;
    return ITH_OK;
}

ith_status ith_link_measure(ith_context *context, ith_comm *comm, int width, int far, double seconds,
                            ith_link_rate *rate)
{
    link l = {.context = context, .comm = comm, .width = width, .far = far, .pairs = 1, .bytes = SMALL_BYTES};
    const int ranks = ith_comm_size(comm);
    const bool one_process = ith_comm_blocks(comm, 0, ranks).process_ranks == ranks;
    *rate = (ith_link_rate){.overlap = 1};
    ith_status status = ITH_OK;
    if (ith_comm_rank(comm) < far + width) {
        l.data = ith_alloc_zero(context, 2, MOST_BYTES, "timing messages");
        status = l.data ? ITH_OK : ITH_ERR_MEMORY;
    }
    status = ith_agree(context, comm, status);
    if (!status)
        status = ith_pass_on(context, comm, (one_process ? measure_copies : measure_messages)(&l, seconds, rate));
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
    link all = {.context = context, .comm = comm, .pairs = ith_comm_size(comm)};
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
