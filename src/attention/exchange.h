/* SPDX-License-Identifier: Apache-2.0 */
/* The all-to-all of ulysses by messages: every rank's rows of a chunk's heads become all rows of the rank's own heads
 * of it, and back. Blocks go straight from the caller's [B, S share, H, D] to their place in [rows, problems, D]; q, k
 * and v of a chunk travel as one exchange.
 *
 * Chunks come in three buffers that take turns, so that the inputs of chunk i + 1 and the outputs of chunk i - 1 may
 * travel while chunk i is computed. */
#ifndef ITH_ATTENTION_EXCHANGE_H
#define ITH_ATTENTION_EXCHANGE_H

#include "../base/arena.h"
#include "schedule/chunk.h"
#include "run/cpu/source.h"
#include "run/transit.h"

/* A rank of the ulysses axis: its rows within what the axis holds together. */
typedef struct ith_member {
    int64_t q_begin, q_rows, kv_begin, kv_rows;
} ith_member;

/* A chunk between its two exchanges. */
typedef struct ith_exchanged {
    int chunk;
    ith_heads heads; /* this rank's of it */
    ith_q_segment q_segment;
    ith_kv_segment kv_segment;
    ith_queries queries;
    ith_shard own;
    ith_transfer *sends, *receives;
    int send_count, receive_count;
    ith_request *request; /* under way, in or out */
} ith_exchanged;

#define ITH_EXCHANGE_BUFFERS 3

typedef struct ith_exchange {
    const ith_attn_setting *setting;
    ith_member *members;                        /* [ulysses] */
    int64_t q_rows, kv_rows, q_first, kv_first; /* what the axis holds together */
    int64_t problems, kv_heads;               /* the most that a chunk gives this rank */
    ith_exchanged buffers[ITH_EXCHANGE_BUFFERS];
    float *lse[ITH_EXCHANGE_BUFFERS]; /* of each buffer, whether wanted or not */
    ith_transit *transit;             /* of the run under way */
} ith_exchange;

void ith_exchange_lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_exchange *out);
void ith_exchange_init(ith_exchange *exchange);

/* What is done with a chunk whose inputs have come. Afterwards its k and v may hold anything. */
typedef ith_status (*ith_chunk_fn)(void *user, const ith_exchanged *chunk, const ith_attn_tensors *tensors);

/* All chunks, one after the other: inputs, compute, outputs. Collective over ulysses_comm. */
ith_status ith_exchange_run(ith_exchange *exchange, const ith_attn_tensors *tensors, ith_chunk_fn compute, void *user,
                            ith_transit *transit);
/* Moves what is under way while a chunk is computed. user: an ith_exchange. */
void ith_exchange_progress(void *user);

#endif
