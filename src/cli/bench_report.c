/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of ithaca bench: a table, or JSON. */
#include "bench.h"

#include "cli.h"
#include "json_number.h"

#include <stdio.h>
#include <stdlib.h>

/* What is told of a row. */
typedef struct figures {
    double seconds, spread, gflops, peak_gflops, share_of_peak, hidden;
    bool has_hidden;
} figures;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static figures figures_of(const ith_bench *bench, const ith_bench_row *row)
{
    int n = bench->repeats;
    figures f = {.seconds = median(row->seconds, n), .peak_gflops = median(row->peaks, n)};
    f.spread = (row->seconds[n - 1] - row->seconds[0]) / f.seconds;
    f.gflops = 1e-9 * ith_attend_operations(&row->problem->whole.problem) / f.seconds;
    f.share_of_peak = f.peak_gflops > 0 ? f.gflops / f.peak_gflops : 0;
    f.has_hidden = row->exchange_seconds > 0;
    f.hidden = f.has_hidden ? 1 - row->waiting_seconds / row->exchange_seconds : 0;
    return f;
}

void ith_bench_print(const ith_bench *bench)
{
    printf("%-24s %-7s %-8s %-15s %-8s %5s %7s %5s %4s %-5s %10s %7s %9s %-25s %9s %7s %9s %9s %9s %9s %7s\n",
           "strategy", "u x r", "softmax", "kernel", "from", "batch", "seq", "heads", "dim", "dtype", "seconds",
           "spread", "GFLOP/s", "peak", "GFLOP/s", "share", "rel_l2", "MB", "MB pred.", "MB sent", "hidden");
    for (int i = 0; i < bench->row_count; i++) {
        const ith_bench_row *row = &bench->rows[i];
        const ith_attn_problem *p = &row->problem->whole.problem;
        figures f = figures_of(bench, row);
        char mesh[32], hidden[16] = "-";
        snprintf(mesh, sizeof mesh, "%d x %d", row->info.ulysses, row->info.ring);
        if (f.has_hidden)
            snprintf(hidden, sizeof hidden, "%.1f%%", 100 * f.hidden);
        printf("%-24s %-7s %-8s %-15s %-8s %5lld %7lld %5lld %4lld %-5s %10.4f %6.1f%% %9.1f %-25s %9.1f %6.1f%% %9.2e "
               "%9.1f %9.1f "
               "%9.1f %7s\n",
               row->name, mesh, ith_softmax_name(row->info.softmax), row->kernel,
               ith_kernel_origin_name(row->info.kernel_origin), (long long)p->batch, (long long)p->q_len,
               (long long)p->heads, (long long)p->head_dim, ith_dtype_name(p->dtype), f.seconds, 100 * f.spread,
               f.gflops, row->peak, f.peak_gflops, 100 * f.share_of_peak, row->rel_l2, 1e-6 * (double)row->held_bytes,
               1e-6 * (double)row->predicted_bytes, 1e-6 * (double)row->sent_bytes, hidden);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *problem_json(const ith_attn_problem *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "batch", (json_int_t)p->batch, "seq", (json_int_t)p->q_len,
                     "heads", (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "head_dim",
                     (json_int_t)p->head_dim, "dtype", ith_dtype_name(p->dtype));
}

static json_t *plan_json(const ith_bench *bench, const ith_bench_row *row)
{
    const ith_plan_info *info = &row->info;
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:b, s:s, s:s, s:s}", "name", row->name,
                     "strategy", ith_strategy_name(info->strategy), "ranks", row->ranks, "threads", bench->threads,
                     "ulysses", info->ulysses, "ring", info->ring, "direction", ith_direction_name(info->direction),
                     "chunks", info->chunks, "fold", info->folded, "softmax", ith_softmax_name(info->softmax),
                     "smoothing", info->smoothed, "exchange", ith_exchange_mode_name(info->exchange), "kernel",
                     row->kernel, "kernel_from", ith_kernel_origin_name(info->kernel_origin));
}

static json_t *tiles_json(const ith_plan_info *info)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "block_q", (json_int_t)info->block_q, "block_kv",
                     (json_int_t)info->block_kv, "block_kv_compute", (json_int_t)info->block_kv_compute,
                     "block_kv_compute_in", (json_int_t)info->block_kv_compute_in);
}

static json_t *figures_json(const ith_bench *bench, const ith_bench_row *row)
{
    figures f = figures_of(bench, row);
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:o, s:I, s:I, s:I, s:o}", "gflops", f.gflops, "peak", row->peak,
                     "peak_gflops", f.peak_gflops, "share_of_peak", f.share_of_peak, "seconds", f.seconds, "spread",
                     f.spread, "rel_l2", ith_cli_json_number(row->rel_l2), "memory_bytes", (json_int_t)row->held_bytes,
                     "predicted_memory_bytes", (json_int_t)row->predicted_bytes, "sent_bytes",
                     (json_int_t)row->sent_bytes, "hidden_share", f.has_hidden ? json_real(f.hidden) : json_null());
}

int ith_bench_print_json(const ith_bench *bench)
{
    for (int i = 0; i < bench->row_count; i++) {
        const ith_bench_row *row = &bench->rows[i];
        json_t *object = plan_json(bench, row);
        if (object) {
            json_object_update_new(object, tiles_json(&row->info));
            json_object_update_new(object, problem_json(&row->problem->whole.problem));
            json_object_update_new(object, figures_json(bench, row));
        }
        fputs(i ? ",\n " : "[", stdout);
        int failed = !object || json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
        json_decref(object);
        if (failed)
            return ith_cli_error("the rows cannot be written as JSON");
    }
    puts("]");
    return ITH_EXIT_DONE;
}
