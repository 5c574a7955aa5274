/* SPDX-License-Identifier: Apache-2.0 */
/* The predicted time of a run (generate_predict.h): finds the rates of this machine, and asks the engine. */
#include "generate_predict.h"

#include "../launch/interrupt.h"
#include "../machine/bare_machine.h"
#include "../machine/machine_file.h"
#include "../shared_option/device_option.h"
#include "../support/video_tokens.h"

#include <ithaca/tune.h>

#include <stdio.h>
#include <stdlib.h>

/* Seconds of measurements. */
#define WELL_SECONDS 0.5 /* for the machine, and again for the layers of the model, in a dry run or before a long run */
#define LEAST_SECONDS 0.1  /* for the layers, before a short run */
#define START_SECONDS 0.02 /* for the agreement of several ranks */
#define SHARE 0.02         /* the share of a run's predicted time that measuring may take */
#define LONG_SECONDS 1.0   /* a run with a share of this length is long */
#define SHORT_TOKENS 2048  /* sequences to this length are measured as a whole by ith_video_measure */

/* ---- Problem ----------------------------------------------------------------------------------------------------- */

/* The options of self-attention, with the places of the ranks. */
static ith_attn_options placed(const ith_generation *g)
{
    ith_attn_options options = g->attention;
    ith_launch_place(&g->launch, &options);
    return options;
}

static void fail(ith_generation *g, const char *sentence)
{
    g->prediction.known = false;
    snprintf(g->prediction.unknown, sizeof g->prediction.unknown, "%s", sentence);
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* Whether a description has rates at the sizes of the problem. */
static bool has_rates(const ith_machine *machine, const ith_video_problem *p)
{
    const ith_dtype type = p->precision == ITH_PRECISION_BF16 ? ITH_BF16 : ITH_F32;
    bool linear = false;
    for (int64_t i = 0; i < machine->product_count; i++)
        linear |= machine->products[i].work == ITH_WORK_LINEAR && machine->products[i].dtype == type &&
                  machine->products[i].features == p->heads * p->head_dim;
    return linear && ith_machine_has_attention(machine, type, p->head_dim);
}

/* Puts a measured rate before the rates of attention of other types that the machine has. */
static bool put_attention(ith_generate_rates *r, const ith_machine_attention *row)
{
    const ith_machine *m = &r->machine;
    ith_machine_attention *all = malloc((size_t)(m->attention_count + 1) * sizeof *all);
    int64_t count = 0;
    if (!all)
        return false;
    all[count++] = *row;
    for (int64_t i = 0; i < m->attention_count; i++)
        if (m->attention[i].dtype != row->dtype)
            all[count++] = m->attention[i];
    free(r->attention);
    r->attention = all;
    r->machine.attention = all, r->machine.attention_count = count;
    return true;
}

/* Whether the run has a denoising step to compute. */
static bool computes_steps(const ith_video_problem *p)
{
    return p->steps > p->steps_done;
}

/* Measures the rates of the model's layers in about `seconds`, and puts them into the description. A kernel whose rate
 * over long sequences is known keeps it. */
static bool measure_layers(ith_generation *g, const ith_video_problem *p, double seconds, ith_generate_rates *r)
{
    const ith_attn_options options = placed(g);
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    ith_machine_attention row = ITH_MACHINE_ATTENTION_INIT;
    int64_t count = 0;
    measuring.seconds = seconds;
    r->machine.products = NULL, r->machine.product_count = 0; /* the measured ones take their place */
    r->products[0] = (ith_machine_product)ITH_MACHINE_PRODUCT_INIT;
    if (ith_video_measure(g->context, p, &options, g->options.cfg, &r->machine, g->launch.all_ranks, &measuring,
                          r->products, &count, &row)) {
        fail(g, ith_context_error(g->context));
        return false;
    }
    r->machine.products = r->products, r->machine.product_count = count;
    if (computes_steps(p) && (!r->machine.attention_count || ith_video_tokens(p) <= SHORT_TOKENS))
        return put_attention(r, &row);
    return true;
}

static void predict(ith_generation *g, const ith_video_problem *p, const ith_generate_rates *r)
{
    ith_generate_prediction *out = &g->prediction;
    const ith_attn_options options = placed(g);
    out->cost = (ith_video_cost)ITH_VIDEO_COST_INIT;
    out->plan = (ith_plan_info)ITH_PLAN_INFO_INIT;
    out->known = !ith_video_predict(g->context, p, &options, g->options.cfg, &r->machine, g->launch.all_ranks,
                                    &out->plan, NULL, &out->cost);
    if (out->known) /* the kernel's name may lie in the machine, which is freed first */
        snprintf(g->kernel, sizeof g->kernel, "%s", out->plan.kernel ? out->plan.kernel : ""),
            out->plan.kernel = g->kernel;
    else
        fail(g, ith_context_error(g->context));
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

/* The kernels that are measured with the machine: of self-attention, and of the attention in the decoder. */
static void set_cases(const ith_generation *g, const ith_video_problem *p, ith_machine_case cases[2],
                      ith_measure_options *options)
{
    cases[0] = cases[1] = (ith_machine_case)ITH_MACHINE_CASE_INIT;
    cases[0].dtype = p->precision == ITH_PRECISION_BF16 ? ITH_BF16 : ITH_F32;
    cases[0].head_dim = p->head_dim ? p->head_dim : cases[1].head_dim; /* 0: the problem is not known here */
    cases[0].softmax = g->attention.softmax ? g->attention.softmax : ITH_SOFTMAX_ONLINE;
    cases[1].dtype = ITH_F32, cases[1].softmax = ITH_SOFTMAX_ONLINE;
    options->cases = cases, options->case_count = 2, options->seconds = WELL_SECONDS;
}

/* Predicts with a description. If it has no rates of the model's layers, measures them in about `seconds`. */
static void predict_with(ith_generation *g, const ith_video_problem *p, const ith_machine *machine, double seconds,
                         ith_generate_rates *r)
{
    r->machine = *machine;
    if (has_rates(machine, p) || measure_layers(g, p, seconds, r))
        predict(g, p, r);
}

/* Measures the whole machine, and the model's layers. */
static void predict_well(ith_generation *g, const ith_video_problem *p, ith_generate_rates *r)
{
    ith_machine_case cases[2];
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    set_cases(g, p, cases, &options);
    if (ith_machine_measure(g->context, &options, NULL, &r->measured))
        fail(g, ith_context_error(g->context));
    else
        predict_with(g, p, r->measured, WELL_SECONDS, r);
}

/* Measures the model's layers alone: briefly, and longer if the run will take long. A run of minutes is worth the time
 * for the whole machine: layers of few tokens do not show the rate of attention over a long sequence. */
static void predict_quickly(ith_generation *g, const ith_video_problem *p, ith_generate_rates *r)
{
    ith_machine_bare(&r->machine, &r->level);
    if (g->launch.all_ranks > 1 &&
        ith_machine_start_measure(g->context, g->launch.all_ranks, START_SECONDS, &r->machine.start_seconds))
        r->machine.start_seconds = 0; /* the run itself will say why */
    if (measure_layers(g, p, LEAST_SECONDS, r))
        predict(g, p, r);
    double seconds = g->prediction.known ? SHARE * g->prediction.cost.seconds : 0;
    if (seconds >= LONG_SECONDS)
        predict_well(g, p, r);
    else if (seconds > 2 * LEAST_SECONDS && measure_layers(g, p, seconds, r))
        predict(g, p, r);
}

void ith_generate_rates_clear(ith_generate_rates *r)
{
    ith_machine_file_free(&r->kept);
    ith_machine_free(&r->measured);
    free(r->attention);
    *r = (ith_generate_rates){.source = ""};
}

/* Whether the rates were found for a video of this size. */
static bool are_for(const ith_generate_rates *r, const ith_video_problem *p)
{
    return *r->source && r->frames == p->frames && r->height == p->height && r->width == p->width &&
           r->images == p->images && (r->denoises || !computes_steps(p));
}

/* Finds the rates, and predicts with them. */
static void predict_anew(ith_generation *g, const ith_video_problem *p, ith_generate_rates *r)
{
    const double begin = ith_cli_seconds();
    ith_generate_rates_clear(r);
    r->frames = p->frames, r->height = p->height, r->width = p->width, r->images = p->images;
    r->denoises = computes_steps(p);
    const bool tuned = ith_machine_recall(g->context, &r->kept);
    if (tuned)
        predict_with(g, p, &r->kept, g->settings.dry_run ? WELL_SECONDS : LEAST_SECONDS, r);
    else if (ith_launch_is_alone(&g->launch))
        g->settings.dry_run ? predict_well(g, p, r) : predict_quickly(g, p, r);
    if (!g->prediction.known)
        return;
    if (tuned)
        snprintf(r->source, sizeof r->source, "rates that ithaca tune keeps of this machine");
    else
        snprintf(r->source, sizeof r->source, "rates measured in %.2f s", ith_cli_seconds() - begin);
}

/* Measurements with many ranks take seconds, so a signal stops them. The caller then ends the program. */
void ith_generate_predict_next(ith_generation *g, ith_generate_rates *r)
{
    ith_video_problem problem = ITH_VIDEO_PROBLEM_INIT;
    if (ith_device_in_use(g->context, &g->device)) {
        fail(g, "descriptions of machines are about processors, and the transformer computes on a device");
        return;
    }
    if (!g->settings.dry_run && !g->settings.from_latents && ith_pipeline_check(g->pipeline)) {
        fail(g, ""); /* the run itself will say why */
        return;
    }
    fail(g, "the links between these processes are not known; --dry-run of one video measures them");
    ith_interrupt_target(ith_generate_cancel, g->pipeline); /* the measurements belong to its context */
    if (ith_video_problem_read(g->pipeline, &g->options, &problem))
        fail(g, ith_context_error(g->context));
    else if (are_for(r, &problem))
        predict(g, &problem, r);
    else
        predict_anew(g, &problem, r);
    snprintf(g->prediction.source, sizeof g->prediction.source, "%s", r->source);
    ith_interrupt_target(NULL, NULL);
}

void ith_generate_predict(ith_generation *g)
{
    ith_generate_rates r = {.source = ""};
    ith_generate_predict_next(g, &r);
    ith_generate_rates_clear(&r);
}

ith_status ith_generate_predict_links(ith_generation *g, ith_context *context, ith_comm *comm)
{
    ith_machine_case cases[2];
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    ith_video_problem problem = ITH_VIDEO_PROBLEM_INIT;
    ith_machine *machine = NULL;
    if (ith_launch_is_alone(&g->launch) || ith_device_in_use(g->context, &g->device))
        return ITH_OK;
    if (ith_video_problem_read(g->pipeline, &g->options, &problem))
        fail(g, ith_context_error(g->context));
    set_cases(g, &problem, cases, &options);
    ith_status status = ith_machine_measure(context, &options, comm, &machine);
    if (!status && ith_comm_rank(comm) == 0) {
        ith_generate_rates r = {.source = ""};
        predict_with(g, &problem, machine, WELL_SECONDS, &r);
        snprintf(g->prediction.source, sizeof g->prediction.source, "rates and links measured now");
        ith_generate_rates_clear(&r);
    }
    ith_machine_free(&machine);
    return status;
}
