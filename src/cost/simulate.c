/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates executions of a plan on all ranks, by discrete events (ith_plan_simulate). Each rank is a walk (walker.h);
 * the rank whose clock is earliest takes the next step.
 *
 *     POST  the rank's part is posted; the exchange of each peer is ready when all of its peers have posted theirs
 *     WAIT  the rank stops until its exchange is ready, and then until it has ended on every link
 *     meetings (an all-gather, a barrier): the ranks stop until the last one has come
 *
 * Ranks that want more compute units than their host has take turns: work waits for the unit that is free first. A link
 * that several ranks share serves their exchanges one after another, in the order of their posts. */
#include "simulate.h"

#include "../base/random_numbers.h"
#include "../base/size.h"
#include "../base/trace.h"

#include <math.h>
#include <string.h>

/* The work between two questions whether to stop: in steps of the walks, or in bytes of cleared memory. */
#define STEPS_PER_CHECK 64
#define CLEARED_PER_CHECK (4 << 20)

/* Counts a step of a walk, or the visit of a rank by a loop over all ranks. Asks now and then whether to stop, and
 * returns the answer, which stays. */
static bool stops(ith_simulator *s)
{
    if (++s->unchecked >= STEPS_PER_CHECK) {
        s->unchecked = 0;
        s->stopped |= ith_context_interrupted(s->context);
    }
    return s->stopped;
}

/* ---- Times ----------------------------------------------------------------------------------------------------- */

static double uniform(uint64_t *state)
{
    return ((double)(ith_random_word(state) >> 11) + 0.5) * 0x1p-53;
}

/* The first state of the random numbers of a rank. It is a random number itself, so that no rank has the numbers of
 * another one a few draws later. */
static uint64_t first_state(int64_t seed, int rank)
{
    uint64_t state = (uint64_t)seed * 0x2545f4914f6cdd1du + (uint64_t)rank;
    return ith_random_word(&state);
}

/* The time of a piece of work over its price, with the jitter that the caller wants (Box and Muller, 1958). The jitter
 * leaves at least a tenth of the price, because work never takes no time. */
static double stretch(ith_simulator *s, int rank)
{
    double factor = rank == s->wanted.slow_rank ? s->wanted.slow_factor : 1;
    if (s->wanted.jitter > 0) {
        const double length = sqrt(-2 * log(uniform(&s->ranks[rank].random)));
        const double normal = length * cos(2 * M_PI * uniform(&s->ranks[rank].random));
        factor *= fmax(1 + s->wanted.jitter * normal, 0.1);
    }
    return factor;
}

static int rank_of(const ith_walker *w)
{
    return w->schedule.ring_index * w->price->setting.ulysses + w->schedule.ulysses_index;
}

/* The work of a rank (ith_walk_work_fn): it waits for a unit if the ranks of its host want more than there are. */
static double take_unit(void *user, const ith_walker *w, const char *name, double *seconds)
{
    ith_simulator *s = user;
    const int rank = rank_of(w);
    double begin = w->sum.now;
    *seconds *= stretch(s, rank) * s->own_turns;
    if (s->slots) {
        double *host = s->slots + rank / s->price->view->unit_ranks * s->host_slots, *first = host;
        for (int64_t i = 1; i < s->host_slots; i++)
            first = host[i] < *first ? host + i : first;
        begin = fmax(begin, *first);
        *first = begin + *seconds;
    }
    ith_trace_simulated(s->context, rank, begin, begin + *seconds, name, "compute");
    return begin - w->sum.now;
}

/* ---- Events ---------------------------------------------------------------------------------------------------- */

/* The order of the heap of ranks that may go on: the earliest rank first. Of ranks with the same time, the rank that
 * was pushed first. */
static bool earlier(const ith_event *a, const ith_event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

/* The rank takes its next step at some time. */
static void push_at(ith_simulator *s, int rank, double time)
{
    ith_event event = {time, s->events++, rank};
    int64_t at = s->heap_count++;
    for (; at > 0 && earlier(&event, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = event;
}

static void push(ith_simulator *s, int rank)
{
    push_at(s, rank, s->ranks[rank].walker.sum.now);
}

static int pop(ith_simulator *s)
{
    const int rank = s->heap[0].rank;
    const ith_event last = s->heap[--s->heap_count];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < s->heap_count; at = child) {
        if (child + 1 < s->heap_count && earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!earlier(&s->heap[child], &last))
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return rank;
}

/* ---- Meetings -------------------------------------------------------------------------------------------------- */

/* The rank has come to a meeting of `count` ranks: first, first + step, ... When the last one has come, all go on. */
static void meet(ith_simulator *s, ith_meeting *m, int rank, int first, int step, int count)
{
    const double now = s->ranks[rank].walker.sum.now;
    m->latest = m->come ? fmax(m->latest, now) : now;
    s->ranks[rank].begun = now;
    if (++m->come < count)
        return;
    m->come = 0;
    for (int i = 0, other = first; i < count; i++, other += step) {
        ith_simulated_rank *r = &s->ranks[other];
        ith_walker_idle(&r->walker, m->latest + s->barrier);
        ith_trace_simulated(s->context, other, r->begun, m->latest + s->barrier, "a barrier", ITH_TRACE_WAIT);
        push(s, other);
    }
}

static void meet_all(ith_simulator *s, int rank)
{
    meet(s, &s->all, rank, 0, 1, s->rank_count);
}

static void gather(ith_simulator *s, int rank)
{
    const ith_attn_setting *set = &s->price->setting;
    if (set->problem.replicated_kv)
        meet_all(s, rank);
    else
        meet(s, &s->rings[rank % set->ulysses], rank, rank % set->ulysses, set->ulysses, set->ring);
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

/* The exchange of a rank is ready: if the rank waits for it, the rank goes on. */
static void make_ready(ith_simulator *s, int rank, int exchange, const ith_posted_part *last)
{
    ith_simulated_rank *r = &s->ranks[rank];
    ith_walk_exchange *e = &r->walker.exchanges[exchange];
    e->ready = last->time;
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        e->least[level] = last->group_end[level];
    if (r->waits_for == exchange) {
        r->waits_for = -1;
        push(s, rank);
    }
}

/* Adds the bytes that a rank sends to the links that it shares with the ranks of its groups. */
static ith_posted_part occupy_links(ith_simulator *s, int rank, const ith_walk_exchange *e, const ith_traffic *traffic)
{
    const ith_machine_view *view = s->price->view;
    ith_posted_part part = {.time = e->posted};
    for (int level = 0; level < view->machine.level_count; level++) {
        const double rate = view->levels[level].group_bytes_per_second;
        if (rate <= 0 || traffic->sent[level] <= 0)
            continue;
        const int64_t group = level ? rank / view->joined[level - 1] : rank;
        double *link = &s->links[level][group];
        *link = fmax(*link, e->posted) + traffic->sent[level] / rate;
        part.group_end[level] = *link;
    }
    return part;
}

/* A rank has posted its part of an all-to-all. When all ranks of its axis have posted theirs, all parts are ready. */
static void post_on_axis(ith_simulator *s, int rank, int exchange, const ith_posted_part *part)
{
    const int ulysses = s->price->setting.ulysses, axis = rank / ulysses;
    const int64_t number = s->ranks[rank].axis_posts++;
    ith_axis_post *p = &s->axes[axis * ITH_POSTS_KEPT + number % ITH_POSTS_KEPT];
    ith_posted_combine(&p->latest, part); /* beyond earlier all-to-alls, because times only grow */
    if (++p->posted < ulysses)
        return;
    p->posted = 0;
    for (int u = 0; u < ulysses; u++)
        make_ready(s, axis * ulysses + u, exchange, &p->latest);
}

/* The left (0) or right (1) neighbour of a rank on the ring. */
static int neighbour(const ith_simulator *s, int rank, int side)
{
    const int ulysses = s->price->setting.ulysses;
    return (rank + (side ? ulysses : s->rank_count - ulysses)) % s->rank_count;
}

/* Sets with[0] and with[1] to whether a rank exchanges shards with its left and its right neighbour in this hop. On a
 * line a shard moves on as long as there is a rank that has not had it. */
static void find_neighbours(const ith_walker *w, bool with[2])
{
    const int ring = w->price->setting.ring, r = w->schedule.ring_index, hop = w->step.hop;
    const bool round = w->price->setting.direction == ITH_DIRECTION_UNI;
    with[0] = round || (r > 0 && (r - 1 - hop >= 0 || r + hop < ring));
    with[1] = round || (r + 1 < ring && (r - hop >= 0 || r + 1 + hop < ring));
}

/* Hop `number` of a rank is ready if the neighbours with which the rank exchanges rows have posted their hops. */
static void try_hop(ith_simulator *s, int rank, int64_t number)
{
    ith_simulated_rank *r = &s->ranks[rank];
    if (r->hop_posts != number + 1 || r->walker.exchanges[ITH_EXCHANGE_HOP].ready < INFINITY)
        return; /* not posted yet, or ready before */
    ith_posted_part latest = r->hops[number % ITH_HOPS_KEPT];
    for (int side = 0; side < 2; side++) {
        if (!r->with[side])
            continue;
        const ith_simulated_rank *other = &s->ranks[neighbour(s, rank, side)];
        if (other->hop_posts <= number)
            return;
        ith_posted_combine(&latest, &other->hops[number % ITH_HOPS_KEPT]);
    }
    make_ready(s, rank, ITH_EXCHANGE_HOP, &latest);
}

static void post_hop(ith_simulator *s, int rank, const ith_posted_part *part)
{
    ith_simulated_rank *r = &s->ranks[rank];
    const int64_t number = r->hop_posts++;
    r->hops[number % ITH_HOPS_KEPT] = *part;
    find_neighbours(&r->walker, r->with);
    try_hop(s, rank, number);
    for (int side = 0; side < 2; side++)
        try_hop(s, neighbour(s, rank, side), number);
}

/* Begins a POST step: the rank copies and compresses. end_post follows when its clock is the earliest, so that shared
 * links serve the posts of all ranks in the order of their times. */
static void post(ith_simulator *s, int rank)
{
    ith_simulated_rank *r = &s->ranks[rank];
    ith_walker_post(&r->walker, false, &r->traffic)->ready = INFINITY;
    if (r->walker.step.exchange != ITH_EXCHANGE_HOP)
        s->unchecked = STEPS_PER_CHECK; /* many ranks may take long to price */
    r->posting = true;
    push(s, rank);
}

static void end_post(ith_simulator *s, int rank)
{
    ith_simulated_rank *r = &s->ranks[rank];
    const int exchange = r->walker.step.exchange;
    const ith_posted_part part = occupy_links(s, rank, &r->walker.exchanges[exchange], &r->traffic);
    r->posting = false;
    if (exchange == ITH_EXCHANGE_HOP)
        post_hop(s, rank, &part);
    else
        post_on_axis(s, rank, exchange, &part);
    push(s, rank);
}

/* Whether a rank has posted an exchange and it is not known yet when its peers post theirs. */
static bool is_peer_awaited(const ith_walker *w)
{
    for (int i = 0; i < ITH_EXCHANGES; i++)
        if (w->exchanges[i].active && w->exchanges[i].ready == INFINITY)
            return true;
    return false;
}

/* The time at which a rank's wait ends, if no other exchange of it becomes ready before. */
static double end_of_wait(const ith_walker *w)
{
    ith_walker copy = *w;
    copy.work = NULL;
    copy.exchanges[copy.step.exchange].restore = 0;
    ith_walker_wait(&copy);
    return copy.sum.now;
}

/* Another exchange that becomes ready during the wait uses the links too. So the wait is walked when all ranks have
 * come to its end. */
static void wait(ith_simulator *s, int rank)
{
    ith_simulated_rank *r = &s->ranks[rank];
    const ith_walk_exchange *e = &r->walker.exchanges[r->walker.step.exchange];
    if (e->active && e->ready == INFINITY) {
        r->waits_for = r->walker.step.exchange;
        r->stopped = true;
        return;
    }
    if (s->heap_count > 0 && is_peer_awaited(&r->walker)) {
        const double until = end_of_wait(&r->walker);
        if (s->heap[0].time < until) {
            r->stopped = true;
            push_at(s, rank, until);
            return;
        }
    }
    const double posted = e->posted, begin = ith_walker_wait(&r->walker), end = r->walker.sum.now;
    ith_trace_simulated(s->context, rank, begin, end, "an exchange", ITH_TRACE_WAIT);
    ith_trace_simulated(s->context, rank, posted, end, "under way", ITH_TRACE_EXCHANGE);
    push(s, rank);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* One step of the packing of a ring in place. The rank meets the others, unless the chunk is the first, packs its
 * shard, and meets the others again. */
static void pack(ith_simulator *s, int rank)
{
    ith_simulated_rank *r = &s->ranks[rank];
    if (r->packing == ITH_PACKING_NONE) {
        r->packing = ITH_PACKING_NEXT;
        if (r->walker.step.chunk > 0) {
            meet_all(s, rank);
            return;
        }
    }
    if (r->packing == ITH_PACKING_NEXT) {
        r->packing = ITH_PACKING_DONE;
        ith_walker_pack(&r->walker);
        meet_all(s, rank);
        return;
    }
    r->packing = ITH_PACKING_NONE;
    ith_walker_compute(&r->walker);
    push(s, rank);
}

/* Lets a rank take its next step. It computes as far as it can without the others, unless ranks take turns on the units
 * of a host: then the earliest goes first. */
static void take_step(ith_simulator *s, int rank)
{
    ith_simulated_rank *r = &s->ranks[rank];
    ith_walk_stop stop = r->packing ? ITH_WALK_PACK : ITH_WALK_WAIT;
    if (r->posting) {
        end_post(s, rank);
        return;
    }
    if (!r->stopped && !r->packing)
        stop = ith_walker_next(&r->walker);
    while ((stop == ITH_WALK_COMPUTED || stop == ITH_WALK_HOP) && !s->slots && !stops(s))
        stop = ith_walker_next(&r->walker);
    r->stopped = false;
    switch (stop) {
    case ITH_WALK_COMPUTED:
    case ITH_WALK_HOP: push(s, rank); break;
    case ITH_WALK_POST: post(s, rank); break;
    case ITH_WALK_WAIT: wait(s, rank); break;
    case ITH_WALK_GATHER: gather(s, rank); break;
    case ITH_WALK_PACK: pack(s, rank); break;
    case ITH_WALK_END: break;
    }
}

static double latest(const ith_simulator *s)
{
    double time = 0;
    for (int rank = 0; rank < s->rank_count; rank++)
        time = fmax(time, s->ranks[rank].walker.sum.now);
    return time;
}

/* Puts a rank at the beginning of its schedule. Its sums go on. */
static void start_walk(ith_simulator *s, int rank, double begin)
{
    ith_walker *w = &s->ranks[rank].walker;
    ith_walker fresh = ith_walker_of(s->price, rank, begin);
    fresh.sum = w->sum;
    fresh.sum.now = begin;
    fresh.work = take_unit, fresh.user = s;
    *w = fresh;
}

/* Lets every rank do its other work from the time `begin` on. Returns the time at which the last rank has done it. */
static double do_other_work(ith_simulator *s, double begin)
{
    if (!(s->wanted.work_seconds > 0))
        return begin;
    for (int rank = 0; rank < s->rank_count && !stops(s); rank++) {
        start_walk(s, rank, begin);
        ith_walker_work(&s->ranks[rank].walker, "other work", s->wanted.work_seconds, &s->ranks[rank].other);
    }
    const double end = latest(s);
    for (int rank = 0; rank < s->rank_count && !stops(s); rank++)
        ith_trace_simulated(s->context, rank, s->ranks[rank].walker.sum.now, end, "a barrier", ITH_TRACE_WAIT);
    return end;
}

/* Simulates one execution, which begins when all ranks have done their other work and have agreed. */
static ith_status execute(ith_simulator *s, double start)
{
    const double begin = do_other_work(s, latest(s)) + start;
    for (int rank = 0; rank < s->rank_count && !stops(s); rank++) {
        start_walk(s, rank, begin);
        push(s, rank);
    }
    while (s->heap_count > 0 && !stops(s))
        take_step(s, pop(s));
    return s->stopped ? ith_fail_interrupted(s->context) : ITH_OK;
}

/* ---- The result ------------------------------------------------------------------------------------------------ */

static ith_cost conclude(const ith_simulator *s, double start, double executions)
{
    ith_cost cost = ITH_COST_INIT;
    const ith_simulated_rank *busiest = &s->ranks[0];
    double sent = 0, all = 0;
    for (int rank = 0; rank < s->rank_count; rank++) {
        const ith_walker *w = &s->ranks[rank].walker;
        busiest = ith_walker_is_busier(w, &busiest->walker) ? &s->ranks[rank] : busiest;
        sent = fmax(sent, w->sum.sent);
        all += ith_walker_busy(w);
    }
    cost.seconds = latest(s) / executions;
    cost.start_seconds = start;
    const double busy = ith_walker_busy(&busiest->walker);
    ith_walker_report(&busiest->walker, executions, &cost);
    cost.waiting_seconds = fmax(cost.seconds - start - (busy + busiest->other) / executions, 0);
    if (all > 0)
        cost.imbalance = busy * s->rank_count / all;
    cost.sent_bytes = (int64_t)fmin(sent / executions, 0x1p62);
    return cost;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void lay_out(ith_simulator *s, ith_arena *arena)
{
    const ith_attn_setting *set = &s->price->setting;
    const ith_machine_view *view = s->price->view;
    const int64_t ranks = s->rank_count;
    s->ranks = ith_arena_take(arena, ranks, sizeof *s->ranks);
    s->heap = ith_arena_take(arena, ranks, sizeof *s->heap);
    s->axes = ith_arena_take(arena, (int64_t)set->ring * ITH_POSTS_KEPT, sizeof *s->axes);
    s->rings = ith_arena_take(arena, set->ulysses, sizeof *s->rings);
    s->slots = NULL;
    if (s->host_slots < view->unit_ranks)
        s->slots = ith_arena_take(arena, ith_div_up(ranks, view->unit_ranks) * s->host_slots, sizeof *s->slots);
    for (int level = 0; level < view->machine.level_count; level++)
        s->links[level] = ith_arena_take(arena, ith_div_up(ranks, level ? view->joined[level - 1] : 1), sizeof(double));
}

/* Fills the memory of the simulation with zeros. Many ranks have gigabytes, which take seconds. */
static void clear(ith_simulator *s, char *memory, int64_t bytes)
{
    for (int64_t done = 0; done < bytes && !s->stopped; done += CLEARED_PER_CHECK) {
        memset(memory + done, 0, (size_t)ith_min64(bytes - done, CLEARED_PER_CHECK));
        s->stopped |= ith_context_interrupted(s->context);
    }
}

static ith_status simulate(ith_simulator *s, ith_cost *cost)
{
    const int64_t executions = ith_max64(s->wanted.executions, 1);
    const double start = s->rank_count > 1 ? s->price->view->machine.start_seconds + 2 * s->barrier : 0;
    for (int rank = 0; rank < s->rank_count && !stops(s); rank++) {
        s->ranks[rank].waits_for = -1;
        s->ranks[rank].random = first_state(s->wanted.seed, rank);
    }
    ith_status status = s->stopped ? ith_fail_interrupted(s->context) : ITH_OK;
    for (int64_t i = 0; i < executions && !status; i++)
        status = execute(s, start);
    if (!status)
        *cost = conclude(s, start, (double)executions);
    return status;
}

ith_status ith_simulator_run(ith_context *context, const ith_price *price, const ith_simulation *wanted, ith_cost *cost)
{
    ith_simulator s = {.context = context, .price = price, .wanted = *wanted, .rank_count = (int)price->view->ranks};
    ith_arena arena = {0};
    s.barrier = ith_price_latency(price);
    s.host_slots = ith_max64(price->view->machine.host_units / price->units, 1);
    s.own_turns = fmax((double)price->units / (double)price->view->machine.host_units, 1);
    lay_out(&s, &arena);
    ith_status status = ith_arena_allocate(context, &arena, "a simulation");
    if (status)
        return status;
    lay_out(&s, &arena);
    clear(&s, arena.base, arena.used_bytes);
    status = simulate(&s, cost);
    ith_free(context, arena.base);
    return status;
}
