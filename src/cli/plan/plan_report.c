/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the list of plans of `ithaca plan` as a table or as JSON. */
#include "../cli.h"
#include "../support/json_print.h"
#include "plan_state.h"

#include <stdio.h>
#include <string.h>

/* ---- Table ------------------------------------------------------------------------------------------------------ */

/* Writes "ULYSSES x RING", with '-' for a number that is open. */
static const char *mesh_text(int ulysses, int ring, char text[32])
{
    char u[12] = "-", r[12] = "-";
    if (ulysses)
        snprintf(u, sizeof u, "%d", ulysses);
    if (ring)
        snprintf(r, sizeof r, "%d", ring);
    snprintf(text, 32, "%s x %s", u, r);
    return text;
}

/* The memory that a plan needs: its own, or of a video's process. */
static int64_t memory_of(const ith_plan_row *row)
{
    return row->cfg ? row->video.memory_bytes : row->cost.memory_bytes;
}

/* Prints the first columns of a plan. */
static void print_choices(const ith_plan_row *row, ith_strategy strategy, int ulysses, int ring)
{
    char mesh[32];
    if (row->cfg)
        printf("%-11s", ith_cfg_name(row->cfg));
    printf("%-13s %-11s ", ith_strategy_name(strategy), mesh_text(ulysses, ring, mesh));
}

/* Prints a legal plan. */
static void print_legal(const ith_plan_row *row)
{
    char hidden[16] = "-";
    if (row->cost.exchange_seconds > 0)
        snprintf(hidden, sizeof hidden, "%.1f%%", 100 * row->cost.hidden_share);
    print_choices(row, row->info.strategy, row->info.ulysses, row->info.ring);
    printf("%-9s %6d %-8s %-16s %12.6f", ith_direction_name(row->info.direction), row->info.chunks,
           ith_softmax_name(row->info.softmax), row->info.kernel, row->cost.seconds);
    if (row->cfg)
        printf(" %10.3f %10.1f", row->video.step_seconds, row->video.seconds);
    printf(" %7s %11.1f %11.1f\n", hidden, ith_cli_megabytes(row->cost.sent_bytes), ith_cli_megabytes(memory_of(row)));
}

/* Whether two illegal plans have the same strategy, mesh and rule. */
static bool is_alike(const ith_plan_row *a, const ith_plan_row *b)
{
    return a->cfg == b->cfg && a->options.strategy == b->options.strategy && a->options.ulysses == b->options.ulysses &&
           a->options.ring == b->options.ring && !strcmp(a->rule, b->rule);
}

/* Prints the plans that are not legal. Of neighbours that differ in direction, chunks and softmax alone the first one
 * is printed. */
static void print_illegal(const ith_plan_command *c)
{
    for (int64_t i = c->legal_count; i < c->count; i++) {
        const ith_plan_row *row = &c->rows[i];
        if (i == c->legal_count)
            printf("\nNot legal:\n");
        else if (is_alike(row, row - 1))
            continue;
        print_choices(row, row->options.strategy, row->options.ulysses, row->options.ring);
        printf("%s\n", row->rule);
    }
}

/* A part of a time. */
typedef struct term {
    const char *name;
    double seconds;
    const char *meaning;
} term;

/* Prints the parts of a time, each with its share of the whole. */
static void print_terms(const term *terms, size_t count, double whole)
{
    for (size_t i = 0; i < count; i++)
        printf("  %-9s %12.6f s %5.1f%%  %s\n", terms[i].name, terms[i].seconds,
               whole > 0 ? 100 * terms[i].seconds / whole : 0, terms[i].meaning);
}

/* Prints the messages of one attention by level. */
static void print_levels(const ith_plan_command *c, const ith_cost *cost)
{
    for (int64_t i = 0; i < c->machine.level_count; i++)
        if (cost->level_bytes[i] > 0)
            printf("  Over level %s a rank sends %.1f MB in %.6f s.\n", c->machine.levels[i].name,
                   1e-6 * cost->level_bytes[i], cost->level_seconds[i]);
}

/* Explains the time of one attention. */
static void explain_attention(const ith_plan_command *c, const ith_plan_row *row)
{
    const ith_cost *cost = &row->cost;
    const term terms[] = {
        {"compute", cost->compute_seconds, "calls of the kernel"},
        {"packing", cost->pack_seconds, "of keys and values"},
        {"offsets", cost->offset_seconds, "statistics and offsets of fixed_m"},
        {"copies", cost->copy_seconds, "of messages, by the rank's own threads"},
        {"waiting", cost->waiting_seconds, "for data, for other ranks, or for a unit"},
        {"start", cost->start_seconds, "agreement of the ranks"},
    };
    char mesh[32];
    printf("\nOne attention with the best plan, %s %s, takes %.6f s on the rank that takes longest:\n",
           ith_strategy_name(row->info.strategy), mesh_text(row->info.ulysses, row->info.ring, mesh), cost->seconds);
    print_terms(terms, sizeof terms / sizeof *terms, cost->seconds);
    if (cost->exchange_seconds > 0)
        printf("  Exchanges are under way for %.6f s, of which %.1f%% is hidden behind computing.\n",
               cost->exchange_seconds, 100 * cost->hidden_share);
    else
        puts("  No exchange takes time.");
    print_levels(c, cost);
    printf("  The busiest rank computes %.3f times the mean of all ranks. Its plan holds %.1f MB.\n", cost->imbalance,
           ith_cli_megabytes(cost->memory_bytes));
    printf("  Tiles: block_q %lld, block_kv %lld, block_kv_compute %lld, block_kv_compute_in %lld.\n",
           (long long)row->info.block_q, (long long)row->info.block_kv, (long long)row->info.block_kv_compute,
           (long long)row->info.block_kv_compute_in);
}

/* Explains the time of a step, and of the whole video. */
static void explain_video(const ith_plan_command *c, const ith_plan_row *row)
{
    const ith_video_cost *v = &row->video;
    double layers = v->layer_seconds > 0 ? (v->pass_seconds - v->ends_seconds) / v->layer_seconds : 0;
    double times = layers * (double)v->passes;
    const term step[] = {
        {"attention", times * v->attention_seconds, "self-attention of all layers"},
        {"linear", times * v->linear_seconds, "linear layers"},
        {"cross", times * v->cross_seconds, "cross-attention"},
        {"rows", times * v->row_seconds, "norms, RoPE, activations and sums on rows"},
        {"ends", (double)v->passes * v->ends_seconds, "before the first layer and after the last"},
        {"exchange", v->exchange_seconds, "guidance branches meet, ranks agree, the solver"},
    };
    const term video[] = {
        {"text", v->text_seconds, "prompts"},
        {"image", v->image_seconds, "images to latents"},
        {"denoise", v->denoise_seconds, "all steps"},
        {"decode", v->decode_seconds, "latents to frames"},
        {"write", v->write_seconds, "frames rounded and gathered; no codec"},
    };
    printf("\nA step takes %.3f s, with %lld pass%s of %.0f layer%s on each rank:\n", v->step_seconds,
           (long long)v->passes, v->passes == 1 ? "" : "es", layers, ith_cli_plural((int64_t)(layers + 0.5)));
    print_terms(step, sizeof step / sizeof *step, v->step_seconds);
    printf("\nThe video %s takes %.1f s:\n", c->settings->problem, v->seconds);
    print_terms(video, sizeof video / sizeof *video, v->seconds);
    printf("  The process of rank 0 holds %.2f GB, all processes of its host %.2f GB.\n",
           1e-9 * (double)v->memory_bytes, 1e-9 * (double)v->host_bytes);
}

/* Prints the simulated time of the best plan beside the predicted one. */
static void print_simulation(const ith_plan_command *c)
{
    const ith_plan_row *row = &c->rows[0];
    const double seconds = row->cfg ? row->video.step_seconds : row->cost.seconds;
    const double predicted = row->cfg ? c->predicted.video.step_seconds : c->predicted.cost.seconds;
    printf(
        "\nSimulated on all ranks, %s the best plan takes %.6f s, %.3f times the prediction of %.6f s; %.1f%% of its "
        "exchanges is hidden.\n",
        row->cfg ? "a step with" : "an attention with", seconds, predicted > 0 ? seconds / predicted : 1, predicted,
        100 * row->cost.hidden_share);
}

/* Explains the best plan. */
static void explain(const ith_plan_command *c)
{
    const ith_plan_row *row = &c->rows[0];
    explain_attention(c, row);
    if (row->cfg)
        explain_video(c, row);
    printf("\nMachine: %s%s%s\n", c->machine.name, c->machine.source[0] ? "; figures from: " : "", c->machine.source);
}

void ith_plan_print_table(const ith_plan_command *c)
{
    int64_t shown = c->legal_count < c->settings->rows ? c->legal_count : c->settings->rows;
    const bool video = c->count && c->rows[0].cfg;
    if (video)
        printf("%-11s", "cfg");
    printf("%-13s %-11s %-9s %6s %-8s %-16s %12s", "strategy", "u x r", "direction", "chunks", "softmax", "kernel",
           "s/attention");
    if (video)
        printf(" %10s %10s", "s/step", "s/video");
    printf(" %7s %11s %11s\n", "hidden", "MB sent", "MB held");
    for (int64_t i = 0; i < shown; i++)
        print_legal(&c->rows[i]);
    if (shown < c->legal_count)
        printf("%lld more legal plan%s: --rows %lld shows all\n", (long long)(c->legal_count - shown),
               ith_cli_plural(c->legal_count - shown), (long long)c->legal_count);
    print_illegal(c);
    if (c->settings->simulate && c->legal_count)
        print_simulation(c);
    if (c->settings->explain && c->legal_count)
        explain(c);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* A positive whole number, or null. */
static json_t *count_json(int64_t value)
{
    return value > 0 ? json_integer(value) : json_null();
}

/* The choices of a plan as a JSON object. */
static json_t *choices_json(const ith_plan_row *row)
{
    const ith_attn_options *o = &row->options;
    const ith_plan_info *info = &row->info;
    bool legal = row->legal;
    return json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:s, s:s?, s:b, s:s?}", "strategy", ith_strategy_name(o->strategy), "ulysses",
        count_json(legal ? info->ulysses : o->ulysses), "ring", count_json(legal ? info->ring : o->ring), "direction",
        ith_direction_name(legal ? info->direction : o->direction), "chunks",
        count_json(legal ? info->chunks : o->chunks), "softmax", ith_softmax_name(legal ? info->softmax : o->softmax),
        "cfg", row->cfg ? ith_cfg_name(row->cfg) : NULL, "legal", legal, "rule", legal ? NULL : row->rule);
}

/* The figures of a plan as a JSON object. Figures of a plan that is not legal are null, and so are the seconds of a
 * step and of a video where no video is planned. */
static json_t *figures_json(const ith_plan_row *row)
{
    const ith_cost *cost = &row->cost;
    if (!row->legal)
        return json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "seconds_attention", "seconds_step", "seconds_video",
                         "sent_bytes", "memory_bytes", "hidden_share");
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o}", "seconds_attention", ith_cli_json_number(cost->seconds),
                     "seconds_step", row->cfg ? ith_cli_json_number(row->video.step_seconds) : json_null(),
                     "seconds_video", row->cfg ? ith_cli_json_number(row->video.seconds) : json_null(), "sent_bytes",
                     (json_int_t)cost->sent_bytes, "memory_bytes", (json_int_t)memory_of(row), "hidden_share",
                     ith_cli_json_number(cost->hidden_share));
}

int ith_plan_print_json(const ith_plan_command *c)
{
    const int64_t count = c->settings->simulate && c->legal_count ? 1 : c->count;
    for (int64_t i = 0; i < count; i++) {
        json_t *object = choices_json(&c->rows[i]);
        const bool whole = object && !json_object_update_new(object, figures_json(&c->rows[i]));
        fputs(i ? ",\n " : "[", stdout);
        const int code = ith_cli_json_dump(whole ? object : NULL, "the plans", JSON_REAL_PRECISION(9));
        json_decref(object);
        if (code)
            return code;
    }
    puts(count ? "]" : "[]");
    return ITH_EXIT_DONE;
}
