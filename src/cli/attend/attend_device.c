/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a rank's share of a problem to a device and back (attend_device.h). On the device each tensor is contiguous,
 * [B, rows, heads, D]. In the whole tensors the rows of one batch entry are contiguous. */
#include "attend_device.h"

#include "../shared_option/device_option.h"

/* A tensor of the share: `entries` runs of `bytes` bytes, `stride` bytes apart. */
typedef struct share_runs {
    const void *data;
    int64_t entries, stride, bytes;
} share_runs;

static share_runs rows_of(const ith_attn_problem *p, const void *data, int64_t rows, int64_t row_stride,
                          int64_t batch_stride)
{
    const int64_t size = ith_dtype_bytes(p->dtype);
    return (share_runs){data, p->batch, batch_stride * size, rows * row_stride * size};
}

static int64_t lse_bytes(const ith_attend_placed *placed)
{
    const ith_attn_problem *p = &placed->problem;
    return p->batch * p->heads * placed->q_rows * (int64_t)sizeof(float);
}

/* Copies the runs of a share to new memory of the device, one after the other. Returns it in *out. */
static ith_status upload(ith_attend_placed *placed, share_runs from, void **out)
{
    ith_status status = ith_device_allocate(placed->context, from.entries * from.bytes, out);
    if (status)
        return status;
    placed->memory[placed->memory_count++] = *out;
    for (int64_t i = 0; !status && i < from.entries && from.bytes > 0; i++)
        status = ith_device_copy(placed->context, (char *)*out + i * from.bytes,
                                 (const char *)from.data + i * from.stride, from.bytes);
    return status;
}

/* Copies all tensors to the device. */
static ith_status upload_all(ith_attend_placed *placed)
{
    const ith_attn_problem whole = placed->problem;
    const ith_attn_tensors *share = &placed->share;
    ith_attn_problem *p = &placed->problem;
    ith_attn_tensors *t = &placed->tensors;
    void *q = NULL, *k = NULL, *v = NULL, *o = NULL, *lse = NULL, *mask = NULL;
    ith_status status =
        upload(placed, rows_of(p, share->q, placed->q_rows, whole.q_row_stride, whole.q_batch_stride), &q);
    if (!status)
        status = upload(placed, rows_of(p, share->k, placed->kv_rows, whole.k_row_stride, whole.k_batch_stride), &k);
    if (!status)
        status = upload(placed, rows_of(p, share->v, placed->kv_rows, whole.v_row_stride, whole.v_batch_stride), &v);
    if (!status)
        status = upload(placed, rows_of(p, share->o, placed->q_rows, whole.o_row_stride, whole.o_batch_stride), &o);
    if (!status && share->lse)
        status = upload(placed, (share_runs){share->lse, 1, 0, lse_bytes(placed)}, &lse);
    if (!status && share->mask)
        status = upload(placed, (share_runs){share->mask, 1, 0, ith_attend_mask_bytes(p)}, &mask);
    placed->o_stride = whole.o_batch_stride * ith_dtype_bytes(whole.dtype);
    t->q = q, t->k = k, t->v = v, t->o = o, t->lse = lse, t->mask = mask;
    p->q_batch_stride = placed->q_rows * p->q_row_stride, p->o_batch_stride = placed->q_rows * p->o_row_stride;
    p->k_batch_stride = placed->kv_rows * p->k_row_stride, p->v_batch_stride = placed->kv_rows * p->v_row_stride;
    return status;
}

ith_status ith_attend_place(ith_context *context, const ith_attend_whole *whole, int ranks, int rank,
                            ith_attend_placed *out)
{
    ith_device_info info;
    int64_t begin;
    *out = (ith_attend_placed){.problem = whole->problem, .share = ith_attend_share(whole, ranks, rank)};
    out->tensors = out->share;
    if (!ith_device_in_use(context, &info))
        return ITH_OK;
    ith_share(whole->problem.q_len, ranks, rank, &begin, &out->q_rows);
    ith_share(whole->problem.kv_len, ranks, rank, &begin, &out->kv_rows);
    out->context = context;
    const ith_status status = upload_all(out);
    if (status)
        ith_attend_leave(out);
    return status;
}

ith_status ith_attend_bring_back(const ith_attend_placed *placed)
{
    const ith_attn_problem *p = &placed->problem;
    if (!placed->context)
        return ITH_OK;
    const int64_t bytes = p->o_batch_stride * ith_dtype_bytes(p->dtype);
    ith_status status = ITH_OK;
    for (int64_t b = 0; !status && b < p->batch && bytes > 0; b++)
        status = ith_device_copy(placed->context, (char *)placed->share.o + b * placed->o_stride,
                                 (const char *)placed->tensors.o + b * bytes, bytes);
    if (!status && placed->share.lse && lse_bytes(placed) > 0)
        status = ith_device_copy(placed->context, placed->share.lse, placed->tensors.lse, lse_bytes(placed));
    return status;
}

void ith_attend_leave(ith_attend_placed *placed)
{
    for (int i = 0; i < placed->memory_count; i++)
        ith_device_release(placed->context, placed->memory[i]);
    *placed = (ith_attend_placed){.memory_count = 0};
}
