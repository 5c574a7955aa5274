/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a unit: y^T [features][rows of x] = w x^T for some output features and a range of right panels.
 *
 *     for each block of k
 *         convert the weights of the features within the block into a left operand (second-level cache)
 *         for each right panel of the range (its part within the block: first-level cache)
 *             add left times right to the thread's sums [right panel][features][columns]
 *
 * After the last block of k, the sums of each right panel are transposed into rows of y, or packed as hidden rows. The
 * blocks of k are the same for every row, so the bits of a row do not depend on the units or on the other rows. */
#include "linear_unit.h"

#include "../base/size.h"

#define ALIGNMENT 64

/* A unit that a thread computes. */
typedef struct unit {
    const ith_linear_product *product;
    const ith_linear_size *size;
    int64_t first, count;        /* output features [first, first + count) */
    int64_t first_panel, panels; /* the range of right panels */
    char *left;                  /* converted weights of these features within one block of k */
    float *sums[2];              /* [panels][count][columns] each: sums of the layer, and of the gate */
    float *turned;               /* [columns][count]: the sums of one right panel as rows of y */
} unit;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

/* The largest number of features of a unit. With a gate it is half as large, because a unit has the sums of two layers
 * then. */
static int64_t features_most(const ith_linear_size *size, bool has_gate)
{
    return has_gate ? ith_max64(size->features / 2 / size->quantum, 1) * size->quantum : size->features;
}

static int64_t left_bytes(const ith_linear_size *size)
{
    return ith_round_up(size->features * size->parts_max * size->row_bytes, ALIGNMENT);
}

/* Bytes of a unit's sums for one layer. */
static int64_t sums_bytes(const ith_linear_size *size, int64_t panels, int64_t features)
{
    return ith_round_up(panels * size->kernel->columns * features * (int64_t)sizeof(float), ALIGNMENT);
}

int64_t ith_linear_unit_bytes(const ith_linear_size *size, int64_t rows)
{
    int64_t panels = ith_linear_panels(size, rows);
    int64_t one = sums_bytes(size, panels, features_most(size, false));
    int64_t two = 2 * sums_bytes(size, panels, features_most(size, true));
    return left_bytes(size) + ith_max64(one, two) + sums_bytes(size, 1, size->features);
}

/* Units have about the same number of features. If that gives fewer units than threads, the right panels are cut into
 * ranges as well. */
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
    p->rowops->turn_and_bias(u->turned, u->count, sums, columns, p->layer->bias + u->first, u->count, rows);
    for (int64_t j = 0; j < rows; j++)
        p->output->take(p->output->user, p->first + row + j, u->first, u->count, u->turned + j * u->count);
}

/* Applies bias, activation and gate to the complete sums of right panel number `panel`, and packs them as hidden
 * rows. */
static void put_hidden(const unit *u, int64_t panel, float *sums, float *gates)
{
    const ith_linear_product *p = u->product;
    const ith_product_kernel *kernel = u->size->kernel;
    int64_t numbers = u->count * kernel->columns;
    p->rowops->add_bias(sums, p->layer->bias + u->first, u->count, kernel->columns);
    p->act(sums, sums, numbers);
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

/* ---- Products -------------------------------------------------------------------------------------------------- */

/* Finds the converted weights of a unit within a block of k. Converts them now unless the layer keeps them packed.
 * Returns false if the file of the weights was cut. */
static bool left_of(const unit *u, const ith_linear *layer, int64_t block, ith_linear_left *left)
{
    const ith_linear_size *s = u->size;
    if (layer->packed) {
        left->part_bytes = s->out * s->row_bytes;
        left->first = layer->packed + block * s->parts_max * left->part_bytes + u->first * s->row_bytes;
        return true;
    }
    *left = (ith_linear_left){u->left, u->count * s->row_bytes};
    const char *file = ith_linear_convert(layer, u->first, u->count, block, u->left, left->part_bytes);
    if (!file)
        return true;
    atomic_store(&u->product->outcome->file, file);
    atomic_store(&u->product->outcome->status, ITH_ERR_IO);
    return false;
}

/* Returns true unless the call has failed or its context was interrupted. Records an interruption as a failure. */
static bool goes_on(ith_linear_outcome *outcome)
{
    if (!atomic_load_explicit(&outcome->status, memory_order_relaxed) && ith_context_interrupted(outcome->context))
        atomic_store(&outcome->status, ITH_ERR_INTERRUPTED);
    return !atomic_load_explicit(&outcome->status, memory_order_relaxed);
}

/* A block of k of one of a unit's layers. A thread computes all blocks of the layer, then all blocks of the gate. */
typedef struct position {
    int which; /* 0: the layer; 1: the gate */
    int64_t block;
} position;

/* The block that a thread computes next. After the last block of a unit it is the first block of another unit. */
static position after(const unit *u, position at)
{
    bool last = at.block == u->size->blocks - 1;
    return (position){last && u->product->gate ? 1 - at.which : at.which, last ? 0 : at.block + 1};
}

/* Whether this is the last block of the unit. */
static bool is_last(const unit *u, position at)
{
    return at.block == u->size->blocks - 1 && (at.which || !u->product->gate);
}

static const ith_linear *layer_of(const unit *u, position at)
{
    return at.which ? u->product->gate : u->product->layer;
}

/* The address of a block of k in right panel number `panel` of the strip. */
static const char *right_of(const unit *u, int64_t panel, int64_t block)
{
    const ith_product_kernel *kernel = u->size->kernel;
    const char *begin = u->product->panels + panel * kernel->right_bytes(u->size->in);
    return begin + (block ? kernel->right_bytes(block * u->size->depth) : 0);
}

/* Sets the memory that the kernel fetches while it multiplies right panel number i of the unit: the next right panel,
 * and a share of the weights that the thread converts next. After the last block these are weights of the first unit
 * that no thread has taken. */
static void fetch_ahead(const unit *u, position at, int64_t i, ith_product_call *call)
{
    const ith_linear_product *p = u->product;
    const position next = after(u, at);
    int64_t first = u->first, count = u->count;
    call->next = right_of(u, i + 1 < u->panels ? u->first_panel + i + 1 : u->first_panel,
                          i + 1 < u->panels ? at.block : next.block);
    if (is_last(u, at)) {
        int64_t number = atomic_load_explicit(p->next_unit, memory_order_relaxed);
        first = number / p->ranges * p->features;
        count = number < p->units ? ith_min64(p->features, u->size->out - first) : 0;
    }
    int64_t begin = i * count / u->panels, end = (i + 1) * count / u->panels;
    if (!layer_of(u, next)->packed && begin < end)
        ith_linear_fetch(layer_of(u, next), first + begin, end - begin, next.block, call);
}

/* The number of columns of right panel number `panel` that are computed: the panel's rows of x, rounded up to whole
 * vectors, which cost no more. Hidden rows are packed from whole panels, so all columns are computed for them. */
static int64_t columns_of(const unit *u, int64_t panel)
{
    const ith_product_kernel *kernel = u->size->kernel;
    int64_t rows = u->product->rows - panel * kernel->columns;
    return u->product->hidden ? kernel->columns : ith_min64(kernel->columns, ith_round_up(rows, kernel->lanes));
}

/* Multiplies the converted weights of one block of k by all right panels of the unit. */
static void multiply_block(const unit *u, position at, const ith_linear_left *left)
{
    const ith_linear_product *p = u->product;
    const ith_linear_size *s = u->size;
    const int64_t columns = s->kernel->columns;
    for (int64_t i = 0; i < u->panels; i++) {
        int64_t panel = u->first_panel + i;
        float *sums = u->sums[at.which] + i * u->count * columns;
        ith_product_call call = {.rows = u->count,
                                 .columns = columns_of(u, panel),
                                 .steps = ith_linear_steps(s, at.block),
                                 .left = left->first,
                                 .left_stride = s->row_bytes,
                                 .part_bytes = left->part_bytes,
                                 .parts = layer_of(u, at)->parts,
                                 .right = right_of(u, panel, at.block),
                                 .out = sums,
                                 .out_stride = columns,
                                 .adds = at.block > 0};
        fetch_ahead(u, at, i, &call);
        s->kernel->multiply(&call);
        if (is_last(u, at) && p->hidden)
            put_hidden(u, panel, u->sums[0] + i * u->count * columns, at.which ? sums : NULL);
        else if (is_last(u, at))
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
    u.left = memory;
    u.turned = (float *)(void *)(u.left + left_bytes(size));
    u.sums[0] = (float *)(void *)((char *)u.turned + sums_bytes(size, 1, size->features));
    u.sums[1] = (float *)(void *)((char *)u.sums[0] + sums_bytes(size, u.panels, u.count));
    for (position at = {0, 0};; at = after(&u, at)) {
        ith_linear_left left;
        if (!goes_on(p->outcome) || !left_of(&u, layer_of(&u, at), at.block, &left))
            return;
        multiply_block(&u, at, &left);
        if (is_last(&u, at))
            return;
    }
}

void ith_linear_compute(const ith_linear_product *product, char *memory)
{
    int64_t number;
    while ((number = atomic_fetch_add(product->next_unit, 1)) < product->units && goes_on(product->outcome))
        compute_unit(product, number, memory);
}
