/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rates of a device's attention kernels: 4 tokens^2 head_dim operations for each head, divided by the time
 * of some calls on a stream that has no other work. */
#include "device_measure.h"

#include "../base/arena.h"
#include "../base/clock.h"
#include "../base/dtype.h"
#include "../kernels/device_random.h"
#include "measure.h"

#include <math.h>

/* Number of tokens: the smallest power of two that keeps the device busy for BUSY_SECONDS with CALLS_TOGETHER calls,
 * within these limits. */
#define TOKENS_LEAST ((int64_t)64)
#define TOKENS_MOST ((int64_t)8192)
#define BUSY_SECONDS 4e-3
enum { CALLS_TOGETHER = 4, HEADS = 16 };

/* Heads of random numbers on a device, and the kernels that are timed on them. */
typedef struct trial {
    ith_context *context;
    const ith_device_use *use;
    struct ith_device_stream *stream;
    const ith_device_kernel *kernels[ITH_WISDOM_FIGURES];
    char *memory; /* all arrays of the call */
    ith_device_attend call;
} trial;

/* Rows of one batch entry with all heads. */
static ith_device_rows rows_of(const trial *t, void *data)
{
    const int64_t row = HEADS * t->call.head_dim;
    return (ith_device_rows){data, 0, HEADS, row, t->call.q_rows * row};
}

/* Lays the arrays of the call out in the arena. Returns the bytes of q, k and v, which come first. */
static int64_t lay_out(trial *t, ith_arena *arena)
{
    const int64_t row_bytes = HEADS * t->call.head_dim * ith_dtype_bytes(t->call.dtype), tokens = t->call.q_rows;
    t->call.q = rows_of(t, ith_arena_take(arena, tokens, row_bytes));
    t->call.k = rows_of(t, ith_arena_take(arena, tokens, row_bytes));
    t->call.v = rows_of(t, ith_arena_take(arena, tokens, row_bytes));
    const int64_t inputs = arena->used_bytes;
    t->call.o = rows_of(t, ith_arena_take(arena, tokens, row_bytes));
    t->call.m = ith_arena_take(arena, HEADS * tokens, sizeof *t->call.m);
    t->call.halt = ith_arena_take(arena, 1, sizeof *t->call.halt);
    return inputs;
}

/* Makes sequences of another length: random q, k and v, and zeros for the other arrays. The offsets of fixed_m are 0:
 * logits are small here, so any small offset will do. */
static ith_status resize(trial *t, int64_t tokens)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_module *module = t->use->module;
    ith_arena arena = {0};
    void *memory = NULL;
    t->call.q_rows = t->call.kv_rows = tokens;
    const int64_t inputs = lay_out(t, &arena), bytes = arena.used_bytes;
    module->release(t->use->device, t->memory);
    ith_status status = module->allocate(t->use->device, bytes, &memory, said);
    t->memory = memory;
    if (!status)
        status = module->fill(t->stream, t->memory + inputs, 0, bytes - inputs, said);
    if (status)
        return ith_device_check(t->context, status, said);
    arena = (ith_arena){.base = memory};
    lay_out(t, &arena);
    return ith_device_fill_random(t->context, t->stream, t->call.dtype, memory, inputs);
}

/* Runs kernel `index` CALLS_TOGETHER times, and sets *seconds to the time of one call. */
static ith_status run(const trial *t, int index, double *seconds)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const double begin = ith_clock_seconds();
    ith_status status = ITH_OK;
    for (int i = 0; i < CALLS_TOGETHER && !status; i++)
        status = t->kernels[index]->attend(t->stream, &t->call, said);
    status = ith_device_check(t->context, status, said);
    if (!status)
        status = ith_device_wait(t->context, t->stream, NULL, NULL);
    *seconds = fmax(ith_clock_seconds() - begin, 1e-9) / CALLS_TOGETHER;
    return status;
}

/* Finds the number of tokens. The first calls with a number do not count. */
static ith_status find_tokens(trial *t)
{
    ith_status status = ITH_OK;
    double seconds = 0;
    for (int64_t tokens = TOKENS_LEAST; tokens <= TOKENS_MOST && CALLS_TOGETHER * seconds < BUSY_SECONDS && !status;
         tokens *= 2) {
        status = resize(t, tokens);
        if (!status)
            status = run(t, 0, &seconds);
        if (!status)
            status = run(t, 0, &seconds);
    }
    return status;
}

/* ith_measure_once */
static ith_status measure_once(void *user, int index, double *rate)
{
    const trial *t = user;
    const double tokens = (double)t->call.q_rows;
    double seconds;
    ith_status status = run(t, index, &seconds);
    *rate = 1e-6 * 4 * HEADS * tokens * tokens * (double)t->call.head_dim / seconds;
    return status;
}

/* Lists the kernels that take such calls with both softmaxes that they may need. */
static void find_kernels(trial *t, ith_wisdom_entry *entry)
{
    const ith_device_kernel *const *all = t->use->module->kernels;
    ith_device_attend online = t->call;
    online.softmax = ITH_SOFTMAX_ONLINE;
    for (int i = 0; all[i] && entry->count < ITH_WISDOM_FIGURES; i++)
        if (!all[i]->refuses(t->use->device, &t->call) && !all[i]->refuses(t->use->device, &online)) {
            t->kernels[entry->count] = all[i];
            ith_wisdom_add(entry, all[i]->name, 1);
        }
}

ith_status ith_measure_device_kernels(const ith_attn_setting *s, ith_wisdom_entry *entry)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    trial t = {.context = s->context,
               .use = s->device,
               .call = {.dtype = s->problem.dtype,
                        .head_dim = s->problem.head_dim,
                        .scale = 1 / sqrtf((float)s->problem.head_dim),
                        .softmax = s->softmax,
                        .count = HEADS,
                        .heads = HEADS,
                        .per_kv = 1,
                        .q_rows = TOKENS_LEAST,
                        .kv_rows = TOKENS_LEAST,
                        .first_shard = true,
                        .last_shard = true}};
    ith_arena unused = {0};
    lay_out(&t, &unused);
    find_kernels(&t, entry);
    if (entry->count == 0)
        return ITH_OK;
    ith_status status = t.use->module->create_stream(t.use->device, &t.stream, said);
    if (status)
        return ith_device_check(s->context, status, said);
    status = find_tokens(&t);
    if (!status)
        status = ith_measure_in_turns(measure_once, &t, entry);
    ith_device_drain(t.use, t.stream);
    t.use->module->release(t.use->device, t.memory);
    t.use->module->destroy_stream(t.stream);
    return status;
}
