/* SPDX-License-Identifier: Apache-2.0 */
/* Applies a linear layer, y[rows, out] = x[rows, in] w^T + b. The work is divided into units: a unit multiplies a band
 * of rows of x by a panel of columns of w^T (linear_set.h).
 *
 * Every unit has the same shape: rows that do not fill a band are padded with zeros. So neither the place of a row, nor
 * the number of rows, nor the number of threads changes the order in which its sums are added up.
 *
 * A slab is some bands of rows. Slabs are computed one after the other. The units of a slab are ordered by panel, then
 * by band, and divided among the threads of the team. So a panel of weights stays in the second-level cache while it is
 * multiplied with the bands of a slab, and all weights are read once per slab. The rows of a slab are rounded before
 * its first unit. Weights that are stored in bf16 and multiplied in f32 are widened a panel at a time, by each thread
 * that works on the panel, once per slab. */
#include "linear.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../kernels/rowops.h"
#include "linear_set.h"

#include <omp.h>
#include <string.h>

#define SLAB_BYTES (8 << 20) /* most bytes of a slab, the rows of x that are rounded together */
#define LEAST_SLAB_BANDS 8   /* a slab has at least this many bands of 64 rows, if x has enough rows */

/* The oneDNN objects of one thread for one size of layer. Weights are multiplied in panels of columns: index 0 is for
 * whole panels, index 1 for a last panel with fewer columns. */
typedef struct ith_linear_lane {
    ith_onednn_lane calls[2];
    struct dnnl_memory *widened[2]; /* handles of a panel of weights that the thread has widened to f32 */
} ith_linear_lane;

/* ---- The workspace --------------------------------------------------------------------------------------------- */

static int64_t band_bytes(const ith_product *p)
{
    return ITH_BAND_ROWS * p->in * ith_dtype_bytes(p->types.multiplied);
}

/* Whether all rows of x are rounded to bf16 and copied into the workspace before they are multiplied. Otherwise only a
 * last band of fewer than ITH_BAND_ROWS rows is copied. */
static bool packs(const ith_product *p)
{
    return p->types.rounded == ITH_BF16;
}

/* The number of bands of ITH_BAND_ROWS rows in a slab. A slab is the rows of x that are rounded, and then multiplied,
 * together. */
static int64_t slab_bands(const ith_product *p, int64_t rows)
{
    return ith_min64(ith_div_up(rows, ITH_BAND_ROWS), ith_max64(LEAST_SLAB_BANDS, SLAB_BYTES / band_bytes(p)));
}

/* The offset of the widened panel in a thread's memory. This memory holds oneDNN's scratch memory, then a panel of
 * weights widened to f32, then a band of rows of y for one panel of columns. */
static int64_t widened_offset(const ith_product *p)
{
    return p->scratch_bytes;
}

static int64_t unit_offset(const ith_product *p)
{
    return p->scratch_bytes + (ith_product_widens(p) ? p->panel_bytes : 0);
}

static int64_t thread_bytes(const ith_product *p)
{
    return unit_offset(p) + ITH_BAND_ROWS * p->columns * (int64_t)sizeof(float);
}

void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *w)
{
    *w = (ith_linear_workspace){.set = set, .threads = threads};
    for (const ith_product *p = set->products; p; p = p->next) {
        w->slab_bytes = ith_max64(w->slab_bytes, (packs(p) ? slab_bands(p, ith_max64(rows, 1)) : 1) * band_bytes(p));
        w->thread_bytes = ith_max64(w->thread_bytes, thread_bytes(p));
    }
    w->slab = ith_arena_take(arena, w->slab_bytes, 1);
    w->memory = ith_arena_take(arena, threads, w->thread_bytes);
    w->lanes = ith_arena_take(arena, threads * set->count, sizeof *w->lanes);
    if (w->lanes)
        memset(w->lanes, 0, (size_t)(threads * set->count) * sizeof *w->lanes);
}

static char *memory_of(const ith_linear_workspace *w, int thread)
{
    return w->memory + thread * w->thread_bytes;
}

static ith_linear_lane *lane_of(const ith_linear_workspace *w, int thread, const ith_product *p)
{
    return &w->lanes[thread * w->set->count + p->index];
}

static ith_status open_lane(const ith_linear_workspace *w, int thread, const ith_product *p)
{
    ith_linear_lane *lane = lane_of(w, thread, p);
    ith_status status = ITH_OK;
    for (int i = 0; i < 2 && p->ops[i] && !status; i++) {
        status = ith_onednn_lane_open(p->ops[i], &lane->calls[i]);
        if (!status && ith_product_widens(p))
            status = ith_onednn_weights_at(p->ops[i], memory_of(w, thread) + widened_offset(p), &lane->widened[i]);
    }
    return status;
}

ith_status ith_linear_workspace_open(ith_context *context, ith_linear_workspace *w)
{
    ith_status status = ITH_OK;
    for (int thread = 0; thread < w->threads; thread++)
        for (const ith_product *p = w->set->products; p && !status; p = p->next)
            status = open_lane(w, thread, p);
    return status ? ith_fail(context, status, "oneDNN made no memory objects for %d threads", w->threads) : ITH_OK;
}

void ith_linear_workspace_close(ith_linear_workspace *w)
{
    for (int64_t i = 0; w->lanes && i < w->threads * w->set->count; i++)
        for (int op = 0; op < 2; op++) {
            ith_onednn_lane_close(&w->lanes[i].calls[op]);
            ith_onednn_weights_free(&w->lanes[i].widened[op]);
        }
    *w = (ith_linear_workspace){0};
}

/* ---- Applying a layer ------------------------------------------------------------------------------------------ */

/* The arguments of one call of ith_linear_apply, which all of its threads read. */
typedef struct product_call {
    const ith_context *context;
    const ith_linear *linear;
    const ith_product *product;
    const ith_linear_workspace *workspace;
    const ith_rowops *rowops;
    int64_t rows, slab_bands;
    const float *x;
    float *y;
} product_call;

/* The oneDNN objects and the memory of one thread in a call of ith_linear_apply. */
typedef struct worker {
    const product_call *call;
    ith_linear_lane *lane;
    char *memory;
    int64_t widened_panel; /* the panel of weights that is widened in the thread's memory; -1: none */
} worker;

/* How one thread's share of a call ended. The outcome of the call is the bitwise or of the outcomes of its threads. */
enum { DONE = 0, FAILED = 1, INTERRUPTED = 2 };

static int64_t band_rows(const product_call *c, int64_t band)
{
    return ith_min64(ITH_BAND_ROWS, c->rows - band * ITH_BAND_ROWS);
}

static bool band_is_packed(const product_call *c, int64_t band)
{
    return packs(c->product) || band_rows(c, band) < ITH_BAND_ROWS;
}

static char *packed_band(const product_call *c, int64_t band)
{
    return c->workspace->slab + (packs(c->product) ? band % c->slab_bands : 0) * band_bytes(c->product);
}

static void pack_band(const product_call *c, int64_t band)
{
    const ith_product *p = c->product;
    int64_t rows = band_rows(c, band), row_bytes = p->in * ith_dtype_bytes(p->types.multiplied);
    char *packed = packed_band(c, band);
    ith_operand_round(&p->types, c->rowops, packed, c->x + band * ITH_BAND_ROWS * p->in, rows * p->in);
    memset(packed + rows * row_bytes, 0, (size_t)((ITH_BAND_ROWS - rows) * row_bytes));
}

/* Returns a panel of weights in the type in which it is multiplied, and widens it first if necessary. */
static struct dnnl_memory *weights_of(worker *w, int64_t panel)
{
    const ith_linear *linear = w->call->linear;
    const ith_product *p = linear->product;
    if (linear->weights)
        return linear->weights[panel];
    if (w->widened_panel != panel)
        w->call->rowops->f32_from_bf16((float *)(void *)(w->memory + widened_offset(p)),
                                       (const uint16_t *)(void *)(linear->packed + panel * p->stored_bytes),
                                       p->panel_bytes / (int64_t)sizeof(float));
    w->widened_panel = panel;
    return w->lane->widened[ith_product_op(p, panel)];
}

/* Computes one unit of y: a band of rows for a panel of columns. oneDNN writes a whole band of contiguous rows. A unit
 * with fewer rows, or with fewer columns than y, is therefore computed in the thread's memory, and its rows are copied
 * to y. */
static bool compute_unit(worker *w, int64_t panel, int64_t band)
{
    const product_call *c = w->call;
    const ith_product *p = c->product;
    int64_t begin = panel * p->columns, count = ith_min64(p->columns, p->out - begin), rows = band_rows(c, band);
    const void *x = c->x + band * ITH_BAND_ROWS * p->in;
    float *y = c->y + band * ITH_BAND_ROWS * p->out + begin, *unit = (float *)(void *)(w->memory + unit_offset(p));
    bool straight = rows == ITH_BAND_ROWS && p->out == count;
    if (ith_onednn_execute(&w->lane->calls[ith_product_op(p, panel)],
                           band_is_packed(c, band) ? packed_band(c, band) : x, weights_of(w, panel),
                           c->linear->bias + begin, straight ? y : unit, w->memory))
        return false;
    for (int64_t i = 0; !straight && i < rows; i++)
        memcpy(y + i * p->out, unit + i * count, (size_t)count * sizeof *y);
    return true;
}

/* Computes one thread's share of a call. The loops distribute bands of rows to be packed, and units (a band of rows by
 * a panel of columns) to be computed. OpenMP requires that every thread reaches every loop, even after a failure. */
static int compute_share(const product_call *c)
{
    const ith_product *p = c->product;
    int thread = omp_get_thread_num(), outcome = DONE;
    worker w = {c, lane_of(c->workspace, thread, p), memory_of(c->workspace, thread), -1};
    int64_t bands = ith_div_up(c->rows, ITH_BAND_ROWS);
    for (int64_t first = 0; first < bands; first += c->slab_bands) {
        int64_t count = ith_min64(c->slab_bands, bands - first);
#pragma omp for schedule(static)
        for (int64_t band = first; band < first + count; band++)
            if (band_is_packed(c, band))
                pack_band(c, band);
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < count * p->panels; unit++)
            if (!outcome && ith_context_interrupted(c->context))
                outcome = INTERRUPTED;
            else if (!outcome && !compute_unit(&w, unit / count, first + unit % count))
                outcome = FAILED;
    }
    return outcome;
}

ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const float *x, float *y)
{
    if (rows < 1)
        return ITH_OK;
    const ith_product *p = linear->product;
    product_call call = {.context = context,
                         .linear = linear,
                         .product = p,
                         .workspace = workspace,
                         .rowops = ith_rowops_choose(ith_context_cpu(context)),
                         .rows = rows,
                         .slab_bands = slab_bands(p, rows),
                         .x = x,
                         .y = y};
    if (packs(p))
        call.slab_bands = ith_min64(call.slab_bands, workspace->slab_bytes / band_bytes(p));
    int threads = omp_get_max_threads() < workspace->threads ? omp_get_max_threads() : workspace->threads;
    int outcome = DONE;
#pragma omp parallel num_threads(threads) reduction(| : outcome)
    outcome = compute_share(&call);
    if (outcome & FAILED)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not compute %lld rows of a %lld to %lld layer",
                        (long long)rows, (long long)p->in, (long long)p->out);
    return outcome ? ith_fail_interrupted(context) : ITH_OK;
}
