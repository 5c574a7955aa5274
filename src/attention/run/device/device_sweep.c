/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueues the packing of keys, the statistics of fixed_m and attention on a device (device_sweep.h). */
#include "device_sweep.h"

#include "../../../base/size.h"
#include "../../../base/trace.h"
#include "device_call.h"

#include <string.h>

static const ith_device_module *module_of(const ith_device_sweep *s)
{
    return s->setting->device->module;
}

static ith_status check(const ith_device_sweep *s, ith_status status, const char *said)
{
    return ith_device_check(s->setting->context, status, said);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Takes the small arrays from an arena: once for the host and once for the device. */
static void lay_out_small(const ith_attn_setting *s, const ith_sweep_shape *shape, ith_arena *arena,
                          ith_device_small *out)
{
    const ith_attn_problem *p = &s->problem;
    const int64_t vector = p->head_dim * (int64_t)sizeof(float);
    *out = (ith_device_small){.halt = ith_arena_take(arena, 1, sizeof *out->halt)};
    if (p->has_kv_lengths)
        out->keys = ith_arena_take(arena, s->ring * p->batch, sizeof *out->keys);
    if (p->has_key_bias)
        out->key_bias = ith_arena_take(arena, p->batch * p->kv_len, sizeof *out->key_bias);
    if (s->softmax != ITH_SOFTMAX_FIXED_M)
        return;
    out->own_means = ith_arena_take(arena, shape->kv_heads, vector);
    out->stats = ith_arena_take(arena, shape->kv_heads, ITH_DEVICE_KEY_STATS * sizeof *out->stats);
    out->squares = ith_arena_take(arena, shape->heads, sizeof *out->squares);
    out->means = ith_arena_take(arena, shape->kv_heads, vector);
    out->bounds = ith_arena_take(arena, shape->kv_heads, sizeof *out->bounds);
    out->fixed = ith_arena_take(arena, shape->heads, sizeof *out->fixed);
}

void ith_device_sweep_lay_out(const ith_attn_setting *s, const ith_sweep_shape *shape, ith_plan_memory *memory,
                              ith_device_sweep *out)
{
    const ith_attn_problem *p = &s->problem;
    const bool fixed = s->softmax == ITH_SOFTMAX_FIXED_M;
    ith_arena *device = &memory->device;
    *out = (ith_device_sweep){.setting = s, .shape = *shape};
    out->padded_rows = ith_round_up(shape->shard_rows, ITH_DEVICE_KEYS);
    lay_out_small(s, shape, &memory->pinned, &out->pinned);
    lay_out_small(s, shape, device, &out->on_device);
    if (ith_device_packs(s)) {
        const int64_t bytes = out->padded_rows * p->head_dim * s->element_bytes;
        out->packed_k = ith_arena_take(device, shape->kv_heads, bytes);
        out->packed_v = ith_arena_take(device, shape->kv_heads, bytes);
    }
    if (fixed) {
        ith_fixed_m_shape sizes = {shape->heads, shape->kv_heads, shape->q_rows, shape->shard_rows};
        ith_fixed_m_lay_out(s, &sizes, &memory->host, &out->fixed);
        out->scratch = ith_arena_take(
            device, s->device->module->key_stats_scratch_bytes(shape->kv_heads, shape->shard_rows, p->head_dim), 1);
    }
    if (fixed || shape->keeps_state)
        out->m = ith_arena_take(device, shape->heads * shape->q_rows, sizeof *out->m);
    if (shape->keeps_state) {
        out->l = ith_arena_take(device, shape->heads * shape->q_rows, sizeof *out->l);
        out->o_sum = ith_arena_take(device, shape->heads * shape->q_rows, p->head_dim * (int64_t)sizeof *out->o_sum);
    }
    if (p->mask != ITH_MASK_NONE && s->ulysses * s->ring > 1)
        out->mask_piece = ith_arena_take(&memory->pinned, ITH_DEVICE_PIECE_BYTES, 1);
}

ith_status ith_device_sweep_open(ith_device_sweep *s, ith_carrier *carrier)
{
    const ith_device_use *use = s->setting->device;
    char said[ITH_DEVICE_SENTENCE] = "";
    s->carrier = carrier;
    *s->pinned.halt = 1;
    ith_status status = use->module->create_stream(use->device, &s->compute, said);
    if (!status)
        status = use->module->create_stream(use->device, &s->control, said);
    return check(s, status, said);
}

void ith_device_sweep_close(ith_device_sweep *s)
{
    if (s->compute)
        module_of(s)->destroy_stream(s->compute);
    if (s->control)
        module_of(s)->destroy_stream(s->control);
}

/* ---- The beginning and the end of an execution ----------------------------------------------------------------- */

/* Enqueues a copy to the device or from it, in the stream that computes. */
static ith_status copy(const ith_device_sweep *s, void *to, const void *from, int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    return check(s, module_of(s)->copy(s->compute, to, from, bytes, said), said);
}

/* Brings the numbers of keys of every shard to the device. */
static ith_status upload_lengths(const ith_device_sweep *s, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *set = s->setting;
    const ith_attn_problem *p = &set->problem;
    if (!p->has_kv_lengths)
        return ITH_OK;
    for (int shard = 0; shard < set->ring; shard++) {
        ith_row_range range = {0, p->kv_len};
        if (set->strategy != ITH_STRATEGY_SINGLE)
            range = ith_schedule_shard(set, p->kv_len, shard);
        for (int64_t b = 0; b < p->batch; b++) {
            const int64_t keys = ith_min64(tensors->kv_lengths[b] - range.begin, range.rows);
            s->pinned.keys[shard * p->batch + b] = (int32_t)ith_max64(keys, 0);
        }
    }
    return copy(s, s->on_device.keys, s->pinned.keys, set->ring * p->batch * (int64_t)sizeof(int32_t));
}

ith_status ith_device_sweep_begin(ith_device_sweep *s, const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->setting->problem;
    const int64_t bias_bytes = p->batch * p->kv_len * (int64_t)sizeof(float);
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = module_of(s)->wait_for_foreign(s->compute, tensors->stream, said);
    /* `halt` is set to 0 in the stream `control`, which also sets it to 1. So a cancellation counts even while the
     * caller's stream is busy. */
    if (!status)
        status = module_of(s)->fill(s->control, s->on_device.halt, 0, sizeof(int32_t), said);
    if (!status)
        status = module_of(s)->wait_for(s->compute, s->control, said);
    if (status)
        return check(s, status, said);
    atomic_store(&s->carrier->halts, true);
    status = upload_lengths(s, tensors);
    if (!status && p->has_key_bias) {
        memcpy(s->pinned.key_bias, tensors->key_bias, (size_t)bias_bytes);
        status = copy(s, s->on_device.key_bias, s->pinned.key_bias, bias_bytes);
    }
    return status;
}

ith_status ith_device_sweep_end(ith_device_sweep *s)
{
    double traced = ith_trace_begin(s->setting->context);
    struct ith_device_stream *streams[ITH_EXCHANGES + 2] = {s->compute};
    ith_status status = ITH_OK;
    for (int i = 0; i < ITH_EXCHANGES; i++)
        streams[i + 1] = s->carrier->exchanges[i].stream;
    streams[ITH_EXCHANGES + 1] = s->control; /* the last: a cancellation may write to it until the others have ended */
    for (int i = 0; i < ITH_EXCHANGES + 2; i++) {
        if (i == ITH_EXCHANGES + 1)
            atomic_store(&s->carrier->halts, false);
        ith_status ended = streams[i] ? ith_carrier_sync(s->carrier, streams[i]) : ITH_OK;
        status = status ? status : ended;
    }
    ith_trace_end(s->setting->context, traced, "attend", "compute");
    return status;
}

/* The copy goes through a copy engine of the device, which works while kernels fill all processors. */
void ith_device_sweep_halt(void *user)
{
    ith_device_sweep *s = user;
    char said[ITH_DEVICE_SENTENCE] = "";
    /* a failure is seen by the next call on the device */
    module_of(s)->copy(s->control, s->on_device.halt, s->pinned.halt, sizeof(int32_t), said);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* The numbers of keys of the batch entries in a step's shard; NULL if all keys count. */
static const int32_t *keys_of(const ith_device_sweep *s, const ith_step *step)
{
    return s->on_device.keys ? s->on_device.keys + step->shard * s->setting->problem.batch : NULL;
}

static const float *key_bias_of(const ith_device_sweep *s, const ith_shard *shard)
{
    return s->on_device.key_bias ? s->on_device.key_bias + shard->begin : NULL;
}

/* Measures this rank's shard and queries, and brings the statistics to the host. */
static ith_status measure(ith_device_sweep *s, const ith_step *step, const ith_queries *queries, const ith_shard *own)
{
    const ith_attn_problem *p = &s->setting->problem;
    const ith_heads *h = &step->heads;
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_key_stats keys = {.dtype = p->dtype,
                                       .head_dim = p->head_dim,
                                       .first = h->kv_first,
                                       .count = h->kv_heads,
                                       .kv_heads = p->kv_heads,
                                       .kv_rows = own->rows,
                                       .k = ith_device_rows_of(&own->segments->k),
                                       .v = ith_device_rows_of(&own->segments->v),
                                       .keys = keys_of(s, step),
                                       .key_bias = key_bias_of(s, own),
                                       .key_bias_stride = p->kv_len,
                                       .smoothed = s->setting->smoothed,
                                       .means = s->on_device.own_means,
                                       .stats = s->on_device.stats,
                                       .scratch = s->scratch};
    const ith_device_query_stats q = {p->dtype,
                                      p->head_dim,
                                      h->first,
                                      h->count,
                                      queries->rows,
                                      ith_device_rows_of(&queries->segments->q),
                                      s->on_device.squares};
    ith_status status = module_of(s)->key_stats(s->compute, &keys, said);
    if (!status)
        status = module_of(s)->query_stats(s->compute, &q, said);
    status = check(s, status, said);
    if (!status)
        status =
            copy(s, s->pinned.own_means, s->on_device.own_means, h->kv_heads * p->head_dim * (int64_t)sizeof(float));
    if (!status)
        status =
            copy(s, s->pinned.stats, s->on_device.stats, h->kv_heads * ITH_DEVICE_KEY_STATS * (int64_t)sizeof(float));
    if (!status)
        status = copy(s, s->pinned.squares, s->on_device.squares, h->count * (int64_t)sizeof(float));
    return status ? status : ith_carrier_sync(s->carrier, s->compute);
}

/* Brings the conclusions of fixed_m to the device, and computes the offsets of the queries there. */
static ith_status compute_offsets(ith_device_sweep *s, const ith_step *step, const ith_queries *queries)
{
    const ith_attn_problem *p = &s->setting->problem;
    const ith_heads *h = &step->heads;
    const int64_t mean_bytes = h->kv_heads * p->head_dim * (int64_t)sizeof(float);
    const int64_t bound_bytes = h->kv_heads * (int64_t)sizeof(double);
    char said[ITH_DEVICE_SENTENCE] = "";
    memcpy(s->pinned.means, s->fixed.means, (size_t)mean_bytes);
    memcpy(s->pinned.bounds, s->fixed.bounds, (size_t)bound_bytes);
    ith_status status = copy(s, s->on_device.means, s->pinned.means, mean_bytes);
    if (!status)
        status = copy(s, s->on_device.bounds, s->pinned.bounds, bound_bytes);
    ith_device_offsets offsets = {.dtype = p->dtype,
                                  .head_dim = p->head_dim,
                                  .first = h->first,
                                  .count = h->count,
                                  .per_kv = p->heads / p->kv_heads,
                                  .kv_first = h->kv_first,
                                  .q_rows = queries->rows,
                                  .q = ith_device_rows_of(&queries->segments->q),
                                  .means = s->setting->smoothed ? s->on_device.means : NULL,
                                  .bounds = s->on_device.bounds,
                                  .fixed = s->on_device.fixed,
                                  .m = s->m};
    ith_fixed_m_constants(&s->fixed, &offsets.c, &offsets.norm_factor, &offsets.margin);
    if (!status)
        status = check(s, module_of(s)->offsets(s->compute, &offsets, said), said);
    return status;
}

ith_status ith_device_sweep_prepare(ith_device_sweep *s, const ith_step *step, const ith_queries *queries,
                                    const ith_shard *own)
{
    const ith_fixed_m_measured measured = {s->pinned.own_means, s->pinned.stats, s->pinned.squares};
    const bool measures = s->setting->problem.mask != ITH_MASK_ADDITIVE;
    double traced = ith_trace_begin(s->setting->context);
    ith_status status = measures ? measure(s, step, queries, own) : ITH_OK;
    if (!status)
        status = ith_fixed_m_take(&s->fixed, &step->heads, &measured);
    for (int64_t i = 0; !status && i < step->heads.count; i++)
        s->pinned.fixed[i] = ith_fixed_m_applies(&s->fixed, step->heads.first + i);
    if (!status)
        status = copy(s, s->on_device.fixed, s->pinned.fixed, step->heads.count);
    if (!status && measures)
        status = compute_offsets(s, step, queries);
    ith_trace_end(s->setting->context, traced, "offsets", "compute");
    return status;
}

/* Packs one of the tensors k and v of a shard. */
static ith_status pack(ith_device_sweep *s, const ith_step *step, const ith_shard *shard, const ith_rows *from,
                       void *to)
{
    const ith_attn_problem *p = &s->setting->problem;
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_pack request = {.dtype = p->dtype,
                                     .head_dim = p->head_dim,
                                     .first = step->heads.kv_first,
                                     .count = step->heads.kv_heads,
                                     .kv_heads = p->kv_heads,
                                     .kv_rows = shard->rows,
                                     .padded_rows = s->padded_rows,
                                     .from = ith_device_rows_of(from),
                                     .keys = keys_of(s, step),
                                     .key_bias = key_bias_of(s, shard),
                                     .key_bias_stride = p->kv_len,
                                     .to = to};
    return check(s, module_of(s)->pack(s->compute, &request, said), said);
}

/* The address of the mask's entry for the first query and the first key of a step, in its first head. */
static const void *mask_of(const ith_device_sweep *s, const ith_queries *queries, const ith_shard *shard,
                           const ith_attn_tensors *tensors)
{
    const ith_attn_problem *p = &s->setting->problem;
    const int64_t element = queries->segments->begin * p->kv_len + shard->begin;
    if (p->mask == ITH_MASK_NONE)
        return NULL;
    return (const char *)tensors->mask + element * (p->mask == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float));
}

/* Describes the attention of a step. */
static ith_device_attend describe(const ith_device_sweep *s, const ith_step *step, const ith_queries *queries,
                                  const ith_shard *shard, const ith_attn_tensors *tensors)
{
    const ith_q_segment *q = queries->segments;
    ith_device_attend call = ith_device_call_of(s->setting, ITH_SOFTMAX_ONLINE);
    call.first = step->heads.first, call.count = step->heads.count;
    call.q = ith_device_rows_of(&q->q), call.o = ith_device_rows_of(&q->o);
    call.k = ith_device_rows_of(&shard->segments->k), call.v = ith_device_rows_of(&shard->segments->v);
    if (s->packed_k) {
        call.k = ith_device_packed_rows(s->setting, s->packed_k, step->heads.kv_first, s->padded_rows);
        call.v = ith_device_packed_rows(s->setting, s->packed_v, step->heads.kv_first, s->padded_rows);
    }
    call.q_rows = queries->rows, call.kv_rows = shard->rows;
    call.keys = keys_of(s, step);
    call.key_bias = key_bias_of(s, shard);
    call.mask = mask_of(s, queries, shard, tensors);
    call.first_shard = step->first, call.last_shard = step->last;
    call.o_sum = s->o_sum, call.m = s->m, call.l = s->l;
    call.lse = q->lse ? q->lse + (step->heads.first - q->lse_first) * queries->rows : NULL;
    call.lse_stride = queries->rows;
    call.halt = s->on_device.halt;
    return call;
}

ith_status ith_device_sweep_run(ith_device_sweep *s, const ith_step *step, const ith_queries *queries,
                                const ith_shard *shard, const ith_attn_tensors *tensors)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const int64_t fixed = s->setting->softmax == ITH_SOFTMAX_FIXED_M ? ith_fixed_m_count(&s->fixed, &step->heads) : 0;
    ith_status status = ITH_OK;
    if (step->heads.count == 0 || queries->rows == 0)
        return ITH_OK;
    if (s->packed_k)
        status = pack(s, step, shard, &shard->segments->k, s->packed_k);
    if (s->packed_k && !status)
        status = pack(s, step, shard, &shard->segments->v, s->packed_v);
    ith_device_attend call = describe(s, step, queries, shard, tensors);
    call.fixed = fixed > 0 && fixed < step->heads.count ? s->on_device.fixed : NULL;
    if (!status && fixed < step->heads.count)
        status = check(s, s->setting->device_kernel->attend(s->compute, &call, said), said);
    call.softmax = ITH_SOFTMAX_FIXED_M;
    if (!status && fixed > 0)
        status = check(s, s->setting->device_kernel->attend(s->compute, &call, said), said);
    return status;
}

ith_status ith_device_sweep_read(ith_device_sweep *s, void *stream, const char *mask, int64_t bytes, const char **out)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    *out = s->mask_piece;
    ith_status status = check(s, module_of(s)->wait_for_foreign(s->compute, stream, said), said);
    if (!status)
        status = copy(s, s->mask_piece, mask, bytes);
    return status ? status : ith_carrier_sync(s->carrier, s->compute);
}
