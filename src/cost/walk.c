/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of one execution of a plan (walk.h). docs/cost.md explains the model.
 *
 * A few ranks stand for all: the first one, which has the largest shares; one in the middle of the ring and its last
 * one, because a line (bidir) treats them differently; and one at the boundary of the widest level. Their schedules
 * have the same POST and WAIT steps, so they are walked side by side. An exchange is ready when the last of them has
 * posted it. On a short line all ranks are walked, and each waits for its neighbours. */
#include "walk.h"

#include "../base/context.h"
#include "../base/size.h"
#include "walker.h"

#include <math.h>

enum {
    WALKERS = 32,          /* the most ranks that are walked: all of a short line */
    MIDDLES = 32,          /* ranks that are tried for the one in the middle */
    STEPS_PER_CHECK = 1024 /* steps between two questions whether to stop */
};

typedef struct model {
    const ith_price *price;
    int count;
    ith_walker walkers[WALKERS];
    double barrier; /* seconds of a meeting of all ranks */
    bool every_hop; /* hops that repeat are walked too */
} model;

/* ---- The walk -------------------------------------------------------------------------------------------------- */

/* Ends a hop in place, where ranks do not wait for one another, and leaves out the hops like it. */
static void end_hop_in_place(const model *m, ith_walker *w)
{
    const bool skips = !m->every_hop && ith_walker_repeats(w);
    ith_walker_end_hop(w, skips ? ith_schedule_hops_alike(&w->schedule) : 0);
}

/* Walks a rank to its next step that concerns other ranks. */
static ith_walk_stop walk(const model *m, ith_walker *w)
{
    ith_walk_stop stop;
    while ((stop = ith_walker_next(w)) == ITH_WALK_COMPUTED || stop == ITH_WALK_HOP)
        if (stop == ITH_WALK_HOP)
            end_hop_in_place(m, w);
    return stop;
}

/* Whether all ranks have the same hops, as they have round a ring. On a line (bidir) the ranks in the middle have two
 * shards in each of a few hops, and the ranks at the ends have one shard in each of many hops. A rank there waits for
 * its neighbours alone, whose hops are much like its own. */
static bool is_round(const model *m)
{
    return m->price->setting.direction == ITH_DIRECTION_UNI;
}

/* Whether all ranks of a line are walked, from one end to the other. */
static bool is_whole_line(const model *m)
{
    return !is_round(m) && m->count == m->price->setting.ring;
}

/* The earliest time at which the rank at the end of a line can end; 0 if there is no such limit. Its last shards come
 * from the middle of the line, where each hop has two shards and therefore takes longer. They travel on, hop by hop,
 * when the last hop in the middle has ended. */
static double end_of_line(const model *m)
{
    const ith_walker *end = &m->walkers[0];
    double time = 0;
    if (is_round(m) || is_whole_line(m))
        return 0;
    for (int i = 1; i < m->count; i++) {
        const ith_walker *w = &m->walkers[i];
        if (w->last_hop_end > 0)
            time = fmax(time, w->last_hop_end + (end->last_hop - w->last_hop) * end->hop_seconds + end->step_seconds);
    }
    return time;
}

/* The latest clock of all ranks that are walked. */
static double latest(const model *m)
{
    double time = 0;
    for (int i = 0; i < m->count; i++)
        time = fmax(time, m->walkers[i].sum.now);
    return time;
}

/* All ranks wait for one another. */
static void meet(model *m)
{
    double time = latest(m) + m->barrier;
    for (int i = 0; i < m->count; i++)
        ith_walker_idle(&m->walkers[i], time);
}

/* A hop has ended on all ranks that are walked, which go on side by side. */
static void end_hops(model *m)
{
    int alike = m->every_hop ? 0 : INT32_MAX;
    for (int i = 0; i < m->count && alike; i++)
        alike = ith_walker_repeats(&m->walkers[i])
                    ? (int)ith_min64(alike, ith_schedule_hops_alike(&m->walkers[i].schedule))
                    : 0;
    for (int i = 0; i < m->count; i++)
        ith_walker_end_hop(&m->walkers[i], alike);
}

/* On a whole line, a rank's hop is ready when the neighbours with which it exchanges rows have posted theirs. */
static void pair_neighbours(ith_walk_exchange *const *exchanges, int hop, int ranks)
{
    for (int i = 0; i + 1 < ranks; i++) {
        if (i < hop && i + 1 + hop >= ranks)
            continue; /* these neighbours exchange nothing in this hop */
        exchanges[i]->ready = fmax(exchanges[i]->ready, exchanges[i + 1]->posted);
        exchanges[i + 1]->ready = fmax(exchanges[i + 1]->ready, exchanges[i]->posted);
    }
}

static void post(model *m)
{
    const ith_step *step = &m->walkers[0].step;
    ith_walk_exchange *exchanges[WALKERS];
    ith_traffic traffic;
    double ready = 0;
    for (int i = 0; i < m->count; i++) {
        exchanges[i] = ith_walker_post(&m->walkers[i], true, &traffic);
        ready = fmax(ready, exchanges[i]->ready);
    }
    for (int i = 0; i < m->count && is_round(m); i++)
        exchanges[i]->ready = ready;
    if (is_whole_line(m) && step->exchange == ITH_EXCHANGE_HOP)
        pair_neighbours(exchanges, step->hop, m->count);
}

static void wait(model *m)
{
    for (int i = 0; i < m->count; i++)
        ith_walker_wait(&m->walkers[i]);
    if (m->walkers[0].step.exchange == ITH_EXCHANGE_HOP)
        end_hops(m);
}

/* A ring in place: every rank packs its shard when nobody uses the packed shard of the last chunk any more. */
static void pack(model *m)
{
    if (m->walkers[0].step.chunk > 0)
        meet(m);
    for (int i = 0; i < m->count; i++)
        ith_walker_pack(&m->walkers[i]);
    meet(m);
    for (int i = 0; i < m->count; i++)
        ith_walker_compute(&m->walkers[i]);
}

/* Performs the step at which all walks have stopped. */
static void perform(model *m, ith_walk_stop stop)
{
    switch (stop) {
    case ITH_WALK_POST: post(m); break;
    case ITH_WALK_WAIT: wait(m); break;
    case ITH_WALK_GATHER: meet(m); break;
    case ITH_WALK_PACK: pack(m); break;
    default: break;
    }
}

/* A rank in the middle of the ring, if possible one that reaches both neighbours over the same link. */
static int64_t middle_of(const model *m)
{
    const ith_attn_setting *s = &m->price->setting;
    const int middle = s->ring / 2;
    for (int i = middle; i > 0 && i > middle - MIDDLES && i < s->ring - 1; i--) {
        const int64_t rank = (int64_t)i * s->ulysses;
        if (ith_machine_level_between(m->price->view, rank, rank - s->ulysses) ==
            ith_machine_level_between(m->price->view, rank, rank + s->ulysses))
            return rank;
    }
    return (int64_t)middle * s->ulysses;
}

static void add_walker(model *m, int64_t rank)
{
    const ith_walker walker = ith_walker_of(m->price, (int)rank, 0);
    for (int i = 0; i < m->count; i++)
        if (m->walkers[i].schedule.ring_index == walker.schedule.ring_index &&
            m->walkers[i].schedule.ulysses_index == walker.schedule.ulysses_index)
            return;
    m->walkers[m->count++] = walker;
}

/* Chooses the ranks that are walked. The first one is the first rank. */
static void choose_walkers(model *m)
{
    const ith_attn_setting *s = &m->price->setting;
    const int64_t ranks = m->price->view->ranks;
    int64_t begin = 0, boundary = ranks;
    if (!is_round(m) && s->ring <= WALKERS) {
        for (int i = 0; i < s->ring; i++)
            add_walker(m, (int64_t)i * s->ulysses);
        return;
    }
    if (ranks > 1)
        ith_machine_joined(m->price->view, ith_machine_level_between(m->price->view, 0, ranks - 1) - 1, 0, &begin,
                           &boundary);
    add_walker(m, 0);
    add_walker(m, middle_of(m));
    add_walker(m, ranks - 1);
    add_walker(m, boundary - 1);
}

/* ---- The result ------------------------------------------------------------------------------------------------ */

/* The work of the busiest rank over the mean of all ranks. */
static double imbalance_of(const model *m)
{
    const ith_attn_problem *p = &m->price->setting.problem;
    double most = 0, all = (double)p->batch * (double)p->heads * (double)p->q_len * (double)p->kv_len;
    for (int i = 0; i < m->count; i++)
        most = fmax(most, m->walkers[i].sum.work);
    return all > 0 && most > 0 ? most * (double)m->price->view->ranks / all : 1;
}

/* How many times longer the busiest rank takes for its work because the ranks of a host want more units than there are.
 * The other ranks of the host leave units free when they have done theirs. */
static double turns_of(const model *m, double imbalance)
{
    const ith_price *price = m->price;
    double wanted = (double)price->view->unit_ranks * (double)price->units;
    return fmax(wanted / (double)price->view->machine.host_units / imbalance, 1);
}

static ith_cost conclude(const model *m)
{
    ith_cost cost = ITH_COST_INIT;
    const ith_walker *busiest = &m->walkers[0];
    double sent = 0;
    for (int i = 0; i < m->count; i++) {
        const ith_walker *w = &m->walkers[i];
        busiest = ith_walker_is_busier(w, busiest) ? w : busiest;
        sent = fmax(sent, w->sum.sent);
    }
    cost.imbalance = imbalance_of(m);
    cost.start_seconds = m->price->view->ranks > 1 ? m->price->view->machine.start_seconds + 2 * m->barrier : 0;
    ith_walker_report(busiest, 1, &cost);
    cost.waiting_seconds = fmax(fmax(latest(m), end_of_line(m)) - ith_walker_busy(busiest), 0);
    cost.seconds = cost.start_seconds + ith_walker_busy(busiest) + cost.waiting_seconds;
    cost.sent_bytes = (int64_t)fmin(sent, 0x1p62);
    return cost;
}

/* Walks a priced plan from its beginning. ITH_ERR_INTERRUPTED if the context is interrupted meanwhile. */
static ith_status walk_all(ith_context *context, model *m, const ith_price *price, bool every_hop)
{
    ith_walk_stop stop = ITH_WALK_COMPUTED;
    int64_t steps = 0;
    m->price = price, m->count = 0, m->barrier = ith_price_latency(price), m->every_hop = every_hop;
    choose_walkers(m);
    while (stop != ITH_WALK_END) {
        if (++steps % STEPS_PER_CHECK == 0 && ith_context_interrupted(context))
            return ith_fail_interrupted(context);
        for (int i = 0; i < m->count; i++)
            stop = walk(m, &m->walkers[i]);
        perform(m, stop);
    }
    return ITH_OK;
}

ith_status ith_model_cost(ith_context *context, const ith_price *price, bool every_hop, ith_cost *cost)
{
    model *m = ith_alloc(context, 1, sizeof *m, "the walk over a plan"); /* too large for a small stack */
    if (!m)
        return ITH_ERR_MEMORY;
    ith_price slower = *price; /* ranks compute at the same time, and a unit takes its ranks in turn */
    ith_status status = walk_all(context, m, price, every_hop);
    const double turns = status ? 1 : turns_of(m, imbalance_of(m));
    if (turns != 1) {
        slower.unit_rate /= turns;
        status = walk_all(context, m, &slower, every_hop);
    }
    if (!status)
        *cost = conclude(m);
    ith_free(context, m);
    return status;
}
