/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a part of a model, as a list of items. The files that lay out a part also list its work: dit/dit_work.c,
 * text/text_encoder.c and vae/vae_work.c. Benchmarks and predictions take their counts from these lists. */
#ifndef ITH_WAN_WORK_H
#define ITH_WAN_WORK_H

#include <ithaca/ithaca.h>

/* The kinds of work. */
typedef enum ith_work_kind {
    ITH_WORK_OF_LINEAR, /* a linear layer: rows [rows, in] become rows [rows, out] */
    ITH_WORK_OF_CONV,   /* a convolution: `rows` pixels of a frame, from `in` to `out` channels */
    ITH_WORK_OF_ATTENTION,
    ITH_WORK_OF_ROWS /* norms, activations and sums on rows: `bytes` are read and written */
} ith_work_kind;

/* An item of a list of work. Capitals in the comments name the kinds that have a member. */
typedef struct ith_work {
    ith_work_kind kind;
    const char *stage; /* name of the stage in the trace */
    double times;      /* number of times that this work is done */
    bool in_f32;       /* LINEAR: the operands are f32 in every precision */
    int64_t rows, in, out;
    double operations;                 /* multiplications and additions each time */
    const ith_attn_problem *attention; /* ATTENTION: valid during the call */
    double bytes;                      /* ROWS: bytes that are read and written each time */
} ith_work;

/* A function that receives the items of a list one after the other. */
typedef struct ith_work_list {
    void (*take)(void *user, const ith_work *work);
    void *user;
} ith_work_list;

/* A product of `rows` rows of `in` numbers with weights for `out` numbers, done `times` times. */
static inline ith_work ith_work_of_linear(const char *stage, double times, int64_t rows, int64_t in, int64_t out)
{
    return (ith_work){.kind = ITH_WORK_OF_LINEAR,
                      .stage = stage,
                      .times = times,
                      .rows = rows,
                      .in = in,
                      .out = out,
                      .operations = 2.0 * (double)rows * (double)in * (double)out};
}

/* Adds such a product to the list. */
static inline void ith_work_take_linear(const ith_work_list *list, const char *stage, double times, int64_t rows,
                                        int64_t in, int64_t out)
{
    const ith_work work = ith_work_of_linear(stage, times, rows, in, out);
    list->take(list->user, &work);
}

/* Adds an attention, with the operations of all ranks: 4 q_len kv_len head_dim for each head. */
static inline void ith_work_take_attention(const ith_work_list *list, const char *stage, double times,
                                           const ith_attn_problem *problem)
{
    const double heads = (double)problem->batch * (double)problem->heads;
    const ith_work work = {.kind = ITH_WORK_OF_ATTENTION,
                           .stage = stage,
                           .times = times,
                           .operations =
                               4 * heads * (double)problem->q_len * (double)problem->kv_len * (double)problem->head_dim,
                           .attention = problem};
    list->take(list->user, &work);
}

/* Adds operations on rows that read and write `bytes` bytes each time. */
static inline void ith_work_take_rows(const ith_work_list *list, const char *stage, double times, double bytes)
{
    const ith_work work = {.kind = ITH_WORK_OF_ROWS, .stage = stage, .times = times, .bytes = bytes};
    list->take(list->user, &work);
}

#endif
