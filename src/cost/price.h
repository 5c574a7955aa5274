/* SPDX-License-Identifier: Apache-2.0 */
/* Prices: the seconds that the parts of a plan take on a machine that nobody else uses. docs/cost.md has the equations.
 *
 * Work is priced for a rank of T units whose loops are shared out as run/cpu/sweep.c does. An exchange is described by
 * its traffic: the bytes that a rank sends and receives over each level of the machine. */
#ifndef ITH_COST_PRICE_H
#define ITH_COST_PRICE_H
#include "../plan/plan.h"
#include "machine.h"

/* A plan with the rates of the machine for it. */
typedef struct ith_price {
    ith_machine_view *view;
    ith_attn_setting setting;  /* setting.kernel stands in for the plan's kernel if the library lacks it */
    ith_machine_attention row; /* the rates of the plan's kernel */
    ith_attn_tiles tiles;      /* the tiles of the plan's kernel */
    const char *kernel;        /* name of the plan's kernel; valid as long as the caller's machine */
    int64_t units;             /* compute units of a rank */
    double unit_rate;          /* rate of a unit while all ranks compute, as a share of its rate alone */
} ith_price;

/* Makes every choice of a plan, as ith_plan_create would on the machine, and finds its rates. */
ith_status ith_price_plan(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                          const ith_machine *machine, int ranks, ith_machine_view *view, ith_price *out);

/* The part of ith_price_plan that does not depend on the strategy: checks the problem, the options and the machine.
 * *heads: query heads of the whole batch. */
ith_status ith_price_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                             const ith_machine *machine, int ranks, int64_t *heads);
/* The public description of the plan. */
ith_plan_info ith_price_info(const ith_price *price, int64_t sent_bytes, const ith_plan_sizes *sizes);

/* ---- Computing ------------------------------------------------------------------------------------------------- */

/* The number of KV blocks of a shard. */
int64_t ith_price_blocks(const ith_price *price, int64_t rows);
/* The attention of q_rows queries of some heads to `keys` keys in `blocks` KV blocks, which are packed. */
double ith_price_attend(const ith_price *price, const ith_heads *heads, int64_t q_rows, double keys, double blocks);
/* Partial results of some heads, which one job of a sweep writes and a later one reads. */
double ith_price_state(const ith_price *price, const ith_heads *heads, int64_t q_rows);
/* The packing of `rows` keys and values of some kv heads. */
double ith_price_pack(const ith_price *price, int64_t kv_heads, int64_t rows);
/* The statistics and offsets of fixed_m for some heads, q_rows queries and kv_rows keys. */
double ith_price_offsets(const ith_price *price, const ith_heads *heads, int64_t q_rows, int64_t kv_rows);

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

/* The bytes of one exchange of one rank. */
typedef struct ith_traffic {
    double sent[ITH_MACHINE_LEVELS], received[ITH_MACHINE_LEVELS]; /* by level */
    /* by level: bytes that the rank's group sends over it, the sum over the ranks of the group. The group is the ranks
     * that the level inside this level joins. Set only where the machine has a rate for a whole group. */
    double group_sent[ITH_MACHINE_LEVELS];
    double kept; /* rows that the rank copies for itself */
} ith_traffic;

/* The traffic of a POST step of a rank. */
ith_traffic ith_price_traffic(const ith_price *price, const ith_schedule *schedule, const ith_step *step);
/* The bytes that the rank sends. */
double ith_traffic_sent(const ith_traffic *traffic);
/* Whether anything is sent or received over a level. */
bool ith_traffic_uses(const ith_traffic *traffic, int level);
/* The time for which the traffic occupies the rank's link of a level, without its latency. group: the result is at
 * least the time for which all ranks of its group together occupy the link that they share. */
double ith_price_link(const ith_price *price, const ith_traffic *traffic, int level, bool group);
/* The time that an exchange over a level takes besides the time of its bytes. */
double ith_price_setup(const ith_price *price, int level);
/* The copies that a rank makes for its messages, and for the rows that it keeps. */
double ith_price_copies(const ith_price *price, const ith_traffic *traffic);
double ith_price_kept(const ith_price *price, const ith_traffic *traffic);
/* The seconds in which all units of the rank compress the messages that it sends in an exchange, and restore the
 * messages that arrive. Both are operations on rows, which read one form and write the other. 0 without
 * compression. */
typedef struct ith_compress_price {
    double compress, restore;
} ith_compress_price;
ith_compress_price ith_price_compression(const ith_price *price, const ith_step *step, const ith_traffic *traffic);
/* The largest latency between two ranks of the plan. */
double ith_price_latency(const ith_price *price);

#endif
