/* SPDX-License-Identifier: Apache-2.0 */
/* Describes plans as structs and as text, and predicts plans that are not created. */
#include "../base/sized.h"
#include "plan.h"
#include "settle.h"

#include <stdio.h>

ith_plan_info ith_plan_info_of(const ith_attn_setting *s, int64_t sent_bytes, const ith_plan_sizes *sizes)
{
    return (ith_plan_info){
        .struct_size = sizeof(ith_plan_info),
        .strategy = s->strategy,
        .ranks = s->ulysses * s->ring,
        .ulysses = s->ulysses,
        .ring = s->ring,
        .direction = s->direction,
        .chunks = ith_chunk_count(s),
        .folded = s->folded,
        .softmax = s->softmax,
        .smoothed = s->smoothed,
        .exchange = s->exchange,
        .kernel = ith_attn_kernel_name(s),
        .block_q = s->tiles.block_q,
        .block_kv = s->tiles.block_kv,
        .block_kv_compute = s->tiles.block_kv_compute,
        .block_kv_compute_in = s->tiles.block_kv_compute_in,
        .threads = s->threads,
        .kernel_origin = s->kernel_origin,
        .sent_bytes = sent_bytes,
        .memory_bytes = sizes->host_bytes,
        .compress = s->compress,
        .unhidden = s->unhidden,
        .device_bytes = sizes->device_bytes,
    };
}

static ith_plan_info info_of(const ith_plan *plan)
{
    const ith_attn_setting *s = &plan->setting;
    return ith_plan_info_of(s, ith_schedule_sent_bytes(s, s->rank), &plan->sizes);
}

ith_status ith_plan_describe(const ith_plan *plan, ith_plan_info *info)
{
    if (!plan)
        return ith_need(NULL, plan, "plan");
    const ith_plan_info now = info_of(plan);
    return ITH_SIZED_FILL(plan->setting.context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &now);
}

/* Copies the plan's counters to the caller. The executor keeps them, because it moves the bytes. */
ith_status ith_plan_count(const ith_plan *plan, ith_plan_counters *counters)
{
    if (!plan)
        return ith_need(NULL, plan, "plan");
    return ITH_SIZED_FILL(plan->setting.context, ith_plan_counters, ITH_PLAN_COUNTERS_INIT, counters,
                          &plan->executor.counters);
}

/* Predicts the choices of a plan, for one of `ranks` ranks, without the other ranks: nothing is sent, and no kernel is
 * timed. */
ith_status ith_plan_predict(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                            int ranks, int rank, bool shared_memory, ith_plan_info *info)
{
    ith_attn_options options;
    ith_group group = {.ranks = ranks, .rank = rank};
    ith_attn_setting setting;
    ith_plan_sizes sizes;
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = ITH_SIZED_CHECK(context, ith_plan_info, ITH_PLAN_INFO_INIT, info);
    if (status)
        return status;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %d, and must be %s", ranks < 1 ? "ranks" : "rank",
                        ranks < 1 ? ranks : rank, ranks < 1 ? "at least 1" : "from 0 to ranks - 1");
    status = ith_settle_request(context, problem, given, &group, &options, &setting);
    options.effort = ITH_EFFORT_ESTIMATE;
    if (!status)
        status = ith_settle_places(context, &options, shared_memory, &group);
    if (!status)
        status = ith_settle(&options, &group, NULL, &setting);
    if (!status)
        status = ith_plan_size(&setting, &sizes);
    if (status)
        return status;
    const ith_plan_info foreseen = ith_plan_info_of(&setting, ith_schedule_sent_bytes(&setting, rank), &sizes);
    return ITH_SIZED_FILL(context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &foreseen);
}

/* ---- For people ------------------------------------------------------------------------------------------------ */

/* Describes the exchange in words that end a line of ith_plan_print. */
static const char *exchange_text(const ith_plan_info *info, char *text, size_t text_bytes)
{
    if (info->exchange == ITH_EXCHANGE_AUTO)
        snprintf(text, text_bytes, ", nothing exchanged");
    else
        snprintf(text, text_bytes, ", exchange %s%s%s%s in %d chunk%s%s%s%s", ith_exchange_mode_name(info->exchange),
                 info->exchange == ITH_EXCHANGE_MIXED ? " (ulysses in place, ring copied)" : "",
                 info->compress ? ", compressed to " : "",
                 info->compress ? ith_compress_name((ith_compress)info->compress) : "", info->chunks,
                 info->chunks == 1 ? "" : "s", !info->folded ? ", batch not folded" : "",
                 info->ring > 1 ? (info->direction == ITH_DIRECTION_UNI ? ", uni" : ", bidir") : "",
                 info->unhidden ? ", not hidden" : "");
    return text;
}

/* Describes the device that computes, or the tiles and threads of the processor. A device has tiles of its own. */
static const char *machine_text(const ith_attn_setting *s, const ith_plan_info *i, char *text, size_t text_bytes)
{
    if (s->device)
        snprintf(text, text_bytes, "on %s", s->device->name);
    else
        snprintf(text, text_bytes, "tiles of %lld queries and %lld/%lld/%lld keys, %d thread%s", (long long)i->block_q,
                 (long long)i->block_kv, (long long)i->block_kv_compute, (long long)i->block_kv_compute_in, i->threads,
                 i->threads == 1 ? "" : "s");
    return text;
}

/* Prints every choice that decides the bits of a result, and the origin of the kernel. */
const char *ith_plan_print(const ith_plan *plan, char *text, size_t text_bytes)
{
    if (!text || !text_bytes)
        return text;
    text[0] = '\0';
    if (!plan)
        return text;
    const ith_attn_setting *s = &plan->setting;
    ith_plan_info i = info_of(plan);
    char exchange[128], machine[128], device[64] = "";
    if (s->device)
        snprintf(device, sizeof device, ", and %.3f MiB on the device", (double)i.device_bytes / 1048576.0);
    snprintf(text, text_bytes,
             "%s over %d rank%s%s, ulysses %d x ring %d%s\n"
             "softmax %s%s, kernel %s (%s), %s\n"
             "rank %d sends %.3f MiB in one execution and holds %.3f MiB%s",
             ith_strategy_name(i.strategy), i.ranks, i.ranks == 1 ? "" : "s",
             s->problem.replicated_kv ? " (keys replicated)" : "", i.ulysses, i.ring,
             exchange_text(&i, exchange, sizeof exchange), ith_softmax_name(i.softmax),
             i.softmax == ITH_SOFTMAX_FIXED_M && !i.smoothed ? " (not smoothed)" : "", i.kernel,
             ith_kernel_origin_name(i.kernel_origin), machine_text(s, &i, machine, sizeof machine),
             ith_comm_rank(s->comm), (double)i.sent_bytes / 1048576.0, (double)i.memory_bytes / 1048576.0, device);
    return text;
}
