/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: the transfers of a rank (rows, heads, peer, moment) and the computations between them.
 *
 * A schedule is the list of steps of one rank. It follows from a setting and the number of the rank, but not from
 * tensors, memory or communicators: memory has symbolic names (ITH_PLACE_CALLER, ...). A walk over a schedule allocates
 * nothing:
 *
 *     ith_schedule schedule = ith_schedule_of(setting, rank);
 *     ith_step step;
 *     while (ith_schedule_next(&schedule, &step))
 *         for (int i = 0; i < step.moves; i++)
 *             ith_move sent = ith_schedule_move(&schedule, &step, true, i);
 *
 * The executor (run/execute.h) walks the schedule to lay out the plan's memory and to execute it;
 * ith_schedule_sent_bytes walks it to count bytes. A strategy generates the steps: it is one file, and a line in
 * strategies.inc. Its steps are the same whether rows of other ranks are sent as messages or used in place; then the
 * executor skips the transfers. */
#ifndef ITH_ATTENTION_SCHEDULE_H
#define ITH_ATTENTION_SCHEDULE_H

#include "chunk.h"

/* Rows [begin, begin + rows) of the whole sequence. */
typedef struct ith_row_range {
    int64_t begin, rows;
} ith_row_range;

#define ITH_CHUNK_BUFFERS 3 /* buffers for exchanged chunks; chunk c uses buffer c % ITH_CHUNK_BUFFERS */

/* Places: symbolic names for memory that holds rows of the tensors q, k, v, o and lse. */
enum {
    ITH_PLACE_CALLER, /* the tensors of the caller */
    /* the first of ITH_CHUNK_BUFFERS buffers for exchanged chunks; if the ulysses axis is used in place, the tensors of
     * its ranks */
    ITH_PLACE_CHUNK,
    /* the first of four buffers for k and v that travel along a ring */
    ITH_PLACE_TRAVELLING = ITH_PLACE_CHUNK + ITH_CHUNK_BUFFERS,
    ITH_PLACES = ITH_PLACE_TRAVELLING + 4
};

/* Exchanges that may be under way at the same time are numbered: 0 to ITH_CHUNK_BUFFERS - 1 for the buffers of chunks,
 * then ITH_EXCHANGE_HOP for the hop along the ring. ITH_EXCHANGES is their count. */
enum { ITH_EXCHANGE_HOP = ITH_CHUNK_BUFFERS, ITH_EXCHANGES };

/* The kinds of steps in a schedule. */
typedef enum ith_step_kind {
    ITH_STEP_POST,    /* starts an exchange */
    ITH_STEP_WAIT,    /* waits for the exchange with the step's number, which was posted before */
    ITH_STEP_OFFSETS, /* computes the offsets of fixed_m; the ranks of the ring gather statistics of their shards */
    ITH_STEP_COMPUTE  /* computes attention of some heads' queries to one shard of keys */
} ith_step_kind;

/* One step of a rank's schedule. */
typedef struct ith_step {
    ith_step_kind kind;
    int chunk, hop;
    /* The next three members belong to POST and WAIT steps. */
    /* number of the exchange: ITH_EXCHANGE_HOP for a hop of the ring, smaller numbers for the ulysses axis */
    int exchange;
    bool outputs; /* POST: true if results return to their owners, false if inputs are fetched */
    /* POST: number of moves (ith_move) that are sent, and of moves that are received, some perhaps empty; and number of
     * groups (ith_move_group) that they form */
    int moves, groups;
    /* The members below belong to OFFSETS and COMPUTE steps. */
    ith_heads heads;
    ith_row_range q, kv;
    /* names (ITH_PLACE_...) of the memory that holds the queries, o and lse, and of the memory that holds the keys and
     * values */
    int q_place, kv_place;
    int shard;        /* ring index of the rank that owns the keys of this step; in an OFFSETS step, of this rank */
    bool first, last; /* COMPUTE: whether this is the first or the last shard for these queries */
} ith_step;

/* A move: rows of some heads that are sent to another rank (`peer`), or received from it. The i-th move that rank a
 * sends to rank b is the i-th move that b receives from a. */
typedef struct ith_move {
    ith_attn_tensor tensor;
    int peer, place;
    int64_t first, heads; /* heads [first, first + heads), kv heads for k and v; heads = 0: an empty move */
    ith_row_range rows;
    int64_t at; /* the first row of the move is row `at` of the memory that `place` names */
} ith_move;

/* All moves of a POST step that have the same tensor and place. A walk that only adds up bytes, or looks for the most,
 * asks for groups: their number does not grow with the ulysses axis. */
typedef struct ith_move_group {
    ith_attn_tensor tensor;
    int place;
    int64_t vectors; /* rows times heads, of all moves together */
    int64_t kept;    /* of these, the vectors that stay with the rank */
    int64_t regions; /* of all moves together (ith_move_regions) */
    int64_t extent;  /* the most (at + rows) * heads of a move; 0 if the place is ITH_PLACE_CALLER */
} ith_move_group;

/* The state of a walk over a rank's schedule. */
typedef struct ith_schedule {
    const ith_attn_setting *setting; /* used for strategy, mesh and problem; its rank is ignored */
    const struct ith_strategy_ops *ops;
    int ulysses_index, ring_index;
    int chunks, buffers; /* number of chunks, and number of buffers that they share */
    /* the next step: its chunk, its hop in the ring, and a number that only the strategy interprets */
    int chunk, hop, stage;
} ith_schedule;

/* A strategy: its name and the functions that generate its steps. */
typedef struct ith_strategy_ops {
    ith_strategy strategy;
    const char *name;
    /* Returns ITH_OK if the strategy works on the setting's mesh. Otherwise the error sentence names the nearest mesh
     * that works. */
    ith_status (*applicable)(const ith_attn_setting *setting);
    /* Implement ith_schedule_next, ith_schedule_move and ith_schedule_group for this strategy. */
    bool (*next)(ith_schedule *schedule, ith_step *step);
    ith_move (*move)(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
    ith_move_group (*group)(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
    /* Implement ith_schedule_hops_alike and ith_schedule_skip_hops; NULL: there are no hops. */
    int (*hops_alike)(const ith_schedule *schedule);
    void (*skip_hops)(ith_schedule *schedule, int count);
} ith_strategy_ops;

#define ITH_STRATEGY(symbol) extern const ith_strategy_ops symbol;
#include "strategies.inc"
#undef ITH_STRATEGY

/* The functions of a strategy; NULL for ITH_STRATEGY_AUTO and for unknown values. */
const ith_strategy_ops *ith_strategy_find(ith_strategy strategy);

/* Returns the setting for a walk that need not see every batch entry. If each entry has chunks of its own, the steps of
 * two entries differ only in the numbers of their heads, and the returned setting has at most `most` entries. Otherwise
 * it is equal to `setting`. */
ith_attn_setting ith_schedule_entries(const ith_attn_setting *setting, int64_t most);

/* The schedule of a rank, before its first step. The setting must live as long as the schedule. */
ith_schedule ith_schedule_of(const ith_attn_setting *setting, int rank);
/* Writes the next step to *step. Returns false after the last step. A problem without queries has no steps, however
 * many heads it has. */
bool ith_schedule_next(ith_schedule *schedule, ith_step *step);
/* In a long ring most hops are alike: they have the same steps, places and numbers of rows. A walk that only adds up
 * bytes or times may skip them. At the beginning of a hop, ith_schedule_hops_alike returns how many of the next hops
 * are like the four hops before them, an even number. Elsewhere it returns 0. ith_schedule_skip_hops skips `count` of
 * these hops; count is even. The longest shard of each place belongs to a hop that is not skipped. */
int ith_schedule_hops_alike(const ith_schedule *schedule);
void ith_schedule_skip_hops(ith_schedule *schedule, int count);
/* Move number `index` of a POST step: sent by this rank if `sent` is true, otherwise received by it. */
ith_move ith_schedule_move(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
/* The moves of a POST step in groups, in the same way. */
ith_move_group ith_schedule_group(const ith_schedule *schedule, const ith_step *step, bool sent, int index);
/* The number of strided pieces of memory that a move consists of: one for lse, otherwise one for each batch entry. It
 * is the same on the sender and on the receiver. */
int64_t ith_move_regions(const ith_attn_setting *setting, const ith_move *move);
/* The rows of a sequence of `length` rows that the ranks with ring index `index` hold together. */
ith_row_range ith_schedule_shard(const ith_attn_setting *setting, int64_t length, int index);

/* Whether an exchange of the schedule is made by messages; otherwise ranks use one another's memory. exchange: its
 * number (ith_step.exchange). */
bool ith_schedule_by_messages(const ith_attn_setting *setting, int exchange);
/* The bytes of this rank's shard that another rank reads in place during a COMPUTE step. 0 if the exchange is not
 * in_place, or if every rank computes with its own shard in this step. */
int64_t ith_schedule_read_bytes(const ith_schedule *schedule, const ith_step *step);
/* Bytes of q, k, v and o that a rank sends in one execution (ith_plan_info.sent_bytes). If the exchange is in place,
 * the ring sends no messages, and one read of this rank's shard by each other rank of the ring is counted. */
int64_t ith_schedule_sent_bytes(const ith_attn_setting *setting, int rank);

#endif
