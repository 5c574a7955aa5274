/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rates of linear layers and of convolutions with the functions that a run calls (ith_video_measure). A
 * stage consists of products and of operations on rows. The rate of the products comes from the time of the stage
 * less the price of its rows, so that both prices together give the measured time again. */
#include "video_meter.h"
#include "video_problem.h"

#include "../../base/clock.h"
#include "../../base/observer.h"
#include "../../base/parallel.h"
#include "../../base/sized.h"
#include "../../base/team_limit.h"
#include "../run/denoise/denoise_choice.h"
#include "../run/request.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#define USUAL_SECONDS 1
#define LEAST_SECONDS 0.001
#define DECODER_SHARE 0.4 /* share of the time for the decoder */

/* The arguments and the result of `measure`, which runs on a thread of its own. */
typedef struct measurement {
    ith_video_meter *meter;
    ith_video_measure_options options;
    ith_status status;
} measurement;

static bool should_stop(void *user)
{
    const measurement *all = user;
    return all->options.should_stop(all->options.user);
}

/* Measures both parts. */
static ith_status measure_parts(ith_video_meter *m, double seconds)
{
    const double begin = ith_clock_seconds();
    ith_status status = ith_context_check(m->context);
    m->until = begin + seconds * (m->problem->decoder_levels ? 1 - DECODER_SHARE : 1);
    if (!status && ith_video_steps_left(m->problem))
        status = ith_video_measure_layer(m);
    m->until = begin + seconds;
    if (!status && m->problem->decoder_levels)
        status = ith_video_measure_decoder(m);
    return status;
}

/* Measures with an observer that asks whether to stop (an ith_task_fn). */
static void measure(void *user, int thread)
{
    measurement *all = user;
    ith_context *context = all->meter->context;
    ith_observer *before = ith_context_observer(context);
    ith_observer observer = {.should_stop = all->options.should_stop ? should_stop : NULL, .user = all};
    (void)thread;
    ith_observer_open(&observer);
    ith_context_set_observer(context, &observer);
    all->status = measure_parts(all->meter, all->options.seconds);
    ith_context_set_observer(context, before);
    ith_observer_close(&observer);
}

static ith_status read_options(ith_context *context, const ith_video_measure_options *given,
                               ith_video_measure_options *o)
{
    ith_status status =
        given ? ITH_SIZED_READ(context, ith_video_measure_options, ITH_VIDEO_MEASURE_OPTIONS_INIT, given, o) : ITH_OK;
    if (status)
        return status;
    if (!(o->seconds >= 0 && o->seconds < INFINITY))
        return ith_fail(context, ITH_ERR_ARGUMENT, "seconds is %g; it must be 0 or more", o->seconds);
    o->seconds = o->seconds > 0 ? fmax(o->seconds, LEAST_SECONDS) : USUAL_SECONDS;
    return ITH_OK;
}

/* Copies the rows into the caller's structs, whose struct_size may be smaller. */
static ith_status fill(const ith_video_meter *m, ith_machine_product *products, int64_t *count,
                       ith_machine_attention *attention)
{
    const size_t stride = products->struct_size;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < m->count && !status; i++) {
        ith_machine_product *row = (ith_machine_product *)(void *)((char *)products + (size_t)i * stride);
        row->struct_size = stride;
        status = ITH_SIZED_FILL(m->context, ith_machine_product, ITH_MACHINE_PRODUCT_INIT, row, &m->rows[i]);
    }
    *count = status ? 0 : m->count;
    if (!status && attention)
        status =
            ITH_SIZED_FILL(m->context, ith_machine_attention, ITH_MACHINE_ATTENTION_INIT, attention, &m->attention);
    return status;
}

static ith_status check_arguments(ith_context *context, const ith_machine_product *products, const int64_t *count,
                                  const ith_machine_attention *attention)
{
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, count, "count");
    if (!status)
        status = ITH_SIZED_CHECK(context, ith_machine_product, ITH_MACHINE_PRODUCT_INIT, products);
    if (!status && attention)
        status = ITH_SIZED_CHECK(context, ith_machine_attention, ITH_MACHINE_ATTENTION_INIT, attention);
    return status;
}

ith_status ith_video_measure(ith_context *context, const ith_video_problem *problem, const ith_attn_options *given,
                             ith_cfg cfg, const ith_machine *machine, int ranks,
                             const ith_video_measure_options *measuring, ith_machine_product *products, int64_t *count,
                             ith_machine_attention *attention)
{
    ith_video_problem full;
    ith_video_model model = {.counts = {0}};
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_video_meter meter = {.context = context,
                             .problem = &full,
                             .model = &model,
                             .options = &options,
                             .attention = ITH_MACHINE_ATTENTION_INIT};
    measurement all = {.meter = &meter, .options = ITH_VIDEO_MEASURE_OPTIONS_INIT};
    ith_status status = check_arguments(context, products, count, attention);
    if (count)
        *count = 0;
    if (!status)
        status = read_options(context, measuring, &all.options);
    if (!status && given)
        status = ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, given, &options);
    if (!status)
        status = ith_video_model_make(context, problem, cfg, &full, &model);
    if (!status)
        status = ith_video_place_find(context, machine, ranks, &options, full.threads, &meter.place);
    if (!status)
        status = ith_request_check_ranks(context, &model.options, ranks);
    if (!status)
        status = ith_team_check(context, (int)meter.place.threads);
    if (!status) {
        meter.sequence_ranks = ith_denoise_sequence_ranks(&model.model, &model.options, ranks);
        ith_parallel_apart(measure, &all);
        status = all.status;
    }
    ith_video_model_free(&model);
    return status ? status : fill(&meter, products, count, attention);
}
