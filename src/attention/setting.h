/* SPDX-License-Identifier: Apache-2.0 */
/* An attention problem with every choice made and every default filled in, as one rank has it. The planner makes it;
 * the schedule and its executor read it.
 *
 * Heads are numbered over the whole batch: query head n = b * heads + h, of batch * heads; kv heads likewise, of
 * batch * kv_heads. Query head n attends to kv head n / (heads / kv_heads). Exchanges share out these lists, so a batch
 * of two spreads over ranks like twice as many heads. */
#ifndef ITH_ATTENTION_SETTING_H
#define ITH_ATTENTION_SETTING_H

#include "../comm/comm.h"
#include "../kernels/kernel.h"
#include "halt.h"

typedef struct ith_attn_setting {
    ith_context *context;
    ith_attn_problem problem; /* with the values of defaults: kv_heads, scale, mask sizes, strides */
    int64_t element_bytes;
    int64_t q_rows, kv_rows; /* of this rank's tensors; kv_rows is kv_len if replicated_kv */
    const ith_attn_kernel *kernel;
    ith_kernel_origin kernel_origin;
    ith_attn_tiles tiles;
    int threads;
    ith_strategy strategy;
    ith_softmax softmax;
    bool smoothed, folded; /* see ith_plan_info */
    ith_direction direction;
    ith_exchange_mode exchange;                /* IN_PLACE or COPY; AUTO where nothing is exchanged */
    int chunks;                                /* asked for; for each batch entry if it is not folded */
    int ulysses, ring;                         /* the mesh */
    int rank;                                  /* of ulysses * ring; on the axes rank % ulysses and rank / ulysses */
    ith_halt *halt;                            /* of the plan; NULL: executions cannot be stopped */
    ith_comm *comm, *ulysses_comm, *ring_comm; /* all ranks and the two axes; NULL: of length 1 */
} ith_attn_setting;

/* Rows of some heads in memory. Row s of head n lies, in elements, at
 * data + (n - first) / heads * batch_stride + s * row_stride + (n - first) % heads * head_dim. */
typedef struct ith_rows {
    void *data;
    int64_t first, heads, row_stride, batch_stride;
} ith_rows;

static inline void *ith_rows_at(const ith_attn_setting *setting, const ith_rows *rows, int64_t head, int64_t row)
{
    int64_t n = head - rows->first;
    int64_t element =
        n / rows->heads * rows->batch_stride + row * rows->row_stride + n % rows->heads * setting->problem.head_dim;
    return (char *)rows->data + element * setting->element_bytes;
}

typedef enum ith_attn_tensor {
    ITH_TENSOR_Q,
    ITH_TENSOR_K,
    ITH_TENSOR_V,
    ITH_TENSOR_O,
    ITH_TENSOR_LSE,
    ITH_TENSORS
} ith_attn_tensor;

static inline bool ith_tensor_is_kv(ith_attn_tensor tensor)
{
    return tensor == ITH_TENSOR_K || tensor == ITH_TENSOR_V;
}

/* A tensor of the caller, lse excepted. */
ith_rows ith_rows_of(const ith_attn_setting *setting, ith_attn_tensor which, const ith_attn_tensors *tensors);
/* Heads [first, first + count) in a buffer [rows, count, head_dim]. */
ith_rows ith_rows_in_buffer(const ith_attn_setting *setting, void *data, int64_t first, int64_t count);

/* Some query heads and the kv heads that they attend to. */
typedef struct ith_heads {
    int64_t first, count;       /* of the list of query heads */
    int64_t kv_first, kv_heads; /* of the list of kv heads */
} ith_heads;

ith_heads ith_heads_of(const ith_attn_problem *problem, int64_t first, int64_t count);

/* The part of a sequence that ranks [first, first + count) of `ranks` hold together. */
void ith_stretch(int64_t length, int ranks, int first, int count, int64_t *begin, int64_t *rows);

/* Checks a problem and writes it to *out, with the values of its defaults and this rank's shares. */
ith_status ith_attn_setting_init(ith_context *context, const ith_attn_problem *problem, int ranks, int rank,
                                 ith_attn_setting *out);
/* Checks the tensors of an execution: none is missing, misaligned or overlaps another. */
ith_status ith_attn_tensors_check(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

#endif
