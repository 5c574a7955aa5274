/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a video: the plans of its self-attention for each way to compute the guidance branches, each with the
 * predicted time of a step and of the whole video. */
#include "cli.h"
#include "plan_command.h"

#include <stdio.h>
#include <stdlib.h>

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

/* Describes the self-attention of a layer, with `batch` guidance branches. A token is 2 x 2 latent pixels. */
static void describe_attention(const ith_video_problem *video, int64_t batch, ith_attn_problem *p)
{
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = batch, p->heads = p->kv_heads = video->heads, p->head_dim = video->head_dim;
    p->q_len = p->kv_len = ((video->frames - 1) / video->frame_stride + 1) *
                           (video->height / (2 * video->pixel_stride)) * (video->width / (2 * video->pixel_stride));
    p->dtype = video->precision == ITH_PRECISION_F32 ? ITH_F32 : ITH_BF16;
}

/* Makes a plan illegal, by the rule in the context. */
static void refuse(const ith_plan_command *c, ith_plan_row *row)
{
    row->legal = false;
    snprintf(row->rule, sizeof row->rule, "%s", ith_context_error(c->context));
}

/* Predicts the video with each of the rows from `first` on, which are plans of its attention. */
static ith_status predict_rows(ith_plan_command *c, const ith_video_problem *video, ith_cfg cfg, int64_t first)
{
    for (int64_t i = first; i < c->count; i++) {
        ith_plan_row *row = &c->rows[i];
        row->cfg = cfg;
        row->video = (ith_video_cost)ITH_VIDEO_COST_INIT;
        if (!row->legal)
            continue;
        ith_status status = ith_video_predict(c->context, video, &row->options, cfg, &c->machine,
                                              (int)c->settings->ranks, &row->info, &row->cost, &row->video);
        if (status == ITH_ERR_ARGUMENT || status == ITH_ERR_UNSUPPORTED)
            refuse(c, row);
        else if (status)
            return status;
    }
    return ITH_OK;
}

/* Adds the plans for one way to compute the guidance branches. */
static ith_status add_cfg(ith_plan_command *c, const ith_video_problem *video, const ith_attn_options *options,
                          ith_cfg cfg)
{
    const bool parallel = cfg == ITH_CFG_PARALLEL;
    const int ranks = (int)c->settings->ranks;
    const int64_t first = c->count;
    describe_attention(video, cfg == ITH_CFG_BATCH ? 2 : 1, &c->problem);
    ith_status status = ith_plan_add(c, options, parallel && ranks > 1 ? ranks / 2 : ranks);
    return status ? status : predict_rows(c, video, cfg, first);
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

int ith_plan_add_video(ith_plan_command *c, const ith_attn_options *options)
{
    const ith_plan_settings *s = c->settings;
    ith_video_problem video = ITH_VIDEO_PROBLEM_INIT;
    if (ith_video_problem_named(c->context, s->problem, &video))
        return ith_cli_error("--problem: %s", ith_context_error(c->context));
    video.precision = choose_precision(c);
    if (s->steps)
        video.steps = video.guided_steps = s->steps;
    for (int cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++)
        if (!s->cfg || s->cfg == (ith_cfg)cfg) {
            if (cfg == ITH_CFG_PARALLEL && !s->cfg && s->ranks == 1)
                continue; /* it needs two ranks */
            if (add_cfg(c, &video, options, (ith_cfg)cfg))
                return ith_cli_error("%s", ith_context_error(c->context));
        }
    c->legal_count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        c->rows[i].number = i;
        c->legal_count += c->rows[i].legal;
    }
    qsort(c->rows, (size_t)c->count, sizeof *c->rows, compare);
    return ITH_EXIT_DONE;
}
