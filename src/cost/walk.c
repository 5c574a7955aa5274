/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of one execution of a plan (walk.h). docs/cost.md explains the model.
 *
 * The schedules of all ranks have the same POST and WAIT steps, so ranks are walked side by side. If there are few
 * ranks, all are walked, and each waits for its own peers. On a line (bidir) of few axes one rank of each axis is
 * walked, and waits for its neighbours. Otherwise a few ranks stand for all: the first rank, which has the largest
 * shares; a rank that has the most heads in a hop; the last rank; on a line a rank in the middle, which has other hops
 * than the ranks at the ends; and the ranks at the boundaries of the levels. On a ring an exchange is ready when all
 * ranks that are walked have posted it. */
#include "walk.h"

#include "../base/context.h"
#include "../base/size.h"
#include "walker.h"

#include <math.h>

enum {
    WALKERS = 64,    /* the most ranks that are walked */
    SHORT_LINE = 32, /* axes of the short line from whose time the time of a long line is computed */
    MIDDLES = 32     /* axes, from the middle one down, among which middle_of looks */
};

/* The ranks of a plan that are walked. */
typedef struct model {
    const ith_price *price;
    int count;
    int together; /* ranks of each axis that are walked, in the order of the ranks; 0: a few ranks stand for all */
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

/* The latest clock of all ranks that are walked. */
static double latest(const model *m)
{
    double time = 0;
    for (int i = 0; i < m->count; i++)
        time = fmax(time, m->walkers[i].sum.now);
    return time;
}

/* The walked ranks with the indices first, first + step, and so on wait for one another. */
static void meet_some(model *m, int first, int step)
{
    double time = 0;
    for (int i = first; i < m->count; i += step)
        time = fmax(time, m->walkers[i].sum.now);
    for (int i = first; i < m->count; i += step)
        ith_walker_idle(&m->walkers[i], time + m->barrier);
}

/* All ranks wait for one another. */
static void meet(model *m)
{
    meet_some(m, 0, 1);
}

/* The ranks of each ring wait for one another, to gather statistics. If every rank holds all keys (replicated_kv), all
 * ranks wait for one another. */
static void gather(model *m)
{
    const int rings = m->together && !m->price->setting.problem.replicated_kv ? m->together : 1;
    for (int i = 0; i < rings; i++)
        meet_some(m, i, rings);
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

/* Makes an exchange wait for a part of a peer, or of its own rank, until the part is posted, and until links that
 * several ranks share have transferred it. */
static void need(ith_walk_exchange *e, const ith_posted_part *part)
{
    e->ready = fmax(e->ready, part->time);
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        e->least[level] = fmax(e->least[level], part->group_end[level]);
}

/* The exchanges of a POST step, and the parts of their ranks. */
typedef struct posts {
    ith_walk_exchange *exchanges[WALKERS];
    ith_posted_part parts[WALKERS];
} posts;

/* Makes each rank's hop wait for the parts of the neighbours with which the rank exchanges rows. */
static void pair_neighbours(const model *m, posts *p, int hop)
{
    const int ring = m->count / m->together;
    for (int i = 0; i < ring; i++) {
        if (!is_round(m) && (i + 1 == ring || (i < hop && i + 1 + hop >= ring)))
            continue; /* on a line these neighbours exchange nothing in this hop */
        for (int u = 0; u < m->together; u++) {
            const int a = i * m->together + u, b = (i + 1) % ring * m->together + u;
            need(p->exchanges[a], &p->parts[b]);
            need(p->exchanges[b], &p->parts[a]);
        }
    }
}

/* Makes the exchanges first to first + count - 1 wait for the parts of all of them. */
static void join(posts *p, int first, int count)
{
    ith_posted_part all = p->parts[first];
    for (int i = first + 1; i < first + count; i++)
        ith_posted_combine(&all, &p->parts[i]);
    for (int i = first; i < first + count; i++)
        need(p->exchanges[i], &all);
}

/* The part of a rank in an exchange. Links that it shares with its groups transfer the parts of all ranks of these
 * groups. */
static ith_posted_part posted_part_of(const model *m, const ith_walk_exchange *e, const ith_traffic *traffic)
{
    const ith_machine_view *view = m->price->view;
    ith_posted_part part = {.time = e->posted};
    for (int level = 0; level < view->machine.level_count; level++)
        if (view->levels[level].group_bytes_per_second > 0 && traffic->sent[level] > 0)
            part.group_end[level] = e->posted + traffic->group_sent[level] / view->levels[level].group_bytes_per_second;
    return part;
}

static void post(model *m)
{
    const ith_step *step = &m->walkers[0].step;
    posts p;
    for (int i = 0; i < m->count; i++) {
        ith_traffic traffic;
        p.exchanges[i] = ith_walker_post(&m->walkers[i], true, &traffic);
        p.parts[i] = posted_part_of(m, p.exchanges[i], &traffic);
    }
    if (m->together && step->exchange == ITH_EXCHANGE_HOP)
        pair_neighbours(m, &p, step->hop);
    else if (m->together)
        for (int i = 0; i < m->count; i += m->together)
            join(&p, i, m->together);
    else if (is_round(m))
        join(&p, 0, m->count);
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
    case ITH_WALK_GATHER: gather(m); break;
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

/* The ulysses index whose ranks have the most heads in a hop. Of several such indices, the index with the most kv
 * heads; if several have as many, the first. */
static int busiest_column(const model *m)
{
    const ith_attn_setting *s = &m->price->setting;
    int column = 0;
    ith_heads most = ith_chunk_heads(s, 0, 0);
    for (int u = 1; u < s->ulysses && s->ring > 1; u++) {
        const ith_heads heads = ith_chunk_heads(s, 0, u);
        if (heads.count == most.count && heads.kv_heads > most.kv_heads)
            most = heads, column = u;
    }
    return column;
}

/* Adds ranks for each level but the widest: the last rank of the level's first group, whose hops pass over the next
 * level; and the rank of the busiest column on the same axis, whose hops pass over it, too. If this axis extends beyond
 * the group, also adds the first rank behind the group, because it sends other rows than the last rank in the group. */
static void add_boundaries(model *m)
{
    const ith_machine_view *view = m->price->view;
    const int64_t ulysses = m->price->setting.ulysses, column = busiest_column(m);
    const int widest = ith_machine_level_between(view, 0, view->ranks - 1);
    for (int level = 0; level < widest; level++) {
        int64_t begin, end;
        ith_machine_joined(view, level, 0, &begin, &end);
        add_walker(m, end - 1);
        add_walker(m, (end - 1 - column) / ulysses * ulysses + column);
        if (end % ulysses)
            add_walker(m, end);
    }
}

/* Chooses the ranks that are walked. */
static void choose_walkers(model *m)
{
    const ith_attn_setting *s = &m->price->setting;
    const int64_t ranks = m->price->view->ranks;
    const bool all = ranks <= WALKERS;
    m->together = all ? s->ulysses : !is_round(m) && s->ring <= WALKERS ? 1 : 0;
    if (m->together) {
        for (int64_t rank = all ? 0 : busiest_column(m); rank < ranks; rank += all ? 1 : s->ulysses)
            add_walker(m, rank);
        return;
    }
    add_walker(m, 0);
    add_walker(m, busiest_column(m));
    if (!is_round(m))
        add_walker(m, middle_of(m));
    add_walker(m, ranks - 1);
    add_boundaries(m);
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

/* The factor by which the busiest rank's work takes longer because the ranks of a host want more units than there are.
 * It is divided by the imbalance, because the other ranks of the host leave units free when they have done their
 * work. */
static double turns_of(const model *m, double imbalance)
{
    const ith_price *price = m->price;
    double wanted = (double)price->view->unit_ranks * (double)price->units;
    return fmax(wanted / (double)price->view->machine.host_units / imbalance, 1);
}

/* line: the seconds of a long line, 0 otherwise. */
static ith_cost conclude(const model *m, double line)
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
    cost.waiting_seconds = fmax(fmax(latest(m), line) - ith_walker_busy(busiest), 0);
    cost.seconds = cost.start_seconds + ith_walker_busy(busiest) + cost.waiting_seconds;
    cost.sent_bytes = (int64_t)fmin(sent, 0x1p62);
    return cost;
}

/* Walks a priced plan from its beginning. ITH_ERR_INTERRUPTED if the context is interrupted meanwhile. */
static ith_status walk_all(ith_context *context, model *m, const ith_price *price, bool every_hop)
{
    ith_walk_stop stop = ITH_WALK_COMPUTED;
    m->price = price, m->count = 0, m->barrier = ith_price_latency(price), m->every_hop = every_hop;
    choose_walkers(m);
    while (stop != ITH_WALK_END) {
        if (ith_context_interrupted(context))
            return ith_fail_interrupted(context);
        for (int i = 0; i < m->count; i++)
            stop = walk(m, &m->walkers[i]);
        perform(m, stop);
    }
    return ITH_OK;
}

/* ---- Long lines ------------------------------------------------------------------------------------------------ */

/* A line of fewer axes, with shards of the same length. A level that joins all ranks joins all ranks of the short line
 * too. Every other level joins as many ranks as before, but at most half of the short line. */
typedef struct short_line {
    ith_price price;
    ith_machine_view view;
} short_line;

static void shorten(const ith_price *price, int axes, short_line *out)
{
    const double share = (double)axes / (double)price->setting.ring;
    const int64_t ulysses = price->setting.ulysses;
    ith_attn_problem *p = &out->price.setting.problem;
    out->price = *price, out->view = *price->view;
    out->price.view = &out->view, out->price.setting.ring = axes;
    p->q_len = llround((double)p->q_len * share), p->kv_len = llround((double)p->kv_len * share);
    out->view.ranks = axes * ulysses;
    for (int level = 0; level < out->view.machine.level_count; level++) {
        int64_t *joined = &out->view.joined[level];
        *joined = *joined >= price->view->ranks ? out->view.ranks : ith_min64(*joined, axes / 2 * ulysses);
    }
}

/* The seconds of a line of fewer axes. */
static ith_status walk_short_line(ith_context *context, const ith_price *price, int axes, model *m, double *seconds)
{
    short_line line;
    shorten(price, axes, &line);
    ith_status status = walk_all(context, m, &line.price, m->every_hop);
    *seconds = status ? 0 : latest(m);
    return status;
}

/* The seconds of a line that is too long to be walked axis by axis. Each chunk begins when the ends and the middle of
 * the line have done the chunk before, which takes longer in proportion to the length. So the time of a long line
 * follows from the times of two short lines. */
static ith_status walk_long_line(ith_context *context, const ith_price *price, model *m, double *seconds)
{
    double some = 0, more = 0;
    ith_status status = walk_short_line(context, price, SHORT_LINE / 2, m, &some);
    if (!status)
        status = walk_short_line(context, price, SHORT_LINE, m, &more);
    *seconds = more + (more - some) * (double)(price->setting.ring - SHORT_LINE) / (SHORT_LINE / 2);
    return status;
}

/* Whether the ranks of a line wait for their neighbours, and the line is too long to be walked axis by axis. */
static bool is_long_line(const model *m)
{
    return !is_round(m) && !m->together && ith_schedule_by_messages(&m->price->setting, ITH_EXCHANGE_HOP);
}

ith_status ith_model_cost(ith_context *context, const ith_price *price, bool every_hop, ith_cost *cost)
{
    model *m = ith_alloc(context, 2, sizeof *m, "the walk over a plan"); /* too large for a small stack */
    if (!m)
        return ITH_ERR_MEMORY;
    ith_price slower = *price; /* ranks compute at the same time, and a unit takes its ranks in turn */
    double line = 0;
    ith_status status = walk_all(context, m, price, every_hop);
    const double turns = status ? 1 : turns_of(m, imbalance_of(m));
    if (turns != 1) {
        slower.unit_rate /= turns;
        status = walk_all(context, m, &slower, every_hop);
    }
    m[1].every_hop = every_hop;
    if (!status && is_long_line(m))
        status = walk_long_line(context, &slower, &m[1], &line);
    if (!status)
        *cost = conclude(m, line);
    ith_free(context, m);
    return status;
}
