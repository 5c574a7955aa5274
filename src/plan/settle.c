/* SPDX-License-Identifier: Apache-2.0 */
#include "settle.h"

#include "../base/size.h"
#include "../base/team_limit.h"
#include "choose.h"
#include "kernel_choice.h"
#include "options.h"

#include <omp.h>

ith_status ith_settle_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                              const ith_group *group, ith_attn_options *options, ith_attn_setting *setting)
{
    ith_status status = ith_options_read(context, given, options);
    if (!status)
        status = ith_attn_setting_init(context, problem, group->ranks, group->rank, setting);
    if (!status)
        setting->threads = options->threads ? options->threads : omp_get_max_threads();
    if (!status)
        status = ith_thread_limit_check(context, "the number of threads", setting->threads);
    return status;
}

/* The online softmax is fixed_m's equal in speed or better until measured otherwise, and takes every problem. */
static ith_softmax choose_softmax(const ith_attn_options *options)
{
    return options->softmax == ITH_SOFTMAX_AUTO ? ITH_SOFTMAX_ONLINE : options->softmax;
}

/* Chunks cost nothing but smaller pieces of work, and hide and shrink what is copied; in place there is neither. */
static int choose_chunks(const ith_attn_options *options, const ith_attn_setting *s)
{
    if (options->chunks)
        return options->chunks;
    return s->exchange == ITH_EXCHANGE_COPY ? 4 : 1;
}

static ith_status choose_exchange(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    bool none = group->ranks == 1 || s->problem.replicated_kv;
    if (!none && options->exchange == ITH_EXCHANGE_IN_PLACE && !group->shared_memory)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "exchange is in_place, and these ranks do not share memory: copy is what they can do");
    s->exchange = options->exchange;
    if (s->exchange == ITH_EXCHANGE_AUTO)
        s->exchange = group->shared_memory ? ITH_EXCHANGE_IN_PLACE : ITH_EXCHANGE_COPY;
    if (none)
        s->exchange = ITH_EXCHANGE_AUTO;
    return ITH_OK;
}

/* Chunks of all batch entries are counted in an int. */
static ith_status check_chunks(ith_attn_setting *s)
{
    if (s->folded)
        return ITH_OK;
    if (s->problem.batch > INT32_MAX)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "fold is off, which takes a batch of at most %d, and batch is %lld", INT32_MAX,
                        (long long)s->problem.batch);
    s->chunks = (int)ith_min64(s->chunks, INT32_MAX / s->problem.batch);
    return ITH_OK;
}

ith_status ith_settle_choices(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    ith_status status = ith_choose_strategy(options, group->ranks, group->rank, s);
    if (!status)
        status = choose_exchange(options, group, s);
    if (status)
        return status;
    bool alone = s->strategy == ITH_STRATEGY_SINGLE;
    s->softmax = choose_softmax(options);
    s->smoothed = options->smooth != ITH_CHOICE_OFF && s->softmax == ITH_SOFTMAX_FIXED_M;
    s->direction =
        !alone && s->ring > 1 && options->direction == ITH_DIRECTION_BIDIR ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    s->folded = alone || s->ulysses == 1 || options->fold != ITH_CHOICE_OFF;
    s->chunks = alone ? 1 : choose_chunks(options, s);
    status = check_chunks(s);
    if (status)
        return status;
    return options->kernel ? ith_kernel_take_named(options->kernel, s) : ITH_OK;
}
