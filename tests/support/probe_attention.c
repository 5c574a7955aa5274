/* SPDX-License-Identifier: Apache-2.0 */
#include "support/probe_attention.h"

#include "base/context.h"
#include "support/attention_case.h"
#include "support/compare.h"

#include <stdlib.h>

static uint32_t probe_byte(probe_bytes *b)
{
    if (!b->size)
        return 0;
    b->size--;
    return *b->data++;
}

/* A size: mostly from 0 to `usual`, sometimes any number of 64 bits. */
static int64_t probe_size(probe_bytes *b, int64_t usual)
{
    uint32_t how = probe_byte(b);
    if (how < 232)
        return how % (usual + 1);
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | probe_byte(b);
    return (int64_t)(how < 244 ? value : value >> (how % 64));
}

/* A number from 0 to count - 1, sometimes outside of this range. */
static int probe_choice(probe_bytes *b, int count)
{
    uint32_t value = probe_byte(b);
    return value > 250 ? (int)value - 253 : (int)(value % (uint32_t)count);
}

static void probe_options(probe_bytes *b, ith_attn_options *o)
{
    static const char *const kernels[14] = {
        NULL, NULL,       NULL,         "f32_ref",  "f32_avx2",        "f32_avx512",      "nonsense",
        NULL, "f32_avx2", "f32_avx512", "bf16_amx", "bf16_avx512bf16", "bf16_avx512fp16", "nonsense"};
    o->strategy = (ith_strategy)probe_choice(b, 5);
    o->ulysses = probe_choice(b, 4);
    o->ring = probe_choice(b, 4);
    o->direction = (ith_direction)probe_choice(b, 3);
    o->chunks = probe_choice(b, 5);
    o->fold = (ith_choice)(probe_byte(b) % 3);
    o->softmax = (ith_softmax)probe_choice(b, 3);
    o->smooth = (ith_choice)(probe_byte(b) % 3);
    o->exchange = (ith_exchange_mode)probe_choice(b, 3);
    o->kernel = kernels[probe_byte(b) % 14];
    bool tiles = probe_byte(b) % 8 == 0;
    if (!tiles)
        return;
    o->block_q = probe_size(b, 64), o->block_kv = probe_size(b, 200);
    o->block_kv_compute = probe_size(b, 130), o->block_kv_compute_in = probe_size(b, 64);
}

static void probe_problem(probe_bytes *b, ith_attn_problem *p)
{
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16, ITH_F32, ITH_BF16, ITH_I32};
    p->batch = probe_size(b, 3);
    p->kv_heads = probe_size(b, 3);
    bool grouped = probe_byte(b) % 16 && p->kv_heads >= 0 && p->kv_heads <= 3;
    p->heads = grouped ? p->kv_heads * (1 + probe_byte(b) % 3) : probe_size(b, 6);
    p->head_dim = probe_size(b, 70);
    p->q_len = probe_size(b, 60);
    p->kv_len = probe_size(b, 90);
    p->dtype = types[probe_byte(b) % 6];
    p->has_key_bias = probe_byte(b) % 4 == 0;
    p->has_kv_lengths = probe_byte(b) % 4 == 0;
    p->mask = (ith_mask)(probe_byte(b) % 2 ? 0 : probe_choice(b, 3));
    p->mask_batch = probe_byte(b) % 2 ? p->batch : probe_choice(b, 3);
    p->mask_heads = probe_byte(b) % 2 ? p->heads : probe_choice(b, 3);
    p->replicated_kv = probe_byte(b) % 8 == 0;
    p->q_row_stride = probe_byte(b) % 8 ? 0 : probe_size(b, 400);
    p->v_batch_stride = probe_byte(b) % 8 ? 0 : probe_size(b, 4000);
}

/* Whether a legal problem is small enough to be computed, and laid out as attention_case lays it out. */
static bool probe_is_small(const ith_attn_problem *p)
{
    return p->batch <= 4 && p->heads <= 16 && p->head_dim <= 160 && p->q_len <= 300 && p->kv_len <= 300 &&
           !p->q_row_stride && !p->v_batch_stride;
}

/* An ith_rank_fn; user: an attention_case. Makes the plan and destroys it; most of these plans are refused. */
static ith_status probe_create(ith_context *context, ith_comm *comm, void *user)
{
    const attention_case *c = user;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &c->problem, &c->options, comm, &plan);
    if (status && !ith_context_error(context)[0])
        status = ITH_OK; /* refused without a sentence: the caller sees the mismatch */
    ith_plan_destroy(&plan);
    return status;
}

bool probe_attention(ith_context *context, const uint8_t *data, size_t size)
{
    probe_bytes bytes = {data, size};
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    uint32_t seed = probe_byte(&bytes) + 1;
    int ranks = 1 + (int)(probe_byte(&bytes) % 4);
    probe_options(&bytes, &c.options);
    probe_problem(&bytes, &c.problem);
    c.kind = (case_kind)(probe_byte(&bytes) % CASE_KINDS);
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_status legal = ith_plan_predict(context, &c.problem, &c.options, ranks, 0, true, &info);
    if (legal || !probe_is_small(&c.problem)) {
        bool said = !legal || ith_context_error(context)[0];
        bool held = !legal && info.memory_bytes > 1 << 26; /* the plan would take much memory, so it is not made */
        ith_status made = held ? legal : ith_run_ranks(context, ranks, ranks, probe_create, &c);
        return (said && !made == !legal) || made == ITH_ERR_MEMORY;
    }
    case_fill(&c, seed, (int)(seed % 3));
    int64_t rows = c.problem.batch * c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
    float *o = malloc((size_t)(count + 1) * sizeof *o), *lse = malloc((size_t)(rows + 1) * sizeof *lse);
    case_oracle(&c, o, lse);
    ith_status status = ith_run_ranks(context, ranks, ranks, case_in_rank, &c);
    double error = status ? 0 : relative_l2(c.o, o, count);
    bool good = !status && error <= case_bound(&c);
    if (!status && !good)
        ith_fail(context, ITH_ERR_NUMERIC, "error %g is above %g\n%s", error, case_bound(&c), c.plan);
    free(o), free(lse);
    case_free(&c);
    return good;
}
