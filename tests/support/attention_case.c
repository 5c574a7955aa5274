/* SPDX-License-Identifier: Apache-2.0 */
#include "support/attention_case.h"

#include "base/dtype.h"
#include "oracle/oracle.h"
#include "support/in_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float case_value(uint64_t *r)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += random_uniform(r) - 0.5f;
    return sum * 1.7f;
}

void *case_tensor(ith_dtype type, const float *values, int64_t count)
{
    void *tensor = malloc((size_t)(count + 1) * sizeof *values);
    ith_from_f32(tensor, type, values, count);
    return tensor;
}

int64_t case_kv_heads(const attention_case *c)
{
    return c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
}

static case_kind case_kind_of_head(const attention_case *c, int64_t kv_head)
{
    return c->kind == CASE_UNEVEN ? (case_kind)(kv_head % CASE_UNEVEN) : c->kind;
}

/* Makes the numbers of a query or of a key. A normal logit has a standard deviation of about 4 with scale 1/sqrt(D). */
static void case_row(float *x, int64_t D, case_kind kind, bool is_key, uint64_t *r)
{
    float size = kind == CASE_HUGE ? 40.0f : kind == CASE_TINY ? 1e-4f : kind == CASE_PEAKED ? 3.5f : 2.0f;
    for (int64_t d = 0; d < D; d++) {
        float value = case_value(r);
        x[d] = size * value;
        if (kind == CASE_OFFSET && is_key)
            x[d] = 0.5f * value + (d % 3 ? 6.0f : -9.0f);
        if (kind == CASE_CONSTANT && is_key)
            x[d] = d % 2 ? 1.5f : -0.75f;
        if (kind == CASE_ORTHOGONAL && (d < D / 2) == is_key)
            x[d] = D > 1 ? 0 : value;
        else if (kind == CASE_ORTHOGONAL)
            x[d] = 4.5f * value;
    }
}

/* Makes queries or keys [B, rows, heads, D], each head of its kind of logits. */
static void *case_rows(const attention_case *c, int64_t rows, int64_t heads, bool is_key, uint64_t *r)
{
    int64_t D = c->problem.head_dim, all = c->problem.batch * rows * heads;
    float *values = malloc((size_t)(all * D + 1) * sizeof *values);
    for (int64_t i = 0; i < all; i++)
        case_row(values + i * D, D, case_kind_of_head(c, i % heads / (heads / case_kv_heads(c))), is_key, r);
    void *tensor = case_tensor(c->problem.dtype, values, all * D);
    free(values);
    return tensor;
}

size_t case_mask_bytes(const ith_attn_problem *p)
{
    const int64_t Mb = p->mask_batch ? p->mask_batch : 1, Mh = p->mask_heads ? p->mask_heads : 1;
    const int64_t count = p->mask == ITH_MASK_NONE ? 0 : Mb * Mh * p->q_len * p->kv_len;
    return (size_t)count * (p->mask == ITH_MASK_ADDITIVE ? sizeof(float) : sizeof(uint8_t));
}

static void case_fill_mask(attention_case *c, uint64_t *r)
{
    const ith_attn_problem *p = &c->problem;
    int64_t Mb = p->mask_batch ? p->mask_batch : 1, Mh = p->mask_heads ? p->mask_heads : 1;
    int64_t count = p->mask == ITH_MASK_NONE ? 0 : Mb * Mh * p->q_len * p->kv_len;
    c->mask = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        uint32_t draw = random_below(r, 8);
        bool hidden = draw < 3 || (p->kv_len && i / p->kv_len % 13 == 5); /* every 13th row wholly */
        if (p->mask == ITH_MASK_BOOL)
            ((uint8_t *)c->mask)[i] = hidden ? 0 : (uint8_t)(1 + draw);
        else
            ((float *)c->mask)[i] = hidden ? -INFINITY : draw == 3 ? -3e38f : case_value(r);
    }
}

void case_fill(attention_case *c, uint64_t seed, int masked)
{
    const ith_attn_problem *p = &c->problem;
    bool plain_bias = seed % 2 == 0;
    int64_t q = p->batch * p->q_len * p->heads * p->head_dim;
    int64_t v = p->batch * p->kv_len * case_kv_heads(c) * p->head_dim;
    c->q = case_rows(c, p->q_len, p->heads, false, &seed);
    c->k = case_rows(c, p->kv_len, case_kv_heads(c), true, &seed);
    float *values = malloc((size_t)(v + 1) * sizeof *values);
    for (int64_t i = 0; i < v; i++)
        values[i] = case_value(&seed);
    c->v = case_tensor(p->dtype, values, v);
    free(values);
    c->key_bias = malloc((size_t)(p->batch * p->kv_len + 1) * sizeof(float));
    for (int64_t i = 0; i < p->batch * p->kv_len; i++) {
        float bias = case_value(&seed);
        c->key_bias[i] = (int)random_below(&seed, 8) < masked ? -INFINITY : plain_bias ? 0 : bias;
    }
    c->kv_lengths = malloc((size_t)(p->batch + 1) * sizeof *c->kv_lengths);
    for (int64_t b = 0; b < p->batch; b++)
        c->kv_lengths[b] = (int32_t)random_below(&seed, (uint32_t)p->kv_len + 1);
    case_fill_mask(c, &seed);
    c->o = malloc((size_t)(q + 1) * sizeof(float));
    c->o_bits = malloc((size_t)(q + 1) * sizeof(float));
    c->lse = malloc((size_t)(p->batch * p->heads * p->q_len + 1) * sizeof(float));
}

void case_free(attention_case *c)
{
    void *const all[] = {c->q, c->k, c->v, c->key_bias, c->kv_lengths, c->mask, c->o, c->o_bits, c->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

ith_attn_tensors case_tensors(const attention_case *c)
{
    const ith_attn_problem *p = &c->problem;
    return (ith_attn_tensors){.struct_size = sizeof(ith_attn_tensors),
                              .q = c->q,
                              .k = c->k,
                              .v = c->v,
                              .kv_lengths = p->has_kv_lengths ? c->kv_lengths : NULL,
                              .key_bias = p->has_key_bias ? c->key_bias : NULL,
                              .mask = p->mask != ITH_MASK_NONE ? c->mask : NULL};
}

void case_oracle(attention_case *c, float *o, float *lse)
{
    ith_attn_problem p = c->problem;
    const ith_attn_tensors tensors = case_tensors(c);
    ith_oracle_rows exact, plain;
    p.kv_heads = case_kv_heads(c);
    p.mask_batch = p.mask_batch ? p.mask_batch : 1, p.mask_heads = p.mask_heads ? p.mask_heads : 1;
    p.q_row_stride = p.heads * p.head_dim, p.q_batch_stride = p.q_len * p.q_row_stride;
    p.k_row_stride = p.v_row_stride = p.kv_heads * p.head_dim;
    p.k_batch_stride = p.v_batch_stride = p.kv_len * p.k_row_stride;
    if (!ith_oracle_rows_create(&p, p.q_len, &exact) || !ith_oracle_rows_create(&p, p.q_len, &plain) ||
        !ith_oracle_exact(&p, &tensors, &exact) || !ith_oracle_plain(&p, &tensors, &plain))
        abort();
    double error = ith_oracle_error(&p, &plain, &exact, INFINITY);
    c->plain_error = isfinite(error) ? error : 0;
    c->largest_logit = 0;
    for (int64_t row = 0; row < p.batch * p.heads * p.q_len; row++) {
        int64_t i = row % p.q_len, h = row / p.q_len % p.heads, b = row / p.q_len / p.heads;
        lse[row] = (float)exact.lse[row];
        c->largest_logit = fmax(c->largest_logit, exact.max_product[row]);
        for (int64_t d = 0; d < p.head_dim; d++)
            o[((b * p.q_len + i) * p.heads + h) * p.head_dim + d] = (float)exact.o[row * p.head_dim + d];
    }
    ith_oracle_rows_free(&exact), ith_oracle_rows_free(&plain);
}

double case_bound(const attention_case *c)
{
    ith_dtype type = c->problem.dtype;
    double unit = type == ITH_F32 ? 0x1p-24 : type == ITH_BF16 ? 0x1p-9 : 0x1p-11;
    double chance = 2 * unit + (2 + c->largest_logit) * 0x1p-23;
    double bound = fmax(2 * c->plain_error, chance);
    double absolute = type == ITH_F32 ? 5e-6 : type == ITH_BF16 ? 0x1p-8 : 0x1p-10;
    /* Where values cancel out, the plain implementation itself exceeds the absolute bound. */
    return c->largest_logit <= 30 ? fmin(bound, fmax(absolute, c->plain_error)) : bound;
}

void *case_share(const attention_case *c, const void *whole, int64_t length, int64_t width, int64_t begin, int64_t rows)
{
    size_t size = (size_t)ith_dtype_bytes(c->problem.dtype);
    int64_t stride = width + c->gap;
    char *share = malloc((size_t)(c->problem.batch * rows * stride + 1) * size);
    memset(share, 0xff, (size_t)(c->problem.batch * rows * stride + 1) * size); /* NaN in every type */
    for (int64_t i = 0; whole && i < c->problem.batch * rows; i++)
        memcpy(share + (size_t)(i * stride) * size,
               (const char *)whole + (size_t)((i / rows * length + begin + i % rows) * width) * size,
               (size_t)width * size);
    return share;
}

/* Copies this rank's rows of o and lse to the whole tensors of the case, and checks that nothing was written between
 * rows. */
static ith_status case_collect(ith_context *context, attention_case *c, const char *o, const float *lse, int64_t begin,
                               int64_t rows)
{
    const ith_attn_problem *p = &c->problem;
    int64_t width = p->heads * p->head_dim, stride = width + c->gap;
    size_t size = (size_t)ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < p->batch * rows; i++) {
        const char *row = o + (size_t)(i * stride) * size;
        int64_t at = (i / rows * p->q_len + begin + i % rows) * width;
        ith_to_f32(c->o + at, row, p->dtype, width);
        memcpy((char *)c->o_bits + (size_t)at * size, row, (size_t)width * size);
        for (size_t byte = (size_t)width * size; byte < (size_t)stride * size; byte++)
            RANK_CHECK(context, (uint8_t)row[byte] == 0xff);
    }
    for (int64_t n = 0; lse && n < p->batch * p->heads; n++)
        memcpy(c->lse + n * p->q_len + begin, lse + n * rows, (size_t)rows * sizeof *lse);
    return ITH_OK;
}

/* ---- Where the context computes ---------------------------------------------------------------------------------- */

/* Moves an array of the host, which is freed, to memory of the context's device. */
static void *moved(case_placed *placed, void *host, size_t bytes)
{
    void *there = NULL;
    if (!placed->status)
        placed->status = ith_device_allocate(placed->context, (int64_t)bytes, &there);
    if (there)
        placed->memory[placed->count++] = there;
    if (!placed->status)
        placed->status = ith_device_copy(placed->context, there, host, (int64_t)bytes);
    free(host);
    return there;
}

/* A copy of an array of the host, or NaNs if it is NULL, in memory of the context's device. */
static void *copied(case_placed *placed, const void *host, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    memset(copy, 0xff, bytes);
    if (host)
        memcpy(copy, host, bytes);
    return moved(placed, copy, bytes);
}

ith_status case_place(ith_context *context, ith_comm *comm, const attention_case *c, case_placed *out)
{
    ith_attn_problem *p = &out->problem;
    *out = (case_placed){.context = context, .problem = c->problem, .tensors = case_tensors(c)};
    const int64_t width = p->heads * p->head_dim, kv_width = case_kv_heads(c) * p->head_dim;
    const size_t size = (size_t)ith_dtype_bytes(p->dtype);
    int64_t kv_begin = 0, kv_rows = p->kv_len;
    ith_share(p->q_len, ith_comm_size(comm), ith_comm_rank(comm), &out->begin, &out->rows);
    if (!p->replicated_kv)
        ith_share(p->kv_len, ith_comm_size(comm), ith_comm_rank(comm), &kv_begin, &kv_rows);
    if (c->gap) {
        p->q_row_stride = p->o_row_stride = width + c->gap;
        p->k_row_stride = p->v_row_stride = kv_width + c->gap;
    }
    out->o_bytes = (size_t)(p->batch * out->rows * (width + c->gap)) * size;
    out->lse_bytes = (size_t)(p->batch * p->heads * out->rows) * sizeof(float);
    const size_t kv_bytes = (size_t)(p->batch * kv_rows * (kv_width + c->gap)) * size;
    out->q = moved(out, case_share(c, c->q, p->q_len, width, out->begin, out->rows), out->o_bytes);
    out->tensors.q = out->q;
    out->tensors.k = moved(out, case_share(c, c->k, p->kv_len, kv_width, kv_begin, kv_rows), kv_bytes);
    out->tensors.v = moved(out, case_share(c, c->v, p->kv_len, kv_width, kv_begin, kv_rows), kv_bytes);
    out->tensors.o = moved(out, case_share(c, NULL, p->q_len, width, out->begin, out->rows), out->o_bytes);
    if (c->wants_lse)
        out->tensors.lse = copied(out, NULL, out->lse_bytes);
    if (out->tensors.mask)
        out->tensors.mask = copied(out, c->mask, case_mask_bytes(p));
    if (out->status)
        case_leave(out);
    return out->status;
}

void case_leave(case_placed *placed)
{
    while (placed->count > 0)
        ith_device_release(placed->context, placed->memory[--placed->count]);
}

/* Sets *same to whether memory of the context's device has the bytes of memory of the host, which has room for as many
 * bytes again behind them. */
static ith_status has_bytes(ith_context *context, char *host, const void *there, size_t bytes, bool *same)
{
    const ith_status status = ith_device_copy(context, host + bytes, there, (int64_t)bytes);
    *same = !status && !memcmp(host, host + bytes, bytes);
    return status;
}

/* Executes the plan again, and then so that o overwrites q. o: the results of the first execution, with room for as
 * many bytes again. */
static ith_status execute_again(ith_plan *plan, case_placed *placed, char *o)
{
    bool same = false;
    RANK_TRY(ith_plan_execute(plan, &placed->tensors));
    RANK_TRY(has_bytes(placed->context, o, placed->tensors.o, placed->o_bytes, &same));
    if (!same)
        return ith_fail(placed->context, ITH_ERR_INTERNAL, "two executions differ");
    ith_attn_tensors tensors = placed->tensors;
    tensors.o = placed->q;
    RANK_TRY(ith_plan_execute(plan, &tensors));
    RANK_TRY(has_bytes(placed->context, o, placed->q, placed->o_bytes, &same));
    return same ? ITH_OK : ith_fail(placed->context, ITH_ERR_INTERNAL, "o differs where it overwrites q");
}

ith_status case_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    attention_case *c = user;
    case_placed placed;
    ith_status status = case_place(context, comm, c, &placed);
    if (status)
        return status;
    ith_plan *plan = NULL;
    char *o = malloc(2 * placed.o_bytes + 1);
    float *lse = malloc(placed.lse_bytes + 1);
    status = ith_plan_create(context, &placed.problem, &c->options, comm, &plan);
    if (!status) {
        if (ith_comm_rank(comm) == 0)
            ith_plan_print(plan, c->plan, sizeof c->plan);
        status = ith_plan_execute(plan, &placed.tensors);
    }
    if (!status)
        status = ith_device_copy(context, o, placed.tensors.o, (int64_t)placed.o_bytes);
    if (!status)
        status = execute_again(plan, &placed, o);
    if (!status && c->wants_lse)
        status = ith_device_copy(context, lse, placed.tensors.lse, (int64_t)placed.lse_bytes);
    if (!status)
        status = case_collect(context, c, o, c->wants_lse ? lse : NULL, placed.begin, placed.rows);
    ith_plan_destroy(&plan);
    case_leave(&placed);
    free(o), free(lse);
    return status;
}
