/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the rows of an execution's tensors, and whether the rows of two tensors share a byte (extents.h). */
#include "extents.h"

#include "../base/size.h"

static const char *const names[ITH_EXTENTS] = {"q", "k", "v", "o", "lse", "key_bias", "mask", "kv_lengths"};

const char *ith_extent_name(int tensor)
{
    return names[tensor];
}

/* ---- The memory of tensors ------------------------------------------------------------------------------------- */

/* The extent of q, k, v or o. A single batch entry needs no batch stride; the row stride takes its place. */
static ith_extent extent_of_rows(const ith_attn_setting *s, ith_attn_tensor which, const ith_attn_tensors *tensors)
{
    const ith_rows rows = ith_rows_of(s, which, tensors);
    const uintptr_t bytes = (uintptr_t)s->element_bytes;
    return (ith_extent){.begin = (uintptr_t)rows.data,
                        .width = (uintptr_t)(rows.heads * s->problem.head_dim) * bytes,
                        .batches = (uintptr_t)s->problem.batch,
                        .rows = (uintptr_t)(ith_tensor_is_kv(which) ? s->kv_rows : s->q_rows),
                        .batch_stride = (uintptr_t)(s->problem.batch > 1 ? rows.batch_stride : rows.row_stride) * bytes,
                        .row_stride = (uintptr_t)rows.row_stride * bytes};
}

/* The extent of `bytes` contiguous bytes. */
static ith_extent extent_of_bytes(const void *data, int64_t bytes)
{
    const uintptr_t width = (uintptr_t)bytes;
    return (ith_extent){(uintptr_t)data, width, 1, bytes > 0, width, width};
}

ith_extents ith_extents_of(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->problem;
    const int64_t size = sizeof(float);
    const int64_t mask_elements = p->mask_batch * p->mask_heads * p->q_len * p->kv_len;
    ith_extents all;
    for (int which = ITH_TENSOR_Q; which <= ITH_TENSOR_O; which++)
        all.of[which] = extent_of_rows(s, (ith_attn_tensor)which, tensors);
    all.of[ITH_TENSOR_LSE] = extent_of_bytes(tensors->lse, tensors->lse ? p->batch * p->heads * s->q_rows * size : 0);
    all.of[ITH_EXTENT_BIAS] = extent_of_bytes(tensors->key_bias, p->has_key_bias ? p->batch * p->kv_len * size : 0);
    all.of[ITH_EXTENT_MASK] = extent_of_bytes(
        tensors->mask, p->mask == ITH_MASK_NONE ? 0 : mask_elements * (p->mask == ITH_MASK_BOOL ? 1 : size));
    all.of[ITH_EXTENT_LENGTHS] =
        extent_of_bytes(tensors->kv_lengths, p->has_kv_lengths ? p->batch * (int64_t)sizeof(int32_t) : 0);
    return all;
}

/* ---- Overlap --------------------------------------------------------------------------------------------------- */

/* The end of a tensor's memory; its beginning if the tensor is empty. */
static uintptr_t end_of(const ith_extent *e)
{
    if (e->batches == 0 || e->rows == 0)
        return e->begin;
    return e->begin + (e->batches - 1) * e->batch_stride + (e->rows - 1) * e->row_stride + e->width;
}

/* Whether each row begins a multiple of row_stride behind the first row, in all batch entries. */
static bool has_one_distance(const ith_extent *e)
{
    return e->batches <= 1 || (e->row_stride && e->batch_stride % e->row_stride == 0);
}

/* Whether two tensors are separate columns of one wider buffer, as q, k and v often are. */
static bool are_columns(const ith_extent *a, const ith_extent *b)
{
    const uintptr_t stride = a->row_stride;
    if (stride != b->row_stride || !stride || !has_one_distance(a) || !has_one_distance(b))
        return false;
    /* bytes from the first column of a to the first column of b */
    const uintptr_t distance = (b->begin % stride + stride - a->begin % stride) % stride;
    return distance >= a->width && distance + b->width <= stride;
}

/* The rows of a tensor as `outer` groups of `inner` rows. Groups begin outer_stride bytes apart, and the rows of a
 * group inner_stride bytes apart. The larger of a tensor's two strides is outer_stride. */
typedef struct grid {
    int64_t outer, inner, outer_stride, inner_stride;
} grid;

static grid grid_of(const ith_extent *e)
{
    const grid by_batch = {(int64_t)e->batches, (int64_t)e->rows, (int64_t)e->batch_stride, (int64_t)e->row_stride};
    const grid by_row = {by_batch.inner, by_batch.outer, by_batch.inner_stride, by_batch.outer_stride};
    if (e->row_stride == e->batch_stride)
        return e->rows > 1 ? by_row : by_batch; /* one batch entry, or one row of each */
    return e->row_stride > e->batch_stride ? by_row : by_batch;
}

/* Whether each group of rows ends before the next group begins. */
static bool is_nested(const grid *g, int64_t width)
{
    return g->inner_stride > 0 && g->outer_stride >= (g->inner - 1) * g->inner_stride + width;
}

/* Rounds a / b down, for b > 0. */
static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Whether rows of two nested grids with the same strides share a byte. Row (j, l) of b begins at
 *     distance + (j - i) outer_stride + (l - k) inner_stride
 * bytes behind row (i, k) of a. Only the few values of n = j - i and m = l - k that bring the rows near one another are
 * tried. */
static bool grids_meet(const grid *a, int64_t a_width, const grid *b, int64_t b_width, int64_t distance)
{
    const int64_t outer = divide_down(-distance, a->outer_stride);
    for (int64_t n = ith_max64(outer - 1, 1 - a->outer); n <= ith_min64(outer + 2, b->outer - 1); n++) {
        const int64_t from = distance + n * a->outer_stride, inner = divide_down(-from, a->inner_stride);
        for (int64_t m = ith_max64(inner - 1, 1 - a->inner); m <= ith_min64(inner + 2, b->inner - 1); m++) {
            const int64_t begin = from + m * a->inner_stride;
            if (begin < a_width && begin + b_width > 0)
                return true;
        }
    }
    return false;
}

/* Whether two tensors have the same strides and share no byte. */
static bool are_separate_rows(const ith_extent *a, const ith_extent *b)
{
    const grid of_a = grid_of(a), of_b = grid_of(b);
    if (a->row_stride != b->row_stride || a->batch_stride != b->batch_stride || !is_nested(&of_a, (int64_t)a->width) ||
        !is_nested(&of_b, (int64_t)b->width))
        return false;
    return !grids_meet(&of_a, (int64_t)a->width, &of_b, (int64_t)b->width, (int64_t)(b->begin - a->begin));
}

bool ith_extents_overlap(const ith_extent *a, const ith_extent *b)
{
    const uintptr_t a_end = end_of(a), b_end = end_of(b);
    if (a->begin == a_end || b->begin == b_end || a->begin >= b_end || b->begin >= a_end)
        return false;
    return !are_columns(a, b) && !are_separate_rows(a, b);
}
