/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a rank that is walked (walker.h). */
#include "walker.h"

#include <math.h>
#include <string.h>

static bool in_place(const ith_price *price)
{
    return price->setting.exchange == ITH_EXCHANGE_IN_PLACE;
}

ith_walker ith_walker_of(const ith_price *price, int rank, double now)
{
    ith_walker w = {.price = price, .schedule = ith_schedule_of(&price->setting, rank)};
    w.sum.now = now;
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        w.cursor[level] = now;
    return w;
}

/* ---- Links ----------------------------------------------------------------------------------------------------- */

static int64_t level_count(const ith_walker *w)
{
    return w->price->view->machine.level_count;
}

/* The exchange that occupies the link of a level next, after exchange number `after`: the first posted that is ready
 * and still has work there. */
static const ith_walk_exchange *next_on_link(const ith_walker *w, int level, int64_t after)
{
    const ith_walk_exchange *first = NULL;
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        const ith_walk_exchange *e = &w->exchanges[i];
        if (e->active && e->number > after && e->work[level] > 0 && e->ready < INFINITY &&
            (!first || e->number < first->number))
            first = e;
    }
    return first;
}

/* Advances the transfers on the link of a level up to the time `until`, one exchange after another. rate: the share of
 * the link's rate that is in force in this time. */
static void follow_link(ith_walker *w, int level, double until, double rate)
{
    const ith_walk_exchange *next;
    while (rate > 0 && w->cursor[level] < until && (next = next_on_link(w, level, -1))) {
        ith_walk_exchange *e = &w->exchanges[next - w->exchanges];
        double begin = fmax(w->cursor[level], e->ready), end = begin + e->work[level] / rate;
        if (begin >= until)
            break;
        if (end > until) {
            e->work[level] -= (until - begin) * rate;
            break;
        }
        e->work[level] = 0;
        e->end[level] = end;
        w->cursor[level] = end;
    }
    w->cursor[level] = fmax(w->cursor[level], until);
}

/* When an exchange ends on a level if the rank does nothing but wait. */
static double end_on_link(const ith_walker *w, const ith_walk_exchange *e, int level)
{
    double at = e->work[level] > 0 ? w->sum.now : e->end[level];
    int64_t number = -1;
    while (e->work[level] > 0 && number < e->number) {
        const ith_walk_exchange *next = next_on_link(w, level, number);
        if (!next)
            return INFINITY; /* times beyond all numbers */
        at = fmax(at, next->ready) + next->work[level];
        number = next->number;
    }
    return fmax(at, e->least[level]) + ith_price_setup(w->price, level);
}

/* ---- Work ------------------------------------------------------------------------------------------------------ */

void ith_walker_work(ith_walker *w, const char *name, double seconds, double *sum)
{
    double wait = w->work && seconds > 0 ? w->work(w->user, w, name, &seconds) : 0;
    *sum += seconds;
    w->sum.now += wait + seconds;
}

/* During a computation of `seconds`, one unit of the rank copies the messages that arrive, and the other units go on.
 * Returns by how much the computation becomes longer. */
static double copies_meanwhile(ith_walker *w, double seconds)
{
    double copies = 0;
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        ith_walk_exchange *e = &w->exchanges[i];
        if (!e->active || e->ready >= w->sum.now + seconds)
            continue;
        copies += e->copies;
        e->copies = 0;
    }
    return copies / (double)w->price->units;
}

/* The price of attention to the keys in w->sum.rows. A rank has the same queries in every step, and the blocks follow
 * from the keys. */
static double attend_seconds(ith_walker *w)
{
    const ith_step *step = &w->step;
    const ith_heads *h = &step->heads;
    if (w->priced.heads != h->count || w->priced.kv_heads != h->kv_heads || w->priced.keys != w->sum.rows) {
        w->priced.heads = h->count, w->priced.kv_heads = h->kv_heads, w->priced.keys = w->sum.rows;
        w->priced.seconds = ith_price_attend(w->price, h, step->q.rows, w->sum.rows, w->sum.blocks);
    }
    return w->priced.seconds;
}

/* In place, one of several shards is packed before this step (ith_walker_pack), and the queries attend to all shards in
 * the last step. */
void ith_walker_compute(ith_walker *w)
{
    const ith_price *price = w->price;
    const ith_step *step = &w->step;
    double pack = 0, attend = 0;
    w->sum.work += (double)step->heads.count * (double)step->q.rows * (double)step->kv.rows;
    if (step->first || !in_place(price))
        w->sum.rows = w->sum.blocks = 0;
    w->sum.rows += (double)step->kv.rows;
    w->sum.blocks += (double)ith_price_blocks(price, step->kv.rows);
    w->sum.sent += (double)ith_schedule_read_bytes(&w->schedule, step);
    if (!in_place(price) || (step->first && step->last))
        pack = ith_price_pack(price, step->heads.kv_heads, step->kv.rows);
    if (!in_place(price) || step->last)
        attend = attend_seconds(w);
    if (!in_place(price) && !step->first) /* the partial results of the last shard */
        attend += ith_price_state(price, &step->heads, step->q.rows);
    double copies = copies_meanwhile(w, pack + attend);
    ith_walker_work(w, "pack", pack, &w->sum.pack);
    ith_walker_work(w, "attend", attend, &w->sum.compute);
    ith_walker_work(w, "copy", copies, &w->sum.copy);
}

static void find_offsets(ith_walker *w)
{
    ith_walker_work(w, "offsets", ith_price_offsets(w->price, &w->step.heads, w->step.q.rows, w->step.kv.rows),
                    &w->sum.offset);
}

void ith_walker_pack(ith_walker *w)
{
    ith_walker_work(w, "pack", ith_price_pack(w->price, w->step.heads.kv_heads, w->step.kv.rows), &w->sum.pack);
}

void ith_walker_idle(ith_walker *w, double until)
{
    w->sum.now = fmax(w->sum.now, until);
}

void ith_walker_report(const ith_walker *w, double executions, ith_cost *cost)
{
    cost->compute_seconds = w->sum.compute / executions;
    cost->pack_seconds = w->sum.pack / executions;
    cost->offset_seconds = w->sum.offset / executions;
    cost->copy_seconds = w->sum.copy / executions;
    cost->exchange_seconds = w->sum.exchange / executions;
    if (w->sum.exchange > 0)
        cost->hidden_share = fmax(1 - w->sum.waiting / w->sum.exchange, 0);
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++) {
        cost->level_bytes[level] = w->sum.level_bytes[level] / executions;
        cost->level_seconds[level] = w->sum.level_seconds[level] / executions;
    }
}

double ith_walker_busy(const ith_walker *w)
{
    return w->sum.compute + w->sum.pack + w->sum.offset + w->sum.copy;
}

bool ith_walker_is_busier(const ith_walker *w, const ith_walker *other)
{
    return ith_walker_busy(w) > ith_walker_busy(other) * (1 + 1e-9);
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

void ith_posted_combine(ith_posted_part *sum, const ith_posted_part *part)
{
    sum->time = fmax(sum->time, part->time);
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        sum->group_end[level] = fmax(sum->group_end[level], part->group_end[level]);
}

ith_walk_exchange *ith_walker_post(ith_walker *w, bool group, ith_traffic *traffic)
{
    ith_walk_exchange *e = &w->exchanges[w->step.exchange];
    *traffic = ith_price_traffic(w->price, &w->schedule, &w->step);
    const ith_compress_price compression = ith_price_compression(w->price, &w->step, traffic);
    ith_walker_work(w, "copy", ith_price_kept(w->price, traffic), &w->sum.copy);
    ith_walker_work(w, "compress", compression.compress, &w->sum.copy);
    w->sum.sent += ith_traffic_sent(traffic);
    *e = (ith_walk_exchange){.active = true, .number = w->posts++, .posted = w->sum.now, .ready = w->sum.now};
    e->copies = ith_price_copies(w->price, traffic);
    e->restore = compression.restore;
    for (int level = 0; level < level_count(w); level++) {
        e->used[level] = ith_traffic_uses(traffic, level);
        e->work[level] = e->used[level] ? ith_price_link(w->price, traffic, level, group) : 0;
        e->end[level] = e->ready;
        w->sum.level_bytes[level] += traffic->sent[level];
        w->sum.level_seconds[level] += e->work[level];
    }
    return e;
}

/* Adds an exchange that ended at the time `end` to the time in which exchanges were under way. */
static void count_exchange(ith_walker *w, const ith_walk_exchange *e, double end)
{
    if (end <= w->covered)
        return;
    w->sum.exchange += end - fmax(w->covered, e->posted);
    w->covered = end;
}

double ith_walker_wait(ith_walker *w)
{
    ith_walk_exchange *e = &w->exchanges[w->step.exchange];
    if (!e->active)
        return w->sum.now;
    if (e->copies > 0 && e->ready < w->sum.now) {
        /* the peers posted while the rank computed, and it was not known then (copies_meanwhile) */
        ith_walker_work(w, "copy", e->copies / (double)w->price->units, &w->sum.copy);
        e->copies = 0;
    }
    const double begin = w->sum.now;
    double over = e->ready;
    for (int level = 0; level < level_count(w); level++) {
        e->end[level] = fmax(e->end[level], e->ready);
        follow_link(w, level, begin, w->price->view->levels[level].overlap);
    }
    for (int level = 0; level < level_count(w); level++)
        over = e->used[level] ? fmax(over, end_on_link(w, e, level)) : over;
    if (e->copies > 0)
        over = fmax(over, e->ready + e->copies); /* an exchange that was ready before has made its copies */
    const double end = fmax(over, begin);
    w->sum.copy += e->copies;
    w->sum.waiting += end - begin;
    for (int level = 0; level < level_count(w); level++)
        follow_link(w, level, end, 1);
    w->sum.now = end;
    count_exchange(w, e, over);
    e->active = false;
    ith_walker_work(w, "restore", e->restore, &w->sum.copy);
    return begin;
}

/* ---- Hops that repeat ------------------------------------------------------------------------------------------ */

/* Whether an exchange still has work for a link. */
static bool is_under_way(const ith_walk_exchange *e)
{
    bool works = false;
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        works |= e->work[level] > 0;
    return e->active && works;
}

/* Compares the last two hops with the two hops before them. Single hops could differ, because buffers alternate. */
bool ith_walker_repeats(const ith_walker *w)
{
    const double *now = (const double *)&w->sum, *middle = (const double *)&w->before[1],
                 *past = (const double *)&w->before[3];
    for (int i = 0; i < ITH_EXCHANGES; i++)
        if (is_under_way(&w->exchanges[i]))
            return false; /* inputs or outputs of a chunk use the links too */
    for (int i = 0; i < ITH_WALK_SUMS; i++)
        if (fabs((now[i] - middle[i]) - (middle[i] - past[i])) > 1e-9 * fabs(now[i] - past[i]) + 1e-13 * fabs(now[i]))
            return false;
    return true;
}

void ith_walker_end_hop(ith_walker *w, int skipped)
{
    double *now = (double *)&w->sum;
    const double *middle = (const double *)&w->before[1];
    for (int i = 0; i < ITH_WALK_SUMS && skipped; i++)
        now[i] += (now[i] - middle[i]) * (double)skipped / 2;
    ith_schedule_skip_hops(&w->schedule, skipped);
    memmove(w->before + 1, w->before, ITH_WALK_HOPS * sizeof *w->before);
    w->before[0] = w->sum;
}

/* ---- The walk -------------------------------------------------------------------------------------------------- */

/* Counts the bytes of an exchange in place. Rows are read where they lie, so the exchange takes no time. */
static void count_sent(ith_walker *w)
{
    if (w->step.exchange == ITH_EXCHANGE_HOP)
        return; /* counted when the shard is read */
    ith_traffic traffic = ith_price_traffic(w->price, &w->schedule, &w->step);
    w->sum.sent += ith_traffic_sent(&traffic);
}

static ith_walk_stop compute_or_meet(ith_walker *w)
{
    if (in_place(w->price) && w->step.first && !w->step.last)
        return ITH_WALK_PACK;
    ith_walker_compute(w);
    return ITH_WALK_COMPUTED;
}

static ith_walk_stop offsets_and_gather(ith_walker *w)
{
    const ith_attn_setting *s = &w->price->setting;
    find_offsets(w);
    return (s->problem.replicated_kv ? s->ulysses * s->ring : s->ring) > 1 ? ITH_WALK_GATHER : ITH_WALK_COMPUTED;
}

ith_walk_stop ith_walker_next(ith_walker *w)
{
    while (ith_schedule_next(&w->schedule, &w->step)) {
        switch (w->step.kind) {
        case ITH_STEP_COMPUTE: return compute_or_meet(w);
        case ITH_STEP_OFFSETS: return offsets_and_gather(w);
        case ITH_STEP_POST:
            if (ith_schedule_by_messages(&w->price->setting, w->step.exchange))
                return ITH_WALK_POST;
            count_sent(w);
            break;
        default:
            if (ith_schedule_by_messages(&w->price->setting, w->step.exchange))
                return ITH_WALK_WAIT;
            if (w->step.exchange == ITH_EXCHANGE_HOP)
                return ITH_WALK_HOP;
        }
    }
    return ITH_WALK_END;
}
