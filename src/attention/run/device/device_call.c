/* SPDX-License-Identifier: Apache-2.0 */
/* Describes calls of a device's attention kernel, and checks them before they are made (device_call.h). */
#include "device_call.h"

#include "../../../base/size.h"

ith_device_rows ith_device_packed_rows(const ith_attn_setting *s, void *data, int64_t first, int64_t padded_rows)
{
    const int64_t head_dim = s->problem.head_dim;
    return (ith_device_rows){
        .data = data, .first = first, .heads = 1, .row_stride = head_dim, .batch_stride = padded_rows * head_dim};
}

ith_device_rows ith_device_rows_of(const ith_rows *rows)
{
    return (ith_device_rows){rows->data, rows->first, rows->heads, rows->row_stride, rows->batch_stride};
}

ith_device_attend ith_device_call_of(const ith_attn_setting *s, ith_softmax softmax)
{
    const ith_attn_problem *p = &s->problem;
    return (ith_device_attend){
        .dtype = p->dtype,
        .head_dim = p->head_dim,
        .scale = p->scale,
        .softmax = softmax,
        .count = p->batch * p->heads,
        .heads = p->heads,
        .per_kv = p->heads / p->kv_heads,
        .key_bias_stride = p->kv_len,
        .mask_kind = p->mask,
        .mask_batch_stride = p->mask_batch > 1 ? p->mask_heads * p->q_len * p->kv_len : 0,
        .mask_head_stride = p->mask_heads > 1 ? p->q_len * p->kv_len : 0,
        .mask_row_stride = p->kv_len,
    };
}

/* Rows in a buffer of an exchange that holds the heads of the whole batch. heads_of_entry: heads of one batch entry. */
static ith_device_rows buffer_rows(const ith_attn_setting *s, int64_t heads_of_entry)
{
    const int64_t heads = s->problem.batch * heads_of_entry;
    return (ith_device_rows){.heads = heads, .row_stride = heads * s->problem.head_dim};
}

const char *ith_device_call_refused(const ith_attn_setting *s, const ith_device_kernel *kernel, ith_softmax softmax,
                                    const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->problem;
    const ith_attn_tensors none = ITH_ATTN_TENSORS_INIT, *given = tensors ? tensors : &none;
    ith_device_attend call = ith_device_call_of(s, softmax);
    const float some_bias = 0;
    const int32_t some_keys = 0;
    call.key_bias = p->has_key_bias ? &some_bias : NULL;
    call.keys = p->has_kv_lengths ? &some_keys : NULL;
    call.q_rows = s->q_rows, call.kv_rows = s->kv_rows;
    ith_rows q = ith_rows_of(s, ITH_TENSOR_Q, given), k = ith_rows_of(s, ITH_TENSOR_K, given);
    ith_rows v = ith_rows_of(s, ITH_TENSOR_V, given), o = ith_rows_of(s, ITH_TENSOR_O, given);
    call.q = ith_device_rows_of(&q), call.k = ith_device_rows_of(&k);
    call.v = ith_device_rows_of(&v), call.o = ith_device_rows_of(&o);
    if (ith_device_packs(s))
        call.k = call.v = ith_device_packed_rows(s, NULL, 0, ith_round_up(s->kv_rows, ITH_DEVICE_KEYS));
    const char *reason = kernel->refuses(s->device->device, &call);
    if (reason || s->exchange == ITH_EXCHANGE_AUTO)
        return reason;
    /* in other steps the rows lie in the buffers of an exchange */
    call.q = call.o = buffer_rows(s, p->heads);
    call.k = call.v = buffer_rows(s, p->kv_heads);
    return kernel->refuses(s->device->device, &call);
}

ith_status ith_device_tensors_check(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->problem;
    const struct {
        const char *name;
        const void *data;
        bool used;
    } all[] = {{"q", tensors->q, s->q_rows > 0},     {"k", tensors->k, s->kv_rows > 0},
               {"v", tensors->v, s->kv_rows > 0},    {"o", tensors->o, s->q_rows > 0},
               {"lse", tensors->lse, s->q_rows > 0}, {"mask", tensors->mask, p->q_len > 0 && p->kv_len > 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].used && all[i].data && !s->device->module->addresses(s->device->device, all[i].data))
            return ith_fail(s->context, ITH_ERR_ARGUMENT,
                            "%s lies in memory that the device %s cannot address: copy it to memory of "
                            "ith_device_allocate, or make the plan with a context that uses the processor",
                            all[i].name, s->device->name);
    const char *reason = ith_device_call_refused(s, s->device_kernel, s->softmax, tensors);
    if (reason)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "kernel %s: %s; align the tensors to 16 bytes, or name another kernel", s->device_kernel->name,
                        reason);
    return ITH_OK;
}
