/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out memory for the steps of a schedule, and executes them (execute.h). */
#include "execute.h"

/* Whether the rows of all other ranks are used in place, so that nothing is sent. */
static bool in_place(const ith_attn_setting *s)
{
    return s->exchange == ITH_EXCHANGE_IN_PLACE;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Enlarges the upper bounds from which the sizes of a sweep's buffers follow, so that a COMPUTE step of the schedule
 * fits. */
static void widen_sweep(ith_sweep_shape *shape, const ith_step *step)
{
    shape->heads = ith_max64(shape->heads, step->heads.count);
    shape->kv_heads = ith_max64(shape->kv_heads, step->heads.kv_heads);
    shape->q_rows = ith_max64(shape->q_rows, step->q.rows);
    shape->shard_rows = ith_max64(shape->shard_rows, step->kv.rows);
}

/* The most batch entries for which memory is counted, if each entry has chunks of its own. With this many entries
 * chunks of every size occur in every buffer, and at the beginning, in the middle and at the end of the list of chunks.
 * So more entries need no more memory. */
enum { ENTRIES = ITH_CHUNK_BUFFERS + 2 };

void ith_executor_lay_out(const ith_attn_setting *s, ith_plan_memory *memory, ith_executor *x)
{
    ith_arena *arena = &memory->host;
    ith_sweep_shape shape = {0};
    const ith_attn_setting few = ith_schedule_entries(s, ENTRIES);
    ith_schedule schedule = ith_schedule_of(&few, s->rank);
    bool by_shards = false;
    x->setting = s;
    x->messages = (ith_messages){.setting = s, .carrier = {.setting = s, .direct = s->device_messages}};
    for (ith_step step; ith_schedule_next(&schedule, &step);) {
        if (step.kind == ITH_STEP_POST && ith_schedule_by_messages(s, step.exchange))
            ith_messages_widen(&x->messages, &schedule, &step);
        if (step.kind == ITH_STEP_COMPUTE) {
            widen_sweep(&shape, &step);
            by_shards |= !step.last;
        }
        ith_schedule_skip_hops(&schedule, ith_schedule_hops_alike(&schedule));
    }
    shape.keeps_state = by_shards && !in_place(s);
    shape.packs_for_all = by_shards && in_place(s);
    if (ith_in_place_used(s))
        ith_in_place_lay_out(s, arena, &x->in_place);
    if (!in_place(s))
        ith_messages_lay_out(&x->messages, memory);
    if (s->exchange == ITH_EXCHANGE_MIXED)
        ith_messages_use_axis(&x->messages, x->in_place.q_segments, x->in_place.kv_segments);
    if (s->device)
        ith_device_sweep_lay_out(s, &shape, memory, &x->device);
    else
        ith_sweep_lay_out(s, &shape, arena, &x->sweep);
}

ith_status ith_executor_open(ith_executor *x)
{
    if (!x->setting->device)
        return ITH_OK;
    ith_status status = ith_device_sweep_open(&x->device, &x->messages.carrier);
    if (!status)
        status = ith_carrier_open(&x->messages.carrier, x->device.compute, ith_device_sweep_halt, &x->device);
    return status;
}

void ith_executor_destroy(ith_executor *x)
{
    if (!x->setting->device)
        return;
    ith_carrier_close(&x->messages.carrier);
    ith_device_sweep_close(&x->device);
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

ith_in_place_record ith_executor_record(ith_executor *x, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = x->setting;
    return (ith_in_place_record){.q = ith_rows_of(s, ITH_TENSOR_Q, tensors),
                                 .k = ith_rows_of(s, ITH_TENSOR_K, tensors),
                                 .v = ith_rows_of(s, ITH_TENSOR_V, tensors),
                                 .o = ith_rows_of(s, ITH_TENSOR_O, tensors),
                                 .lse = tensors->lse,
                                 .packed = x->sweep.shape.packs_for_all ? x->sweep.packed : NULL,
                                 .sent = &x->sent};
}

void ith_executor_meet(ith_executor *x, int rank, const ith_in_place_record *record)
{
    ith_in_place_meet(&x->in_place, rank, record);
}

/* Executes an OFFSETS step (offsets of fixed_m) or a COMPUTE step (attention to one shard) of the schedule. */
static ith_status compute(ith_executor *x, const ith_step *step, const ith_attn_tensors *tensors)
{
    ith_status status = ITH_OK;
    ith_queries queries;
    ith_shard shard;
    if (in_place(x->setting))
        ith_in_place_find(&x->in_place, step, &queries, &shard);
    else
        ith_messages_find(&x->messages, step, &queries, &shard);
    if (step->kind == ITH_STEP_OFFSETS)
        return ith_sweep_prepare(&x->sweep, &step->heads, &queries, &shard, tensors);
    ith_sweep_job job = {.heads = step->heads,
                         .queries = &queries,
                         .shards = &shard,
                         .shard_count = 1,
                         .tensors = tensors,
                         .first = step->first,
                         .last = step->last,
                         .sent = &x->sent};
    if (in_place(x->setting)) {
        status = ith_in_place_compute(&x->in_place, &x->sweep, step, &job);
    } else {
        job.progress = ith_messages_progress;
        job.progress_user = &x->messages;
        ith_sweep_run(&x->sweep, &job);
    }
    return status;
}

/* Executes an OFFSETS or COMPUTE step on a device. A COMPUTE step only enqueues its work; an OFFSETS step waits for the
 * statistics that the device computes. */
static ith_status compute_on_device(ith_executor *x, const ith_step *step, const ith_attn_tensors *tensors)
{
    ith_queries queries;
    ith_shard shard;
    ith_messages_find(&x->messages, step, &queries, &shard);
    if (step->kind == ITH_STEP_OFFSETS)
        return ith_device_sweep_prepare(&x->device, step, &queries, &shard);
    return ith_device_sweep_run(&x->device, step, &queries, &shard, tensors);
}

/* Adds the heads of a COMPUTE step to the counters: the heads that use fixed_m, and the heads that use the online
 * softmax. */
static void count_heads(ith_executor *x, const ith_heads *heads)
{
    const ith_attn_setting *s = x->setting;
    int64_t fixed = 0;
    if (ith_halted(s->halt))
        return;
    if (s->softmax == ITH_SOFTMAX_FIXED_M)
        fixed = ith_fixed_m_count(s->device ? &x->device.fixed : &x->sweep.fixed, heads);
    x->counters.fixed_m_heads += fixed;
    x->counters.online_heads += heads->count - fixed;
}

static ith_status run_step(ith_executor *x, const ith_schedule *schedule, const ith_step *step,
                           const ith_attn_tensors *tensors)
{
    if (step->kind == ITH_STEP_OFFSETS || step->kind == ITH_STEP_COMPUTE) {
        ith_status status = x->setting->device ? compute_on_device(x, step, tensors) : compute(x, step, tensors);
        if (!status && step->kind == ITH_STEP_COMPUTE && step->last)
            count_heads(x, &step->heads);
        return status;
    }
    if (!ith_schedule_by_messages(x->setting, step->exchange))
        return ITH_OK; /* ranks read one another's memory, so there is nothing to send */
    if (step->kind == ITH_STEP_POST)
        return ith_messages_post(&x->messages, schedule, step, &x->sent);
    return ith_messages_wait(&x->messages, step->exchange);
}

ith_status ith_executor_run(ith_executor *x, const ith_attn_tensors *tensors)
{
    ith_schedule schedule = ith_schedule_of(x->setting, x->setting->rank);
    ith_status status = ITH_OK;
    ith_messages_begin(&x->messages, tensors, &x->counters);
    if (x->setting->device)
        status = ith_device_sweep_begin(&x->device, tensors);
    for (ith_step step; !status && ith_schedule_next(&schedule, &step);)
        status = run_step(x, &schedule, &step, tensors);
    if (x->setting->device) { /* after a failure too: no work of the device may outlive the execution */
        ith_status ended = ith_device_sweep_end(&x->device);
        status = status ? status : ended;
    }
    ith_messages_end(&x->messages);
    return status;
}

void ith_executor_close(ith_executor *x)
{
    x->counters.sent_bytes += atomic_exchange(&x->sent, 0);
}
