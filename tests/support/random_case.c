/* SPDX-License-Identifier: Apache-2.0 */
#include "support/random_case.h"

#include <math.h>
#include <string.h>

/* A random length from 1 to `longest`, uniform on a logarithmic scale; sometimes 0. */
static int64_t random_length(uint64_t *r, int64_t longest)
{
    if (random_below(r, 24) == 0)
        return 0;
    double exponent = (double)random_below(r, 4096) / 4095;
    return (int64_t)floor(pow((double)longest, exponent));
}

attention_case random_case(uint32_t seed, int64_t longest)
{
    static const int64_t dims[] = {1, 7, 16, 32, 64, 72, 96, 128, 129};
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F32, ITH_BF16, ITH_F16};
    uint64_t r = seed;
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
    ith_attn_problem *p = &c.problem;
    int64_t groups = random_below(&r, 2) ? 1 : 1 + random_below(&r, 4), kv_heads = 1 + random_below(&r, 4);
    p->batch = 1 + random_below(&r, 3);
    p->heads = kv_heads * groups;
    p->kv_heads = groups == 1 ? 0 : kv_heads;
    p->head_dim = dims[random_below(&r, 9)];
    p->q_len = random_length(&r, longest);
    p->kv_len = random_length(&r, longest);
    p->dtype = types[random_below(&r, 5)];
    p->has_key_bias = random_below(&r, 4) == 0;
    p->has_kv_lengths = random_below(&r, 4) == 0;
    p->mask = (ith_mask)(random_below(&r, 3) ? 0 : random_below(&r, 3));
    p->mask_batch = random_below(&r, 2) ? p->batch : 0;
    p->mask_heads = random_below(&r, 2) ? p->heads : 1;
    p->replicated_kv = random_below(&r, 8) == 0;
    p->scale = random_below(&r, 4) == 0 ? 0.25f : 0;
    c.kind = (case_kind)random_below(&r, CASE_KINDS);
    c.gap = random_below(&r, 3) == 0 ? 1 + random_below(&r, 9) : 0;
    c.wants_lse = random_below(&r, 4) != 0;
    case_fill(&c, r, random_below(&r, 8) == 0 ? 8 : (int)random_below(&r, 4));
    return c;
}

void draw_init(ith_context *context, draw_table *table)
{
    static const int values[DRAW_FACTORS] = {
        [DRAW_MESH] = sizeof draw_meshes / sizeof *draw_meshes,
        [DRAW_DIRECTION] = 2,
        [DRAW_CHUNKS] = 4,
        [DRAW_FOLD] = 2,
        [DRAW_SOFTMAX] = 2,
        [DRAW_SMOOTHING] = 2,
        [DRAW_EXCHANGE] = 3,
        [DRAW_TILES] = 3,
    };
    const char *name;
    bool usable;
    int kernels = 0;
    memset(table, 0, sizeof *table);
    memcpy(table->values, values, sizeof values);
    for (int i = 0; (name = ith_kernel_list(context, i, &usable)); i++)
        if (usable && kernels < DRAW_MOST_VALUES)
            table->kernels[kernels++] = name;
    table->values[DRAW_KERNEL] = kernels;
}

static int draw_new_pairs(const draw_table *table, const drawn_plan *plan)
{
    int count = 0;
    for (int a = 0; a < DRAW_FACTORS; a++)
        for (int b = a + 1; b < DRAW_FACTORS; b++)
            count += !table->met[a][plan->value[a]][b][plan->value[b]];
    return count;
}

void draw_mark(draw_table *table, const drawn_plan *plan)
{
    for (int a = 0; a < DRAW_FACTORS; a++)
        for (int b = a + 1; b < DRAW_FACTORS; b++)
            table->met[a][plan->value[a]][b][plan->value[b]] = true;
}

drawn_plan draw_plan(const draw_table *table, uint64_t *r)
{
    drawn_plan best = {{0}};
    int most = -1;
    for (int i = 0; i < 12; i++) {
        drawn_plan plan;
        for (int f = 0; f < DRAW_FACTORS; f++)
            plan.value[f] = (int)random_below(r, (uint32_t)table->values[f]);
        int pairs = draw_new_pairs(table, &plan);
        if (pairs > most)
            most = pairs, best = plan;
    }
    return best;
}

ith_attn_options draw_options(const draw_table *table, const drawn_plan *plan, int *ranks)
{
    const int *mesh = draw_meshes[plan->value[DRAW_MESH]];
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    o.ulysses = mesh[0];
    o.ring = mesh[1];
    *ranks = mesh[0] * mesh[1];
    o.strategy = *ranks == 1      ? ITH_STRATEGY_SINGLE
                 : o.ring == 1    ? ITH_STRATEGY_ULYSSES
                 : o.ulysses == 1 ? ITH_STRATEGY_RING
                                  : ITH_STRATEGY_ULYSSES_RING;
    o.direction = plan->value[DRAW_DIRECTION] ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    o.chunks = 1 + plan->value[DRAW_CHUNKS];
    o.fold = plan->value[DRAW_FOLD] ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
    o.softmax = plan->value[DRAW_SOFTMAX] ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
    o.smooth = plan->value[DRAW_SMOOTHING] ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
    static const ith_exchange_mode exchanges[] = {ITH_EXCHANGE_COPY, ITH_EXCHANGE_IN_PLACE, ITH_EXCHANGE_MIXED};
    o.exchange = *ranks == 1 ? ITH_EXCHANGE_AUTO : exchanges[plan->value[DRAW_EXCHANGE]];
    o.kernel = table->kernels[plan->value[DRAW_KERNEL]];
    return o;
}
