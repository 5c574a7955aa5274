/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a unit: y^T [features][rows of x] = w x^T for some output features and a range of right panels.
 *
 *     if there are several spans, convert the weights of the features into left operands, one for each block of k
 *     for each span, a part of the range
 *         for each block of k
 *             if there is one span, convert the weights within the block into a left operand (second-level cache)
 *             for each right panel of the span (its part within the block: first-level cache)
 *                 add left times right to the thread's sums [right panel][features][columns]
 *
 * The blocks of k of low-rank additions come behind the blocks of the weights: their left operand is `up`, and their
 * right panels are the packed rows t. The features of a unit may belong to several matrices, each with additions of its
 * own.
 *
 * After the last block of k, the sums of each right panel are transposed into rows of y, or packed as hidden rows. The
 * blocks of k are the same for every row, so the bits of a row do not depend on the units or on the other rows. */
#include "linear_unit.h"

#include "../base/size.h"
#include "linear_left.h"
#include "linear_set.h"

#define ALIGNMENT 64
/* Number of rows of y that are transposed together. They stay in the first-level cache until the caller has them. */
#define TURNED_ROWS 16

/* A unit that a thread computes. */
typedef struct unit {
    const ith_linear_product *product;
    const ith_linear_size *size;
    int64_t first, count;        /* output features [first, first + count) */
    int64_t first_panel, panels; /* the range of right panels */
    int64_t spans;               /* number of spans of this range */
    int64_t blocks[2];           /* number of blocks of k of the layer and of the gate, with the blocks of additions */
    char *left;                  /* converted weights of these features: one block of k, or all blocks */
    float *sums[2];              /* [panels of a span][count][columns] each: sums of the layer, and of the gate */
    float *turned;               /* [TURNED_ROWS][count]: sums of one right panel as rows of y */
} unit;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

/* The largest number of features of a unit. With a gate it is half as large, because the unit then has the sums of two
 * layers. */
static int64_t features_most(const ith_linear_size *size, bool has_gate)
{
    return has_gate ? ith_max64(size->features / 2 / size->quantum, 1) * size->quantum : size->features;
}

/* The largest number of bytes of one part of a row of converted weights, or of an addition. */
static int64_t row_most(const ith_linear_size *size)
{
    return ith_max64(size->row_bytes, size->added_row_bytes);
}

/* Bytes of the converted weights of `features` features within one block of k, or of their additions. */
static int64_t left_bytes(const ith_linear_size *size, int64_t features)
{
    return ith_round_up(ith_linear_left_rows(size, features) * size->parts_max * row_most(size), ALIGNMENT);
}

/* Bytes of a unit's sums for one layer. */
static int64_t unit_sums_bytes(const ith_linear_size *size, int64_t panels, int64_t features)
{
    return ith_round_up(panels * size->kernel->columns * features * (int64_t)sizeof(float), ALIGNMENT);
}

static int64_t turned_bytes(const ith_linear_size *size)
{
    return ith_round_up(TURNED_ROWS * size->features * (int64_t)sizeof(float), ALIGNMENT);
}

/* The largest number of right panels of a span of a unit, for ranges of up to `panels` panels. */
static int64_t span_most(const ith_linear_size *size, int64_t panels)
{
    return size->kernel->span ? ith_min64(size->kernel->span / size->kernel->columns, panels) : panels;
}

/* Bytes of the converted weights of a unit: of one block of k, or of all blocks if ranges of up to `panels` right
 * panels have several spans. */
static int64_t lefts_bytes(const ith_linear_size *size, int64_t panels)
{
    if (span_most(size, panels) == panels)
        return left_bytes(size, size->features);
    return (size->blocks + size->added_blocks) *
           ith_max64(left_bytes(size, size->features), 2 * left_bytes(size, features_most(size, true)));
}

int64_t ith_linear_unit_bytes(const ith_linear_size *size, int64_t rows)
{
    const int64_t most = ith_linear_panels(size, rows), panels = span_most(size, most);
    int64_t one = unit_sums_bytes(size, panels, features_most(size, false));
    int64_t two = 2 * unit_sums_bytes(size, panels, features_most(size, true));
    return lefts_bytes(size, most) + ith_max64(one, two) + turned_bytes(size);
}

/* Units have about the same number of features. If this gives fewer units than threads, the right panels are also cut
 * into ranges. */
void ith_linear_divide(ith_linear_product *p, int threads)
{
    const ith_linear_size *size = p->layer->size;
    int64_t most = features_most(size, p->gate);
    int64_t cuts = ith_round_up(ith_div_up(size->out, most), threads);
    p->features = ith_min64(ith_round_up(ith_div_up(size->out, cuts), size->quantum), most);
    cuts = ith_div_up(size->out, p->features);
    p->ranges = ith_min64(ith_div_up(threads, cuts), ith_linear_panels(size, p->rows));
    p->units = cuts * p->ranges;
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

/* Transposes the complete sums of right panel number `panel` of the strip, and gives them to the caller as rows of y.
 */
static void put_rows(const unit *u, int64_t panel, const float *sums)
{
    const ith_linear_product *p = u->product;
    int64_t columns = u->size->kernel->columns, row = panel * columns, rows = ith_min64(columns, p->rows - row);
    for (int64_t begin = 0; begin < rows; begin += TURNED_ROWS) {
        int64_t count = ith_min64(TURNED_ROWS, rows - begin);
        p->rowops->turn_and_bias(u->turned, u->count, sums + begin, columns, p->layer->bias + u->first, u->count,
                                 count);
        for (int64_t j = 0; j < count; j++)
            p->output->take(p->output->user, p->first + row + begin + j, u->first, u->count, u->turned + j * u->count);
    }
}

/* x[i][j] *= factors[i] for a matrix x [rows][columns] */
static void scale(float *x, const float *factors, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            x[i * columns + j] *= factors[i];
}

/* Applies bias, activation and gate, or the factors of the rows t, to the complete sums of right panel number `panel`,
 * and packs them as hidden rows. */
static void put_hidden(const unit *u, int64_t panel, float *sums, float *gates)
{
    const ith_linear_product *p = u->product;
    const ith_product_kernel *kernel = u->size->kernel;
    int64_t numbers = u->count * kernel->columns;
    if (p->factors) {
        scale(sums, p->factors + u->first, u->count, kernel->columns);
    } else {
        p->rowops->add_bias(sums, p->layer->bias + u->first, u->count, kernel->columns);
        p->act(sums, sums, numbers);
    }
    if (gates) {
        p->rowops->add_bias(gates, p->gate->bias + u->first, u->count, kernel->columns);
        p->rowops->multiply(sums, gates, numbers);
    }
    const ith_product_turned turned = {.x = sums,
                                       .stride = kernel->columns,
                                       .rounds = u->size->types.rounded == ITH_BF16,
                                       .steps = p->hidden_steps,
                                       .first = u->first,
                                       .count = u->count,
                                       .panel = p->hidden + panel * kernel->right_bytes(p->hidden_steps)};
    kernel->pack_turned(&turned);
}

/* ---- Blocks of k ----------------------------------------------------------------------------------------------- */

/* A block of k of one of a unit's layers, for a span of right panels. A thread computes all blocks of the layer, then
 * all blocks of the gate, and then the next span. */
typedef struct position {
    int64_t span;
    int which; /* 0: the layer; 1: the gate */
    int64_t block;
} position;

/* Whether this is the last block of its span. */
static bool ends_span(const unit *u, position at)
{
    return at.block == u->blocks[at.which] - 1 && (at.which || !u->product->gate);
}

/* Whether the unit writes its first results while it computes this block. */
static bool writes_first(const unit *u, position at)
{
    return at.span == 0 && ends_span(u, at);
}

/* Whether this is the last block of the unit. */
static bool is_last(const unit *u, position at)
{
    return ends_span(u, at) && at.span == u->spans - 1;
}

/* The block that a thread computes next. After the last block of a unit it is the first block of another unit. */
static position after(const unit *u, position at)
{
    if (is_last(u, at))
        return (position){0};
    if (ends_span(u, at))
        return (position){at.span + 1, 0, 0};
    bool last = at.block == u->blocks[at.which] - 1;
    return (position){at.span, last ? 1 : at.which, last ? 0 : at.block + 1};
}

static const ith_linear *layer_of(const unit *u, position at)
{
    return at.which ? u->product->gate : u->product->layer;
}

/* The first right panel of a span. */
static int64_t begin_of(const unit *u, int64_t span)
{
    return u->first_panel + span * u->panels / u->spans;
}

/* The address of step `step` in right panel number `panel` of some panels of `steps` steps. */
static const char *step_of(const ith_product_kernel *kernel, const char *panels, int64_t steps, int64_t panel,
                           int64_t step)
{
    return panels + panel * kernel->right_bytes(steps) + (step ? kernel->right_bytes(step) : 0);
}

/* The address of a block of k in right panel number `panel` of the strip. For a block of additions this is the panel of
 * all packed rows t. */
static const char *right_of(const unit *u, int64_t panel, position at)
{
    const ith_linear_size *s = u->size;
    if (at.block >= s->blocks)
        return step_of(s->kernel, u->product->added[at.which], layer_of(u, at)->down->size->out, panel, 0);
    return step_of(s->kernel, u->product->panels, s->in, panel, at.block * s->depth);
}

/* ---- Additions ------------------------------------------------------------------------------------------------- */

/* The features of a unit that one block of k of an addition reaches: [first, first + count) of the addition's matrix.
 */
typedef struct reach {
    const ith_linear_added *added;
    int64_t first, count;
    int64_t block;     /* number of the block in the addition */
    int64_t from_unit; /* number of the first of these features in the unit */
} reach;

static reach reach_of(const unit *u, const ith_linear_added *a, int64_t block)
{
    const int64_t begin = ith_max64(u->first, a->first);
    const int64_t end = ith_min64(u->first + u->count, a->first + a->up->size->out);
    return (reach){a, begin - a->first, end - begin, block, begin - u->first};
}

/* The number of blocks of k of a unit's layer, with the blocks of the additions to the unit's features. */
static int64_t blocks_of(const unit *u, const ith_linear *layer)
{
    int64_t added = 0;
    for (int64_t i = 0; i < layer->added_count; i++) {
        const ith_linear_added *a = &layer->added[i];
        if (reach_of(u, a, 0).count > 0)
            added = ith_max64(added, a->number + a->up->size->blocks);
    }
    return u->size->blocks + added;
}

/* Finds the next addition, from number *i of the layer on, that has features of the unit at a block of additions. Moves
 * *i behind it. Returns false if there is none. */
static bool next_reach(const unit *u, position at, int64_t *i, reach *out)
{
    const ith_linear *layer = layer_of(u, at);
    while (*i < layer->added_count) {
        const ith_linear_added *a = &layer->added[(*i)++];
        const int64_t block = at.block - u->size->blocks - a->number;
        *out = reach_of(u, a, block);
        if (block >= 0 && block < a->up->size->blocks && out->count > 0)
            return true;
    }
    return false;
}

/* ---- Left operands --------------------------------------------------------------------------------------------- */

/* The address where a unit writes the converted weights of a block. */
static char *converted_at(const unit *u, position at)
{
    int64_t number = u->spans > 1 ? at.which * u->blocks[0] + at.block : 0;
    return u->left + number * left_bytes(u->size, u->count);
}

/* The left operand of a block: packed weights of the layer, or the unit's converted weights. */
static ith_linear_left left_at(const unit *u, position at)
{
    const ith_linear *layer = layer_of(u, at);
    if (layer->packed)
        return ith_linear_packed_left(layer, u->first, at.block);
    return (ith_linear_left){converted_at(u, at), u->count * u->size->row_bytes};
}

/* The left operand of an addition at a block: packed weights of the addition, or the unit's converted weights, where
 * each feature has the same number of bytes for any rank. */
static ith_linear_left added_left(const unit *u, position at, const reach *r)
{
    if (r->added->up->packed)
        return ith_linear_packed_left(r->added->up, r->first, r->block);
    const int64_t most = row_most(u->size);
    return (ith_linear_left){converted_at(u, at) + r->from_unit * most, u->count * most};
}

/* Whether the unit converts all weights of a layer before it multiplies any: several spans use them. */
static bool converts_first(const unit *u, const ith_linear *layer)
{
    return u->spans > 1 && !layer->packed;
}

/* Whether the weights of a block are converted just before the block is multiplied. */
static bool converts(const unit *u, position at)
{
    const ith_linear *layer = layer_of(u, at);
    return at.span == 0 && !layer->packed && (at.block >= u->size->blocks || !converts_first(u, layer));
}

/* Returns true if `file` is NULL. Otherwise records that this file was cut. */
static bool was_read(const unit *u, const char *file)
{
    if (file)
        ith_linear_fail_file(u->product->outcome, file);
    return !file;
}

/* Converts the weights of the layers that are converted first. Returns false if their file was cut. */
static bool convert_first(const unit *u)
{
    const int64_t block_bytes = left_bytes(u->size, u->count), part_bytes = u->count * u->size->row_bytes;
    for (int which = 0; which < (u->product->gate ? 2 : 1); which++) {
        const position begin = {.which = which};
        const ith_linear *layer = layer_of(u, begin);
        if (converts_first(u, layer) &&
            !was_read(
                u, ith_linear_convert_all(layer, u->first, u->count, converted_at(u, begin), block_bytes, part_bytes)))
            return false;
    }
    return true;
}

/* Converts the weights of a block, or the weights `up` of the additions at the block. Returns false if their file was
 * cut. */
static bool convert(const unit *u, position at)
{
    const ith_linear *layer = layer_of(u, at);
    const char *file = NULL;
    reach r;
    if (at.block < u->size->blocks) {
        const ith_linear_left left = left_at(u, at);
        file = ith_linear_convert(layer, u->first, u->count, at.block, left.first, left.part_bytes);
    }
    for (int64_t i = 0; at.block >= u->size->blocks && !file && next_reach(u, at, &i, &r);) {
        const ith_linear_left left = added_left(u, at, &r);
        file = ith_linear_convert(r.added->up, r.first, r.count, r.block, left.first, left.part_bytes);
    }
    return was_read(u, file);
}

/* Lets the kernel fetch share number i of n of the weights of the block that is computed next, and the memory for the
 * converted weights. The weights of additions are few and are not fetched. */
static void fetch_left(const unit *u, position next, int64_t i, int64_t n, ith_product_call *call)
{
    const int64_t begin = i * u->count / n, end = (i + 1) * u->count / n;
    if (begin == end || next.block >= u->size->blocks)
        return;
    char *row = left_at(u, next).first + begin * u->size->row_bytes;
    if (converts(u, next)) {
        ith_linear_fetch(layer_of(u, next), u->first + begin, end - begin, next.block, call);
        call->next_out = row, call->next_out_rows = end - begin;
        call->next_out_bytes = call->next_out_stride = u->size->row_bytes;
    } else {
        call->next_left = row, call->next_left_rows = end - begin;
        call->next_left_bytes = call->next_left_stride = u->size->row_bytes;
    }
}

/* Lets the kernel fetch memory while it multiplies right panel number i of n of a span: the next right panel, and a
 * share of the next weights. After the last block the next weights belong to the first unit that no thread has taken.
 * If that unit converts all its weights first, they are not fetched, because they are too many. */
static void fetch_ahead(const unit *u, position at, int64_t i, int64_t n, ith_product_call *call)
{
    const ith_linear_product *p = u->product;
    const position next = after(u, at);
    unit following = *u;
    call->next = i + 1 < n ? right_of(u, begin_of(u, at.span) + i + 1, at) : right_of(u, begin_of(u, next.span), next);
    if (is_last(u, at)) {
        int64_t number = ith_linear_next_item(p->stage, p->strip);
        following.first = number / p->ranges * p->features;
        following.count = number < p->units && !converts_first(u, p->layer)
                              ? ith_min64(p->features, u->size->out - following.first)
                              : 0;
    }
    fetch_left(&following, next, i, n, call);
}

/* Lets the kernel fetch rows of y while it computes the last block of a right panel: put_rows passes on these rows
 * next. */
static void fetch_out(const unit *u, int64_t panel, ith_product_call *call)
{
    const ith_linear_product *p = u->product;
    const int64_t columns = u->size->kernel->columns, row = panel * columns;
    const ith_linear_rows *y = p->hidden ? NULL : p->output->rows;
    if (!y)
        return;
    call->next_out = y->data + (p->first + row) * y->stride + u->first;
    call->next_out_rows = ith_min64(columns, p->rows - row);
    call->next_out_bytes = u->count * (int64_t)sizeof *y->data;
    call->next_out_stride = y->stride * (int64_t)sizeof *y->data;
}

/* ---- Multiplication -------------------------------------------------------------------------------------------- */

/* The number of columns of right panel number `panel` that are computed: the panel's rows of x, rounded up to whole
 * vectors, which cost no more. Hidden rows are packed from whole panels, so all columns are computed for them. */
static int64_t columns_of(const unit *u, int64_t panel)
{
    const ith_product_kernel *kernel = u->size->kernel;
    int64_t rows = u->product->rows - panel * kernel->columns;
    return u->product->hidden ? kernel->columns : ith_min64(kernel->columns, ith_round_up(rows, kernel->lanes));
}

/* Adds the additions at a block to the sums of right panel number `panel`. The first call of the kernel fetches the
 * memory that `ahead` names. */
static void multiply_added(const unit *u, position at, int64_t panel, float *sums, ith_product_call ahead)
{
    const ith_linear_size *s = u->size;
    const int64_t steps = layer_of(u, at)->down->size->out;
    reach r;
    for (int64_t i = 0; next_reach(u, at, &i, &r); ahead = (ith_product_call){0}) {
        const ith_linear *up = r.added->up;
        const ith_linear_left left = added_left(u, at, &r);
        ith_product_call call = ahead;
        call.rows = r.count, call.columns = columns_of(u, panel), call.steps = ith_linear_steps(up->size, r.block);
        call.left = left.first, call.left_stride = up->size->row_bytes, call.part_bytes = left.part_bytes;
        call.parts = up->parts;
        call.right =
            step_of(s->kernel, u->product->added[at.which], steps, panel, r.added->at + r.block * up->size->depth);
        call.out = sums + r.from_unit * s->kernel->columns, call.out_stride = s->kernel->columns, call.adds = true;
        s->kernel->multiply(&call);
    }
}

/* Multiplies the converted weights of one block of k by right panel number `panel` of the strip. */
static void multiply_panel(const unit *u, position at, int64_t panel, float *sums, ith_product_call ahead)
{
    const ith_linear_size *s = u->size;
    const ith_linear_left left = left_at(u, at);
    ith_product_call call = ahead;
    call.rows = u->count, call.columns = columns_of(u, panel), call.steps = ith_linear_steps(s, at.block);
    call.left = left.first, call.left_stride = s->row_bytes, call.part_bytes = left.part_bytes;
    call.parts = layer_of(u, at)->parts, call.interleaved = layer_of(u, at)->interleaved;
    call.right = right_of(u, panel, at);
    call.out = sums, call.out_stride = s->kernel->columns, call.adds = at.block > 0;
    s->kernel->multiply(&call);
}

/* Multiplies one block of k by all right panels of a span. */
static void multiply_block(const unit *u, position at)
{
    const ith_linear_product *p = u->product;
    const int64_t columns = u->size->kernel->columns;
    const int64_t begin = begin_of(u, at.span), count = begin_of(u, at.span + 1) - begin;
    for (int64_t i = 0; i < count; i++) {
        int64_t panel = begin + i;
        float *sums = u->sums[at.which] + i * u->count * columns;
        ith_product_call ahead = {0};
        fetch_ahead(u, at, i, count, &ahead);
        if (ends_span(u, at))
            fetch_out(u, panel, &ahead);
        if (at.block < u->size->blocks)
            multiply_panel(u, at, panel, sums, ahead);
        else
            multiply_added(u, at, panel, sums, ahead);
        if (ends_span(u, at) && p->hidden)
            put_hidden(u, panel, u->sums[0] + i * u->count * columns, at.which ? sums : NULL);
        else if (ends_span(u, at))
            put_rows(u, panel, sums);
    }
}

static void compute_unit(const ith_linear_product *p, int64_t number, char *memory)
{
    const ith_linear_size *size = p->layer->size;
    const int64_t panels = ith_linear_panels(size, p->rows), range = number % p->ranges;
    unit u = {.product = p, .size = size, .first = number / p->ranges * p->features};
    u.count = ith_min64(p->features, size->out - u.first);
    u.first_panel = range * panels / p->ranges;
    u.panels = (range + 1) * panels / p->ranges - u.first_panel;
    if (!u.panels)
        return;
    u.spans = ith_div_up(u.panels, span_most(size, u.panels));
    u.blocks[0] = blocks_of(&u, p->layer);
    u.blocks[1] = p->gate ? blocks_of(&u, p->gate) : 0;
    u.turned = (float *)(void *)memory;
    u.sums[0] = (float *)(void *)((char *)u.turned + turned_bytes(size));
    u.sums[1] = (float *)(void *)((char *)u.sums[0] + unit_sums_bytes(size, span_most(size, u.panels), u.count));
    u.left = (char *)u.sums[p->gate ? 1 : 0] + unit_sums_bytes(size, span_most(size, u.panels), u.count);
    if (!convert_first(&u))
        return;
    for (position at = {0};; at = after(&u, at)) {
        if (!ith_linear_goes_on(p->outcome) || (converts(&u, at) && !convert(&u, at)))
            return;
        if (writes_first(&u, at) && p->frees && !ith_linear_await(p->frees, p->strip - 1, p->outcome))
            return;
        multiply_block(&u, at);
        if (is_last(&u, at))
            return;
    }
}

void ith_linear_compute(const ith_linear_product *product, char *memory)
{
    int64_t number;
    while (ith_linear_goes_on(product->outcome) && ith_linear_take_item(product->stage, product->strip, &number)) {
        compute_unit(product, number, memory);
        ith_linear_end_item(product->stage, product->strip, product->outcome);
    }
}
