/* SPDX-License-Identifier: Apache-2.0 */
/* Checks problems, fills in their defaults, and computes addresses of rows (setting.h). */
#include "setting.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../base/sized.h"

#include <math.h>

/* the largest magnitude of a scale: log2(e) times it, with which kernels multiply, is finite */
static const float MOST_SCALE = 2.35e38f;

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
        return ith_fail(context, ITH_ERR_ARGUMENT, "dtype is %d (%s), and must be f32, bf16 or f16", (int)p->dtype,
                        ith_dtype_name(p->dtype));
    if (!(fabsf(p->scale) <= MOST_SCALE))
        return ith_fail(context, ITH_ERR_ARGUMENT, "scale is %g, and must be from %g to %g", (double)p->scale,
                        (double)-MOST_SCALE, (double)MOST_SCALE);
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

/* ---- Messages ------------------------------------------------------------------------------------------------- */

int64_t ith_travel_bytes(const ith_attn_setting *s, ith_attn_tensor tensor)
{
    const int64_t dim = s->problem.head_dim;
    if (s->compress == ITH_COMPRESS_8BIT && tensor == ITH_TENSOR_V)
        return ith_round_up((int64_t)sizeof(float) + dim, 4);
    if (s->compress != ITH_COMPRESS_OFF && s->problem.dtype == ITH_F32)
        return ith_round_up(2 * dim, 4);
    return dim * s->element_bytes;
}

int64_t ith_sent_row_bytes(const ith_attn_setting *s, ith_attn_tensor tensor, bool on_ulysses)
{
    if (on_ulysses && s->exchange == ITH_EXCHANGE_MIXED)
        return s->problem.head_dim * s->element_bytes;
    return ith_travel_bytes(s, tensor);
}
