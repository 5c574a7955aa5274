/* SPDX-License-Identifier: Apache-2.0 */
/* An attention problem as one rank meets it: every choice made, every default filled in. The plan makes it, strategies
 * read it.
 *
 * Queries are a list of batch * heads independent problems, number n = b * heads + h; keys and values one of
 * batch * kv_heads. Query problem n attends to key problem n / (heads / kv_heads). Exchanges share out this list, so
 * that a batch of two spreads over ranks like twice as many heads. */
#ifndef ITH_ATTENTION_SETTING_H
#define ITH_ATTENTION_SETTING_H

#include "../comm/comm.h"
#include "../kernels/kernel.h"
#include "halt.h"

typedef struct ith_attn_setting {
    ith_context *context;
    ith_attn_problem problem; /* resolved: kv_heads, scale, mask sizes and all strides are what they stand for */
    int64_t element_bytes;
    int64_t q_rows, kv_rows; /* this rank's share; kv_rows is all of them if replicated_kv */
    const ith_attn_kernel *kernel;
    ith_kernel_origin kernel_origin;
    ith_attn_tiles tiles;
    int threads;
    ith_strategy strategy;
    ith_softmax softmax;
    bool smoothed, folded; /* see ith_plan_info */
    ith_direction direction;
    ith_exchange_mode exchange;                /* IN_PLACE or COPY; AUTO where nothing is exchanged */
    int chunks;                                /* asked for, of a batch entry unless it is folded */
    int ulysses, ring;                         /* the mesh */
    int ulysses_index, ring_index;             /* this rank's place in it */
    ith_halt *halt;                            /* of the plan; NULL: nobody stops it */
    ith_comm *comm, *ulysses_comm, *ring_comm; /* all ranks and the two axes; NULL: of length 1 */
} ith_attn_setting;

/* Some rows of head problems in memory: row s of problem n is, in elements, at
 * data + (n - first) / heads * batch_stride + s * row_stride + (n - first) % heads * head_dim. */
typedef struct ith_rows {
    void *data;
    int64_t first, heads, row_stride, batch_stride;
} ith_rows;

static inline void *ith_rows_at(const ith_attn_setting *setting, const ith_rows *rows, int64_t problem, int64_t row)
{
    int64_t n = problem - rows->first;
    int64_t element =
        n / rows->heads * rows->batch_stride + row * rows->row_stride + n % rows->heads * setting->problem.head_dim;
    return (char *)rows->data + element * setting->element_bytes;
}

typedef enum ith_attn_tensor { ITH_TENSOR_Q, ITH_TENSOR_K, ITH_TENSOR_V, ITH_TENSOR_O } ith_attn_tensor;

/* A tensor of the caller's. */
ith_rows ith_rows_of(const ith_attn_setting *setting, ith_attn_tensor which, const ith_attn_tensors *tensors);
/* Problems [first, first + count) in a buffer, [rows, count, head_dim]. */
ith_rows ith_rows_in_buffer(const ith_attn_setting *setting, void *data, int64_t first, int64_t count);

/* Some query problems and the key problems that they attend to. */
typedef struct ith_heads {
    int64_t first, count;           /* of the list of query problems */
    int64_t first_keys, keys_count; /* of the list of key problems */
} ith_heads;

ith_heads ith_heads_of(const ith_attn_problem *problem, int64_t first, int64_t count);

/* What ranks [first, first + count) of `ranks` hold together of a sequence. */
void ith_stretch(int64_t length, int ranks, int first, int count, int64_t *begin, int64_t *rows);

/* Checks a problem and puts it, with all defaults, into *out, together with this rank's shares. */
ith_status ith_attn_setting_init(ith_context *context, const ith_attn_problem *problem, int ranks, int rank,
                                 ith_attn_setting *out);
/* Checks what execution was given: nothing missing, misaligned or overlapping. */
ith_status ith_attn_tensors_check(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

#endif
