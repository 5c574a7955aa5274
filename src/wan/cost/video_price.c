/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of lists of work (video_price.h).
 *
 *     linear layers, convolutions   operations / (rate of one unit x units) + call_seconds
 *     attention                     ith_plan_cost
 *     rows                          bytes / (row_bytes_per_second x units) */
#include "video_price.h"

#include "../../base/context.h"
#include "../../base/size.h"

#include <math.h>
#include <string.h>

/* ---- Places ------------------------------------------------------------------------------------------------------ */

/* The units at full speed that `threads` threads have, if all threads of a host want `wanted` units. */
static double units_of(const ith_machine *m, double threads, double wanted)
{
    return threads * fmin(1, (double)m->host_units / wanted) * ith_machine_busy_rate(m, fmax(wanted, 1));
}

double ith_video_units(const ith_machine *machine, int64_t threads)
{
    return units_of(machine, (double)threads, (double)threads);
}

ith_status ith_video_place_find(ith_context *context, const ith_machine *machine, int ranks,
                                const ith_attn_options *options, int64_t threads, ith_video_place *out)
{
    *out = (ith_video_place){.context = context, .machine = machine, .ranks = ranks};
    ith_status status = ith_machine_read(context, machine, &out->view);
    if (!status && ranks < 1)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "ranks is %d, and must be at least 1", ranks);
    if (!status)
        status = ith_machine_place(context, ranks, options, &out->view);
    if (status)
        return status;
    const ith_machine *m = &out->view.machine;
    const int64_t host_ranks = ith_min64(out->view.host_ranks, ranks);
    out->process_ranks = 1;
    for (int i = 0; i < m->level_count; i++)
        if (out->view.levels[i].shares_memory)
            out->process_ranks = out->view.joined[i];
    out->process_ranks = ith_min64(out->process_ranks, host_ranks);
    out->processes = ith_div_up(ranks, out->process_ranks);
    out->host_processes = ith_div_up(host_ranks, out->process_ranks);
    out->hosts = ith_div_up(ranks, host_ranks);
    out->threads = threads ? threads : ith_max64(m->host_units * out->process_ranks / host_ranks, 1);
    if (m->rank_units)
        out->threads = m->rank_units * out->process_ranks;
    out->rank_threads = ith_max64(out->threads / out->process_ranks, 1);
    const double wanted = (double)(out->view.unit_ranks * out->rank_threads);
    const double leading = (double)(ith_div_up(out->view.unit_ranks, out->process_ranks) * out->threads);
    out->crowding = fmax(wanted / (double)m->host_units, 1);
    out->rank_units = units_of(m, (double)out->rank_threads, wanted);
    out->process_units = units_of(m, (double)out->threads, leading);
    return ITH_OK;
}

double ith_video_send_seconds(const ith_video_place *place, int64_t distance, double bytes)
{
    const ith_machine_view *view = &place->view;
    if (distance < 1 || distance >= place->ranks || view->machine.level_count < 1)
        return 0;
    const ith_machine_level *level = &view->levels[ith_machine_level_between(view, 0, distance)];
    double seconds = level->latency_seconds + level->setup_seconds;
    if (level->bytes_per_second > 0)
        seconds += bytes / level->bytes_per_second;
    if (level->copy_bytes_per_second > 0)
        seconds += bytes / level->copy_bytes_per_second;
    return seconds;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* How far a row of the machine is from a product: the kind counts most, then the type, the features, the rows. */
static double distance(const ith_machine_product *row, ith_machine_work work, ith_dtype type, int64_t rows,
                       int64_t features)
{
    return (row->work != work ? 1e6 : 0) + (row->dtype != type ? 1e4 : 0) +
           10 * ith_machine_apart(row->features, features) + ith_machine_apart(row->rows, rows);
}

ith_machine_product ith_video_product(const ith_machine_view *view, ith_machine_work work, ith_dtype type, int64_t rows,
                                      int64_t features)
{
    ith_machine_product nearest = ITH_MACHINE_PRODUCT_INIT;
    double least = INFINITY;
    for (int64_t i = 0; i < view->machine.product_count; i++) {
        const ith_machine_product row = ith_machine_product_at(view, i);
        const double away = distance(&row, work, type, rows, features);
        if (away < least)
            least = away, nearest = row;
    }
    return nearest;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

static double product_seconds(const ith_video_seconds *s, const ith_work *work)
{
    const ith_machine_work kind = work->kind == ITH_WORK_OF_CONV ? ITH_WORK_CONVOLUTION : ITH_WORK_LINEAR;
    const ith_dtype type = work->in_f32 ? ITH_F32 : s->type;
    const ith_machine_product row =
        ith_video_product(&s->place->view, kind, type, work->rows, ith_min64(work->in, work->out));
    return work->operations / (1e9 * row.gflops * s->units) + row.call_seconds;
}

/* The seconds of an attention. A machine may lack the rates of kernels for attentions other than self-attention, which
 * take little of the time. They are then priced as products. */
static double attention_seconds(ith_video_seconds *s, const ith_work *work)
{
    const ith_attn_problem *problem = work->attention;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_cost cost = ITH_COST_INIT;
    options.threads = s->place->view.machine.rank_units ? 0 : s->threads;
    ith_status status = ith_plan_cost(s->place->context, problem, &options, s->place->machine, s->ranks, NULL, &cost);
    if (!status)
        return cost.seconds;
    if (status != ITH_ERR_UNSUPPORTED && !s->status)
        s->status = status;
    const ith_machine_product row =
        ith_video_product(&s->place->view, ITH_WORK_LINEAR, problem->dtype, problem->q_len, problem->head_dim);
    return work->operations / (1e9 * row.gflops * s->units * s->ranks) + row.call_seconds;
}

void ith_video_add_work(void *user, const ith_work *work)
{
    ith_video_seconds *s = user;
    const double row_rate = s->place->view.machine.row_bytes_per_second;
    if (s->status)
        return;
    switch (work->kind) {
    case ITH_WORK_OF_LINEAR:
        s->linear += work->times * product_seconds(s, work);
        s->operations += work->times * work->operations;
        break;
    case ITH_WORK_OF_CONV:
        s->conv += work->times * product_seconds(s, work);
        s->operations += work->times * work->operations;
        break;
    case ITH_WORK_OF_ATTENTION:
        s->attention_operations += work->times * work->operations;
        if (!s->skips_self || strcmp(work->stage, "self attention"))
            s->attention += work->times * attention_seconds(s, work);
        break;
    case ITH_WORK_OF_ROWS:
        if (row_rate > 0)
            s->row += work->times * work->bytes / (row_rate * s->units);
        break;
    }
}

double ith_video_seconds_all(const ith_video_seconds *s)
{
    return s->linear + s->conv + s->attention + s->row;
}
