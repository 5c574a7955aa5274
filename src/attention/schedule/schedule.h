/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: which rows of which heads a rank sends to whom and when, and what it computes meanwhile.
 *
 * A schedule is the list of steps of one rank. It follows from a setting and the number of the rank; tensors, memory
 * and communicators play no part, and memory is named by symbols (ith_place). Walking it allocates nothing:
 *
 *     ith_schedule schedule = ith_schedule_of(setting, rank);
 *     ith_step step;
 *     while (ith_schedule_next(&schedule, &step))
 *         for (int i = 0; i < step.moves; i++)
 *             ith_move sent = ith_schedule_move(&schedule, &step, true, i);
 *
 * The executor (run/execute.h) runs it and lays out the plan's memory by it; ith_schedule_sent_bytes counts by it. A
 * strategy generates it: one file, and its lines in strategies.inc. It does not know how rows of other ranks are
 * reached, by messages or where they lie. */
#ifndef ITH_ATTENTION_SCHEDULE_H
#define ITH_ATTENTION_SCHEDULE_H

#include "chunk.h"

/* Rows [begin, begin + rows) of the whole sequence. */
typedef struct ith_span {
    int64_t begin, rows;
} ith_span;

#define ITH_CHUNK_BUFFERS 3 /* chunks take turns in them */

/* A place holds one tensor of each kind: rows of q, k, v, o and lse. */
enum {
    ITH_PLACE_CALLER,    /* the tensors of the caller */
    ITH_PLACE_CHUNK,     /* the first of the buffers of chunks */
    ITH_PLACE_TRAVELLING /* the first of four buffers of k and v on their way along a ring */
    = ITH_PLACE_CHUNK + ITH_CHUNK_BUFFERS,
    ITH_PLACES = ITH_PLACE_TRAVELLING + 4
};

/* Exchanges under way at a time: one for each buffer of chunks, one along the ring. */
enum { ITH_EXCHANGE_HOP = ITH_CHUNK_BUFFERS, ITH_EXCHANGES };

typedef enum ith_step_kind {
    ITH_STEP_POST,    /* starts an exchange */
    ITH_STEP_WAIT,    /* waits for the end of the exchange that was last posted under its number */
    ITH_STEP_OFFSETS, /* computes the offsets of fixed_m; the ranks of the ring gather statistics of their shards */
    ITH_STEP_COMPUTE  /* passes the queries of some heads over one shard of keys */
} ith_step_kind;

typedef struct ith_step {
    ith_step_kind kind;
    int chunk, hop;
    /* POST and WAIT */
    int exchange; /* its number, below ITH_EXCHANGES: ITH_EXCHANGE_HOP goes along the ring, others the ulysses axis */
    bool outputs; /* POST: results go back; otherwise inputs come */
    int moves;    /* POST: in each direction, empty ones included */
    /* OFFSETS and COMPUTE */
    ith_heads heads;
    ith_span q, kv;
    int q_place, kv_place; /* o and lse lie where q does */
    int shard;             /* the ring index whose keys these are; OFFSETS: always this rank's */
    bool first, last;      /* COMPUTE: of the shards that these queries pass over */
} ith_step;

/* Rows of some heads that go to a peer of the axis, or come from it. The i-th move that a rank sends to another is the
 * i-th that the other receives from it. */
typedef struct ith_move {
    ith_attn_tensor tensor;
    int peer, place;
    int64_t first, heads; /* of k and v: kv heads. 0 heads: the move is empty */
    ith_span rows;
    int64_t at; /* the place's row in which the first of them lies */
} ith_move;

/* How far the walk over a rank's schedule has come. */
typedef struct ith_schedule {
    const ith_attn_setting *setting; /* its strategy, mesh and problem; no rank's place in the mesh */
    const struct ith_strategy_ops *ops;
    int ulysses_index, ring_index;
    int chunks, buffers;
    int chunk, hop, stage; /* of the next step; the strategy's */
} ith_schedule;

typedef struct ith_strategy_ops {
    ith_strategy strategy;
    const char *name;
    /* Whether the setting's mesh is one for this strategy; a sentence with the nearest that is, if not. */
    ith_status (*applicable)(const ith_attn_setting *setting);
    bool (*next)(ith_schedule *schedule, ith_step *step);
    ith_move (*move)(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
} ith_strategy_ops;

#define ITH_STRATEGY(symbol) extern const ith_strategy_ops symbol;
#include "strategies.inc"
#undef ITH_STRATEGY

/* NULL if there is none. */
const ith_strategy_ops *ith_strategy_find(ith_strategy strategy);

/* At its beginning. The setting must outlive it. */
ith_schedule ith_schedule_of(const ith_attn_setting *setting, int rank);
/* The next step; false after the last. */
bool ith_schedule_next(ith_schedule *schedule, ith_step *step);
/* Move `index` of a POST that this rank sends or receives. */
ith_move ith_schedule_move(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
/* The rows of a sequence that ring index `index` holds. */
ith_span ith_schedule_shard(const ith_attn_setting *setting, int64_t length, int index);

/* Bytes of q, k, v and o that a rank sends in one execution (ith_plan_info.sent_bytes). In place the ring sends no
 * messages: each other rank of the ring reads the shard of this rank once. */
int64_t ith_schedule_sent_bytes(const ith_attn_setting *setting, int rank);

#endif
