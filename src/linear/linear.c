/* SPDX-License-Identifier: Apache-2.0 */
/* y[rows, out] = x[rows, in] w^T + b.
 *
 * The product is cut into units of TILE_ROWS rows by one block of columns. Each unit is one run of a oneDNN primitive
 * that was made for exactly that shape and for one thread; rows that do not fill a tile are padded with zeros. So what
 * is computed for a row, and in which order, depends neither on its place among the rows, nor on their number, nor on
 * the threads: its bits are always the same.
 *
 * Units are shared out over the team in the order (panel of rows, block of columns, tile): a block of weights stays in
 * the second-level cache while the tiles of a panel pass by, and all weights are read once per panel. Rows that are
 * rounded are rounded once, a panel before its units. Weights that are stored in bf16 and multiplied in f32 are widened
 * a block at a time, by each thread that works on the block, once per panel. */
#include "linear.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../kernels/rowops.h"
#include "onednn.h"

#include <omp.h>
#include <string.h>

#define TILE_ROWS 64
#define BLOCK_UNIT 64 /* columns that oneDNN packs together */
#define BLOCK_COLUMNS 1024
#define BLOCK_BYTES (768 * 1024) /* of packed weights: they stay in a second-level cache */
#define PANEL_BYTES (8 << 20)
#define LEAST_PANEL_TILES 8
#define CACHE_LINE 64

struct ith_linear {
    int64_t in, out;
    ith_operand_types types;
    int64_t block;                /* columns of a block */
    int64_t blocks;               /* the last may have fewer */
    int64_t block_bytes;          /* packed, as it is multiplied */
    int64_t stored_bytes;         /* of a block in `packed`: block_bytes, or half of it */
    int64_t scratch_bytes;        /* of either op */
    ith_onednn_op *whole, *last;  /* last: NULL where out is a multiple of block */
    char *packed;                 /* [blocks][stored_bytes] */
    struct dnnl_memory **weights; /* [blocks]; NULL where blocks are widened before they are multiplied */
    float *bias;                  /* [out], zero where there is none */
};

enum { DONE = 0, FAILED = 1, INTERRUPTED = 2 }; /* what became of a thread's part; of a call, all bits that were set */

static bool widens(const ith_operand_types *types)
{
    return types->stored != types->multiplied;
}

/* As wide as the cache allows, all of about the same width. */
static int64_t block_columns(int64_t in, int64_t out, const ith_operand_types *types)
{
    int64_t widest = ith_min64(BLOCK_BYTES / (in * ith_dtype_bytes(types->multiplied)), BLOCK_COLUMNS);
    widest = ith_max64(widest / BLOCK_UNIT, 1) * BLOCK_UNIT;
    return ith_round_up(ith_div_up(out, ith_div_up(out, widest)), BLOCK_UNIT);
}

static const ith_onednn_op *op_of(const ith_linear *linear, int64_t block)
{
    return linear->last && block == linear->blocks - 1 ? linear->last : linear->whole;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Columns [begin, begin + count) of the product are these rows of the weight, as they are multiplied: where they lie if
 * they need no conversion, otherwise converted into plain. */
static const void *plain_block(const ith_linear *linear, const void *weight, ith_dtype type, int64_t begin,
                               int64_t count, void *plain)
{
    const char *rows = (const char *)weight + begin * linear->in * ith_dtype_bytes(type);
    if (type == linear->types.stored && !widens(&linear->types))
        return rows;
    ith_operand_weights(&linear->types, plain, rows, type, count * linear->in);
    return plain;
}

/* wide: room for a packed block, used where blocks are stored narrower than oneDNN packs them. */
static ith_status pack_block(const ith_linear *linear, int64_t block, const void *rows, void *wide)
{
    char *stored = linear->packed + block * linear->stored_bytes;
    if (!widens(&linear->types))
        return ith_onednn_pack(op_of(linear, block), rows, stored, &linear->weights[block]);
    struct dnnl_memory *weights = NULL;
    memset(wide, 0, (size_t)linear->block_bytes);
    ith_status status = ith_onednn_pack(op_of(linear, block), rows, wide, &weights);
    ith_onednn_weights_free(&weights);
    if (!status)
        ith_from_f32(stored, linear->types.stored, wide, linear->block_bytes / (int64_t)sizeof(float));
    return status;
}

/* Every block by one thread of the team, which is what first touches its memory. */
static ith_status pack_blocks(ith_context *context, ith_linear *linear, const void *weight, ith_dtype type)
{
    int64_t plain_bytes =
        ith_round_up(linear->block * linear->in * ith_dtype_bytes(linear->types.multiplied), CACHE_LINE);
    int64_t thread_bytes = plain_bytes + (widens(&linear->types) ? linear->block_bytes : 0);
    int threads = omp_get_max_threads();
    char *room = ith_alloc(context, threads, thread_bytes, "weights being packed");
    if (!room)
        return ITH_ERR_MEMORY;
    int outcome = DONE;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : outcome)
    for (int64_t i = 0; i < linear->blocks; i++) {
        if (outcome || ith_context_interrupted(context)) {
            outcome |= INTERRUPTED;
            continue;
        }
        int64_t begin = i * linear->block, count = ith_min64(linear->block, linear->out - begin);
        char *plain = room + omp_get_thread_num() * thread_bytes;
        const void *rows = plain_block(linear, weight, type, begin, count, plain);
        if (pack_block(linear, i, rows, plain + plain_bytes))
            outcome |= FAILED;
    }
    ith_free(context, room);
    if (outcome & FAILED)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not pack the weights of a %lld to %lld layer",
                        (long long)linear->in, (long long)linear->out);
    return outcome ? ith_fail_interrupted(context) : ITH_OK;
}

static ith_status create_ops(ith_context *context, ith_linear *linear)
{
    ith_onednn_matmul shape = {TILE_ROWS, linear->in, ith_min64(linear->block, linear->out), linear->types.multiplied};
    ith_status status = ith_onednn_matmul_create(context, &shape, &linear->whole);
    if (status)
        return status;
    linear->scratch_bytes = ith_onednn_scratch_bytes(linear->whole);
    shape.out = linear->out % linear->block;
    if (linear->blocks == 1 || !shape.out)
        return ITH_OK;
    status = ith_onednn_matmul_create(context, &shape, &linear->last);
    if (!status)
        linear->scratch_bytes = ith_max64(linear->scratch_bytes, ith_onednn_scratch_bytes(linear->last));
    return status;
}

static ith_status allocate(ith_context *context, ith_linear *linear)
{
    linear->block_bytes = ith_onednn_weight_bytes(linear->whole);
    if (linear->last)
        linear->block_bytes = ith_max64(linear->block_bytes, ith_onednn_weight_bytes(linear->last));
    linear->stored_bytes = widens(&linear->types) ? linear->block_bytes / 2 : linear->block_bytes;
    linear->packed = ith_alloc(context, linear->blocks, linear->stored_bytes, "packed weights");
    linear->weights = ith_alloc_zero(context, linear->blocks, sizeof *linear->weights, "packed weights");
    linear->bias = ith_alloc_zero(context, linear->out, sizeof *linear->bias, "a bias");
    return linear->packed && linear->weights && linear->bias ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_linear_create(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype weight_type,
                             const float *bias, ith_operand_types types, ith_linear **linear)
{
    *linear = NULL;
    if (in < 1 || out < 1 || in > INT32_MAX || out > INT32_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a linear layer of %lld to %lld; both must be from 1 to 2^31 - 1",
                        (long long)in, (long long)out);
    ith_status status = ith_operand_types_check(context, &types, weight_type, "a linear layer");
    if (status)
        return status;
    ith_linear *l = ith_alloc_zero(context, 1, sizeof *l, "a linear layer");
    if (!l)
        return ITH_ERR_MEMORY;
    l->in = in, l->out = out, l->types = types;
    l->block = block_columns(in, out, &types);
    l->blocks = ith_div_up(out, l->block);
    status = create_ops(context, l);
    if (!status)
        status = allocate(context, l);
    if (!status)
        status = pack_blocks(context, l, weight, weight_type);
    if (!status && bias)
        memcpy(l->bias, bias, (size_t)out * sizeof *bias);
    *linear = l;
    if (status)
        ith_linear_destroy(context, linear);
    return status;
}

void ith_linear_destroy(ith_context *context, ith_linear **linear)
{
    if (!linear || !*linear)
        return;
    ith_linear *l = *linear;
    for (int64_t i = 0; l->weights && i < l->blocks; i++)
        ith_onednn_weights_free(&l->weights[i]);
    ith_onednn_op_destroy(context, &l->whole);
    ith_onednn_op_destroy(context, &l->last);
    ith_free(context, l->packed);
    ith_free(context, l->weights);
    ith_free(context, l->bias);
    ith_free(context, l);
    *linear = NULL;
}

int64_t ith_linear_in(const ith_linear *linear)
{
    return linear->in;
}

int64_t ith_linear_out(const ith_linear *linear)
{
    return linear->out;
}

int64_t ith_linear_bytes(int64_t in, int64_t out, ith_operand_types types)
{
    /* oneDNN pads the inputs to 16 or 32, the outputs to 64. */
    int64_t packed = ith_round_up(in, 32) * ith_round_up(out, 64) * ith_dtype_bytes(types.stored);
    return packed + out * 4 + ith_div_up(out, block_columns(in, out, &types)) * 8 + (int64_t)sizeof(ith_linear);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* The memory that a run works in. */
typedef struct work_space {
    int64_t panel_tiles;   /* tiles of a panel */
    bool packs;            /* every tile is packed, not only one that the rows do not fill */
    int64_t tile_bytes;    /* of a packed tile */
    int64_t panel_bytes;   /* of the packed tiles of a panel */
    int64_t box_bytes;     /* of a tile of y */
    int64_t widened_bytes; /* of a block of weights; 0 where none is widened */
    int64_t thread_bytes;  /* oneDNN's scratch, a block of weights, a tile of y */
} work_space;

/* block_bytes, scratch_bytes: as in ith_linear. */
static work_space plan_work(int64_t in, int64_t block, const ith_operand_types *types, int64_t block_bytes,
                            int64_t scratch_bytes, int64_t rows, bool gaps)
{
    int64_t tiles = ith_div_up(rows, TILE_ROWS);
    work_space work = {.tile_bytes = TILE_ROWS * in * ith_dtype_bytes(types->multiplied)};
    work.panel_tiles = ith_min64(tiles, ith_max64(LEAST_PANEL_TILES, PANEL_BYTES / work.tile_bytes));
    work.packs = types->rounded == ITH_BF16 || gaps;
    work.panel_bytes = ith_round_up((work.packs ? work.panel_tiles : 1) * work.tile_bytes, CACHE_LINE);
    work.box_bytes = TILE_ROWS * block * (int64_t)sizeof(float);
    work.widened_bytes = widens(types) ? block_bytes : 0;
    work.thread_bytes = scratch_bytes + work.widened_bytes + work.box_bytes;
    return work;
}

int64_t ith_linear_run_bytes(int64_t in, int64_t out, ith_operand_types types, int64_t rows, int threads)
{
    int64_t block = block_columns(in, out, &types);
    int64_t block_bytes = ith_round_up(in, 32) * block * ith_dtype_bytes(types.multiplied);
    work_space work = plan_work(in, block, &types, block_bytes, 0, rows, false);
    return work.panel_bytes + threads * work.thread_bytes;
}

/* One call: what all of its threads look at. */
typedef struct run {
    const ith_context *context;
    const ith_linear *linear;
    const ith_rowops *rowops;
    int64_t rows, x_stride, y_stride;
    const float *x;
    float *y;
    work_space work;
    char *panel;   /* [panel_tiles or 1][TILE_ROWS, in] */
    char *threads; /* [threads][thread_bytes] */
} run;

/* One thread at work. Of two ops and two handles, the second are those of the last block. */
typedef struct worker {
    const run *run;
    ith_onednn_lane lanes[2];
    struct dnnl_memory *widened[2]; /* handles of `block` */
    int64_t block_here;             /* which block of weights `block` holds; -1: none */
    char *scratch, *block;
    float *box; /* a tile of y that cannot be written straight */
} worker;

static int64_t tile_rows(const run *r, int64_t tile)
{
    return ith_min64(TILE_ROWS, r->rows - tile * TILE_ROWS);
}

static bool tile_is_packed(const run *r, int64_t tile)
{
    return r->work.packs || tile_rows(r, tile) < TILE_ROWS;
}

static char *tile_slot(const run *r, int64_t tile)
{
    return r->panel + (r->work.packs ? tile % r->work.panel_tiles : 0) * r->work.tile_bytes;
}

static void pack_tile(const run *r, int64_t tile)
{
    const ith_linear *l = r->linear;
    int64_t rows = tile_rows(r, tile), row_bytes = l->in * ith_dtype_bytes(l->types.multiplied);
    char *slot = tile_slot(r, tile);
    for (int64_t i = 0; i < rows; i++)
        ith_operand_round(&l->types, r->rowops, slot + i * row_bytes, r->x + (tile * TILE_ROWS + i) * r->x_stride,
                          l->in);
    memset(slot + rows * row_bytes, 0, (size_t)((TILE_ROWS - rows) * row_bytes));
}

static bool worker_open(worker *w, const run *r)
{
    const ith_linear *l = r->linear;
    const ith_onednn_op *ops[2] = {l->whole, l->last};
    *w = (worker){.run = r, .block_here = -1};
    w->scratch = r->threads + omp_get_thread_num() * r->work.thread_bytes;
    w->block = w->scratch + l->scratch_bytes;
    w->box = (float *)(void *)(w->block + r->work.widened_bytes);
    bool opened = true;
    for (int i = 0; i < 2 && ops[i]; i++) {
        opened = opened && ith_onednn_lane_open(ops[i], &w->lanes[i]) == ITH_OK;
        if (r->work.widened_bytes)
            opened = opened && ith_onednn_weights_at(ops[i], w->block, &w->widened[i]) == ITH_OK;
    }
    return opened;
}

static void worker_close(worker *w)
{
    for (int i = 0; i < 2; i++) {
        ith_onednn_lane_close(&w->lanes[i]);
        ith_onednn_weights_free(&w->widened[i]);
    }
}

/* The weights of a block as they are multiplied. */
static struct dnnl_memory *weights_of(worker *w, int64_t block, bool last)
{
    const ith_linear *l = w->run->linear;
    if (!widens(&l->types))
        return l->weights[block];
    if (w->block_here != block)
        w->run->rowops->f32_from_bf16((float *)(void *)w->block,
                                      (const uint16_t *)(void *)(l->packed + block * l->stored_bytes),
                                      l->block_bytes / (int64_t)sizeof(float));
    w->block_here = block;
    return w->widened[last];
}

static bool run_unit(worker *w, int64_t block, int64_t tile)
{
    const run *r = w->run;
    const ith_linear *l = r->linear;
    int64_t begin = block * l->block, count = ith_min64(l->block, l->out - begin), rows = tile_rows(r, tile);
    const void *x = tile_is_packed(r, tile) ? (const void *)tile_slot(r, tile)
                                            : (const void *)(r->x + tile * TILE_ROWS * r->x_stride);
    float *y = r->y + tile * TILE_ROWS * r->y_stride + begin;
    bool straight = rows == TILE_ROWS && r->y_stride == count, last = op_of(l, block) == l->last;
    if (ith_onednn_run(&w->lanes[last], x, weights_of(w, block, last), l->bias + begin, straight ? y : w->box,
                       w->scratch))
        return false;
    for (int64_t i = 0; !straight && i < rows; i++)
        memcpy(y + i * r->y_stride, w->box + i * count, (size_t)count * sizeof *y);
    return true;
}

/* One thread's part. Every thread passes every work-sharing loop, whatever failed. */
static int run_share(const run *r)
{
    const ith_linear *l = r->linear;
    worker w;
    int outcome = worker_open(&w, r) ? DONE : FAILED;
    int64_t tiles = ith_div_up(r->rows, TILE_ROWS);
    for (int64_t first = 0; first < tiles; first += r->work.panel_tiles) {
        int64_t count = ith_min64(r->work.panel_tiles, tiles - first);
#pragma omp for schedule(static)
        for (int64_t tile = first; tile < first + count; tile++)
            if (tile_is_packed(r, tile))
                pack_tile(r, tile);
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < count * l->blocks; unit++)
            if (!outcome && ith_context_interrupted(r->context))
                outcome = INTERRUPTED;
            else if (!outcome && !run_unit(&w, unit / count, first + unit % count))
                outcome = FAILED;
    }
    worker_close(&w);
    return outcome;
}

ith_status ith_linear_run(ith_context *context, const ith_linear *linear, int64_t rows, const float *x,
                          int64_t x_stride, float *y, int64_t y_stride)
{
    if (rows < 1)
        return ITH_OK;
    run r = {.context = context,
             .linear = linear,
             .rowops = ith_rowops_choose(ith_context_cpu(context)),
             .rows = rows,
             .x = x,
             .x_stride = x_stride,
             .y = y,
             .y_stride = y_stride};
    int threads = omp_get_max_threads();
    r.work = plan_work(linear->in, linear->block, &linear->types, linear->block_bytes, linear->scratch_bytes, rows,
                       x_stride != linear->in);
    r.panel = ith_alloc(context, r.work.panel_bytes + threads * r.work.thread_bytes, 1, "a product's work space");
    if (!r.panel)
        return ITH_ERR_MEMORY;
    r.threads = r.panel + r.work.panel_bytes;
    int outcome = DONE;
#pragma omp parallel num_threads(threads) reduction(| : outcome)
    outcome = run_share(&r);
    ith_free(context, r.panel);
    if (outcome & FAILED)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not compute %lld rows of a %lld to %lld layer",
                        (long long)rows, (long long)linear->in, (long long)linear->out);
    return outcome ? ith_fail_interrupted(context) : ITH_OK;
}
