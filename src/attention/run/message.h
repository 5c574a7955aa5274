/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of other ranks by messages: the exchanges that a schedule posts become transfers between the caller's tensors
 * and buffers of this rank, and are timed. A buffer holds [rows, heads, head_dim] of one tensor; lse lies as [heads,
 * rows]. */
#ifndef ITH_ATTENTION_MESSAGE_H
#define ITH_ATTENTION_MESSAGE_H

#include "../../base/arena.h"
#include "../schedule/schedule.h"
#include "cpu/source.h"

typedef struct ith_posted {
    ith_transfer *sends, *receives;
    int64_t send_count, receive_count; /* the most of any step */
    ith_request *request;              /* NULL: nothing is under way */
} ith_posted;

typedef struct ith_messages {
    const ith_attn_setting *setting;
    ith_posted exchanges[ITH_EXCHANGES];
    int64_t sizes[ITH_PLACES][ITH_TENSORS]; /* the most rows times heads of any step */
    void *buffers[ITH_PLACES][ITH_TENSORS];
    /* The execution under way. */
    const ith_attn_tensors *tensors;
    ith_plan_counters *counters;
    ith_q_segment q; /* of the step under way */
    ith_kv_segment kv;
    int under_way;                /* exchanges */
    double since_seconds, traced; /* since when some exchange has been under way: by the clock, in the trace */
    ith_status status;            /* of the first exchange that failed, perhaps during a computation */
} ith_messages;

/* Makes room for the moves of a POST; to be called for every step before ith_messages_lay_out. */
void ith_messages_widen(ith_messages *messages, const ith_schedule *schedule, const ith_step *step);
void ith_messages_lay_out(ith_messages *messages, ith_arena *arena);

void ith_messages_begin(ith_messages *messages, const ith_attn_tensors *tensors, ith_plan_counters *counters);
/* After the last step. Records in the trace how much of the exchange time was hidden, from 0 to 1. */
void ith_messages_end(const ith_messages *messages);

/* Adds the bytes of q, k, v and o that go to other ranks to *sent. */
ith_status ith_messages_post(ith_messages *messages, const ith_schedule *schedule, const ith_step *step,
                             _Atomic int64_t *sent);
/* Returns at once if nothing is under way. Returns the first failure of any exchange so far. */
ith_status ith_messages_wait(ith_messages *messages, int exchange);
/* Moves data of the exchanges under way, without waiting. user: an ith_messages. */
void ith_messages_progress(void *user);

/* Where the queries and the shard of an OFFSETS or COMPUTE lie. Valid until the next call. */
void ith_messages_find(ith_messages *messages, const ith_step *step, ith_queries *queries, ith_shard *shard);

#endif
