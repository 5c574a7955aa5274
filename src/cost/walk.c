/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of one execution of a plan (walk.h). docs/cost.md explains the model.
 *
 * A few ranks stand for all: the first one, which has the largest shares; one in the middle of the ring and its last
 * one, because a line (bidir) treats them differently; and one at the boundary of the widest level. Their schedules
 * have the same POST and WAIT steps, so they are walked side by side. A transfer can begin when the last of them has
 * posted it.
 *
 *     walk every rank to its next step that concerns other ranks
 *     POST: the exchange is queued on the link of each level that it uses
 *     WAIT: the rank's clock moves to the end of the exchange, and copies are made
 *
 * The transfers of a rank over one level follow one another in the order of their posts. While the rank computes, a
 * link transfers at the share `overlap` of its rate. */
#include "walk.h"

#include "../base/size.h"

#include <math.h>
#include <string.h>

#define WALKERS 4 /* the most ranks that are walked */

/* An exchange that has been posted. */
typedef struct flight {
    bool active;
    int64_t number;                  /* exchanges are numbered in the order of their posts */
    double posted, ready;            /* when this rank has posted it, and when the last rank has */
    double work[ITH_MACHINE_LEVELS]; /* seconds for which it still occupies the link of each level */
    double end[ITH_MACHINE_LEVELS];  /* when that reached 0, and the latency has passed */
    bool used[ITH_MACHINE_LEVELS];
    double copies; /* copies that this rank still has to make */
} flight;

/* Seconds, bytes and work of a rank so far. All are double, so that hops which repeat are multiplied in one loop. */
typedef struct sums {
    double now; /* the rank's clock */
    double compute, pack, offset, copy;
    double exchange, waiting; /* as ith_plan_counters counts them */
    double sent;              /* bytes, as ith_schedule_sent_bytes counts them */
    double work;              /* pairs of queries and keys */
    double rows, blocks;      /* in place: the shards since the first hop */
    double level_bytes[ITH_MACHINE_LEVELS], level_seconds[ITH_MACHINE_LEVELS]; /* messages, as in ith_cost */
} sums;
enum { SUMS = sizeof(sums) / sizeof(double), HOPS_COMPARED = 4 };

/* One of the ranks that are walked. */
typedef struct walker {
    ith_schedule schedule;
    ith_step step; /* the step at which the walk has stopped; valid unless `done` */
    bool done;
    sums sum;
    sums before[HOPS_COMPARED + 1]; /* the sums at the ends of the last hops, the last one first */
    int hops;                       /* hops of this chunk that have ended */
    double covered;                 /* end of the time in which exchanges were under way */
    flight flights[ITH_EXCHANGES];
    double cursor[ITH_MACHINE_LEVELS]; /* the time up to which each link has been followed */
} walker;

typedef struct model {
    const ith_price *price;
    int count;
    walker walkers[WALKERS];
    int64_t posts;
    double barrier; /* seconds of a meeting of all ranks */
    bool every_hop; /* hops that repeat are walked too */
} model;

static bool in_place(const ith_price *price)
{
    return price->setting.exchange == ITH_EXCHANGE_IN_PLACE;
}

/* Whether an exchange is made by messages, as in run/execute.c. */
static bool by_messages(const ith_price *price, int exchange)
{
    return price->setting.exchange == ITH_EXCHANGE_MIXED ? exchange == ITH_EXCHANGE_HOP : !in_place(price);
}

/* ---- Links ----------------------------------------------------------------------------------------------------- */

/* The exchange that occupies the link of a level next: the first posted that still has work there. */
static flight *next_on_link(walker *w, int level)
{
    flight *first = NULL;
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        flight *f = &w->flights[i];
        if (f->active && f->work[level] > 0 && (!first || f->number < first->number))
            first = f;
    }
    return first;
}

/* Follows the link of a level up to the time `until`. rate: the share of its rate at which it transfers meanwhile. */
static void follow_link(const model *m, walker *w, int level, double until, double rate)
{
    flight *f;
    while (rate > 0 && w->cursor[level] < until && (f = next_on_link(w, level))) {
        double begin = fmax(w->cursor[level], f->ready), end = begin + f->work[level] / rate;
        if (begin >= until)
            break;
        if (end > until) {
            f->work[level] -= (until - begin) * rate;
            break;
        }
        f->work[level] = 0;
        f->end[level] = end + m->price->view->levels[level].latency_seconds;
        w->cursor[level] = end;
    }
    w->cursor[level] = fmax(w->cursor[level], until);
}

/* Lets `seconds` of computing pass. */
static void let_pass(const model *m, walker *w, double seconds)
{
    w->sum.now += seconds;
    for (int level = 0; level < m->price->view->machine.level_count; level++)
        follow_link(m, w, level, w->sum.now, m->price->view->levels[level].overlap);
}

/* When the work of an exchange on a link ends if the rank does nothing but wait. */
static double end_on_link(const model *m, const walker *w, const flight *f, int level)
{
    double at = w->sum.now;
    walker copy = *w;
    flight *next;
    if (f->work[level] == 0)
        return f->end[level];
    while ((next = next_on_link(&copy, level))) {
        at = fmax(at, next->ready) + next->work[level];
        next->work[level] = 0;
        if (next->number == f->number)
            break;
    }
    return at + m->price->view->levels[level].latency_seconds;
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* Messages that have arrived by then are copied while the rank computes: one unit copies, the others go on. */
static double copies_meanwhile(const model *m, walker *w, double seconds)
{
    double copies = 0;
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        flight *f = &w->flights[i];
        if (!f->active || f->copies == 0 || f->ready >= w->sum.now + seconds)
            continue;
        copies += f->copies;
        f->copies = 0;
    }
    return copies / (double)m->price->units;
}

/* In place, another rank reads this rank's shard while this rank reads another shard. */
static double read_in_place(const ith_price *price, const walker *w, const ith_step *step)
{
    const ith_attn_setting *s = &price->setting;
    ith_row_range own = ith_schedule_shard(s, s->problem.kv_len, w->schedule.ring_index);
    return 2 * (double)own.rows * (double)step->heads.kv_heads * (double)ith_travel_bytes(s, ITH_TENSOR_K);
}

static void compute(const model *m, walker *w, const ith_step *step)
{
    const ith_price *price = m->price;
    double pack = 0, attend = 0;
    w->sum.work += (double)step->heads.count * (double)step->q.rows * (double)step->kv.rows;
    if (step->first || !in_place(price))
        w->sum.rows = w->sum.blocks = 0;
    w->sum.rows += (double)step->kv.rows;
    w->sum.blocks += (double)ith_price_blocks(price, step->kv.rows);
    if (in_place(price) && step->shard != w->schedule.ring_index)
        w->sum.sent += read_in_place(price, w, step);
    if (!in_place(price) || (step->first && step->last))
        pack = ith_price_pack(price, step->heads.kv_heads, step->kv.rows);
    if (!in_place(price) || step->last)
        attend = ith_price_attend(price, &step->heads, step->q.rows, w->sum.rows, w->sum.blocks);
    if (!in_place(price) && !step->first) /* the partial results of the last shard */
        attend += ith_price_state(price, &step->heads, step->q.rows);
    double copies = copies_meanwhile(m, w, pack + attend);
    w->sum.pack += pack;
    w->sum.compute += attend;
    w->sum.copy += copies;
    let_pass(m, w, pack + attend + copies);
}

/* In a ring in place a rank packs its own shard for all ranks. */
static bool packs_for_all(const ith_price *price, const ith_step *step)
{
    return in_place(price) && step->kind == ITH_STEP_COMPUTE && step->first && !step->last;
}

static bool gathers(const ith_price *price, const ith_step *step)
{
    const ith_attn_setting *s = &price->setting;
    return step->kind == ITH_STEP_OFFSETS && (s->problem.replicated_kv ? s->ulysses * s->ring : s->ring) > 1;
}

/* Whether a step concerns other ranks. */
static bool is_meeting(const ith_price *price, const ith_step *step)
{
    if (step->kind == ITH_STEP_POST || step->kind == ITH_STEP_WAIT)
        return by_messages(price, step->exchange);
    return packs_for_all(price, step) || gathers(price, step);
}

static void offsets(const model *m, walker *w)
{
    double seconds = ith_price_offsets(m->price, &w->step.heads, w->step.q.rows, w->step.kv.rows);
    w->sum.offset += seconds;
    let_pass(m, w, seconds);
}

/* ---- Hops that repeat ------------------------------------------------------------------------------------------ */

/* Whether an exchange still has work for a link or for the rank. */
static bool is_under_way(const flight *f)
{
    bool works = f->copies > 0;
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        works |= f->work[level] > 0;
    return f->active && works;
}

/* Whether the last two hops of a rank have added the same as the two before them. Two, because buffers alternate. */
static bool repeats(const walker *w)
{
    const double *now = (const double *)&w->sum, *middle = (const double *)&w->before[1],
                 *past = (const double *)&w->before[3];
    if (w->hops < HOPS_COMPARED)
        return false;
    for (int i = 0; i < ITH_EXCHANGES; i++)
        if (is_under_way(&w->flights[i]))
            return false; /* inputs or outputs of a chunk use the links too */
    for (int i = 0; i < SUMS; i++)
        if (fabs((now[i] - middle[i]) - (middle[i] - past[i])) > 1e-9 * fabs(now[i] - past[i]) + 1e-13 * fabs(now[i]))
            return false;
    return true;
}

/* A hop has ended. Leaves out the next `skipped` hops, which add what the last two have added, half as often. */
static void end_hop(walker *w, int skipped)
{
    double *now = (double *)&w->sum;
    const double *middle = (const double *)&w->before[1];
    const double begin = w->sum.now;
    for (int i = 0; i < SUMS && skipped; i++)
        now[i] += (now[i] - middle[i]) * (double)skipped / 2;
    ith_schedule_skip_hops(&w->schedule, skipped);
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        w->cursor[level] += w->sum.now - begin;
    w->covered += w->sum.now - begin;
    memmove(w->before + 1, w->before, HOPS_COMPARED * sizeof *w->before);
    w->before[0] = w->sum;
    w->hops = skipped ? 0 : w->hops + 1;
}

/* A hop has ended on all ranks that are walked, which go on side by side. */
static void end_hops(model *m)
{
    int alike = m->every_hop ? 0 : INT32_MAX;
    for (int i = 0; i < m->count && alike; i++)
        alike = repeats(&m->walkers[i]) ? (int)ith_min64(alike, ith_schedule_hops_alike(&m->walkers[i].schedule)) : 0;
    for (int i = 0; i < m->count; i++)
        end_hop(&m->walkers[i], alike);
}

/* ---- The walk -------------------------------------------------------------------------------------------------- */

/* Walks a rank to its next step that concerns other ranks. */
static void walk(const model *m, walker *w)
{
    while (!w->done) {
        w->done = !ith_schedule_next(&w->schedule, &w->step);
        if (w->done || is_meeting(m->price, &w->step))
            return;
        if (w->step.kind == ITH_STEP_COMPUTE)
            compute(m, w, &w->step);
        if (w->step.kind == ITH_STEP_OFFSETS)
            offsets(m, w);
        if (w->step.kind == ITH_STEP_POST && w->step.exchange != ITH_EXCHANGE_HOP) { /* rows are read where they lie */
            ith_traffic traffic = ith_price_traffic(m->price, &w->schedule, &w->step);
            w->sum.sent += ith_traffic_sent(&traffic);
        }
        if (w->step.kind == ITH_STEP_WAIT && w->step.exchange == ITH_EXCHANGE_HOP)
            end_hop(w, !m->every_hop && repeats(w) ? ith_schedule_hops_alike(&w->schedule) : 0);
    }
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
        let_pass(m, &m->walkers[i], time - m->walkers[i].sum.now);
}

static void post(model *m, walker *w, double ready)
{
    flight *f = &w->flights[w->step.exchange];
    ith_traffic traffic = ith_price_traffic(m->price, &w->schedule, &w->step);
    double kept = ith_price_kept(m->price, &traffic);
    w->sum.copy += kept;
    let_pass(m, w, kept);
    w->sum.sent += ith_traffic_sent(&traffic);
    *f = (flight){.active = true, .number = m->posts, .posted = w->sum.now, .ready = fmax(ready, w->sum.now)};
    f->copies = ith_price_copies(m->price, &traffic);
    for (int level = 0; level < m->price->view->machine.level_count; level++) {
        f->used[level] = ith_traffic_uses(&traffic, level);
        f->work[level] = f->used[level] ? ith_price_link(m->price, &traffic, level) : 0;
        w->sum.level_bytes[level] += traffic.sent[level];
        w->sum.level_seconds[level] += f->work[level];
        f->end[level] = f->ready + m->price->view->levels[level].latency_seconds;
    }
}

static void wait(const model *m, walker *w)
{
    flight *f = &w->flights[w->step.exchange];
    double end = w->sum.now, begin = w->sum.now;
    bool used = false;
    if (!f->active)
        return;
    for (int level = 0; level < m->price->view->machine.level_count; level++)
        if (f->used[level]) {
            end = fmax(end, end_on_link(m, w, f, level));
            used = true;
        }
    if (used && f->copies > 0)
        end = fmax(end, fmax(w->sum.now, f->ready) + f->copies);
    w->sum.copy += f->copies;
    w->sum.waiting += end - begin;
    for (int level = 0; level < m->price->view->machine.level_count; level++)
        follow_link(m, w, level, end, 1);
    w->sum.now = end;
    double over = end; /* an exchange that ended while the rank computed */
    if (end == begin && used) {
        over = f->ready;
        for (int level = 0; level < m->price->view->machine.level_count; level++)
            over = f->used[level] ? fmax(over, f->end[level]) : over;
        over = fmin(over, end);
    }
    if (over > w->covered) {
        w->sum.exchange += over - fmax(w->covered, f->posted);
        w->covered = over;
    }
    f->active = false;
}

/* Performs the step at which all walks have stopped. */
static void perform(model *m)
{
    const ith_step *step = &m->walkers[0].step;
    double ready = latest(m);
    if (step->kind == ITH_STEP_POST) {
        m->posts++;
        for (int i = 0; i < m->count; i++)
            post(m, &m->walkers[i], ready);
    } else if (step->kind == ITH_STEP_WAIT) {
        for (int i = 0; i < m->count; i++)
            wait(m, &m->walkers[i]);
        if (step->exchange == ITH_EXCHANGE_HOP)
            end_hops(m);
    } else if (step->kind == ITH_STEP_OFFSETS) {
        for (int i = 0; i < m->count; i++)
            offsets(m, &m->walkers[i]);
        meet(m);
    } else { /* a ring in place: every rank packs its shard when nobody uses the last chunk's any more */
        if (step->chunk > 0)
            meet(m);
        for (int i = 0; i < m->count; i++) {
            walker *w = &m->walkers[i];
            double seconds = ith_price_pack(m->price, w->step.heads.kv_heads, w->step.kv.rows);
            w->sum.pack += seconds;
            let_pass(m, w, seconds);
        }
        meet(m);
        for (int i = 0; i < m->count; i++)
            compute(m, &m->walkers[i], &m->walkers[i].step);
    }
}

/* Chooses the ranks that are walked. */
static void choose_walkers(model *m)
{
    const ith_attn_setting *s = &m->price->setting;
    const ith_machine_view *view = m->price->view;
    int64_t ranks = view->ranks, boundary = 0, end = ranks, chosen[WALKERS], count = 0;
    if (ranks > 1)
        ith_machine_joined(view, ith_machine_level_between(view, 0, ranks - 1) - 1, 0, &boundary, &end);
    const int64_t wanted[WALKERS] = {0, s->ring / 2 * s->ulysses, ranks - 1, end - 1};
    for (int i = 0; i < WALKERS; i++) {
        bool new = true;
        for (int64_t j = 0; j < count; j++)
            new &= chosen[j] != wanted[i];
        if (new)
            chosen[count++] = wanted[i];
    }
    for (int64_t i = 0; i < count; i++)
        m->walkers[i] = (walker){.schedule = ith_schedule_of(s, (int)chosen[i])};
    m->count = (int)count;
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

static double busy_seconds(const walker *w)
{
    return w->sum.compute + w->sum.pack + w->sum.offset + w->sum.copy;
}

/* How many times longer the busiest rank takes for its work because the ranks of a host want more units than there are.
 * The other ranks of the host leave units free when they have done theirs. */
static double turns_of(const model *m, double imbalance)
{
    const ith_price *price = m->price;
    double wanted = (double)price->view->host_ranks * (double)price->units;
    return fmax(wanted / (double)price->view->machine.host_units / imbalance, 1);
}

static ith_cost conclude(const model *m)
{
    ith_cost cost = ITH_COST_INIT;
    const walker *busiest = &m->walkers[0];
    double sent = 0;
    for (int i = 0; i < m->count; i++) {
        const walker *w = &m->walkers[i];
        busiest = busy_seconds(w) > busy_seconds(busiest) * (1 + 1e-9) ? w : busiest; /* not by rounding alone */
        sent = fmax(sent, w->sum.sent);
    }
    cost.imbalance = imbalance_of(m);
    double turns = turns_of(m, cost.imbalance);
    cost.start_seconds = m->price->view->ranks > 1 ? m->price->view->machine.start_seconds + 2 * m->barrier : 0;
    cost.compute_seconds = busiest->sum.compute * turns;
    cost.pack_seconds = busiest->sum.pack * turns;
    cost.offset_seconds = busiest->sum.offset * turns;
    cost.copy_seconds = busiest->sum.copy * turns;
    cost.waiting_seconds = fmax(latest(m) - busy_seconds(busiest) * turns, 0);
    cost.seconds = cost.start_seconds + busy_seconds(busiest) * turns + cost.waiting_seconds;
    cost.exchange_seconds = busiest->sum.exchange;
    if (busiest->sum.exchange > 0)
        cost.hidden_share = fmin(fmax(1 - busiest->sum.waiting / busiest->sum.exchange, 0), 1);
    cost.sent_bytes = (int64_t)fmin(sent, 0x1p62);
    memcpy(cost.level_bytes, busiest->sum.level_bytes, sizeof cost.level_bytes);
    memcpy(cost.level_seconds, busiest->sum.level_seconds, sizeof cost.level_seconds);
    return cost;
}

ith_cost ith_model_cost(const ith_price *price, bool every_hop)
{
    model m = {.price = price, .barrier = ith_price_latency(price), .every_hop = every_hop};
    choose_walkers(&m);
    for (;;) {
        for (int i = 0; i < m.count; i++)
            walk(&m, &m.walkers[i]);
        if (m.walkers[0].done)
            return conclude(&m);
        perform(&m);
    }
}
