/* SPDX-License-Identifier: Apache-2.0 */
/* Converts weights into left operands of a product kernel, a block of k at a time. Weights may lie in a mapped file
 * that another process cuts meanwhile. So they are read inside a guard (file_fault.h). */
#include "../base/file_fault.h"
#include "../base/size.h"
#include "linear_set.h"

#include <string.h>

/* The arguments of ith_linear_convert, and the matrix from which it reads at the moment. */
typedef struct conversion {
    const ith_linear *linear;
    int64_t first, count, block;
    char *to;
    int64_t part_bytes;
    const ith_linear_weight *volatile weight;
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

/* Whether weights of this type are rounded to bf16 when they are converted. */
static bool is_rounded(const ith_linear_size *size, ith_dtype type)
{
    return size->types.stored == ITH_BF16 && type != ITH_BF16;
}

/* The address of the numbers of one row within a block of k. */
static const char *block_of_row(const ith_linear_size *size, const ith_linear_weight *weight, int64_t row,
                                int64_t block)
{
    return (const char *)weight->data + (row * size->in + block * size->depth) * ith_dtype_bytes(weight->type);
}

/* Converts one row within a block of k. All rows of a layer get the same number of parts: the parts that this row does
 * not need become zeros. */
static void convert_row(const conversion *c, const ith_linear_weight *weight, int64_t row, char *to)
{
    const ith_linear_size *size = c->linear->size;
    const ith_product_left left = {.x = block_of_row(size, weight, row, c->block),
                                   .dtype = weight->type,
                                   .rounds = is_rounded(size, weight->type),
                                   .count = ith_linear_steps(size, c->block),
                                   .to = to,
                                   .part_bytes = c->part_bytes};
    size->kernel->pack_left(&left);
    for (int part = ith_product_parts(size->kernel, weight->type, left.rounds); part < c->linear->parts; part++)
        memset(to + part * c->part_bytes, 0, (size_t)size->row_bytes);
}

static void convert(void *user)
{
    conversion *c = user;
    for (int64_t i = 0; i < c->count; i++) {
        int64_t row = c->first + i;
        c->weight = weight_of(c->linear, &row);
        convert_row(c, c->weight, row, c->to + i * c->linear->size->row_bytes);
    }
}

const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes)
{
    conversion c = {linear, first, count, block, to, part_bytes, NULL};
    if (ith_file_fault_guard(convert, &c))
        return NULL;
    return c.weight->file ? c.weight->file : "a mapped file";
}

void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call)
{
    int64_t row = first;
    const ith_linear_weight *weight = weight_of(linear, &row);
    call->next_left = block_of_row(linear->size, weight, row, block);
    call->next_left_rows = ith_min64(count, weight->rows - row);
    call->next_left_bytes = ith_linear_steps(linear->size, block) * ith_dtype_bytes(weight->type);
    call->next_left_stride = linear->size->in * ith_dtype_bytes(weight->type);
}
