/* SPDX-License-Identifier: Apache-2.0 */
/* The report of ithaca generate --dry-run: the plan, the memory, and the predicted time by stage. */
#include "../support/json_print.h"
#include "generate.h"

#include <jansson.h>
#include <stdio.h>

static void print_plan(const ith_plan_info *plan)
{
    printf("plan            %s over %d rank%s, ulysses %d x ring %d", ith_strategy_name(plan->strategy), plan->ranks,
           ith_cli_plural(plan->ranks), plan->ulysses, plan->ring);
    if (plan->ranks > 1)
        printf(", %s, %d chunk%s, exchange %s", ith_direction_name(plan->direction), plan->chunks,
               ith_cli_plural(plan->chunks), ith_exchange_mode_name(plan->exchange));
    printf("\n                softmax %s, kernel %s, tiles of %lld queries and %lld/%lld/%lld keys\n",
           ith_softmax_name(plan->softmax), plan->kernel, (long long)plan->block_q, (long long)plan->block_kv,
           (long long)plan->block_kv_compute, (long long)plan->block_kv_compute_in);
}

/* The number of steps that the run computes. */
static int64_t steps_left(const ith_generation *g)
{
    return g->settings.from_latents ? 0 : g->options.steps - g->resumed_steps;
}

static void print_time(const ith_generation *g)
{
    const ith_video_cost *c = &g->prediction.cost;
    printf("predicted time, with %s\n", g->prediction.source);
    printf("  conditioning  %9.3f s\n", c->text_seconds);
    if (g->options.image)
        printf("  image encode  %9.3f s\n", c->image_seconds);
    printf("  denoise       %9.3f s  (%lld step%s, %.3f s each)\n", c->denoise_seconds, (long long)steps_left(g),
           ith_cli_plural(steps_left(g)), c->step_seconds);
    if (c->layer_seconds > 0)
        printf("    a layer     %9.6f s  (self-attention %.6f, linear layers %.6f, cross-attention %.6f, rows %.6f)\n",
               c->layer_seconds, c->attention_seconds, c->linear_seconds, c->cross_seconds, c->row_seconds);
    printf("  VAE decode    %9.3f s  (compute %.3f s, writing %.3f s)\n", c->decode_seconds + c->write_seconds,
           c->decode_seconds, c->write_seconds);
    printf("  inference     %9.3f s\n", c->seconds);
    if (c->sent_bytes)
        printf("sent            %9.0f MB by each rank\n", ith_cli_megabytes(c->sent_bytes));
}

static void print_text(const ith_generation *g)
{
    ith_generate_announce(g, stdout);
    if (g->prediction.known && steps_left(g))
        print_plan(&g->prediction.plan);
    if (g->prediction.known)
        print_time(g);
    else
        printf("no time is predicted: %s\n", g->prediction.unknown);
    printf("memory          %9.0f MB in this process", ith_cli_megabytes(g->predicted_bytes));
    if (g->prediction.known && g->prediction.cost.host_bytes != g->predicted_bytes)
        printf(", %.0f MB on its host", ith_cli_megabytes(g->prediction.cost.host_bytes));
    printf("; %.0f MB can be taken here\n", ith_cli_megabytes(g->free_bytes));
    if (g->memory_lack[0])
        printf("                %s\n", g->memory_lack);
    if (!g->weights_fault[0])
        printf("weight files    are there, and their tensors have the names and shapes that the model needs\n");
}

static json_t *plan_json(const ith_plan_info *p)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:s, s:s, s:s, s:[I, I, I, I], s:I}", "strategy",
                     ith_strategy_name(p->strategy), "ranks", p->ranks, "ulysses", p->ulysses, "ring", p->ring,
                     "direction", ith_direction_name(p->direction), "chunks", p->chunks, "softmax",
                     ith_softmax_name(p->softmax), "exchange", ith_exchange_mode_name(p->exchange), "kernel", p->kernel,
                     "tiles", (json_int_t)p->block_q, (json_int_t)p->block_kv, (json_int_t)p->block_kv_compute,
                     (json_int_t)p->block_kv_compute_in, "sent_bytes", (json_int_t)p->sent_bytes);
}

/* The run, without its prediction, as a JSON object. */
static json_t *run_json(const ith_generation *g)
{
    const ith_generate_options *o = &g->options;
    return json_pack(
        "{s:s, s:b, s:s, s:o, s:I, s:I, s:I, s:I, s:i, s:i, s:s, s:s, s:o}", "version", ith_version(), "dry_run", 1,
        "model", g->model.kind, "output", ith_cli_json_text(g->settings.output), "frames", (json_int_t)o->frames,
        "height", (json_int_t)o->height, "width", (json_int_t)o->width, "steps",
        (json_int_t)(g->settings.from_latents ? 0 : o->steps), "ranks", g->launch.all_ranks, "threads",
        ith_generate_threads(g), "cfg", ith_cfg_name(o->cfg), "precision", ith_precision_name(o->precision), "memory",
        json_pack("{s:I, s:I, s:I, s:s*}", "predicted_bytes", (json_int_t)g->predicted_bytes, "free_bytes",
                  (json_int_t)g->free_bytes, "predicted_device_bytes", (json_int_t)g->predicted_device_bytes, "lack",
                  g->memory_lack[0] ? g->memory_lack : NULL));
}

static int print_json(const ith_generation *g)
{
    json_t *all = run_json(g);
    if (all && g->prediction.known) {
        json_object_set_new(all, "predicted", ith_generate_prediction_json(g));
        if (steps_left(g))
            json_object_set_new(all, "plan", plan_json(&g->prediction.plan));
    } else if (all) {
        json_object_set_new(all, "unpredicted", ith_cli_json_text(g->prediction.unknown));
    }
    if (all && g->weights_fault[0])
        json_object_set_new(all, "weights_fault", ith_cli_json_text(g->weights_fault));
    return ith_cli_json_print(all, "the report", JSON_INDENT(2));
}

int ith_generate_report_dry(const ith_generation *g)
{
    int code = ITH_EXIT_DONE;
    if (g->settings.json)
        code = print_json(g);
    else
        print_text(g);
    fflush(stdout);
    return g->weights_fault[0] ? ith_cli_error("%s", g->weights_fault) : code;
}
