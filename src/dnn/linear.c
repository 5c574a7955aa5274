/* y[rows, out] = x[rows, in] w^T + b.
 *
 * The product is cut into units of TILE_ROWS rows by one block of columns. Each unit is one run of a oneDNN primitive
 * that was made for exactly that shape and for one thread; rows that do not fill a tile are padded with zeros. So what
 * is computed for a row, and in which order, depends neither on its place among the rows, nor on their number, nor on
 * the threads: its bits are always the same.
 *
 * Units are shared out over the team in the order (panel of rows, block of columns, tile): a block of weights stays in
 * the second-level cache while the tiles of a panel pass by, and all weights are read once per panel. With bf16 the
 * rows of a panel are rounded once, before its units. */
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
    ith_precision precision;
    int64_t block;               /* columns of a block */
    int64_t blocks;              /* the last may have fewer */
    int64_t block_bytes;         /* packed */
    int64_t scratch_bytes;       /* of either op */
    ith_onednn_op *whole, *last; /* last: NULL where out is a multiple of block */
    char *packed;
    struct dnnl_memory **weights; /* [blocks] */
    float *bias;                  /* [out], zero where there is none */
};

enum { DONE = 0, FAILED = 1, INTERRUPTED = 2 }; /* what became of a thread's part; of a call, all bits that were set */

/* As wide as the cache allows, all of about the same width. */
static int64_t block_columns(int64_t in, int64_t out, ith_precision precision)
{
    int64_t widest = ith_min64(BLOCK_BYTES / (in * ith_precision_bytes(precision)), BLOCK_COLUMNS);
    widest = ith_max64(widest / BLOCK_UNIT, 1) * BLOCK_UNIT;
    return ith_round_up(ith_div_up(out, ith_div_up(out, widest)), BLOCK_UNIT);
}

static const ith_onednn_op *op_of(const ith_linear *linear, int64_t block)
{
    return linear->last && block == linear->blocks - 1 ? linear->last : linear->whole;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Columns [begin, begin + count) of the product are these rows of the weight, in the op's type: as they lie if they are
 * of that type, otherwise converted into plain. wide: room for them in f32, only for F16 to bf16. */
static const void *plain_block(const ith_linear *linear, const void *weight, ith_dtype type, int64_t begin,
                               int64_t count, void *plain, float *wide)
{
    const char *rows = (const char *)weight + begin * linear->in * ith_dtype_bytes(type);
    ith_dtype wanted = linear->precision == ITH_PRECISION_BF16 ? ITH_BF16 : ITH_F32;
    if (type == wanted)
        return rows;
    if (wanted == ITH_F32) {
        ith_to_f32(plain, rows, type, count * linear->in);
    } else if (type == ITH_F32) {
        ith_from_f32(plain, ITH_BF16, (const float *)rows, count * linear->in);
    } else {
        ith_to_f32(wide, rows, type, count * linear->in);
        ith_from_f32(plain, ITH_BF16, wide, count * linear->in);
    }
    return plain;
}

/* Every block by one thread of the team, which is what first touches its memory. */
static ith_status pack_blocks(ith_context *context, ith_linear *linear, const void *weight, ith_dtype type)
{
    int64_t elements = linear->block * linear->in, wide_bytes = elements * 4, plain_bytes = wide_bytes * 2;
    int threads = omp_get_max_threads();
    char *plain = ith_alloc(context, threads, plain_bytes, "weights being packed");
    if (!plain)
        return ITH_ERR_MEMORY;
    int outcome = DONE;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : outcome)
    for (int64_t i = 0; i < linear->blocks; i++) {
        if (outcome || ith_context_interrupted(context)) {
            outcome |= INTERRUPTED;
            continue;
        }
        int64_t begin = i * linear->block, count = ith_min64(linear->block, linear->out - begin);
        char *mine = plain + omp_get_thread_num() * plain_bytes;
        const void *rows = plain_block(linear, weight, type, begin, count, mine, (float *)(mine + wide_bytes));
        if (ith_onednn_pack(op_of(linear, i), rows, linear->packed + i * linear->block_bytes, &linear->weights[i]))
            outcome |= FAILED;
    }
    ith_free(context, plain);
    if (outcome & FAILED)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not pack the weights of a %lld to %lld layer",
                        (long long)linear->in, (long long)linear->out);
    return outcome ? ith_fail_interrupted(context) : ITH_OK;
}

static ith_status create_ops(ith_context *context, ith_linear *linear)
{
    ith_onednn_matmul shape = {TILE_ROWS, linear->in, ith_min64(linear->block, linear->out), linear->precision};
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
    linear->packed = ith_alloc(context, linear->blocks, linear->block_bytes, "packed weights");
    linear->weights = ith_alloc_zero(context, linear->blocks, sizeof *linear->weights, "packed weights");
    linear->bias = ith_alloc_zero(context, linear->out, sizeof *linear->bias, "a bias");
    return linear->packed && linear->weights && linear->bias ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_linear_create(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype weight_type,
                             const float *bias, ith_precision precision, ith_linear **linear)
{
    *linear = NULL;
    if (in < 1 || out < 1 || in > INT32_MAX || out > INT32_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a linear layer of %lld to %lld; both must be from 1 to 2^31 - 1",
                        (long long)in, (long long)out);
    if (precision != ITH_PRECISION_F32 && precision != ITH_PRECISION_BF16)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a linear layer is of f32 or of bf16, not of precision %d",
                        (int)precision);
    if (weight_type != ITH_F32 && weight_type != ITH_BF16 && weight_type != ITH_F16)
        return ith_fail(context, ITH_ERR_ARGUMENT, "weights of a linear layer are f32, bf16 or f16, not %s",
                        ith_dtype_name(weight_type));
    ith_linear *l = ith_alloc_zero(context, 1, sizeof *l, "a linear layer");
    if (!l)
        return ITH_ERR_MEMORY;
    l->in = in, l->out = out, l->precision = precision;
    l->block = block_columns(in, out, precision);
    l->blocks = ith_div_up(out, l->block);
    ith_status status = create_ops(context, l);
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

int64_t ith_linear_bytes(int64_t in, int64_t out, ith_precision precision)
{
    /* oneDNN pads the inputs to 16 or 32, the outputs to 64. */
    int64_t packed = ith_round_up(in, 32) * ith_round_up(out, 64) * ith_precision_bytes(precision);
    return packed + out * 4 + ith_div_up(out, block_columns(in, out, precision)) * 8 + (int64_t)sizeof(ith_linear);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* One call: what all of its threads look at. */
typedef struct run {
    const ith_context *context;
    const ith_linear *linear;
    const ith_rowops *rowops;
    int64_t rows, x_stride, y_stride;
    const float *x;
    float *y;
    int64_t panel_tiles; /* tiles of a panel */
    bool packs;          /* every tile is packed, not only one that the rows do not fill */
    char *panel;         /* [panel_tiles or 1][TILE_ROWS, in] */
    int64_t tile_bytes;  /* of a packed tile */
    char *private;       /* of each thread: scratch of oneDNN, then a tile of y that cannot be written straight */
    int64_t private_bytes;
} run;

static int64_t tile_rows(const run *r, int64_t tile)
{
    return ith_min64(TILE_ROWS, r->rows - tile * TILE_ROWS);
}

static bool tile_is_packed(const run *r, int64_t tile)
{
    return r->packs || tile_rows(r, tile) < TILE_ROWS;
}

static char *tile_slot(const run *r, int64_t tile)
{
    return r->panel + (r->packs ? tile % r->panel_tiles : 0) * r->tile_bytes;
}

static void pack_tile(const run *r, int64_t tile)
{
    const ith_linear *l = r->linear;
    int64_t rows = tile_rows(r, tile), row_bytes = l->in * ith_precision_bytes(l->precision);
    char *slot = tile_slot(r, tile);
    for (int64_t i = 0; i < rows; i++) {
        const float *x = r->x + (tile * TILE_ROWS + i) * r->x_stride;
        if (l->precision == ITH_PRECISION_BF16)
            r->rowops->bf16_from_f32((uint16_t *)(slot + i * row_bytes), x, l->in);
        else
            memcpy(slot + i * row_bytes, x, (size_t)row_bytes);
    }
    memset(slot + rows * row_bytes, 0, (size_t)((TILE_ROWS - rows) * row_bytes));
}

/* lanes: of the whole blocks and of the last one. scratch: this thread's private memory. */
static ith_status run_unit(const run *r, int64_t block, int64_t tile, ith_onednn_lane lanes[2], char *scratch)
{
    const ith_linear *l = r->linear;
    int64_t begin = block * l->block, count = ith_min64(l->block, l->out - begin), rows = tile_rows(r, tile);
    const void *x = tile_is_packed(r, tile) ? (const void *)tile_slot(r, tile)
                                            : (const void *)(r->x + tile * TILE_ROWS * r->x_stride);
    float *y = r->y + tile * TILE_ROWS * r->y_stride + begin, *box = (float *)(scratch + l->scratch_bytes);
    bool straight = rows == TILE_ROWS && r->y_stride == count;
    ith_status status = ith_onednn_run(&lanes[op_of(l, block) == l->last], x, l->weights[block], l->bias + begin,
                                       straight ? y : box, scratch);
    for (int64_t i = 0; !status && !straight && i < rows; i++)
        memcpy(y + i * r->y_stride, box + i * count, (size_t)count * sizeof *y);
    return status;
}

/* One thread's part. Every thread passes every work-sharing loop, whatever failed. */
static int run_share(const run *r)
{
    const ith_linear *l = r->linear;
    char *scratch = r->private + omp_get_thread_num() * r->private_bytes;
    ith_onednn_lane lanes[2] = {0};
    int outcome = ith_onednn_lane_open(l->whole, &lanes[0]) || (l->last && ith_onednn_lane_open(l->last, &lanes[1]));
    int64_t tiles = ith_div_up(r->rows, TILE_ROWS);
    for (int64_t first = 0; first < tiles; first += r->panel_tiles) {
        int64_t count = ith_min64(r->panel_tiles, tiles - first);
#pragma omp for schedule(static)
        for (int64_t tile = first; tile < first + count; tile++)
            if (tile_is_packed(r, tile))
                pack_tile(r, tile);
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < count * l->blocks; unit++)
            if (!outcome && ith_context_interrupted(r->context))
                outcome = INTERRUPTED;
            else if (!outcome && run_unit(r, unit / count, first + unit % count, lanes, scratch))
                outcome = FAILED;
    }
    ith_onednn_lane_close(&lanes[0]);
    ith_onednn_lane_close(&lanes[1]);
    return outcome;
}

static ith_status plan_run(ith_context *context, int threads, run *r)
{
    const ith_linear *l = r->linear;
    int64_t tiles = ith_div_up(r->rows, TILE_ROWS);
    r->tile_bytes = TILE_ROWS * l->in * ith_precision_bytes(l->precision);
    r->panel_tiles = ith_min64(tiles, ith_max64(LEAST_PANEL_TILES, PANEL_BYTES / r->tile_bytes));
    r->packs = l->precision == ITH_PRECISION_BF16 || r->x_stride != l->in;
    r->private_bytes = l->scratch_bytes + TILE_ROWS * l->block * 4;
    int64_t packed_tiles = r->packs ? r->panel_tiles : 1;
    int64_t panel_bytes = ith_round_up(packed_tiles * r->tile_bytes, CACHE_LINE);
    r->panel = ith_alloc(context, panel_bytes + threads * r->private_bytes, 1, "a product's work space");
    r->private = r->panel ? r->panel + panel_bytes : NULL;
    return r->panel ? ITH_OK : ITH_ERR_MEMORY;
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
    ith_status status = plan_run(context, threads, &r);
    if (status)
        return status;
    int outcome = DONE;
#pragma omp parallel num_threads(threads) reduction(| : outcome)
    outcome = run_share(&r);
    ith_free(context, r.panel);
    if (outcome & FAILED)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not compute %lld rows of a %lld to %lld layer",
                        (long long)rows, (long long)linear->in, (long long)linear->out);
    return outcome ? ith_fail_interrupted(context) : ITH_OK;
}
