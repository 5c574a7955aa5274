/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of wisdom about strategies (strategy_wisdom.h):
 *
 *     strategy TYPE batch=B heads=H kv_heads=K head_dim=D softmax=S queries=M keys=N ranks=P process=Q host=R
 *         [device=MODEL]: ulysses U ring V direction X chunks C time T usual_time W
 *
 * on one line. M and N are classes of tile_wisdom.h, X is 1 for uni and 2 for bidir, times are microseconds. */
#include "strategy_wisdom.h"

#include "../kernels/device_use.h"
#include "agree.h"
#include "tile_wisdom.h"

#include <stdio.h>

static void subject_of(const ith_attn_setting *s, ith_softmax softmax, const ith_group *group,
                       char subject[ITH_WISDOM_SUBJECT_BYTES])
{
    const ith_attn_problem *p = &s->problem;
    snprintf(subject, ITH_WISDOM_SUBJECT_BYTES,
             "strategy %s batch=%lld heads=%lld kv_heads=%lld head_dim=%lld softmax=%s queries=%lld keys=%lld ranks=%d "
             "process=%d host=%d%s%s",
             ith_dtype_name(p->dtype), (long long)p->batch, (long long)p->heads, (long long)p->kv_heads,
             (long long)p->head_dim, ith_softmax_name(softmax), (long long)ith_tile_class(p->q_len),
             (long long)ith_tile_class(p->kv_len), group->ranks, group->blocks.process_ranks, group->blocks.host_ranks,
             s->device ? " device=" : "", s->device ? s->device->model : "");
}

void ith_strategy_wisdom_put(ith_wisdom *wisdom, const ith_attn_setting *setting, const ith_group *group,
                             const ith_plan_info *info, double seconds, double usual_seconds)
{
    ith_wisdom_entry entry = {.own = true};
    subject_of(setting, info->softmax, group, entry.subject);
    ith_wisdom_add(&entry, "ulysses", info->ulysses);
    ith_wisdom_add(&entry, "ring", info->ring);
    ith_wisdom_add(&entry, "direction", info->direction);
    ith_wisdom_add(&entry, "chunks", info->chunks);
    ith_wisdom_add(&entry, "time", 1e6 * seconds);
    ith_wisdom_add(&entry, "usual_time", 1e6 * usual_seconds);
    ith_wisdom_put(wisdom, &entry);
}

const ith_wisdom_entry *ith_strategy_wisdom_find(const ith_wisdom *wisdom, const ith_attn_setting *setting,
                                                 ith_softmax softmax, const ith_group *group)
{
    char subject[ITH_WISDOM_SUBJECT_BYTES];
    subject_of(setting, softmax, group, subject);
    return ith_wisdom_find(wisdom, subject);
}

/* The choices of an entry, as they are sent to the other ranks; 0s if nothing is known. */
typedef struct advice {
    int ulysses, ring, chunks;
    ith_direction direction;
} advice;

static advice find(const ith_wisdom *wisdom, const ith_attn_setting *s, ith_softmax softmax, const ith_group *group)
{
    const ith_wisdom_entry *entry = ith_strategy_wisdom_find(wisdom, s, softmax, group);
    advice known = {.ulysses = (int)ith_wisdom_value(entry, "ulysses"),
                    .ring = (int)ith_wisdom_value(entry, "ring"),
                    .chunks = (int)ith_wisdom_value(entry, "chunks"),
                    .direction = (ith_direction)ith_wisdom_value(entry, "direction")};
    bool whole = (int64_t)known.ulysses * known.ring == group->ranks && known.chunks &&
                 (known.direction == ITH_DIRECTION_UNI || known.direction == ITH_DIRECTION_BIDIR);
    return whole ? known : (advice){0};
}

/* Whether the options leave open every choice that wisdom makes, and every other choice on which the fastest strategy
 * depends. */
static bool is_open(const ith_attn_options *o)
{
    return o->strategy == ITH_STRATEGY_AUTO && !o->ulysses && !o->ring && o->direction == ITH_DIRECTION_AUTO &&
           !o->chunks && o->exchange == ITH_EXCHANGE_AUTO && o->fold == ITH_CHOICE_AUTO &&
           o->compress == ITH_COMPRESS_OFF && o->overlap != ITH_CHOICE_OFF;
}

ith_status ith_strategy_recall(ith_comm *comm, const ith_attn_setting *s, const ith_group *group,
                               ith_attn_options *options)
{
    ith_wisdom *wisdom = NULL;
    ith_status status = ITH_OK;
    advice best = {0};
    if (group->ranks == 1 || s->problem.replicated_kv || !is_open(options))
        return ITH_OK;
    if (ith_comm_rank(comm) == 0)
        status = ith_wisdom_open(s->context, &wisdom);
    if (wisdom) {
        best =
            find(wisdom, s, options->softmax == ITH_SOFTMAX_FIXED_M ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE, group);
        ith_wisdom_close(s->context);
    }
    status = ith_agree_with_first(s->context, comm, status, &best, sizeof best);
    if (!status && best.ulysses)
        options->ulysses = best.ulysses, options->ring = best.ring, options->chunks = best.chunks,
        options->direction = best.direction;
    return status;
}
