/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange `copy`: rows of other ranks arrive as messages. The exchanges of a schedule become transfers between the
 * caller's tensors and buffers of this rank, and are timed. A buffer holds one tensor as [rows, heads, head_dim], or
 * lse as [heads, rows].
 *
 * The exchange `mixed` sends messages along the ring only. The ranks of a ulysses axis then use one another's tensors
 * in place (in_place.h), and the first hop is sent straight from these tensors. */
#ifndef ITH_ATTENTION_MESSAGE_H
#define ITH_ATTENTION_MESSAGE_H

#include "../schedule/schedule.h"
#include "../source.h"
#include "compress.h"
#include "device/carrier.h"

/* A compressed message that is to be restored when it has arrived. */
typedef struct ith_restored {
    ith_attn_tensor tensor;
    ith_region region;   /* where the rows go */
    const char *message; /* as it has arrived */
} ith_restored;

/* The lists of transfers of one exchange of the schedule, long enough for the step with the most transfers. */
typedef struct ith_posted {
    ith_transfer *sends, *receives;
    ith_carried_sizes most; /* the most transfers, and the most bytes, that any step posts */
    ith_request *request;   /* NULL: the exchange is not under way */
    bool used;              /* some step posts this exchange */
    /* The members below serve compressed messages. */
    char *out, *in;              /* messages as they travel, sent and received */
    int64_t out_bytes, in_bytes; /* the most bytes of both in any step */
    ith_restored *restored;      /* [most.receives] */
    int restored_count;          /* messages of the exchange under way that are to be restored */
} ith_posted;

/* The exchanges of one rank by messages, and their buffers. */
typedef struct ith_messages {
    const ith_attn_setting *setting;
    ith_posted exchanges[ITH_EXCHANGES];
    /* number of elements of each buffer, as rows times heads: the most that any step needs */
    int64_t sizes[ITH_PLACES][ITH_TENSORS];
    void *buffers[ITH_PLACES][ITH_TENSORS];
    /* [ulysses]: the tensors of the ranks on this rank's ulysses axis, in place of the buffers for chunks; NULL unless
     * the exchange is mixed */
    const ith_q_segment *axis_q;
    const ith_kv_segment *axis_kv;
    ith_carrier carrier; /* moves the messages of a device; not used on the processor */
    /* The members below belong to the execution under way. */
    const ith_attn_tensors *tensors;
    ith_plan_counters *counters;
    ith_q_segment q; /* the queries of the step that is being executed */
    ith_kv_segment kv;
    int under_way; /* number of exchanges under way */
    /* start of the time in which exchanges are under way: by the clock, and in the trace */
    double since_seconds, traced;
    ith_status status;             /* failure of the first exchange that failed, perhaps during a computation */
    ith_compress_error compressed; /* over all executions */
} ith_messages;

/* Enlarges the buffers and the lists of transfers so that all rows that a POST step sends and receives fit. To be
 * called for every POST step before ith_messages_lay_out. */
void ith_messages_widen(ith_messages *messages, const ith_schedule *schedule, const ith_step *step);
void ith_messages_lay_out(ith_messages *messages, ith_plan_memory *memory);
/* Makes the tensors of the ranks on this rank's ulysses axis the memory of its chunks, for the exchange `mixed`.
 * q, kv: [ulysses] segments, which are filled in before each execution. */
void ith_messages_use_axis(ith_messages *messages, const ith_q_segment *q, const ith_kv_segment *kv);

/* Begins an execution. To be called before the first step. */
void ith_messages_begin(ith_messages *messages, const ith_attn_tensors *tensors, ith_plan_counters *counters);
/* Ends an execution. Sets the error of compression in the counters, and records in the trace the share of the time of
 * exchanges that computation has hidden, from 0 to 1. */
void ith_messages_end(const ith_messages *messages);

/* Posts the exchange of a POST step. Adds the bytes of q, k, v and o that go to other ranks to *sent. */
ith_status ith_messages_post(ith_messages *messages, const ith_schedule *schedule, const ith_step *step,
                             _Atomic int64_t *sent);
/* Waits for an exchange; returns at once if it is not under way. Returns the first failure of any exchange so far. */
ith_status ith_messages_wait(ith_messages *messages, int exchange);
/* Moves data of the exchanges under way, without waiting. user: an ith_messages. */
void ith_messages_progress(void *user);

/* Sets *queries and *shard to the queries and the shard of keys that an OFFSETS or COMPUTE step of the schedule works
 * on. They are valid until the next call. */
void ith_messages_find(ith_messages *messages, const ith_step *step, ith_queries *queries, ith_shard *shard);

#endif
