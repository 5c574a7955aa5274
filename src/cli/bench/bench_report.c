/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of ithaca bench attention as JSON objects, and the columns of their table. */
#include "bench_rows.h"

#include "../cli.h"
#include "../support/json_print.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* The sizes and the type of a problem as a JSON object. */
static json_t *problem_json(const ith_attn_problem *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "batch", (json_int_t)p->batch, "seq", (json_int_t)p->q_len,
                     "heads", (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "head_dim",
                     (json_int_t)p->head_dim, "dtype", ith_dtype_name(p->dtype));
}

/* The choices of a row's plan as a JSON object. */
static json_t *plan_json(const ith_bench *bench, const ith_bench_row *row)
{
    const ith_plan_info *info = &row->info;
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:b, s:s, s:s, s:s}", "bench",
                     "attention", "name", row->name, "strategy", ith_strategy_name(info->strategy), "ranks", row->ranks,
                     "threads", bench->threads, "ulysses", info->ulysses, "ring", info->ring, "direction",
                     ith_direction_name(info->direction), "chunks", info->chunks, "fold", info->folded, "softmax",
                     ith_softmax_name(info->softmax), "smoothing", info->smoothed, "exchange",
                     ith_exchange_mode_name(info->exchange), "kernel", row->kernel, "kernel_from",
                     ith_kernel_origin_name(info->kernel_origin));
}

/* The block sizes of a plan as a JSON object. */
static json_t *tiles_json(const ith_plan_info *info)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "block_q", (json_int_t)info->block_q, "block_kv",
                     (json_int_t)info->block_kv, "block_kv_compute", (json_int_t)info->block_kv_compute,
                     "block_kv_compute_in", (json_int_t)info->block_kv_compute_in);
}

/* The measured figures of a row as a JSON object; `hidden_share` is null if nothing was exchanged, `predicted_seconds`
 * if nothing is predicted. */
static json_t *figures_json(const ith_bench *bench, const ith_bench_row *row)
{
    json_t *figures = json_object();
    ith_bench_set_seconds(figures, row->seconds, bench->repeats);
    double seconds = json_number_value(json_object_get(figures, "seconds"));
    double gflops = 1e-9 * ith_attend_operations(&row->problem->whole.problem) / seconds;
    double peak = ith_bench_median(row->peaks, bench->repeats);
    double share = peak > 0 ? gflops / peak : 0;
    double hidden = row->exchange_seconds > 0 ? fmax(1 - row->waiting_seconds / row->exchange_seconds, 0) : NAN;
    json_object_update_new(
        figures,
        json_pack("{s:o, s:f, s:f, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:s, s:f}", "predicted_seconds",
                  ith_cli_json_number(row->predicted_seconds), "plan_seconds", row->plan_seconds, "gflops", gflops,
                  "peak", row->peak, "peak_gflops", ith_cli_json_number(peak), "share_of_peak",
                  ith_cli_json_number(share), "rel_l2", ith_cli_json_number(row->rel_l2), "memory_bytes",
                  (json_int_t)row->held_bytes, "predicted_memory_bytes", (json_int_t)row->predicted_bytes, "sent_bytes",
                  (json_int_t)row->sent_bytes, "hidden_share", ith_cli_json_number(hidden), "compress",
                  ith_compress_name((ith_compress)row->info.compress), "compression_error", row->compression_error));
    return figures;
}

/* All rows as a JSON array of flat objects. */
static json_t *rows_json(const ith_bench *bench)
{
    json_t *rows = json_array();
    for (int i = 0; i < bench->row_count; i++) {
        const ith_bench_row *row = &bench->rows[i];
        json_t *object = plan_json(bench, row);
        json_object_update_new(object, tiles_json(&row->info));
        if (row->info.unhidden)
            json_object_set_new(object, "overlap", json_string("off"));
        if (bench->on_device) {
            json_object_set_new(object, "device", json_string(bench->device.name));
            json_object_set_new(object, "device_memory_bytes", json_integer((json_int_t)row->device_bytes));
        }
        json_object_update_new(object, problem_json(&row->problem->whole.problem));
        json_object_update_new(object, figures_json(bench, row));
        json_array_append_new(rows, object);
    }
    return rows;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

static const ith_bench_column columns[] = {
    {"strategy", "name", NULL, 0, NULL},
    {"u", "ulysses", NULL, 0, NULL},
    {"r", "ring", NULL, 0, NULL},
    {"softmax", "softmax", NULL, 0, NULL},
    {"device", "device", NULL, 0, NULL},
    {"kernel", "kernel", NULL, 0, NULL},
    {"from", "kernel_from", NULL, 0, NULL},
    {"batch", "batch", NULL, 0, NULL},
    {"seq", "seq", NULL, 0, NULL},
    {"heads", "heads", NULL, 0, NULL},
    {"dim", "head_dim", NULL, 0, NULL},
    {"dtype", "dtype", NULL, 0, NULL},
    {"seconds", "seconds", "%.5f", 1, NULL},
    {"spread", "spread", "%.1f%%", 100, NULL},
    {"predicted", "predicted_seconds", "%.5f", 1, NULL},
    {"plan", "plan_seconds", "%.5f", 1, NULL},
    {"GFLOP/s", "gflops", "%.1f", 1, NULL},
    {"peak", "peak", NULL, 0, NULL},
    {"GFLOP/s", "peak_gflops", "%.1f", 1, NULL},
    {"share", "share_of_peak", "%.1f%%", 100, NULL},
    {"rel_l2", "rel_l2", "%.2e", 1, NULL},
    {"MB", "memory_bytes", "%.1f", 1e-6, NULL},
    {"MB pred.", "predicted_memory_bytes", "%.1f", 1e-6, NULL},
    {"MB device", "device_memory_bytes", "%.1f", 1e-6, NULL},
    {"MB sent", "sent_bytes", "%.1f", 1e-6, NULL},
    {"hidden", "hidden_share", "%.1f%%", 100, NULL},
    {"overlap", "overlap", NULL, 0, NULL},
    {"compressed", "compress", NULL, 0, "off"},
    {"changed by", "compression_error", "%.1e", 1, "0.0e+00"},
    {"earlier", "old_seconds", "%.5f", 1, NULL},
    {"change", "change", NULL, 0, NULL},
};

int ith_bench_report_rows(const ith_bench *bench, const ith_bench_output *output)
{
    char settings[160], sets[160], machine[256];
    const ith_attn_problem *p = &bench->problems->whole.problem;
    snprintf(settings, sizeof settings, "%lld head%s of %lld, %s; %d rank%s, %d thread%s; %d repeat%s",
             (long long)p->heads, ith_cli_plural(p->heads), (long long)p->head_dim, ith_dtype_name(p->dtype),
             bench->launch->all_ranks, ith_cli_plural(bench->launch->all_ranks), bench->threads,
             ith_cli_plural(bench->threads), bench->repeats, ith_cli_plural(bench->repeats));
    snprintf(machine, sizeof machine, "%s%s%s%s%ld processors, %s", bench->on_device ? bench->device.description : "",
             bench->on_device ? "; " : "", bench->machine, bench->machine[0] ? ": " : "", sysconf(_SC_NPROCESSORS_ONLN),
             ith_cpu_describe(ith_context_cpu(bench->context), sets, sizeof sets));
    const ith_bench_about about = {.title = "ithaca bench attention",
                                   .machine = machine,
                                   .settings = settings,
                                   .columns = columns,
                                   .column_count = sizeof columns / sizeof *columns};
    return ith_bench_output_end(output, rows_json(bench), &about);
}
