/* SPDX-License-Identifier: Apache-2.0 */
/* Applies linear layers, y[rows, out] = x[rows, in] w^T + b, a strip of rows at a time. If there are several strips and
 * w has merged low-rank additions, the threads first convert w with them, for all strips. Then, for each strip:
 *
 *   1. The threads pack the rows of x into right panels of the product kernel.
 *   2. If the layer has separate low-rank additions (linear.h), they compute the packed rows t = factor down x.
 *   3. They multiply the panels by the weights, and t by `up`, unit by unit (linear_unit.c). The results are rows of y,
 *      or packed hidden rows of a feed-forward network.
 *   4. They multiply the hidden rows, if there are any, in the same way.
 *   5. They call the caller's `finish` for each row of y.
 *
 * A strip has enough rows that the conversion of weights takes only a few percent of the time. */
#include "linear.h"

#include "../base/file_fault.h"
#include "../base/size.h"
#include "../kernels/rowops.h"
#include "linear_unit.h"

#include <omp.h>
#include <string.h>

#define PACKED_ROWS 16 /* number of rows of x that a thread packs together */

/* ---- The workspace --------------------------------------------------------------------------------------------- */

static int64_t panels_bytes(const ith_linear_size *size, int64_t rows)
{
    return ith_linear_panels(size, rows) * size->kernel->right_bytes(size->in);
}

/* Bytes of the memory in which the caller's input function computes PACKED_ROWS rows of x before they are packed. */
static int64_t space_bytes(const ith_linear_size *size)
{
    return PACKED_ROWS * size->in * (int64_t)sizeof(float);
}

/* Bytes of the packed rows t of the additions to a layer of this size. */
static int64_t added_bytes(const ith_linear_size *size, int64_t rows)
{
    return size->added_steps ? ith_linear_panels(size, rows) * size->kernel->right_bytes(size->added_steps) : 0;
}

/* Bytes of the converted weights of a layer of this size with merged low-rank additions. */
static int64_t merged_bytes(const ith_linear_size *size)
{
    return size->merges ? ith_linear_packed_bytes(size) : 0;
}

/* The memory for panels has room for the rows of any layer. It also has room for the rows and the hidden rows of any
 * two layers that may form a feed-forward network: the number of inputs of the second is the number of outputs of the
 * first. At its end is room for the packed rows t of two layers, because `up` and `gate` of a network are computed
 * together. If there are several strips, the workspace also has room for the merged weights of a layer, or of a
 * network's first and second layer. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *w)
{
    *w = (ith_linear_workspace){.set = set, .threads = threads};
    int64_t widest = 1;
    for (const ith_linear_size *s = set->sizes; s; s = s->next) {
        if (!s->applied)
            continue;
        w->strip = ith_max64(w->strip, s->kernel->strip);
        widest = ith_max64(widest, s->kernel->columns);
    }
    const bool several = rows > w->strip;
    rows = ith_max64(ith_min64(rows, w->strip), 1);
    w->strip = ith_min64(w->strip, ith_round_up(rows, widest));
    for (const ith_linear_size *s = set->sizes; s; s = s->next) {
        int64_t hidden = 0, merged = 0;
        if (!s->applied)
            continue;
        for (const ith_linear_size *down = set->sizes; down; down = down->next)
            if (down->applied && down->in == s->out && down->kernel == s->kernel) {
                hidden = panels_bytes(down, w->strip);
                merged = ith_max64(merged, merged_bytes(down));
            }
        if (several)
            w->merged_bytes = ith_max64(w->merged_bytes, merged_bytes(s) + merged);
        w->panels_bytes = ith_max64(w->panels_bytes, panels_bytes(s, w->strip) + hidden);
        w->added_bytes = ith_max64(w->added_bytes, added_bytes(s, w->strip));
        w->thread_bytes = ith_max64(w->thread_bytes, ith_linear_unit_bytes(s, w->strip));
        w->thread_bytes = ith_max64(w->thread_bytes, ith_round_up(space_bytes(s), 64));
    }
    w->panels_bytes += 2 * w->added_bytes;
    w->panels = ith_arena_take(arena, w->panels_bytes, 1);
    w->memory = ith_arena_take(arena, threads, w->thread_bytes);
    w->merged = w->merged_bytes ? ith_arena_take(arena, w->merged_bytes, 1) : NULL;
}

int64_t ith_linear_strip(const ith_linear_workspace *workspace)
{
    return workspace->strip;
}

/* ---- Applying -------------------------------------------------------------------------------------------------- */

/* The products of a strip, in their order: by one layer or, in a feed-forward network, by up and gate together and then
 * by down. The products that make the rows t of a layer's additions come before the product of the layer. */
enum { ADDED_FIRST, ADDED_GATE, FIRST, ADDED_SECOND, SECOND, PRODUCTS };

/* The arguments and the outcome of one call. All threads of the call read them. */
typedef struct task {
    const ith_linear *first, *gate, *second; /* one layer: `first`; a feed-forward network: up, gate or NULL, down */
    void (*act)(float *y, const float *x, int64_t n);
    const ith_linear_workspace *workspace;
    const ith_rowops *rowops;
    int64_t rows, strip;
    const ith_linear_input *x;
    const ith_linear_output *y;
    ith_linear_outcome *outcome;
    atomic_llong next_unit[PRODUCTS]; /* of each product of a strip, the first unit not yet taken */
    ith_linear merged[2]; /* first and second with converted weights in the workspace, if they have merged additions */
    int merged_count;
} task;

static bool failed(const task *t)
{
    return atomic_load_explicit(&t->outcome->status, memory_order_relaxed);
}

/* Packs up to PACKED_ROWS rows of a strip into one right panel, from `column` of the panel on. The strip is rows
 * [first, first + count) of x. Columns without a row become zeros. */
static void pack_rows(const task *t, int64_t first, int64_t count, int64_t panel, int64_t column, float *space)
{
    const ith_linear_size *size = t->first->size;
    const ith_product_kernel *kernel = size->kernel;
    const float *rows[PACKED_ROWS];
    ith_product_right right = {.x = rows,
                               .rounds = size->types.rounded == ITH_BF16,
                               .steps = size->in,
                               .first = column,
                               .count = ith_min64(PACKED_ROWS, kernel->columns - column),
                               .panel = t->workspace->panels + panel * kernel->right_bytes(size->in)};
    for (int64_t i = 0; i < right.count; i++) {
        int64_t row = panel * kernel->columns + column + i;
        rows[i] = row < count ? t->x->row(t->x->user, first + row, space + i * size->in) : NULL;
    }
    kernel->pack_right(&right);
}

/* Packs the rows of a strip. Also resets the counts of taken units: while threads pack, no thread takes units. */
static void pack_strip(task *t, int64_t first, int64_t count, char *memory)
{
    const ith_linear_size *size = t->first->size;
    const int64_t packs = ith_div_up(size->kernel->columns, PACKED_ROWS), panels = ith_linear_panels(size, count);
    if (omp_get_thread_num() == 0)
        for (int i = 0; i < PRODUCTS; i++)
            atomic_store(&t->next_unit[i], 0);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < panels * packs; i++)
        if (!failed(t))
            pack_rows(t, first, count, i / packs, i % packs * PACKED_ROWS, (float *)(void *)memory);
}

/* The packed hidden rows of a strip. */
static char *hidden_of(const task *t)
{
    return t->workspace->panels + panels_bytes(t->first->size, t->workspace->strip);
}

/* The packed rows t of a strip: of the gate's additions (which 1), or of another layer's additions (0). */
static char *added_of(const task *t, int which)
{
    const ith_linear_workspace *w = t->workspace;
    return w->panels + w->panels_bytes - (2 - which) * w->added_bytes;
}

/* Computes the units of product number `which`. The threads wait for one another at the end. */
static void multiply(task *t, int which, ith_linear_product *product, char *memory)
{
    product->rowops = t->rowops, product->outcome = t->outcome, product->next_unit = &t->next_unit[which];
    ith_linear_divide(product, omp_get_num_threads());
    ith_linear_compute(product, memory);
#pragma omp barrier
}

/* Makes the packed rows t of a layer's separate additions from the packed rows of a strip. layer NULL: there is none.
 */
static void multiply_down(task *t, int which, const ith_linear *layer, int64_t count, const char *panels, char *memory)
{
    if (!layer || !layer->down)
        return;
    ith_linear_product product = {.layer = layer->down,
                                  .rows = count,
                                  .panels = panels,
                                  .hidden = added_of(t, which == ADDED_GATE),
                                  .hidden_steps = layer->down->size->out,
                                  .factors = layer->factors};
    multiply(t, which, &product, memory);
}

/* Multiplies the packed rows of a strip by the first layer, or its hidden rows by the second. */
static void multiply_strip(task *t, int64_t first, int64_t count, bool second, char *memory)
{
    const char *panels = second ? hidden_of(t) : t->workspace->panels;
    ith_linear_product product = {.layer = second ? t->second : t->first,
                                  .gate = second ? NULL : t->gate,
                                  .first = first,
                                  .rows = count,
                                  .panels = panels,
                                  .added = {added_of(t, 0), added_of(t, 1)},
                                  .act = t->act,
                                  .output = t->y};
    if (t->second && !second) {
        product.hidden = hidden_of(t);
        product.hidden_steps = t->second->size->in;
    }
    multiply_down(t, second ? ADDED_SECOND : ADDED_FIRST, product.layer, count, panels, memory);
    multiply_down(t, ADDED_GATE, product.gate, count, panels, memory);
    multiply(t, second ? SECOND : FIRST, &product, memory);
}

/* Converts the weights of a layer with its merged additions, once for all strips. */
static void merge(const task *t, const ith_linear *layer)
{
#pragma omp for schedule(dynamic)
    for (int64_t piece = 0; piece < ith_linear_pieces(layer->size); piece++) {
        const char *file = ith_linear_goes_on(t->outcome) ? ith_linear_pack_piece(layer, piece) : NULL;
        if (file)
            ith_linear_fail_file(t->outcome, file);
    }
}

/* Computes one thread's share of a call. The threads wait for one another at the end of every loop and at every
 * barrier. OpenMP requires that every thread reaches all of them, even after a failure. */
static void compute_share(task *t)
{
    char *memory = t->workspace->memory + omp_get_thread_num() * t->workspace->thread_bytes;
    for (int i = 0; i < t->merged_count; i++)
        merge(t, &t->merged[i]);
    for (int64_t first = 0; first < t->rows; first += t->strip) {
        int64_t count = ith_min64(t->strip, t->rows - first);
        pack_strip(t, first, count, memory);
        multiply_strip(t, first, count, false, memory);
        if (t->second)
            multiply_strip(t, first, count, true, memory);
        if (t->y->finish) {
#pragma omp for schedule(static)
            for (int64_t row = first; row < first + count; row++)
                if (!failed(t))
                    t->y->finish(t->y->user, row);
        }
    }
}

/* Returns a copy of a layer whose converted weights have their place in the workspace, if the layer has merged low-rank
 * additions that would otherwise be merged for every strip; otherwise the layer. */
static const ith_linear *place_merged(task *t, const ith_linear *layer)
{
    const ith_linear *before = t->merged_count ? &t->merged[t->merged_count - 1] : NULL;
    if (!layer || !layer->merges || layer->packed)
        return layer;
    ith_linear *placed = &t->merged[t->merged_count++];
    *placed = *layer;
    placed->packed = before ? before->packed + ith_linear_packed_bytes(before->size) : t->workspace->merged;
    return placed;
}

/* Cuts the rows into strips of about the same size, and computes them. */
static ith_status run(ith_context *context, task *t)
{
    if (t->rows < 1)
        return ITH_OK;
    const int64_t columns = t->first->size->kernel->columns, strip = t->workspace->strip;
    ith_linear_outcome outcome = {.context = context};
    t->outcome = &outcome;
    t->rowops = t->first->size->rowops;
    t->strip = ith_min64(ith_round_up(ith_div_up(t->rows, ith_div_up(t->rows, strip)), columns), strip);
    if (t->rows > strip && t->workspace->merged_bytes) {
        t->first = place_merged(t, t->first);
        t->second = place_merged(t, t->second);
    }
    int threads = omp_get_max_threads() < t->workspace->threads ? omp_get_max_threads() : t->workspace->threads;
#pragma omp parallel num_threads(threads)
    compute_share(t);
    switch (atomic_load(&outcome.status)) {
    case ITH_OK: return ITH_OK;
    case ITH_ERR_INTERRUPTED: return ith_fail_interrupted(context);
    default: return ith_fail_file_fault(context, atomic_load(&outcome.file));
    }
}

ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const ith_linear_input *x, const ith_linear_output *y)
{
    task t = {.first = linear, .workspace = workspace, .rows = rows, .x = x, .y = y};
    return run(context, &t);
}

ith_status ith_feed_forward_apply(ith_context *context, const ith_feed_forward *network,
                                  const ith_linear_workspace *workspace, int64_t rows, const ith_linear_input *x,
                                  const ith_linear_output *y)
{
    task t = {.first = network->up,
              .gate = network->gate,
              .second = network->down,
              .act = network->act,
              .workspace = workspace,
              .rows = rows,
              .x = x,
              .y = y};
    return run(context, &t);
}

/* ---- Plain matrices -------------------------------------------------------------------------------------------- */

static const float *row_of(const void *user, int64_t row, float *space)
{
    const ith_linear_rows *x = user;
    (void)space;
    return x->data + row * x->stride;
}

static void put(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    const ith_linear_rows *rows = user;
    memcpy(rows->data + row * rows->stride + first, y, (size_t)count * sizeof *y);
}

ith_linear_input ith_linear_from_rows(const ith_linear_rows *rows)
{
    return (ith_linear_input){row_of, rows};
}

ith_linear_output ith_linear_to_rows(ith_linear_rows *rows)
{
    return (ith_linear_output){.take = put, .user = rows, .rows = rows};
}

ith_status ith_linear_apply_rows(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                                 int64_t rows, const float *x, float *y)
{
    const ith_linear_rows from = {(float *)x, linear->size->in};
    ith_linear_rows to = {y, linear->size->out};
    const ith_linear_input input = ith_linear_from_rows(&from);
    const ith_linear_output output = ith_linear_to_rows(&to);
    return ith_linear_apply(context, linear, workspace, rows, &input, &output);
}
