/* SPDX-License-Identifier: Apache-2.0 */
/* Checks problems and tensors, fills in the defaults of problems, and computes addresses of rows (setting.h). */
#include "setting.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../base/sized.h"

#include <math.h>

static const char *const tensor_names[] = {"q", "k", "v", "o"};

static int64_t *row_stride(ith_attn_problem *p, int which)
{
    int64_t *const strides[] = {&p->q_row_stride, &p->k_row_stride, &p->v_row_stride, &p->o_row_stride};
    return strides[which];
}

static int64_t *batch_stride(ith_attn_problem *p, int which)
{
    int64_t *const strides[] = {&p->q_batch_stride, &p->k_batch_stride, &p->v_batch_stride, &p->o_batch_stride};
    return strides[which];
}

static int64_t heads_of(const ith_attn_setting *s, int which)
{
    return ith_tensor_is_kv((ith_attn_tensor)which) ? s->problem.kv_heads : s->problem.heads;
}

static int64_t rows_of(const ith_attn_setting *s, int which)
{
    return ith_tensor_is_kv((ith_attn_tensor)which) ? s->kv_rows : s->q_rows;
}

void ith_stretch(int64_t length, int ranks, int first, int count, int64_t *begin, int64_t *rows)
{
    int64_t last_begin, last_rows;
    ith_share(length, ranks, first, begin, rows);
    ith_share(length, ranks, first + count - 1, &last_begin, &last_rows);
    *rows = last_begin + last_rows - *begin;
}

ith_rows ith_rows_of(const ith_attn_setting *setting, ith_attn_tensor which, const ith_attn_tensors *tensors)
{
    const void *const data[] = {tensors->q, tensors->k, tensors->v, tensors->o};
    ith_attn_problem problem = setting->problem;
    int index = (int)which;
    return (ith_rows){.data = (void *)data[index],
                      .heads = heads_of(setting, index),
                      .row_stride = *row_stride(&problem, index),
                      .batch_stride = *batch_stride(&problem, index)};
}

ith_rows ith_rows_in_buffer(const ith_attn_setting *setting, void *data, int64_t first, int64_t count)
{
    return (ith_rows){
        .data = data, .first = first, .heads = ith_max64(count, 1), .row_stride = count * setting->problem.head_dim};
}

ith_heads ith_heads_of(const ith_attn_problem *problem, int64_t first, int64_t count)
{
    int64_t per_key = problem->heads / problem->kv_heads, kv_first = first / per_key;
    int64_t kv_heads = count ? (first + count - 1) / per_key + 1 - kv_first : 0;
    return (ith_heads){first, count, kv_first, kv_heads};
}

/* ---- The problem ----------------------------------------------------------------------------------------------- */

static ith_status check_sizes(ith_context *context, const ith_attn_problem *p)
{
    const struct {
        const char *name;
        int64_t value, least;
    } sizes[] = {{"batch", p->batch, 1},       {"heads", p->heads, 1}, {"kv_heads", p->kv_heads, 1},
                 {"head_dim", p->head_dim, 1}, {"q_len", p->q_len, 0}, {"kv_len", p->kv_len, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < sizes[i].least)
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld, and must be at least %lld", sizes[i].name,
                            (long long)sizes[i].value, (long long)sizes[i].least);
    if (p->heads % p->kv_heads)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "kv_heads is %lld, and must be a divisor of heads, which is %lld; the nearest is %lld",
                        (long long)p->kv_heads, (long long)p->heads,
                        (long long)ith_nearest_divisor(p->heads, 1, p->kv_heads));
    if (!ith_dtype_is_operand(p->dtype))
        return ith_fail(context, ITH_ERR_ARGUMENT, "dtype is %s, and must be f32, bf16 or f16",
                        ith_dtype_name(p->dtype));
    if (!isfinite(p->scale))
        return ith_fail(context, ITH_ERR_ARGUMENT, "scale is %g, and must be finite", (double)p->scale);
    /* The product of the sizes may reach 1/64 of INT64_MAX, so small multiples of it cannot overflow. */
    int64_t product = 64;
    const int64_t factors[] = {p->batch, p->heads, p->head_dim, ith_max64(ith_max64(p->q_len, p->kv_len), 1)};
    for (int i = 0; i < 4; i++)
        if (!ith_size_mul(product, factors[i], &product))
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "batch, heads, head_dim and q_len or kv_len multiply to more than a size can hold");
    return ITH_OK;
}

static ith_status check_mask(ith_context *context, const ith_attn_problem *p)
{
    if (p->mask < ITH_MASK_NONE || p->mask > ITH_MASK_ADDITIVE)
        return ith_fail(context, ITH_ERR_ARGUMENT, "mask is %d, which is none of ith_mask", (int)p->mask);
    const struct {
        const char *name, *whole_name;
        int64_t value, whole;
    } rows[] = {{"mask_batch", "batch", p->mask_batch, p->batch}, {"mask_heads", "heads", p->mask_heads, p->heads}};
    for (int i = 0; i < 2; i++)
        if (rows[i].value != 1 && rows[i].value != rows[i].whole)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "%s is %lld, and must be 1 or %s, which is %lld; the nearest is %lld", rows[i].name,
                            (long long)rows[i].value, rows[i].whole_name, (long long)rows[i].whole,
                            (long long)(rows[i].value <= rows[i].whole / 2 ? 1 : rows[i].whole));
    int64_t bytes = 0;
    if (p->mask && (!ith_size_mul(p->mask_batch * p->mask_heads, p->q_len, &bytes) ||
                    !ith_size_mul(bytes, p->kv_len, &bytes) || !ith_size_mul(bytes, sizeof(float), &bytes)))
        return ith_fail(context, ITH_ERR_ARGUMENT, "mask has more elements than a size can hold");
    return ITH_OK;
}

/* Fills in the strides of one tensor and checks that its rows do not overlap. Its layout may be [batch, rows, width] or
 * [rows, batch, width]. */
static ith_status resolve_strides(ith_attn_setting *s, int which)
{
    int64_t *row = row_stride(&s->problem, which), *entry = batch_stride(&s->problem, which);
    int64_t width = heads_of(s, which) * s->problem.head_dim, rows = rows_of(s, which), batch = s->problem.batch;
    const char *name = tensor_names[which];
    if (*row == 0)
        *row = width;
    if (*row < width)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "%s_row_stride is %lld, and must be 0 or at least the %lld elements of a row", name,
                        (long long)*row, (long long)width);
    if (*entry < 0)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s_batch_stride is %lld, and must not be negative", name,
                        (long long)*entry);
    int64_t rows_span = 0, batch_span = 0, span = 0;
    bool fits = ith_size_mul(rows, *row, &rows_span);
    if (fits && *entry == 0)
        *entry = rows_span;
    fits = fits && ith_size_mul(batch, *entry, &batch_span) && ith_size_add(rows_span, batch_span, &span) &&
           ith_size_mul(span, s->element_bytes, &span);
    if (!fits)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "%s_row_stride and %s_batch_stride span more memory than a size can hold", name, name);
    if (rows == 0 || batch == 1)
        return ITH_OK;
    bool rows_inside = *entry >= rows_span - *row + width;
    bool batch_inside = *entry >= width && *row >= batch_span - *entry + width;
    if (!rows_inside && !batch_inside)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "%s_batch_stride is %lld, so that batch entries overlap; contiguous ones are %lld apart", name,
                        (long long)*entry, (long long)rows_span);
    return ITH_OK;
}

ith_status ith_attn_setting_init(ith_context *context, const ith_attn_problem *problem, int ranks, int rank,
                                 ith_attn_setting *out)
{
    *out = (ith_attn_setting){
        .context = context, .problem = ITH_ATTN_PROBLEM_INIT, .device = ith_context_device_use(context)};
    ith_status status = ITH_SIZED_READ(context, ith_attn_problem, ITH_ATTN_PROBLEM_INIT, problem, &out->problem);
    if (status)
        return status;
    ith_attn_problem *p = &out->problem;
    p->kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    p->mask_batch = p->mask_batch ? p->mask_batch : 1;
    p->mask_heads = p->mask_heads ? p->mask_heads : 1;
    status = check_sizes(context, p);
    if (!status)
        status = check_mask(context, p);
    if (status)
        return status;
    if (p->scale == 0)
        p->scale = 1.0f / sqrtf((float)p->head_dim);
    out->element_bytes = ith_dtype_bytes(p->dtype);
    int64_t begin;
    ith_share(p->q_len, ranks, rank, &begin, &out->q_rows);
    ith_share(p->kv_len, ranks, rank, &begin, &out->kv_rows);
    if (p->replicated_kv)
        out->kv_rows = p->kv_len;
    for (int which = ITH_TENSOR_Q; !status && which <= ITH_TENSOR_O; which++)
        status = resolve_strides(out, which);
    return status;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* The memory of one tensor, for the check that tensors do not overlap. */
typedef struct extent {
    const char *name;
    uintptr_t begin, bytes;
    /* Rows of `width` bytes begin at multiples of row_stride bytes from `begin`. row_stride 0: rows have no common
     * distance. */
    uintptr_t row_stride, width;
} extent;

static extent tensor_extent(const ith_attn_setting *s, int which, const ith_attn_tensors *tensors)
{
    ith_rows rows = ith_rows_of(s, (ith_attn_tensor)which, tensors);
    int64_t elements = 0;
    if (rows_of(s, which) > 0)
        elements = (s->problem.batch - 1) * rows.batch_stride + (rows_of(s, which) - 1) * rows.row_stride +
                   rows.heads * s->problem.head_dim;
    bool grid = s->problem.batch == 1 || rows.batch_stride % rows.row_stride == 0;
    return (extent){.name = tensor_names[which],
                    .begin = (uintptr_t)rows.data,
                    .bytes = (uintptr_t)(elements * s->element_bytes),
                    .row_stride = grid ? (uintptr_t)(rows.row_stride * s->element_bytes) : 0,
                    .width = (uintptr_t)(rows.heads * s->problem.head_dim * s->element_bytes)};
}

static ith_status check_extent(const ith_attn_setting *s, const extent *e, int64_t alignment)
{
    if (e->bytes && !e->begin)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s is NULL", e->name);
    if (e->begin % (uintptr_t)alignment)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s is not aligned to its elements of %lld bytes", e->name,
                        (long long)alignment);
    return ITH_OK;
}

/* Whether two tensors are separate columns of one wider buffer, as q, k and v often are. */
static bool interleave(const extent *a, const extent *b)
{
    if (!a->row_stride || a->row_stride != b->row_stride)
        return false;
    uintptr_t stride = a->row_stride;
    /* bytes from the first column of a to the first column of b */
    uintptr_t distance = (b->begin % stride + stride - a->begin % stride) % stride;
    return distance >= a->width && distance + b->width <= stride;
}

/* Whether two tensors share memory: their ranges of addresses intersect, and they are not separate columns of a
 * buffer. */
static bool overlap(const extent *a, const extent *b)
{
    return a->bytes && b->bytes && a->begin < b->begin + b->bytes && b->begin < a->begin + a->bytes &&
           !interleave(a, b);
}

/* Whether o is q itself: the same memory with the same strides. This is safe because the computation of a block of o
 * reads its rows of q before it writes them. */
static bool o_is_q(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    ith_rows q = ith_rows_of(s, ITH_TENSOR_Q, tensors), o = ith_rows_of(s, ITH_TENSOR_O, tensors);
    return q.data == o.data && q.row_stride == o.row_stride && q.batch_stride == o.batch_stride;
}

/* Refuses kv_lengths, key_bias or mask if the problem does not say that it has them. */
static ith_status check_announced(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->problem;
    const struct {
        const char *name, *field;
        bool announced, given;
    } extras[] = {{"kv_lengths", "has_kv_lengths = false", p->has_kv_lengths, tensors->kv_lengths != NULL},
                  {"key_bias", "has_key_bias = false", p->has_key_bias, tensors->key_bias != NULL},
                  {"mask", "no mask", p->mask != ITH_MASK_NONE, tensors->mask != NULL}};
    for (int i = 0; i < 3; i++)
        if (extras[i].given && !extras[i].announced)
            return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s is given, but the problem has %s", extras[i].name,
                            extras[i].field);
    return ITH_OK;
}

static ith_status check_lengths(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->problem;
    for (int64_t b = 0; p->has_kv_lengths && b < p->batch; b++)
        if (tensors->kv_lengths[b] < 0 || tensors->kv_lengths[b] > p->kv_len)
            return ith_fail(s->context, ITH_ERR_ARGUMENT, "kv_lengths[%lld] is %d, and must be from 0 to kv_len, %lld",
                            (long long)b, (int)tensors->kv_lengths[b], (long long)p->kv_len);
    return ITH_OK;
}

/* Indices of the tensors that an execution reads or writes. q, k, v and o come first, as in ith_attn_tensor. */
enum { EXTENT_LSE = ITH_TENSOR_LSE, EXTENT_BIAS, EXTENT_MASK, EXTENT_LENGTHS, EXTENTS };

static void list_extents(const ith_attn_setting *s, const ith_attn_tensors *tensors, extent all[EXTENTS])
{
    const ith_attn_problem *p = &s->problem;
    int64_t size = sizeof(float);
    int64_t mask_elements = p->mask_batch * p->mask_heads * p->q_len * p->kv_len;
    for (int which = ITH_TENSOR_Q; which <= ITH_TENSOR_O; which++)
        all[which] = tensor_extent(s, which, tensors);
    int64_t bytes[EXTENTS] = {
        [EXTENT_LSE] = tensors->lse ? p->batch * p->heads * s->q_rows * size : 0,
        [EXTENT_BIAS] = p->has_key_bias ? p->batch * p->kv_len * size : 0,
        [EXTENT_MASK] = p->mask == ITH_MASK_NONE ? 0 : mask_elements * (p->mask == ITH_MASK_BOOL ? 1 : size),
        [EXTENT_LENGTHS] = p->has_kv_lengths ? p->batch * (int64_t)sizeof(int32_t) : 0,
    };
    all[EXTENT_LSE] = (extent){"lse", (uintptr_t)tensors->lse, (uintptr_t)bytes[EXTENT_LSE], 0, 0};
    all[EXTENT_BIAS] = (extent){"key_bias", (uintptr_t)tensors->key_bias, (uintptr_t)bytes[EXTENT_BIAS], 0, 0};
    all[EXTENT_MASK] = (extent){"mask", (uintptr_t)tensors->mask, (uintptr_t)bytes[EXTENT_MASK], 0, 0};
    all[EXTENT_LENGTHS] =
        (extent){"kv_lengths", (uintptr_t)tensors->kv_lengths, (uintptr_t)bytes[EXTENT_LENGTHS], 0, 0};
}

ith_status ith_attn_tensors_check(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    ith_status status = check_announced(s, tensors);
    extent all[EXTENTS];
    if (!status)
        list_extents(s, tensors, all);
    for (int i = 0; !status && i < EXTENTS; i++) {
        int64_t alignment = i <= ITH_TENSOR_O ? s->element_bytes : (int64_t)sizeof(float);
        if (i == EXTENT_MASK && s->problem.mask == ITH_MASK_BOOL)
            alignment = 1;
        status = check_extent(s, &all[i], alignment);
    }
    if (!status)
        status = check_lengths(s, tensors);
    if (!status && o_is_q(s, tensors))
        all[ITH_TENSOR_Q].bytes = 0;
    for (int written = ITH_TENSOR_O; !status && written <= EXTENT_LSE; written++)
        for (int i = 0; i < EXTENTS; i++)
            if (i != written && overlap(&all[written], &all[i]))
                return ith_fail(s->context, ITH_ERR_ARGUMENT,
                                "%s overlaps %s in memory; both may lie in one buffer only with equal row strides, "
                                "batch strides that are multiples of them, and columns of their own",
                                all[written].name, all[i].name);
    return status;
}

int64_t ith_travel_bytes(const ith_attn_setting *s, ith_attn_tensor tensor)
{
    const int64_t dim = s->problem.head_dim;
    if (s->compress == ITH_COMPRESS_8BIT && tensor == ITH_TENSOR_V)
        return ith_round_up((int64_t)sizeof(float) + dim, 4);
    if (s->compress != ITH_COMPRESS_OFF && s->problem.dtype == ITH_F32)
        return ith_round_up(2 * dim, 4);
    return dim * s->element_bytes;
}

int64_t ith_sent_row_bytes(const ith_attn_setting *s, ith_attn_tensor tensor, bool axis)
{
    if (axis && s->exchange == ITH_EXCHANGE_MIXED)
        return s->problem.head_dim * s->element_bytes;
    return ith_travel_bytes(s, tensor);
}
