/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the list of plans of `ithaca plan` as a table or as JSON. */
#include "cli.h"
#include "json_number.h"
#include "plan_command.h"

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

/* Prints a legal plan. */
static void print_legal(const ith_plan_row *row)
{
    char mesh[32], hidden[16] = "-";
    if (row->cost.exchange_seconds > 0)
        snprintf(hidden, sizeof hidden, "%.1f%%", 100 * row->cost.hidden_share);
    printf("%-13s %-11s %-9s %6d %-8s %-16s %12.6f %7s %11.1f %11.1f\n", ith_strategy_name(row->info.strategy),
           mesh_text(row->info.ulysses, row->info.ring, mesh), ith_direction_name(row->info.direction),
           row->info.chunks, ith_softmax_name(row->info.softmax), row->info.kernel, row->cost.seconds, hidden,
           1e-6 * (double)row->cost.sent_bytes, 1e-6 * (double)row->cost.memory_bytes);
}

/* Whether two illegal plans have the same strategy, mesh and rule. */
static bool is_alike(const ith_plan_row *a, const ith_plan_row *b)
{
    return a->options.strategy == b->options.strategy && a->options.ulysses == b->options.ulysses &&
           a->options.ring == b->options.ring && !strcmp(a->rule, b->rule);
}

/* Prints the plans that are not legal. Of neighbours that differ in direction, chunks and softmax alone the first one
 * is printed. */
static void print_illegal(const ith_plan_command *c)
{
    char mesh[32];
    for (int64_t i = c->legal_count; i < c->count; i++) {
        const ith_plan_row *row = &c->rows[i];
        if (i == c->legal_count)
            printf("\nNot legal:\n");
        else if (is_alike(row, row - 1))
            continue;
        printf("%-13s %-11s %s\n", ith_strategy_name(row->options.strategy),
               mesh_text(row->options.ulysses, row->options.ring, mesh), row->rule);
    }
}

/* Prints the terms of a plan's time. */
static void print_terms(const ith_plan_command *c, const ith_plan_row *row)
{
    const ith_cost *cost = &row->cost;
    const struct {
        const char *name;
        double seconds;
        const char *meaning;
    } terms[] = {
        {"compute", cost->compute_seconds, "calls of the kernel"},
        {"packing", cost->pack_seconds, "of keys and values"},
        {"offsets", cost->offset_seconds, "statistics and offsets of fixed_m"},
        {"copies", cost->copy_seconds, "of messages, by the rank's own threads"},
        {"waiting", cost->waiting_seconds, "for data, for other ranks, or for a unit"},
        {"start", cost->start_seconds, "agreement of the ranks"},
    };
    char mesh[32];
    printf("\nThe best plan, %s %s, takes %.6f s on the rank that takes longest:\n",
           ith_strategy_name(row->info.strategy), mesh_text(row->info.ulysses, row->info.ring, mesh), cost->seconds);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        printf("  %-9s %12.6f s %5.1f%%  %s\n", terms[i].name, terms[i].seconds,
               cost->seconds > 0 ? 100 * terms[i].seconds / cost->seconds : 0, terms[i].meaning);
    printf("  Exchanges are under way for %.6f s, of which %.1f%% is hidden behind computing.\n",
           cost->exchange_seconds, 100 * cost->hidden_share);
    printf("  The busiest rank computes %.3f times the mean of all ranks.\n", cost->imbalance);
    printf("  Tiles: block_q %lld, block_kv %lld, block_kv_compute %lld, block_kv_compute_in %lld.\n",
           (long long)row->info.block_q, (long long)row->info.block_kv, (long long)row->info.block_kv_compute,
           (long long)row->info.block_kv_compute_in);
    printf("  Machine: %s%s%s\n", c->machine.name, c->machine.source[0] ? "; figures from: " : "", c->machine.source);
}

void ith_plan_print_table(const ith_plan_command *c)
{
    int64_t shown = c->legal_count < c->settings->rows ? c->legal_count : c->settings->rows;
    printf("%-13s %-11s %-9s %6s %-8s %-16s %12s %7s %11s %11s\n", "strategy", "u x r", "direction", "chunks",
           "softmax", "kernel", "seconds", "hidden", "MB sent", "MB held");
    for (int64_t i = 0; i < shown; i++)
        print_legal(&c->rows[i]);
    if (shown < c->legal_count)
        printf("%lld more legal plans: --rows %lld shows all\n", (long long)(c->legal_count - shown),
               (long long)c->legal_count);
    print_illegal(c);
    if (c->settings->explain && c->legal_count)
        print_terms(c, &c->rows[0]);
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
        "{s:s, s:o, s:o, s:s, s:o, s:s, s:n, s:b, s:s?}", "strategy", ith_strategy_name(o->strategy), "ulysses",
        count_json(legal ? info->ulysses : o->ulysses), "ring", count_json(legal ? info->ring : o->ring), "direction",
        ith_direction_name(legal ? info->direction : o->direction), "chunks",
        count_json(legal ? info->chunks : o->chunks), "softmax", ith_softmax_name(legal ? info->softmax : o->softmax),
        "cfg", "legal", legal, "rule", legal ? NULL : row->rule);
}

/* The figures of a plan as a JSON object. Figures of a plan that is not legal are null, and so are the seconds of a
 * step and of a video where no model is planned. */
static json_t *figures_json(const ith_plan_row *row)
{
    const ith_cost *cost = &row->cost;
    if (!row->legal)
        return json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "seconds_attention", "seconds_step", "seconds_video",
                         "sent_bytes", "memory_bytes", "hidden_share");
    return json_pack("{s:o, s:n, s:n, s:I, s:I, s:o}", "seconds_attention", ith_cli_json_number(cost->seconds),
                     "seconds_step", "seconds_video", "sent_bytes", (json_int_t)cost->sent_bytes, "memory_bytes",
                     (json_int_t)cost->memory_bytes, "hidden_share", ith_cli_json_number(cost->hidden_share));
}

int ith_plan_print_json(const ith_plan_command *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        json_t *object = choices_json(&c->rows[i]);
        int failed = !object || json_object_update_new(object, figures_json(&c->rows[i]));
        fputs(i ? ",\n " : "[", stdout);
        failed = failed || json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
        json_decref(object);
        if (failed)
            return ith_cli_error("the plans cannot be written as JSON");
    }
    puts(c->count ? "]" : "[]");
    return ITH_EXIT_DONE;
}
