/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the transport over NCCL (nccl_state.h), and its states. */
#include "nccl_state.h"

#include "../wire/watch.h"

#include <stdlib.h>

static ith_status nccl_exchange(void *state, const ith_operation *operation)
{
    nccl_state *s = state;
    if (operation->stream)
        return ith_nccl_post(s, operation);
    s->posted++;
    s->requests[operation->request].device = false;
    ith_status status = s->world->inner->exchange(s->inner, operation);
    return status ? ith_nccl_settle(s->world) : ITH_OK;
}

static ith_status nccl_wait(void *state, int64_t number, double seconds, bool *done)
{
    nccl_state *s = state;
    if (s->requests[number].device)
        return ith_nccl_await(s, &s->requests[number], seconds, done);
    ith_status status = s->world->inner->wait(s->inner, number, seconds, done);
    return status ? ith_nccl_settle(s->world) : ITH_OK;
}

static ith_status nccl_failure(void *state, const char **sentence)
{
    const nccl_state *s = state;
    return s->world->inner->failure(s->inner, sentence);
}

static void nccl_abort(void *state, ith_status status, const char *sentence)
{
    const nccl_state *s = state;
    s->world->inner->abort(s->inner, status, sentence);
    ith_nccl_settle(s->world);
}

static void nccl_leave(void *state)
{
    nccl_state *s = state;
    nccl_world *w = s->world;
    ith_nccl_settle(w);
    for (nccl_state *one = w->states; one; one = one->next)
        ith_nccl_end(one);
    w->inner->leave(s->inner);
}

static void nccl_alive(void *state)
{
    const nccl_state *s = state;
    s->world->inner->alive(s->inner);
}

/* When the records of all peers have come, all have posted the exchange, and the device is at work. A device whose work
 * takes longer than the time limit looks like one that has stopped. */
static double nccl_silence(void *state, int64_t number, int *rank)
{
    const nccl_state *s = state;
    const nccl_request *r = &s->requests[number];
    if (!r->device || r->awaiting)
        return s->world->inner->silence(s->inner, number, rank);
    *rank = -1;
    return ith_watch_now() - r->matched_at;
}

static void nccl_notify(void *state, int64_t number)
{
    const nccl_state *s = state;
    s->world->inner->notify(s->inner, number);
}

static int64_t nccl_noticed(void *state)
{
    const nccl_state *s = state;
    return s->world->inner->noticed(s->inner);
}

static ith_status nccl_share(void *state)
{
    const nccl_state *s = state;
    ith_status status = s->world->inner->share(s->inner);
    return status ? ith_nccl_settle(s->world) : ITH_OK;
}

static void nccl_unshare(void *state)
{
    const nccl_state *s = state;
    s->world->inner->unshare(s->inner);
}

static void nccl_drain(void *state)
{
    const nccl_state *s = state;
    s->world->inner->drain(s->inner);
}

static void nccl_place(void *state, int rank, ith_place *place)
{
    const nccl_state *s = state;
    s->world->inner->place(s->inner, rank, place);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

static void free_state(nccl_state *s)
{
    free(s->members);
    free(s->requests);
    free(s->records);
    free(s->transfers);
    free(s);
}

/* Gives each request its part of the memory. */
static void share_out(nccl_state *s, int64_t requests)
{
    nccl_record *records = s->records;
    ith_transfer *transfers = s->transfers;
    for (int64_t i = 0; i < requests; i++) {
        nccl_request *r = &s->requests[i];
        r->out = records, r->in = records + s->size, r->expected = records + 2 * s->size;
        r->sends = transfers, r->receives = transfers + 2 * s->size;
        records += 3 * s->size;
        transfers += 4 * s->size;
    }
}

/* Makes a state over the inner transport's. members: NULL for the whole group. */
static nccl_state *make_state(nccl_world *w, void *inner, int64_t group, int rank, int size, const int *members)
{
    nccl_state *s = calloc(1, sizeof *s);
    const size_t requests = (size_t)w->inner->requests, all = requests * (size_t)size;
    if (!s)
        return NULL;
    s->world = w, s->inner = inner, s->group = group, s->rank = rank, s->size = size;
    s->members = calloc((size_t)size, sizeof *s->members);
    s->requests = calloc(requests, sizeof *s->requests);
    s->records = calloc(3 * all, sizeof *s->records);
    s->transfers = calloc(4 * all, sizeof *s->transfers);
    if (!s->members || !s->requests || !s->records || !s->transfers) {
        free_state(s);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        s->members[i] = members ? members[i] : i;
    share_out(s, w->inner->requests);
    pthread_mutex_lock(&w->lock);
    s->next = w->states;
    w->states = s;
    pthread_mutex_unlock(&w->lock);
    return s;
}

static ith_status nccl_split(void *state, const ith_subgroup *subgroup, void **out)
{
    const nccl_state *s = state;
    nccl_world *w = s->world;
    void *inner = NULL;
    ith_status status = w->inner->split(s->inner, subgroup, &inner);
    ith_nccl_settle(w);
    if (status)
        return status;
    *out = make_state(w, inner, subgroup->number, subgroup->rank, subgroup->size, subgroup->members);
    if (*out)
        return ITH_OK;
    w->inner->close(inner);
    return ITH_ERR_MEMORY;
}

static void nccl_close(void *state)
{
    nccl_state *s = state;
    nccl_world *w = s->world;
    ith_nccl_settle(w);
    ith_nccl_free(s);
    pthread_mutex_lock(&w->lock);
    nccl_state **link = &w->states;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    pthread_mutex_unlock(&w->lock);
    w->inner->close(s->inner);
    if (s == w->whole) {
        pthread_mutex_destroy(&w->lock);
        free(w);
    }
    free_state(s);
}

nccl_state *ith_nccl_open(const ith_transport *inner, void *inner_state, int rank, int size, double seconds)
{
    ith_place last = ITH_PLACE_INIT;
    nccl_world *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    w->inner = inner;
    w->seconds = seconds;
    w->whole = make_state(w, inner_state, 0, rank, size, NULL);
    inner->place(inner_state, size - 1, &last);
    w->several_hosts = last.host > 0;
    if (w->whole)
        return w->whole;
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

const ith_transport ith_nccl_transport = {
    .struct_size = sizeof(ith_transport),
    .name = "nccl",
    .requests = ITH_TRANSPORT_LEAST_REQUESTS,
    .exchange = nccl_exchange,
    .wait = nccl_wait,
    .failure = nccl_failure,
    .split = nccl_split,
    .abort = nccl_abort,
    .close = nccl_close,
    .leave = nccl_leave,
    .alive = nccl_alive,
    .silence = nccl_silence,
    .notify = nccl_notify,
    .noticed = nccl_noticed,
    .share = nccl_share,
    .unshare = nccl_unshare,
    .drain = nccl_drain,
    .place = nccl_place,
    .device_memory = 1,
};
