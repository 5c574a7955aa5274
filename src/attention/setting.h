/* SPDX-License-Identifier: Apache-2.0 */
/* An attention problem with every choice made and every default filled in, as one rank has it. The planner makes it;
 * the schedule and its executor read it.
 *
 * Heads are numbered over the whole batch: query heads from 0 to batch * heads - 1, where head h of batch entry b has
 * the number b heads + h, and kv heads likewise with kv_heads. Query head n attends to kv head n / (heads / kv_heads).
 * Exchanges distribute these lists over the ranks, so a batch of two spreads over ranks like twice as many heads. */
#ifndef ITH_ATTENTION_SETTING_H
#define ITH_ATTENTION_SETTING_H

#include "../comm/comm.h"
#include "../kernels/device_use.h"
#include "../kernels/kernel.h"
#include "halt.h"

/* A problem with every choice made, on one rank. */
typedef struct ith_attn_setting {
    ith_context *context;
    ith_attn_problem problem; /* the caller's, with defaults replaced: kv_heads, scale, mask sizes, strides */
    int64_t element_bytes;
    int64_t q_rows, kv_rows; /* rows of this rank's tensors; kv_rows is kv_len if replicated_kv */
    /* the device that computes, and its kernel; NULL: the processor computes */
    ith_device_use *device;
    const ith_device_kernel *device_kernel;
    bool device_messages; /* the transport takes memory of the device (ith_transport.device_memory) */
    /* the processor's kernel and its tiles; NULL and 0s on a device */
    const ith_attn_kernel *kernel;
    ith_kernel_origin kernel_origin;
    ith_attn_tiles tiles;
    int threads;
    ith_strategy strategy;
    ith_softmax softmax;
    bool smoothed, folded; /* keys are smoothed; the batch is folded (ith_plan_info) */
    ith_direction direction;
    ith_exchange_mode exchange; /* IN_PLACE, COPY or MIXED; AUTO where nothing is exchanged */
    ith_compress compress;      /* OFF where no messages are sent */
    bool unhidden;              /* every exchange ends before the rank goes on; false where no messages are sent */
    /* wanted number of chunks; for each batch entry if the batch is not folded */
    int chunks;
    int ulysses, ring; /* lengths of the two axes of the mesh */
    /* this rank; its index is rank % ulysses on the ulysses axis, rank / ulysses on the ring */
    int rank;
    /* stops the plan's executions on request; NULL: executions cannot be stopped */
    ith_halt *halt;
    /* all ranks, and this rank's group on each axis; NULL for a group of one */
    ith_comm *comm, *ulysses_comm, *ring_comm;
} ith_attn_setting;

/* Rows of some heads in memory. In elements, row s of head n begins at
 *     data + (n - first) / heads * batch_stride + s * row_stride + (n - first) % heads * head_dim. */
typedef struct ith_rows {
    void *data;
    int64_t first, heads, row_stride, batch_stride;
} ith_rows;

/* The address of row `row` of head `head`. */
static inline void *ith_rows_at(const ith_attn_setting *setting, const ith_rows *rows, int64_t head, int64_t row)
{
    int64_t n = head - rows->first;
    int64_t element =
        n / rows->heads * rows->batch_stride + row * rows->row_stride + n % rows->heads * setting->problem.head_dim;
    return (char *)rows->data + element * setting->element_bytes;
}

/* Numbers of the tensors that exchanges move. */
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

/* The bytes of one row of one head of q, k, v or o in a message (run/compress.h). A compressed row has a multiple of 4
 * bytes. */
int64_t ith_travel_bytes(const ith_attn_setting *setting, ith_attn_tensor tensor);
/* The bytes of one row of one head that count as sent on the ulysses axis (on_ulysses) or on the ring. They are the
 * same as in a message, except on the ulysses axis of a mixed exchange, where rows are used in place and never
 * compressed. */
int64_t ith_sent_row_bytes(const ith_attn_setting *setting, ith_attn_tensor tensor, bool on_ulysses);

/* The name of the kernel that computes. */
static inline const char *ith_attn_kernel_name(const ith_attn_setting *setting)
{
    return setting->device ? setting->device_kernel->name : setting->kernel->name;
}

/* The rows of a tensor of the caller: q, k, v or o, but not lse. */
ith_rows ith_rows_of(const ith_attn_setting *setting, ith_attn_tensor which, const ith_attn_tensors *tensors);
/* The rows of heads [first, first + count) in a buffer of shape [rows, count, head_dim]. */
ith_rows ith_rows_in_buffer(const ith_attn_setting *setting, void *data, int64_t first, int64_t count);

/* Some query heads and the kv heads that they attend to. */
typedef struct ith_heads {
    int64_t first, count;       /* query heads [first, first + count) */
    int64_t kv_first, kv_heads; /* kv heads [kv_first, kv_first + kv_heads) */
} ith_heads;

/* The number of groups of `size` heads, numbered one after another, to which heads [first, first + count) belong. */
static inline int64_t ith_groups_of(int64_t first, int64_t count, int64_t size)
{
    return count ? (first + count - 1) / size - first / size + 1 : 0;
}

/* Query heads [first, first + count) of the whole batch, and the kv heads that they attend to. */
ith_heads ith_heads_of(const ith_attn_problem *problem, int64_t first, int64_t count);

/* Ranks [first, first + count) of `ranks` together hold rows [*begin, *begin + *rows) of a sequence of `length`
 * rows. */
void ith_stretch(int64_t length, int ranks, int first, int count, int64_t *begin, int64_t *rows);

/* Checks a problem and writes it to *out, with defaults replaced by their values, and the numbers of rows of this
 * rank. */
ith_status ith_attn_setting_init(ith_context *context, const ith_attn_problem *problem, int ranks, int rank,
                                 ith_attn_setting *out);
#endif
