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

typedef struct ith_attn_setting {
    ith_context *context;
    ith_attn_problem problem; /* resolved: kv_heads, scale and all strides are what they stand for */
    int64_t element_bytes;
    int64_t q_rows, kv_rows; /* this rank's share; kv_rows is all of them if replicated_kv */
    const ith_attn_kernel *kernel;
    int threads;
    ith_strategy strategy;
    int ulysses, ring;                  /* the mesh */
    int ulysses_index, ring_index;      /* this rank's place in it */
    ith_comm *ulysses_comm, *ring_comm; /* the two axes; NULL: of length 1 */
} ith_attn_setting;

/* Problems laid out in memory: row s of problem n is at
 * data + (n / heads) * batch_stride + s * row_stride + (n % heads) * head_dim, in elements. */
typedef struct ith_rows {
    void *data;
    int64_t heads, row_stride, batch_stride;
} ith_rows;

typedef enum ith_attn_tensor { ITH_TENSOR_Q, ITH_TENSOR_K, ITH_TENSOR_V, ITH_TENSOR_O } ith_attn_tensor;

/* A tensor of the caller's. */
ith_rows ith_rows_of(const ith_attn_setting *setting, ith_attn_tensor which, const ith_attn_tensors *tensors);
/* `rows` rows of `problems` problems in a buffer, [rows, problems, head_dim]. */
ith_rows ith_rows_in_buffer(const ith_attn_setting *setting, void *data, int64_t problems);

/* Address of element `element` of an array of this setting's type; NULL for NULL. */
static inline void *ith_element_at(const ith_attn_setting *setting, const void *data, int64_t element)
{
    return data ? (char *)data + element * setting->element_bytes : NULL;
}

/* What ranks [first, first + count) of `ranks` hold together of a sequence. */
void ith_stretch(int64_t length, int ranks, int first, int count, int64_t *begin, int64_t *rows);

/* Checks a problem and puts it, with all defaults, into *out, together with this rank's shares. */
ith_status ith_attn_setting_init(ith_context *context, const ith_attn_problem *problem, int ranks, int rank,
                                 ith_attn_setting *out);
/* Checks what execution was given: nothing missing, misaligned or overlapping. */
ith_status ith_attn_tensors_check(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

#endif
