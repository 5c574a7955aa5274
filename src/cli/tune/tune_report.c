/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of `ithaca tune`, as a table or as JSON. */
#include "../support/json_print.h"
#include "tune_state.h"

#include <stdio.h>

static const char *state_of(bool done, bool known)
{
    return known ? "wisdom" : done ? "measured" : "not done";
}

/* Writes the four sizes, with '-' for tiles that are not known. */
static const char *tiles_text(const ith_tile_choice *tiles, char text[64])
{
    if (!tiles->block_q)
        snprintf(text, 64, "-");
    else
        snprintf(text, 64, "%lld %lld %lld %lld", (long long)tiles->block_q, (long long)tiles->block_kv,
                 (long long)tiles->block_kv_compute, (long long)tiles->block_kv_compute_in);
    return text;
}

/* Writes the gain of the best over the usual time, or "-" if it was not measured. */
static const char *gain_text(double usual, double best, char text[16])
{
    if (best > 0)
        snprintf(text, 16, "%.1f%%", 100 * (usual / best - 1));
    else
        snprintf(text, 16, "-");
    return text;
}

void ith_tune_print_table(const ith_tune *t)
{
    char usual[64], best[64], gain[16];
    printf("%-16s %-5s %-8s %8s %-24s %-24s %7s %s\n", "kernel", "dtype", "softmax", "keys", "usual tiles",
           "best tiles", "gain", "from");
    for (int i = 0; i < t->cell_count; i++) {
        const ith_tune_cell *c = &t->cells[i];
        printf("%-16s %-5s %-8s %8lld %-24s %-24s %7s %s\n", c->kernel, ith_dtype_name(c->about.dtype),
               ith_softmax_name(c->about.softmax), (long long)c->about.keys, tiles_text(&c->usual, usual),
               tiles_text(&c->best, best), gain_text(c->usual_seconds, c->best_seconds, gain),
               state_of(c->done, c->known));
    }
    for (int i = 0; i < t->strategy_count; i++) {
        const ith_tune_strategy *s = &t->strategies[i];
        if (!i)
            printf("\n%-5s %-8s %8s %6s  %-24s %-24s %7s %s\n", "dtype", "softmax", "tokens", "ranks",
                   "usual (u x r, chunks)", "best", "gain", "from");
        snprintf(usual, sizeof usual, s->usual.ranks ? "%d x %d %s %d" : "-", s->usual.ulysses, s->usual.ring,
                 ith_direction_name(s->usual.direction), s->usual.chunks);
        snprintf(best, sizeof best, s->best.ranks ? "%d x %d %s %d" : "-", s->best.ulysses, s->best.ring,
                 ith_direction_name(s->best.direction), s->best.chunks);
        printf("%-5s %-8s %8lld %6d  %-24s %-24s %7s %s\n", ith_dtype_name(s->problem.dtype),
               ith_softmax_name(s->softmax), (long long)s->problem.q_len, (int)t->settings->ranks, usual, best,
               gain_text(s->usual_seconds, s->best_seconds, gain), state_of(s->done, s->known));
    }
    printf("wisdom: %s\n", t->wisdom);
    if (t->machine_path[0])
        printf("machine: %s\n", t->machine_path);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *tiles_json(const ith_tile_choice *tiles)
{
    if (!tiles->block_q)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "block_q", (json_int_t)tiles->block_q, "block_kv",
                     (json_int_t)tiles->block_kv, "block_kv_compute", (json_int_t)tiles->block_kv_compute,
                     "block_kv_compute_in", (json_int_t)tiles->block_kv_compute_in);
}

/* A number above 0; null for any other value, which was not measured. */
static json_t *measured_json(double value)
{
    return value > 0 ? ith_cli_json_number(value) : json_null();
}

static json_t *cell_json(const ith_tune_cell *c)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "kernel", c->kernel, "dtype",
                     ith_dtype_name(c->about.dtype), "softmax", ith_softmax_name(c->about.softmax), "head_dim",
                     (json_int_t)c->about.head_dim, "keys", (json_int_t)c->about.keys, "usual", tiles_json(&c->usual),
                     "best", tiles_json(&c->best), "usual_gflops", measured_json(c->usual.gflops), "best_gflops",
                     measured_json(c->best.gflops), "usual_seconds", measured_json(c->usual_seconds), "best_seconds",
                     measured_json(c->best_seconds), "from", state_of(c->done, c->known));
}

static json_t *plan_json(const ith_plan_info *info)
{
    if (!info->ranks)
        return json_null();
    return json_pack("{s:s, s:i, s:i, s:s, s:i}", "strategy", ith_strategy_name(info->strategy), "ulysses",
                     info->ulysses, "ring", info->ring, "direction", ith_direction_name(info->direction), "chunks",
                     info->chunks);
}

static json_t *strategy_json(const ith_tune_strategy *s, int ranks)
{
    return json_pack("{s:s, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:s}", "dtype", ith_dtype_name(s->problem.dtype),
                     "softmax", ith_softmax_name(s->softmax), "tokens", (json_int_t)s->problem.q_len, "ranks", ranks,
                     "usual", plan_json(&s->usual), "best", plan_json(&s->best), "usual_seconds",
                     measured_json(s->usual_seconds), "best_seconds", measured_json(s->best_seconds), "from",
                     state_of(s->done, s->known));
}

int ith_tune_print_json(const ith_tune *t)
{
    json_t *tiles = json_array(), *strategies = json_array();
    for (int i = 0; i < t->cell_count; i++)
        json_array_append_new(tiles, cell_json(&t->cells[i]));
    for (int i = 0; i < t->strategy_count; i++)
        json_array_append_new(strategies, strategy_json(&t->strategies[i], (int)t->settings->ranks));
    json_t *all = json_pack("{s:b, s:o, s:o, s:o, s:o}", "complete", !t->late, "wisdom", ith_cli_json_text(t->wisdom),
                            "machine", ith_cli_json_text(t->machine_path), "tiles", tiles, "strategies", strategies);
    return ith_cli_json_print(all, "the report", JSON_REAL_PRECISION(6) | JSON_INDENT(1));
}
