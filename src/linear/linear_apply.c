/* SPDX-License-Identifier: Apache-2.0 */
/* Applies linear layers, y[rows, out] = x[rows, in] w^T + b, a strip of rows at a time. If there are several strips and
 * w has merged low-rank additions, the threads first convert w with them, for all strips. A strip has these stages:
 *
 *   1. PACK: the threads pack the rows of x into right panels of the product kernel.
 *   2. ADDED_FIRST: if the layer has separate low-rank additions (linear.h), they compute the packed rows
 *      t = factor down x. ADDED_GATE: the same for the gate of a feed-forward network.
 *   3. FIRST: they multiply the panels by the weights, and t by `up`, unit by unit (linear_unit.c). The results are
 *      rows of y, or packed hidden rows of a feed-forward network.
 *   4. ADDED_SECOND and SECOND: they multiply the hidden rows, if there are any, in the same way.
 *   5. FINISH: they call the caller's `finish` for each row of y.
 *
 * No barrier lies between the stages (linear_work.h). Stages 1 and 2 of the next strip come before stage 4, so a thread
 * that has ended stage 3 or 4 earlier than the others finds work. A strip has enough rows that the conversion of
 * weights takes only a few percent of the time. */
#include "linear.h"

#include "../base/file_fault.h"
#include "../base/size.h"
#include "../kernels/rowops.h"
#include "linear_set.h"
#include "linear_unit.h"

#include <omp.h>
#include <string.h>

#define PACKED_ROWS 16   /* number of rows of x that a thread packs together */
#define FINISHED_ROWS 16 /* number of rows of y that a thread finishes together */

/* The stages of a strip. The products are in the order in which a strip needs them. */
enum { ADDED_FIRST, ADDED_GATE, FIRST, ADDED_SECOND, SECOND, PRODUCTS, PACK = PRODUCTS, FINISH, STAGES };
enum { ADDED = 3 }; /* number of products that make rows t of additions */

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

/* Bytes of the second memory for packed rows of x, which lets threads pack the next strip while others still multiply.
 * hidden: bytes of the hidden rows if the layer is the first of a feed-forward network, or 0. */
static int64_t spare_bytes(const ith_linear_size *size, int64_t rows, int64_t hidden)
{
    const int64_t panels = panels_bytes(size, rows);
    return hidden ? ith_min64(panels, hidden) : panels;
}

/* The memory for panels has room for the rows of any layer. It also has room for the rows and the hidden rows of any
 * two layers that may form a feed-forward network: the number of inputs of the second is the number of outputs of the
 * first. If there are several strips, a second strip of rows fits too, unless rows take more memory than hidden rows.
 * The workspace then also has room for the merged weights of a layer, or of a network's first and second layer. The
 * packed rows t of each strip come last. */
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
    w->strips_held = rows > w->strip ? 2 : 1;
    rows = ith_max64(ith_min64(rows, w->strip), 1);
    w->strip = ith_min64(w->strip, ith_round_up(rows, widest));
    for (const ith_linear_size *s = set->sizes; s; s = s->next) {
        int64_t hidden = 0, merged = 0, spare = 0;
        if (!s->applied)
            continue;
        for (const ith_linear_size *down = set->sizes; down; down = down->next)
            if (down->applied && down->in == s->out && down->kernel == s->kernel) {
                hidden = panels_bytes(down, w->strip);
                merged = ith_max64(merged, merged_bytes(down));
            }
        if (w->strips_held == 2) {
            spare = spare_bytes(s, w->strip, hidden);
            w->merged_bytes = ith_max64(w->merged_bytes, merged_bytes(s) + merged);
        }
        w->panels_bytes = ith_max64(w->panels_bytes, panels_bytes(s, w->strip) + hidden + spare);
        w->added_bytes = ith_max64(w->added_bytes, added_bytes(s, w->strip));
        w->thread_bytes = ith_max64(w->thread_bytes, ith_linear_unit_bytes(s, w->strip));
        w->thread_bytes = ith_max64(w->thread_bytes, ith_round_up(space_bytes(s), 64));
    }
    w->panels = ith_arena_take(arena, w->panels_bytes + w->strips_held * ADDED * w->added_bytes, 1);
    w->memory = ith_arena_take(arena, threads, w->thread_bytes);
    w->merged = w->merged_bytes ? ith_arena_take(arena, w->merged_bytes, 1) : NULL;
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
    int64_t strips_held; /* number of strips whose packed rows of x have memory: 1 or 2 */
    int threads;         /* the largest number of threads of the team */
    const ith_linear_input *x;
    const ith_linear_output *y;
    ith_linear_outcome *outcome;
    ith_linear_stage stages[STAGES];
    ith_linear merged[2]; /* first and second with converted weights in the workspace, if they have merged additions */
    int merged_count;
} task;

static int64_t rows_of(const task *t, int64_t strip)
{
    return ith_min64(t->strip, t->rows - strip * t->strip);
}

/* Waits until a stage of a strip has ended. Returns false if the call has failed. */
static bool await(const task *t, int stage, int64_t strip)
{
    return ith_linear_await(&t->stages[stage], strip, t->outcome);
}

/* ---- Memory of a strip ---- */

/* The packed rows of x. */
static char *panels_of(const task *t, int64_t strip)
{
    return t->workspace->panels + strip % t->strips_held * panels_bytes(t->first->size, t->workspace->strip);
}

/* The packed hidden rows. All strips have the same memory for them. */
static char *hidden_of(const task *t)
{
    return t->workspace->panels + t->strips_held * panels_bytes(t->first->size, t->workspace->strip);
}

/* The packed rows t that product number `which` makes. */
static char *added_of(const task *t, int which, int64_t strip)
{
    const ith_linear_workspace *w = t->workspace;
    const int64_t number = which == ADDED_FIRST ? 0 : which == ADDED_GATE ? 1 : 2;
    return w->panels + w->panels_bytes + (strip % t->strips_held * ADDED + number) * w->added_bytes;
}

/* ---- Stages ---- */

/* Packs up to PACKED_ROWS rows of a strip into one right panel, from `column` of the panel on. Columns without a row
 * become zeros. */
static void pack_rows(const task *t, int64_t strip, int64_t panel, int64_t column, float *space)
{
    const ith_linear_size *size = t->first->size;
    const ith_product_kernel *kernel = size->kernel;
    const int64_t count = rows_of(t, strip);
    const float *rows[PACKED_ROWS];
    ith_product_right right = {.x = rows,
                               .rounds = size->types.rounded == ITH_BF16,
                               .steps = size->in,
                               .first = column,
                               .count = ith_min64(PACKED_ROWS, kernel->columns - column),
                               .panel = panels_of(t, strip) + panel * kernel->right_bytes(size->in)};
    for (int64_t i = 0; i < right.count; i++) {
        int64_t row = panel * kernel->columns + column + i;
        rows[i] = row < count ? t->x->row(t->x->user, strip * t->strip + row, space + i * size->in) : NULL;
    }
    kernel->pack_right(&right);
}

/* The number of groups of PACKED_ROWS rows in a right panel. A thread packs a group at a time. */
static int64_t packs_of(const task *t)
{
    return ith_div_up(t->first->size->kernel->columns, PACKED_ROWS);
}

/* Packs the rows of a strip. */
static void pack_strip(task *t, int64_t strip, char *memory)
{
    const int64_t packs = packs_of(t), panels = ith_linear_panels(t->first->size, rows_of(t, strip));
    if (!await(t, FIRST, strip - t->strips_held))
        return;
    for (int64_t i; !ith_linear_failed(t->outcome) && ith_linear_take_item(&t->stages[PACK], strip, &i);) {
        if (i / packs < panels)
            pack_rows(t, strip, i / packs, i % packs * PACKED_ROWS, (float *)(void *)memory);
        ith_linear_end_item(&t->stages[PACK], strip, t->outcome);
    }
}

/* The layer of a product, or NULL if the call has no such product. */
static const ith_linear *layer_of(const task *t, int which)
{
    switch (which) {
    case ADDED_FIRST: return t->first->down;
    case ADDED_GATE: return t->gate ? t->gate->down : NULL;
    case FIRST: return t->first;
    case ADDED_SECOND: return t->second ? t->second->down : NULL;
    default: return t->second;
    }
}

/* Describes the results of a product: packed rows t, packed hidden rows, or rows of y. Rows t are written without a
 * wait, because their memory is free when their operands are there. A wait for the stage FINISH of the strip before
 * would not end: a thread makes the rows t of a strip before it takes part in that stage. */
static void direct(task *t, int which, int64_t strip, ith_linear_product *p)
{
    const ith_linear *added_to[] = {[ADDED_FIRST] = t->first, [ADDED_GATE] = t->gate, [ADDED_SECOND] = t->second};
    if (which != FIRST && which != SECOND) {
        p->hidden = added_of(t, which, strip), p->hidden_steps = p->layer->size->out;
        p->factors = added_to[which]->factors;
    } else if (which == FIRST && t->second) {
        p->hidden = hidden_of(t), p->hidden_steps = t->second->size->in;
        p->frees = &t->stages[SECOND];
    } else {
        p->frees = &t->stages[FINISH];
    }
}

/* Describes a product of a strip. */
static ith_linear_product product_of(task *t, int which, int64_t strip)
{
    const bool second = which == SECOND || which == ADDED_SECOND;
    ith_linear_product product = {
        .layer = layer_of(t, which),
        .gate = which == FIRST ? t->gate : NULL,
        .rowops = t->rowops,
        .outcome = t->outcome,
        .first = strip * t->strip,
        .rows = t->strip,
        .panels = second ? hidden_of(t) : panels_of(t, strip),
        .added = {added_of(t, second ? ADDED_SECOND : ADDED_FIRST, strip), added_of(t, ADDED_GATE, strip)},
        .act = t->act,
        .output = t->y,
        .strip = strip,
        .stage = &t->stages[which]};
    direct(t, which, strip, &product);
    ith_linear_divide(&product, t->threads);
    product.rows = rows_of(t, strip);
    return product;
}

/* Computes units of a product, when stage `needed` of the strip has ended. */
static void multiply(task *t, int which, int needed, int64_t strip, char *memory)
{
    if (!layer_of(t, which) || !await(t, needed, strip))
        return;
    const ith_linear_product product = product_of(t, which, strip);
    ith_linear_compute(&product, memory);
}

/* Packs the rows of a strip, and makes the rows t of the first layer and of the gate. */
static void prepare_strip(task *t, int64_t strip, char *memory)
{
    pack_strip(t, strip, memory);
    multiply(t, ADDED_FIRST, PACK, strip, memory);
    multiply(t, ADDED_GATE, PACK, strip, memory);
}

/* Multiplies the packed rows of a strip by the first layer, when the rows t are there. */
static void multiply_first(task *t, int64_t strip, char *memory)
{
    if (await(t, ADDED_FIRST, strip) && await(t, ADDED_GATE, strip))
        multiply(t, FIRST, PACK, strip, memory);
}

/* Multiplies the hidden rows of a strip by the second layer, when the rows t are there. */
static void multiply_second(task *t, int64_t strip, char *memory)
{
    multiply(t, ADDED_SECOND, FIRST, strip, memory);
    if (await(t, ADDED_SECOND, strip))
        multiply(t, SECOND, FIRST, strip, memory);
}

static void finish_strip(task *t, int64_t strip)
{
    const int64_t first = strip * t->strip, end = first + rows_of(t, strip);
    if (!t->y->finish || !await(t, FIRST, strip) || !await(t, SECOND, strip))
        return;
    for (int64_t i; ith_linear_take_item(&t->stages[FINISH], strip, &i);) {
        const int64_t begin = first + i * FINISHED_ROWS;
        for (int64_t row = begin; row < ith_min64(begin + FINISHED_ROWS, end); row++)
            t->y->finish(t->y->user, row);
        ith_linear_end_item(&t->stages[FINISH], strip, t->outcome);
    }
}

/* ---- All strips ---- */

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

/* Cuts the stages into items. */
static void cut_stages(task *t)
{
    t->stages[PACK].items = ith_linear_panels(t->first->size, t->strip) * packs_of(t);
    t->stages[FINISH].items = t->y->finish ? ith_div_up(t->strip, FINISHED_ROWS) : 0;
    for (int which = 0; which < PRODUCTS; which++)
        if (layer_of(t, which))
            t->stages[which].items = product_of(t, which, 0).units;
}

/* Computes one thread's share of a call. After a failure the threads pass all stages without work. */
static void compute_share(task *t)
{
    char *memory = t->workspace->memory + omp_get_thread_num() * t->workspace->thread_bytes;
    const int64_t strips = ith_div_up(t->rows, t->strip);
    for (int i = 0; i < t->merged_count; i++)
        merge(t, &t->merged[i]);
    prepare_strip(t, 0, memory);
    for (int64_t strip = 0; strip < strips; strip++) {
        multiply_first(t, strip, memory);
        if (strip + 1 < strips)
            prepare_strip(t, strip + 1, memory);
        multiply_second(t, strip, memory);
        finish_strip(t, strip);
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
    ith_linear_outcome outcome = ITH_LINEAR_OUTCOME(context);
    t->outcome = &outcome;
    t->rowops = t->first->size->rowops;
    t->strip = ith_min64(ith_round_up(ith_div_up(t->rows, ith_div_up(t->rows, strip)), columns), strip);
    const int64_t held = panels_bytes(t->first->size, strip),
                  hidden = t->second ? panels_bytes(t->second->size, strip) : 0;
    t->strips_held = 2 * held + hidden <= t->workspace->panels_bytes ? t->workspace->strips_held : 1;
    if (t->rows > strip && t->workspace->merged_bytes) {
        t->first = place_merged(t, t->first);
        t->second = place_merged(t, t->second);
    }
    t->threads = omp_get_max_threads() < t->workspace->threads ? omp_get_max_threads() : t->workspace->threads;
    cut_stages(t);
#pragma omp parallel num_threads(t->threads)
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
