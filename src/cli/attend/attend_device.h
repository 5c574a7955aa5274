/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one rank where its context computes: on the processor they are a share of the whole tensors; on a
 * device they are copies of this share in the device's memory. */
#ifndef ITH_CLI_ATTEND_DEVICE_H
#define ITH_CLI_ATTEND_DEVICE_H

#include "attend_whole.h"

#define ITH_ATTEND_PLACED_MAX 6 /* tensors that a device may hold: q, k, v, o, lse, mask */

/* A rank's tensors in their place, and the problem with the strides that they have there. */
typedef struct ith_attend_placed {
    ith_attn_problem problem;
    ith_attn_tensors tensors;
    ith_attn_tensors share;              /* the rank's share of the whole tensors */
    int64_t q_rows, kv_rows;             /* rows of the share */
    int64_t o_stride;                    /* bytes from one batch entry of the share's o to the next */
    ith_context *context;                /* NULL: nothing is held */
    void *memory[ITH_ATTEND_PLACED_MAX]; /* of the device */
    int memory_count;
} ith_attend_placed;

/* Brings the share of rank `rank` of `ranks` to where the context computes: inputs, and the present contents of o and
 * lse. On failure nothing is held. */
ith_status ith_attend_place(ith_context *context, const ith_attend_whole *whole, int ranks, int rank,
                            ith_attend_placed *out);
/* Copies o and lse back to the share of the whole tensors. */
ith_status ith_attend_bring_back(const ith_attend_placed *placed);
/* Frees the tensors on the device. */
void ith_attend_leave(ith_attend_placed *placed);

#endif
