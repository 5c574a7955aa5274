/* SPDX-License-Identifier: Apache-2.0 */
/* Applies linear layers, y[rows, out] = x[rows, in] w^T + b, a strip of rows at a time:
 *
 *   1. The threads pack the rows of x into right panels of the product kernel.
 *   2. They multiply the panels by the weights, unit by unit (linear_unit.c). The results are rows of y, or packed
 *      hidden rows of a feed-forward network.
 *   3. They multiply the hidden rows, if there are any, in the same way.
 *   4. They call the caller's `finish` for each row of y.
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

/* The memory for panels has room for the rows of any layer. It also has room for the rows and the hidden rows of any
 * two layers that may form a feed-forward network: the second has as many inputs as the first has outputs. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *w)
{
    *w = (ith_linear_workspace){.set = set, .threads = threads};
    int64_t widest = 1;
    for (const ith_linear_size *s = set->sizes; s; s = s->next) {
        w->strip = ith_max64(w->strip, s->kernel->strip);
        widest = ith_max64(widest, s->kernel->columns);
    }
    rows = ith_max64(ith_min64(rows, w->strip), 1);
    w->strip = ith_min64(w->strip, ith_round_up(rows, widest));
    for (const ith_linear_size *s = set->sizes; s; s = s->next) {
        int64_t hidden = 0;
        for (const ith_linear_size *down = set->sizes; down; down = down->next)
            if (down->in == s->out && down->kernel == s->kernel)
                hidden = panels_bytes(down, w->strip);
        w->panels_bytes = ith_max64(w->panels_bytes, panels_bytes(s, w->strip) + hidden);
        w->thread_bytes = ith_max64(w->thread_bytes, ith_linear_unit_bytes(s, w->strip));
        w->thread_bytes = ith_max64(w->thread_bytes, ith_round_up(space_bytes(s), 64));
    }
    w->panels = ith_arena_take(arena, w->panels_bytes, 1);
    w->memory = ith_arena_take(arena, threads, w->thread_bytes);
}

int64_t ith_linear_strip(const ith_linear_workspace *workspace)
{
    return workspace->strip;
}

/* ---- Applying -------------------------------------------------------------------------------------------------- */

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
    atomic_llong next_unit[2]; /* for the first and the second product of a strip: the first unit not yet taken */
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

/* Packs the rows of a strip. Also resets the counts of taken units, because no thread takes units meanwhile. */
static void pack_strip(task *t, int64_t first, int64_t count, char *memory)
{
    const ith_linear_size *size = t->first->size;
    const int64_t packs = ith_div_up(size->kernel->columns, PACKED_ROWS), panels = ith_linear_panels(size, count);
    if (omp_get_thread_num() == 0)
        for (int i = 0; i < 2; i++)
            atomic_store(&t->next_unit[i], 0);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < panels * packs; i++)
        if (!failed(t))
            pack_rows(t, first, count, i / packs, i % packs * PACKED_ROWS, (float *)(void *)memory);
}

/* Multiplies the packed rows of a strip by the first layer, or its hidden rows by the second. */
static void multiply_strip(task *t, int64_t first, int64_t count, bool second, char *memory)
{
    char *hidden = t->workspace->panels + panels_bytes(t->first->size, t->workspace->strip);
    ith_linear_product product = {.layer = second ? t->second : t->first,
                                  .gate = second ? NULL : t->gate,
                                  .rowops = t->rowops,
                                  .outcome = t->outcome,
                                  .next_unit = &t->next_unit[second],
                                  .first = first,
                                  .rows = count,
                                  .panels = second ? hidden : t->workspace->panels,
                                  .act = t->act,
                                  .output = t->y};
    if (t->second && !second) {
        product.hidden = hidden;
        product.hidden_steps = t->second->size->in;
    }
    ith_linear_divide(&product, omp_get_num_threads());
    ith_linear_compute(&product, memory);
#pragma omp barrier
}

/* Computes one thread's share of a call. The threads wait for one another at the end of every loop and at every
 * barrier. OpenMP requires that every thread reaches all of them, even after a failure. */
static void compute_share(task *t)
{
    char *memory = t->workspace->memory + omp_get_thread_num() * t->workspace->thread_bytes;
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

/* Cuts the rows into strips of about the same size, and computes them. */
static ith_status run(ith_context *context, task *t)
{
    if (t->rows < 1)
        return ITH_OK;
    const int64_t columns = t->first->size->kernel->columns, strip = t->workspace->strip;
    ith_linear_outcome outcome = {.context = context};
    t->outcome = &outcome;
    t->rowops = ith_rowops_choose(ith_context_cpu(context));
    t->strip = ith_min64(ith_round_up(ith_div_up(t->rows, ith_div_up(t->rows, strip)), columns), strip);
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
