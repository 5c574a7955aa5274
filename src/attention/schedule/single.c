/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy `single`, without exchanges: one rank, or several ranks that each hold all keys and a share of the
 * queries. */
#include "schedule.h"

static ith_status applicable(const ith_attn_setting *s)
{
    int ranks = s->ulysses * s->ring;
    if (ranks == 1 || s->problem.replicated_kv)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy single is for one rank, and there are %d: ulysses, ring and ulysses_ring use them all",
                    ranks);
}

enum { OFFSETS, COMPUTE, STAGES };

static bool next(ith_schedule *s, ith_step *step)
{
    const ith_attn_setting *set = s->setting;
    const ith_attn_problem *p = &set->problem;
    if (s->stage == OFFSETS && set->softmax != ITH_SOFTMAX_FIXED_M)
        s->stage++;
    if (s->stage == STAGES)
        return false;
    *step = (ith_step){.kind = s->stage++ == OFFSETS ? ITH_STEP_OFFSETS : ITH_STEP_COMPUTE,
                       .heads = ith_heads_of(p, 0, p->batch * p->heads),
                       .kv = {0, p->kv_len},
                       .shard = s->ring_index,
                       .first = true,
                       .last = true};
    ith_share(p->q_len, set->ulysses * set->ring, s->ring_index * set->ulysses + s->ulysses_index, &step->q.begin,
              &step->q.rows);
    return true;
}

const ith_strategy_ops ith_strategy_single = {
    .strategy = ITH_STRATEGY_SINGLE,
    .name = "single",
    .applicable = applicable,
    .next = next,
};
