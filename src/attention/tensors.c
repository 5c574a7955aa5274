/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the tensors of an execution (extents.h). */
#include "extents.h"

/* Whether o is q itself: the same memory with the same strides. This is safe because the computation of a block of o
 * reads its rows of q before it writes them. */
static bool o_is_q(const ith_extents *all)
{
    const ith_extent *q = &all->of[ITH_TENSOR_Q], *o = &all->of[ITH_TENSOR_O];
    return q->begin == o->begin && q->row_stride == o->row_stride && q->batch_stride == o->batch_stride;
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

/* Refuses a tensor that is missing or not aligned. */
static ith_status check_address(const ith_attn_setting *s, int tensor, const ith_extent *e)
{
    int64_t alignment = tensor <= ITH_TENSOR_O ? s->element_bytes : (int64_t)sizeof(float);
    if (tensor == ITH_EXTENT_MASK && s->problem.mask == ITH_MASK_BOOL)
        alignment = 1;
    if (e->batches && e->rows && !e->begin)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s is NULL", ith_extent_name(tensor));
    if (e->begin % (uintptr_t)alignment)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s is not aligned to its elements of %lld bytes",
                        ith_extent_name(tensor), (long long)alignment);
    return ITH_OK;
}

/* Refuses an output that overlaps another tensor. Only q, k, v and o have rows, which may lie side by side. */
static ith_status refuse_overlap(ith_context *context, int written, int other)
{
    const bool have_rows = written <= ITH_TENSOR_O && other <= ITH_TENSOR_O;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s overlaps %s in memory%s", ith_extent_name(written),
                    ith_extent_name(other),
                    have_rows ? "; both may lie in one buffer only with equal row strides, batch strides that are "
                                "multiples of them, and columns of their own"
                              : ", and must not");
}

/* Refuses o or lse if it overlaps another tensor. */
static ith_status check_outputs(const ith_attn_setting *s, const ith_extents *all)
{
    for (int written = ITH_TENSOR_O; written <= ITH_TENSOR_LSE; written++)
        for (int i = 0; i < ITH_EXTENTS; i++)
            if (i != written && !(i == ITH_TENSOR_Q && o_is_q(all)) &&
                ith_extents_overlap(&all->of[written], &all->of[i]))
                return refuse_overlap(s->context, written, i);
    return ITH_OK;
}

ith_status ith_attn_tensors_check(const ith_attn_setting *s, const ith_attn_tensors *tensors, ith_extents *all)
{
    ith_status status = check_announced(s, tensors);
    *all = ith_extents_of(s, tensors);
    for (int i = 0; !status && i < ITH_EXTENTS; i++)
        status = check_address(s, i, &all->of[i]);
    if (!status)
        status = check_lengths(s, tensors);
    return status ? status : check_outputs(s, all);
}
