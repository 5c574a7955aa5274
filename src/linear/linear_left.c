/* SPDX-License-Identifier: Apache-2.0 */
/* Converts weights into left operands of a product kernel, a block of k at a time, with the additions that are merged
 * into them. Weights may lie in a mapped file that another process cuts meanwhile. So they are read inside a guard
 * (file_fault.h). */
#include "linear_left.h"

#include "../base/dtype.h"
#include "../base/file_fault.h"
#include "../base/size.h"

#include <string.h>

/* The arguments of ith_linear_convert, and its position. */
typedef struct conversion {
    const ith_linear *linear;
    int64_t first, count;
    int64_t first_block, blocks;
    char *to;
    int64_t block_bytes, part_bytes;
    int64_t block, begin, steps; /* steps [begin, begin + steps) of this block are converted at the moment */
    const ith_linear_weight *volatile weight; /* the matrix that is read at the moment; names the file if it is cut */
} conversion;

/* Returns the matrix that holds row *row of the layer's weights. Replaces *row by the number of the row in the
 * matrix. */
static const ith_linear_weight *weight_of(const ith_linear *linear, int64_t *row)
{
    const ith_linear_weight *weight = linear->weights;
    while (*row >= weight->rows)
        *row -= (weight++)->rows;
    return weight;
}

/* The numbers of a row that are unpacked at a time. They stay in the first-level cache. */
enum { PIECE = 512 };

/* Whether weights are converted to bf16: because the layer rounds them, or because no bit is lost. An fp8 or i8 number
 * without a scale is a bf16 number, which needs one part instead of the three parts of an f32 number. */
static bool is_rounded(const ith_linear_size *size, const ith_linear_weight *weight)
{
    if (size->kernel->parts > 1 && ith_unpack_has(weight->type) && ith_dtype_bytes(weight->type) == 1 && !weight->scale)
        return true;
    return size->types.stored == ITH_BF16 && weight->type != ITH_BF16;
}

/* The type of the numbers that a kernel converts: quantised weights are unpacked to f32 first. */
static ith_dtype number_type(const ith_linear_weight *weight)
{
    return ith_unpack_has(weight->type) ? ITH_F32 : weight->type;
}

int ith_linear_weight_parts(const ith_linear_size *size, const ith_linear_weight *weight)
{
    return ith_product_parts(size->kernel, number_type(weight), is_rounded(size, weight));
}

/* The address of a row. */
static const char *row_of(const ith_linear_size *size, const ith_linear_weight *weight, int64_t row)
{
    return (const char *)weight->data + row * ith_dtype_row_bytes(weight->type, size->in);
}

/* The number of the first quantisation block of a row that holds numbers of a block of k. For types without
 * quantisation blocks, the number of the first number. */
static int64_t first_run(const ith_linear_size *size, const ith_linear_weight *weight, int64_t block)
{
    return block * size->depth / ith_dtype_run(weight->type);
}

/* The address of the numbers of one row within a block of k, from the beginning of a quantisation block. The matrix
 * must have data. */
static const char *block_of_row(const ith_linear_size *size, const ith_linear_weight *weight, int64_t row,
                                int64_t block)
{
    return row_of(size, weight, row) + first_run(size, weight, block) * ith_dtype_bytes(weight->type);
}

/* The bytes of one row's numbers within a block of k, with whole quantisation blocks. */
static int64_t block_bytes(const ith_linear_size *size, const ith_linear_weight *weight, int64_t block)
{
    const int64_t end = block * size->depth + ith_linear_steps(size, block), run = ith_dtype_run(weight->type);
    return (ith_div_up(end, run) - first_run(size, weight, block)) * ith_dtype_bytes(weight->type);
}

/* The first of the steps that are converted at the moment, as a number of the row. */
static int64_t first_step(const conversion *c)
{
    return c->block * c->linear->size->depth + c->begin;
}

/* Converts the numbers of one row. */
static void convert_numbers(const conversion *c, const ith_linear_weight *weight, int64_t row, ith_product_left left)
{
    const ith_linear_size *size = c->linear->size;
    left.x = (const char *)weight->data + (row * size->in + first_step(c)) * ith_dtype_bytes(weight->type);
    size->kernel->pack_left(&left);
}

/* The number of the matrix in its layer. */
static int index_of(const ith_linear *linear, const ith_linear_weight *weight)
{
    return (int)(weight - linear->weights);
}

/* Whether additions are merged into a matrix. */
static bool has_merged(const ith_linear *linear, const ith_linear_weight *weight)
{
    for (int64_t i = 0; i < linear->merged_count; i++)
        if (linear->merged[i].matrix == index_of(linear, weight))
            return true;
    return false;
}

/* Reads numbers [first, first + count) of a row of `in` numbers as f32, from a matrix of the layer or of its additions.
 */
static void read_row(conversion *c, const ith_linear_weight *weight, int64_t in, int64_t row, int64_t first,
                     int64_t count, float *out)
{
    c->weight = weight;
    c->linear->size->unpack(weight->type, (const char *)weight->data + row * ith_dtype_row_bytes(weight->type, in),
                            first, count, out);
    for (int64_t i = 0; weight->scale && i < count; i++)
        out[i] *= weight->scale[row * weight->scale_stride];
}

/* Adds numbers [first, first + count) of a row of the dense additions to a matrix. */
static void add_dense(conversion *c, const ith_linear_weight *weight, int64_t row, int64_t first, int64_t count,
                      float *sums)
{
    float more[PIECE];
    for (int64_t i = 0; i < c->linear->merged_count; i++) {
        const ith_linear_addition *dense = &c->linear->merged[i];
        if (dense->matrix != index_of(c->linear, weight) || dense->down.rows)
            continue;
        read_row(c, &dense->up, c->linear->size->in, row, first, count, more);
        for (int64_t j = 0; j < count; j++)
            sums[j] += dense->factor * more[j];
    }
}

/* ---- Low-rank additions that are merged ------------------------------------------------------------------------- */

enum {
    GROUP = 64,          /* rows of `up` that are multiplied together */
    FEW = 4,             /* rows without low-rank additions that are converted together */
    RANKS = 64,          /* steps of one product */
    DEPTH = 256,         /* numbers of a row that are converted together */
    COLUMNS_MOST = 64,   /* the most columns of a right panel */
    INTERLEAVED_MOST = 8 /* the most rows that a kernel interleaves */
};

bool ith_linear_may_merge(const ith_linear_size *s, int64_t merges_most)
{
    const double most = (double)merges_most * ((double)s->in + (double)s->out);
    return s->parts_max == 1 && s->exact->columns <= COLUMNS_MOST && (double)s->in * (double)s->out <= most;
}

/* sums[i] += factor up[row + i] down, in the steps that are converted at the moment, for `rows` rows of a low-rank
 * addition. */
static void add_low(conversion *c, const ith_linear_addition *a, int64_t row, int64_t rows, float sums[GROUP][DEPTH])
{
    enum { STRIDE = DEPTH + COLUMNS_MOST };
    const ith_linear_size *size = c->linear->size;
    const ith_product_kernel *kernel = size->exact;
    const int64_t rank = a->down.rows;
    _Alignas(64) float up[GROUP][RANKS], down[RANKS][STRIDE], panel[RANKS * COLUMNS_MOST];
    for (int64_t first = 0; first < rank; first += RANKS) {
        const int64_t count = ith_min64(RANKS, rank - first);
        for (int64_t i = 0; i < rows; i++) {
            read_row(c, &a->up, rank, row + i, first, count, up[i]);
            for (int64_t k = 0; k < count; k++)
                up[i][k] *= a->factor;
        }
        for (int64_t k = 0; k < count; k++) {
            read_row(c, &a->down, size->in, first + k, first_step(c), c->steps, down[k]);
            memset(down[k] + c->steps, 0, COLUMNS_MOST * sizeof **down);
        }
        for (int64_t j = 0; j < c->steps; j += kernel->columns) {
            kernel->pack_turned(&(ith_product_turned){
                .x = down[0] + j, .stride = STRIDE, .steps = count, .count = count, .panel = panel});
            kernel->multiply(&(ith_product_call){.rows = rows,
                                                 .columns = ith_min64(kernel->columns, c->steps - j),
                                                 .steps = count,
                                                 .left = up,
                                                 .left_stride = sizeof *up,
                                                 .parts = 1,
                                                 .right = panel,
                                                 .out = sums[0] + j,
                                                 .out_stride = DEPTH,
                                                 .adds = true});
        }
    }
}

/* Sets sums[i] to the sum of the low-rank additions to row `row` + i of a matrix. */
static void sum_low(conversion *c, const ith_linear_weight *weight, int64_t row, int64_t rows, float sums[GROUP][DEPTH])
{
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int64_t i = 0; i < c->linear->merged_count; i++) {
        const ith_linear_addition *a = &c->linear->merged[i];
        if (a->matrix == index_of(c->linear, weight) && a->down.rows)
            add_low(c, a, row, rows, sums);
    }
}

/* ---- Conversion ------------------------------------------------------------------------------------------------- */

/* Converts one row of a matrix that is quantised or has merged additions: computes the sums of w and the additions as
 * f32 and converts them, one piece after the other. Sums with additions are rounded stochastically if they become bf16.
 * The weights of most files are bf16 numbers already, so that rounding to nearest would lose every addition below half
 * a unit of their last place. low: the sums of the row's low-rank additions; NULL: there are none. */
static void convert_pieces(conversion *c, const ith_linear_weight *weight, int64_t row, bool merged, const float *low,
                           ith_product_left left)
{
    const ith_linear_size *size = c->linear->size;
    const int64_t first = first_step(c);
    char *to = left.to;
    float numbers[PIECE];
    left.x = numbers, left.dtype = ITH_F32;
    for (int64_t k = 0; k < c->steps; k += PIECE) {
        left.count = ith_min64(PIECE, c->steps - k), left.to = to + k * size->element;
        read_row(c, weight, size->in, row, first + k, left.count, numbers);
        for (int64_t i = 0; low && i < left.count; i++)
            numbers[i] += low[k + i];
        add_dense(c, weight, row, first + k, left.count, numbers);
        if (merged && size->types.stored == ITH_BF16)
            size->rowops->round_stochastic(numbers, left.count, (uint32_t)row, (uint32_t)(first + k));
        size->kernel->pack_left(&left);
    }
}

/* Converts the numbers of one row. low: as in convert_pieces. Returns the number of parts that the row needs, of which
 * it writes part 0 to `to`. A row of a matrix without data has none. */
static int convert_row(conversion *c, const ith_linear_weight *weight, int64_t row, const float *low, void *to)
{
    const ith_linear_size *size = c->linear->size;
    const bool merged = has_merged(c->linear, weight);
    ith_product_left left = {.dtype = weight->type,
                             .rounds = merged ? size->types.stored == ITH_BF16 : is_rounded(size, weight),
                             .count = c->steps,
                             .to = to,
                             .part_bytes = c->part_bytes};
    if (merged || (weight->data && ith_unpack_has(weight->type)))
        convert_pieces(c, weight, row, merged, low, left);
    else if (weight->data)
        convert_numbers(c, weight, row, left);
    if (merged)
        return c->linear->parts;
    return weight->data ? ith_linear_weight_parts(size, weight) : 0;
}

/* Converts rows of a matrix, and writes them one below the other from `to` on. All rows of a layer have the same number
 * of parts. The parts that a row does not need become zeros. */
static void convert_plain(conversion *c, const ith_linear_weight *weight, int64_t row, int64_t rows,
                          float (*low)[DEPTH], char *to)
{
    const ith_linear_size *size = c->linear->size;
    for (int64_t i = 0; i < rows; i++, to += size->row_bytes) {
        int part = convert_row(c, weight, row + i, low ? low[i] : NULL, to + c->begin * size->element);
        for (; part < c->linear->parts; part++)
            memset(to + part * c->part_bytes, 0, (size_t)size->row_bytes);
    }
}

/* Writes the numbers of row number `place` among the `rows` interleaved rows of a tile. */
static void interleave_row(const float *x, int64_t steps, int64_t place, int64_t rows, float *tile)
{
    for (int64_t k = 0; k < steps; k++)
        tile[k * rows + place] = x[k];
}

/* Converts one row of a matrix to f32 numbers at `to`. A row of a matrix without data becomes zeros. */
static void convert_one(conversion *c, const ith_linear_weight *weight, int64_t row, const float *low, float *to)
{
    if (!convert_row(c, weight, row, low, to))
        memset(to, 0, (size_t)c->steps * sizeof *to);
}

/* Converts rows of a matrix, which are rows `at`, `at` + 1, ... of an interleaved left operand that begins at `to`. */
static void convert_interleaved(conversion *c, const ith_linear_weight *weight, int64_t row, int64_t rows,
                                float (*low)[DEPTH], int64_t at, char *to)
{
    const ith_linear_size *size = c->linear->size;
    const int64_t tile_rows = size->kernel->rows, interleaved = size->kernel->interleaved_rows;
    float numbers[INTERLEAVED_MOST][DEPTH];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t place = (at + i) % tile_rows, first = i - place;
        float *plain = (float *)(void *)(to + (at + i) * size->row_bytes) + c->begin;
        float *tile = (float *)(void *)(to + (at + first) * size->row_bytes) + c->begin * interleaved;
        const bool is_plain = place >= interleaved;
        convert_one(c, weight, row + i, low ? low[i] : NULL, is_plain ? plain : numbers[place]);
        if (!is_plain && (first < 0 || first + interleaved > rows)) /* other calls convert other rows of the tile */
            interleave_row(numbers[place], c->steps, place, interleaved, tile);
        else if (place == interleaved - 1)
            size->kernel->interleave(numbers[0], DEPTH, c->steps, tile);
    }
}

/* Converts up to GROUP rows of a matrix, which are rows `at`, `at` + 1, ... of the left operand at `to`: all their
 * numbers within the block, or DEPTH of them at a time if low-rank additions are merged or rows are interleaved. */
static void convert_group(conversion *c, const ith_linear_weight *weight, int64_t row, int64_t rows, int64_t at,
                          char *to)
{
    _Alignas(64) float sums[GROUP][DEPTH];
    const ith_linear *linear = c->linear;
    const int64_t steps = ith_linear_steps(linear->size, c->block);
    for (c->begin = 0; c->begin < steps; c->begin += c->steps) {
        c->steps = linear->merges || linear->interleaved ? ith_min64(DEPTH, steps - c->begin) : steps;
        if (linear->merges)
            sum_low(c, weight, row, rows, sums);
        c->weight = weight;
        if (linear->interleaved)
            convert_interleaved(c, weight, row, rows, linear->merges ? sums : NULL, at, to);
        else
            convert_plain(c, weight, row, rows, linear->merges ? sums : NULL, to + at * linear->size->row_bytes);
    }
}

/* Sets the last tile of an interleaved operand to zeros if the rows do not fill it. */
static void clear_last_tile(const conversion *c, char *to)
{
    const int64_t rest = c->count % c->linear->size->kernel->rows, row_bytes = c->linear->size->row_bytes;
    if (c->linear->interleaved && rest)
        memset(to + (c->count - rest) * row_bytes, 0, (size_t)(c->linear->size->kernel->rows * row_bytes));
}

/* The number of rows that are converted together: whole tiles if rows are interleaved. */
static int64_t group_of(const ith_linear *linear)
{
    const int64_t tile_rows = linear->size->kernel->rows;
    if (!linear->interleaved)
        return linear->merges ? GROUP : FEW;
    return linear->merges ? GROUP / tile_rows * tile_rows : tile_rows;
}

/* Converts all blocks of a few rows, and then of the next rows. So weights are read in the order of their file, which
 * suits the caches. Rows with low-rank additions are converted in full groups, which share the work for the additions.
 */
static void convert(void *user)
{
    conversion *c = user;
    const int64_t group = group_of(c->linear);
    for (int64_t b = 0; b < c->blocks; b++)
        clear_last_tile(c, c->to + b * c->block_bytes);
    for (int64_t i = 0, rows; i < c->count; i += rows) {
        int64_t row = c->first + i;
        const ith_linear_weight *weight = weight_of(c->linear, &row);
        rows = ith_min64(ith_min64(group - i % group, c->count - i), weight->rows - row);
        for (int64_t b = 0; b < c->blocks; b++) {
            c->block = c->first_block + b;
            convert_group(c, weight, row, rows, i, c->to + b * c->block_bytes);
        }
    }
}

/* Returns NULL, or the name of the file that was cut while it was read. */
static const char *convert_guarded(conversion *c)
{
    if (ith_file_fault_guard(convert, c))
        return NULL;
    return c->weight->file ? c->weight->file : "a mapped file";
}

const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes)
{
    return convert_guarded(&(conversion){.linear = linear,
                                         .first = first,
                                         .count = count,
                                         .first_block = block,
                                         .blocks = 1,
                                         .to = to,
                                         .part_bytes = part_bytes});
}

const char *ith_linear_convert_all(const ith_linear *linear, int64_t first, int64_t count, char *to,
                                   int64_t block_bytes, int64_t part_bytes)
{
    return convert_guarded(&(conversion){.linear = linear,
                                         .first = first,
                                         .count = count,
                                         .blocks = linear->size->blocks,
                                         .to = to,
                                         .block_bytes = block_bytes,
                                         .part_bytes = part_bytes});
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* The arguments of ith_linear_read, and its position. */
typedef struct reading {
    conversion c;
    ith_dtype type;
    ith_linear_addition separate; /* the separate addition that is read at the moment */
} reading;

/* Whether additions change a matrix. */
static bool has_additions(const ith_linear *linear, const ith_linear_weight *weight)
{
    for (int64_t i = 0; i < linear->added_count; i++)
        if (linear->added[i].matrix == index_of(linear, weight))
            return true;
    return has_merged(linear, weight);
}

/* Adds to sums[i] the separate additions to row `row` + i of a matrix. */
static void add_separate(reading *r, const ith_linear_weight *weight, int64_t row, int64_t rows,
                         float sums[GROUP][DEPTH])
{
    const ith_linear *linear = r->c.linear;
    for (int64_t i = 0; i < linear->added_count; i++) {
        const ith_linear_added *added = &linear->added[i];
        int64_t at = added->at;
        if (added->matrix != index_of(linear, weight))
            continue;
        r->separate = (ith_linear_addition){.matrix = added->matrix,
                                            .down = *weight_of(linear->down, &at),
                                            .up = added->up->weights[0],
                                            .factor = linear->factors[added->at]};
        add_low(&r->c, &r->separate, row, rows, sums);
    }
}

/* Writes numbers [begin, begin + steps) of one row. low: the sums of the row's low-rank additions; NULL: none. */
static void read_pieces(reading *r, const ith_linear_weight *weight, int64_t row, const float *low, char *to)
{
    const ith_linear_size *size = r->c.linear->size;
    const bool rounds = has_additions(r->c.linear, weight) && r->type == ITH_BF16;
    float numbers[PIECE];
    for (int64_t k = 0; k < r->c.steps; k += PIECE) {
        const int64_t first = r->c.begin + k, count = ith_min64(PIECE, r->c.steps - k);
        read_row(&r->c, weight, size->in, row, first, count, numbers);
        for (int64_t i = 0; low && i < count; i++)
            numbers[i] += low[k + i];
        add_dense(&r->c, weight, row, first, count, numbers);
        if (rounds)
            size->rowops->round_stochastic(numbers, count, (uint32_t)row, (uint32_t)first);
        if (r->type == ITH_BF16)
            size->rowops->bf16_from_f32((uint16_t *)(void *)(to + first * 2), numbers, count);
        else
            memcpy(to + first * 4, numbers, (size_t)count * sizeof *numbers);
    }
}

/* Writes up to GROUP rows of a matrix. */
static void read_group(reading *r, const ith_linear_weight *weight, int64_t row, int64_t rows, char *to)
{
    _Alignas(64) float sums[GROUP][DEPTH];
    const ith_linear *linear = r->c.linear;
    const int64_t in = linear->size->in, row_bytes = in * ith_dtype_bytes(r->type);
    const bool low = linear->merges || linear->added_count;
    r->c.weight = weight;
    if (!weight->data) {
        memset(to, 0, (size_t)(rows * row_bytes));
    } else if (weight->type == r->type && !has_additions(linear, weight)) {
        memcpy(to, row_of(linear->size, weight, row), (size_t)(rows * row_bytes));
    } else {
        for (r->c.begin = 0; r->c.begin < in; r->c.begin += r->c.steps) {
            r->c.steps = low ? ith_min64(DEPTH, in - r->c.begin) : in;
            if (low) {
                sum_low(&r->c, weight, row, rows, sums);
                add_separate(r, weight, row, rows, sums);
            }
            for (int64_t i = 0; i < rows; i++)
                read_pieces(r, weight, row + i, low ? sums[i] : NULL, to + i * row_bytes);
        }
    }
}

static void read_rows(void *user)
{
    reading *r = user;
    const int64_t row_bytes = r->c.linear->size->in * ith_dtype_bytes(r->type);
    for (int64_t i = 0, rows; i < r->c.count; i += rows) {
        int64_t row = r->c.first + i;
        const ith_linear_weight *weight = weight_of(r->c.linear, &row);
        rows = ith_min64(ith_min64(GROUP, r->c.count - i), weight->rows - row);
        read_group(r, weight, row, rows, r->c.to + i * row_bytes);
    }
}

const char *ith_linear_read(const ith_linear *linear, ith_dtype type, int64_t first, int64_t count, void *to)
{
    reading r = {.c = {.linear = linear, .first = first, .count = count, .to = to}, .type = type};
    if (ith_file_fault_guard(read_rows, &r))
        return NULL;
    return r.c.weight && r.c.weight->file ? r.c.weight->file : "a mapped file";
}

const float *ith_linear_bias(const ith_linear *linear)
{
    return linear->bias;
}

void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call)
{
    int64_t row = first;
    const ith_linear_weight *weight = weight_of(linear, &row);
    if (!weight->data)
        return;
    call->next_left = block_of_row(linear->size, weight, row, block);
    call->next_left_bytes = block_bytes(linear->size, weight, block);
    call->next_left_rows = ith_min64(count, weight->rows - row);
    call->next_left_stride = ith_dtype_row_bytes(weight->type, linear->size->in);
}
