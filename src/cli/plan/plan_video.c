/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a video: the plans of its self-attention for each way to compute the guidance branches, each with the
 * predicted time of a step and of the whole video. */
#include "../cli.h"
#include "../machine/machine_file.h"
#include "plan_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fastest rate of attention that the machine has for a type; 0 if there is none. */
static double fastest(const ith_machine *machine, ith_dtype dtype)
{
    double most = 0;
    for (int64_t i = 0; i < machine->attention_count; i++)
        if (machine->attention[i].dtype == dtype && machine->attention[i].gflops > most)
            most = machine->attention[i].gflops;
    return most;
}

/* The precision that --precision auto means on a machine: bf16 where it is clearly faster than f32. */
static ith_precision choose_precision(const ith_plan_command *c)
{
    static const double clearly = 1.25;
    if (c->settings->precision)
        return c->settings->precision;
    return fastest(&c->machine, ITH_BF16) > clearly * fastest(&c->machine, ITH_F32) ? ITH_PRECISION_BF16
                                                                                    : ITH_PRECISION_F32;
}

/* Keeps a plan of the list (ith_video_candidate_fn). */
static ith_status take(void *user, const ith_plan_candidate *plan, const ith_video_cost *cost)
{
    ith_plan_command *c = user;
    ith_status status = ith_plan_take(c, plan);
    if (status)
        return status;
    ith_plan_row *row = &c->rows[c->count - 1];
    row->cfg = c->cfg;
    row->number = c->count;
    row->video = cost ? *cost : (ith_video_cost)ITH_VIDEO_COST_INIT;
    return ITH_OK;
}

/* Adds a plan that is not legal in place of all plans of a cfg, by the rule in the context. */
static ith_status refuse_cfg(ith_plan_command *c, const ith_attn_options *options)
{
    ith_plan_candidate refused = {.struct_size = sizeof refused, .options = options};
    snprintf(refused.rule, sizeof refused.rule, "%s", ith_context_error(c->context));
    return take(c, &refused, NULL);
}

/* Compares two plans for qsort: legal ones first, the fastest video first. */
static int compare(const void *a, const void *b)
{
    const ith_plan_row *x = a, *y = b;
    if (x->legal != y->legal)
        return x->legal ? -1 : 1;
    if (x->legal && x->video.seconds != y->video.seconds)
        return x->video.seconds < y->video.seconds ? -1 : 1;
    if (x->cfg != y->cfg)
        return x->cfg < y->cfg ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Measures the rates of linear layers and convolutions if the machine is this one and its description has none. */
static int measure_products(ith_plan_command *c, const ith_video_problem *video, const ith_attn_options *options)
{
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    const ith_plan_settings *s = c->settings;
    const ith_cfg cfg = s->cfg ? s->cfg : ITH_CFG_BATCH;
    int64_t count = 0;
    if (c->machine.product_count || strcmp(s->machine, "local") != 0)
        return ITH_EXIT_DONE;
    ith_machine_product *rows = calloc(ITH_VIDEO_RATES, sizeof *rows);
    if (!rows)
        return ith_cli_error("there is no memory for rates");
    *rows = (ith_machine_product)ITH_MACHINE_PRODUCT_INIT;
    measuring.seconds = 2;
    if (ith_video_measure(c->context, video, options, cfg, &c->machine, (int)s->ranks, &measuring, rows, &count,
                          NULL)) {
        free(rows);
        return ith_cli_error("%s", ith_context_error(c->context));
    }
    ith_machine_file_take_products(&c->machine, rows, count);
    return ITH_EXIT_DONE;
}

int ith_plan_add_video(ith_plan_command *c, const ith_attn_options *options)
{
    const ith_plan_settings *s = c->settings;
    ith_video_problem *video = &c->video;
    video->precision = choose_precision(c);
    video->lora_rank = s->lora_rank;
    if (s->steps)
        video->steps = video->guided_steps = s->steps;
    int code = measure_products(c, video, options);
    if (code)
        return code;
    for (int cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
        if (s->cfg && s->cfg != (ith_cfg)cfg)
            continue;
        c->cfg = (ith_cfg)cfg;
        ith_status status = ith_video_list(c->context, video, options, c->cfg, &c->machine, (int)s->ranks, take, c);
        if (status == ITH_ERR_ARGUMENT && !s->cfg && cfg == ITH_CFG_PARALLEL)
            status = refuse_cfg(c, options);
        if (status)
            return ith_cli_error("%s", ith_context_error(c->context));
    }
    qsort(c->rows, (size_t)c->count, sizeof *c->rows, compare);
    return ITH_EXIT_DONE;
}

ith_status ith_plan_simulate_video(ith_plan_command *c)
{
    const ith_plan_settings *s = c->settings;
    const ith_attn_options options = c->predicted.options;
    ith_plan_row *best = &c->rows[0];
    return ith_video_simulate(c->context, &c->video, &options, best->cfg, &c->machine, (int)s->ranks, &s->simulation,
                              &best->info, &best->cost, &best->video);
}
