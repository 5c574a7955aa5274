/* SPDX-License-Identifier: Apache-2.0 */
/* What ithaca verify found: a table, or JSON. */
#include "verify.h"

#include "json_number.h"

#include <stdio.h>

static const char *fold_text(const ith_verify_plan *plan)
{
    return plan->info.ulysses == 1 ? "-" : plan->info.folded ? "yes" : "no";
}

static const char *smoothing_text(const ith_verify_plan *plan)
{
    return plan->info.softmax != ITH_SOFTMAX_FIXED_M ? "-" : plan->info.smoothed ? "yes" : "no";
}

static const char *direction_text(const ith_verify_plan *plan)
{
    return plan->info.ring == 1 ? "-" : ith_direction_name(plan->info.direction);
}

static const char *exchange_text(const ith_verify_plan *plan)
{
    return plan->info.ranks == 1 ? "-" : ith_exchange_mode_name(plan->info.exchange);
}

static const char *mask_text(const ith_attn_problem *p)
{
    return p->has_kv_lengths              ? "lengths"
           : p->mask == ITH_MASK_BOOL     ? "bool"
           : p->mask == ITH_MASK_ADDITIVE ? "additive"
                                          : "none";
}

static void print_plan(const ith_verify_plan *plan)
{
    const ith_plan_info *info = &plan->info;
    char mesh[32];
    snprintf(mesh, sizeof mesh, "%d x %d", info->ulysses, info->ring);
    printf("%-13s %-7s %-9s %6d %-4s %-8s %-6s %-9s %-18s ", ith_strategy_name(info->strategy), mesh,
           direction_text(plan), info->chunks, fold_text(plan), ith_softmax_name(info->softmax), smoothing_text(plan),
           exchange_text(plan), info->kernel);
    if (*plan->why) {
        printf("FAILED: %s\n", plan->why);
        return;
    }
    printf("%9.2e %9.2e %9.2e %-7s %s%s\n", plan->error, plan->bound, plan->lse_error,
           !plan->has_single ? "-"
           : plan->is_single ? "same"
                             : "differs",
           plan->passed ? "ok" : "FAILED", plan->repeats ? "" : ": not the same bits twice");
}

void ith_verify_print(const ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    printf("batch %lld, heads %lld (of keys %lld), queries %lld, keys %lld, head size %lld, %s, mask %s, seed %llu\n",
           (long long)p->batch, (long long)p->heads, (long long)p->kv_heads, (long long)p->q_len, (long long)p->kv_len,
           (long long)p->head_dim, ith_dtype_name(p->dtype), mask_text(p), (unsigned long long)v->seed);
    printf("%-13s %-7s %-9s %6s %-4s %-8s %-6s %-9s %-18s %9s %9s %9s %-7s %s\n", "strategy", "u x r", "direction",
           "chunks", "fold", "softmax", "smooth", "exchange", "kernel", "error", "bound", "lse", "single", "verdict");
    for (int i = 0; i < v->count; i++)
        print_plan(&v->plans[i]);
}

static json_t *plan_json(const ith_verify *v, const ith_verify_plan *plan)
{
    const ith_plan_info *info = &plan->info;
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:b, s:s, s:s}", "strategy",
                            ith_strategy_name(info->strategy), "ranks", info->ranks, "ulysses", info->ulysses, "ring",
                            info->ring, "direction", direction_text(plan), "chunks", info->chunks, "fold", info->folded,
                            "softmax", ith_softmax_name(info->softmax), "smoothing", info->smoothed, "exchange",
                            exchange_text(plan), "kernel", info->kernel);
    json_t *verdict =
        json_pack("{s:o, s:f, s:o, s:f, s:b, s:o, s:s}", "error", ith_cli_json_number(plan->error), "bound",
                  plan->bound, "lse_error", ith_cli_json_number(plan->lse_error), "lse_bound", v->lse_bound, "repeats",
                  plan->repeats, "same_as_single", plan->has_single ? json_boolean(plan->is_single) : json_null(),
                  "verdict", plan->passed ? "ok" : "failed");
    if (row)
        json_object_update_new(row, verdict);
    if (row && *plan->why)
        json_object_set_new(row, "why", json_string(plan->why));
    return row;
}

json_t *ith_verify_json(const ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    json_t *plans = json_array();
    for (int i = 0; i < v->count; i++)
        json_array_append_new(plans, plan_json(v, &v->plans[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:i, s:o}", "batch", (json_int_t)p->batch, "heads",
                     (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "queries", (json_int_t)p->q_len, "keys",
                     (json_int_t)p->kv_len, "head_dim", (json_int_t)p->head_dim, "dtype", ith_dtype_name(p->dtype),
                     "mask", mask_text(p), "failed", ith_verify_failures(v), "plans", plans);
}
