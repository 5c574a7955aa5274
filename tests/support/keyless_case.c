/* SPDX-License-Identifier: Apache-2.0 */
#include "support/keyless_case.h"

#include "base/dtype.h"
#include "support/attention_check.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Hidden keys ------------------------------------------------------------------------------------------------- */

/* Whether a key of a batch entry is absent: behind the entry's length, or with a bias of -infinity. */
static bool is_absent(const attention_case *c, int64_t entry, int64_t key)
{
    const ith_attn_problem *p = &c->problem;
    return (p->has_kv_lengths && key >= c->kv_lengths[entry]) ||
           (p->has_key_bias && c->key_bias[entry * p->kv_len + key] == -INFINITY);
}

/* Hides keys of a batch entry: all, none, a stretch of them, or all but one. */
static void hide_keys_of_entry(attention_case *c, int64_t entry, uint64_t *r)
{
    const ith_attn_problem *p = &c->problem;
    const uint32_t most = (uint32_t)p->kv_len + 1, how = random_below(r, 5);
    const int64_t one = random_below(r, most), begin = random_below(r, most);
    const int64_t end = begin + random_below(r, most);
    for (int64_t j = 0; j < p->kv_len; j++)
        if (how == 0 || (how == 1 && j >= begin && j < end) || (how == 2 && j != one))
            c->key_bias[entry * p->kv_len + j] = -INFINITY;
    if (random_below(r, 3) == 0)
        c->kv_lengths[entry] = random_below(r, 2) ? 0 : (int32_t)p->kv_len;
}

static void hide_by_mask(attention_case *c, int64_t element)
{
    if (c->problem.mask == ITH_MASK_BOOL)
        ((uint8_t *)c->mask)[element] = 0;
    else
        ((float *)c->mask)[element] = -INFINITY;
}

/* Hides all keys in some rows of the mask, and in others the keys of a batch entry that are not absent. */
static void hide_rows_of_mask(attention_case *c, uint64_t *r)
{
    const ith_attn_problem *p = &c->problem;
    const int64_t entries = p->mask_batch ? p->mask_batch : 1, heads = p->mask_heads ? p->mask_heads : 1;
    for (int64_t row = 0; p->mask != ITH_MASK_NONE && row < entries * heads * p->q_len; row++) {
        const int64_t entry = entries > 1 ? row / p->q_len / heads : random_below(r, (uint32_t)p->batch);
        const uint32_t how = random_below(r, 4);
        for (int64_t j = 0; j < p->kv_len; j++)
            if (how == 0 || (how == 1 && !is_absent(c, entry, j)))
                hide_by_mask(c, row * p->kv_len + j);
    }
}

static bool is_hidden_by_mask(const attention_case *c, int64_t key)
{
    return c->problem.mask != ITH_MASK_NONE && key % 7 == 3;
}

/* Hides some keys in every row of the mask. */
static void hide_columns_of_mask(attention_case *c)
{
    const ith_attn_problem *p = &c->problem;
    const int64_t size = p->mask == ITH_MASK_ADDITIVE ? (int64_t)sizeof(float) : 1;
    const int64_t elements = (int64_t)case_mask_bytes(p) / size;
    for (int64_t i = 0; i < elements; i++)
        if (is_hidden_by_mask(c, i % p->kv_len))
            hide_by_mask(c, i);
}

/* ---- Numbers that must not matter, and numbers that must --------------------------------------------------------- */

static void put(const attention_case *c, void *tensor, int64_t element, float x)
{
    const int64_t bytes = ith_dtype_bytes(c->problem.dtype);
    ith_from_f32((char *)tensor + element * bytes, c->problem.dtype, &x, 1);
}

/* The largest number of the problem's type. */
static float largest(const attention_case *c)
{
    return c->problem.dtype == ITH_F32 ? FLT_MAX : c->problem.dtype == ITH_BF16 ? 0x1.fep127f : 65504.0f;
}

/* Fills the rows of hidden keys. */
static void spoil_keys(attention_case *c, uint64_t *r)
{
    const ith_attn_problem *p = &c->problem;
    const int64_t width = case_kv_heads(c) * p->head_dim;
    const float absent[] = {NAN, INFINITY, -INFINITY};
    for (int64_t row = 0; row < p->batch * p->kv_len; row++) {
        const bool gone = is_absent(c, row / p->kv_len, row % p->kv_len);
        if (!gone && !is_hidden_by_mask(c, row % p->kv_len))
            continue;
        for (int64_t d = 0; d < width; d++) {
            const float x = gone ? absent[random_below(r, 3)] : d % 2 ? largest(c) : -largest(c);
            put(c, c->k, row * width + d, x);
            put(c, c->v, row * width + d, x);
        }
    }
}

/* Puts NaN or infinity into some queries. Some heads have none: they may use fixed_m. */
static void spoil_queries(keyless_case *k, uint64_t *r)
{
    const ith_attn_problem *p = &k->c.problem;
    const float special[] = {NAN, INFINITY, -INFINITY};
    const uint32_t clean_head = random_below(r, 2 * (uint32_t)p->heads);
    for (int64_t row = 0; row < p->batch * p->q_len * p->heads; row++) {
        const uint32_t which = random_below(r, 6);
        if (row % p->heads == clean_head || which >= 3)
            continue;
        put(&k->c, k->c.q, row * p->head_dim + random_below(r, (uint32_t)p->head_dim), special[which]);
        k->nan[row] = which == 0;
        k->infinite[row] = which != 0;
    }
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static void draw_problem(ith_attn_problem *p, int64_t longest, uint64_t *r)
{
    static const int64_t dims[] = {7, 16, 24, 33, 64, 80, 128};
    const uint32_t kinds = 1 + random_below(r, 7);
    p->batch = random_between(r, 1, 3);
    p->kv_heads = random_between(r, 1, 2);
    p->heads = p->kv_heads * random_between(r, 1, 2);
    p->head_dim = dims[random_below(r, sizeof dims / sizeof *dims)];
    p->q_len = random_between(r, 1, longest);
    p->kv_len = random_below(r, 8) ? random_between(r, 1, longest) : random_between(r, 0, 3);
    p->has_key_bias = kinds & 1;
    p->has_kv_lengths = kinds & 2;
    p->mask = kinds & 4 ? (random_below(r, 2) ? ITH_MASK_BOOL : ITH_MASK_ADDITIVE) : ITH_MASK_NONE;
    p->mask_batch = random_below(r, 2) ? p->batch : 1;
    p->mask_heads = random_below(r, 2) ? p->heads : 1;
    p->replicated_kv = random_below(r, 8) == 0;
}

keyless_case keyless_case_make(uint32_t seed, ith_dtype dtype, int64_t longest)
{
    uint64_t r = seed;
    keyless_case k = {.c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT}, .seed = seed};
    attention_case *c = &k.c;
    const ith_attn_problem *p = &c->problem;
    draw_problem(&c->problem, longest, &r);
    c->problem.dtype = dtype;
    c->kind = random_below(&r, 2) ? CASE_NORMAL : CASE_TINY;
    c->gap = random_below(&r, 4) ? 0 : 3;
    c->wants_lse = random_below(&r, 4) != 0;
    case_fill(c, random_bits(&r), (int)random_below(&r, 3));
    for (int64_t entry = 0; entry < p->batch; entry++)
        hide_keys_of_entry(c, entry, &r);
    hide_rows_of_mask(c, &r);
    hide_columns_of_mask(c);
    const size_t rows = (size_t)(p->batch * p->q_len * p->heads);
    k.o = malloc(rows * (size_t)p->head_dim * sizeof *k.o);
    k.lse = malloc(rows * sizeof *k.lse);
    k.nan = calloc(rows, sizeof *k.nan);
    k.infinite = calloc(rows, sizeof *k.infinite);
    case_oracle(c, k.o, k.lse);
    c->plain_error = fmax(2 * c->plain_error, 0x1p-16); /* where few values cancel out, errors are large by chance */
    spoil_keys(c, &r);
    spoil_queries(&k, &r);
    return k;
}

void keyless_case_free(keyless_case *k)
{
    free(k->o), free(k->lse), free(k->nan), free(k->infinite);
    case_free(&k->c);
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

/* Checks one row. If its query is not finite, replaces the row afterwards by the truth, so that later checks of all
 * rows pass. row: the number of the row in o; lse_row: in lse. */
static void check_row(keyless_case *k, int64_t row, int64_t lse_row)
{
    attention_case *c = &k->c;
    const int64_t D = c->problem.head_dim;
    const bool keyless = k->lse[lse_row] == -INFINITY;
    float *o = c->o + row * D, *lse = c->wants_lse ? c->lse + lse_row : NULL;
    bool good = true;
    for (int64_t d = 0; d < D; d++)
        good &= keyless ? o[d] == 0.0f : !k->nan[row] || isnan(o[d]);
    if (lse)
        good &= keyless ? *lse == -INFINITY : !k->nan[row] || isnan(*lse);
    if (!good)
        fail_msg("case %u, %s: row %lld, %s keys, nan %d, infinite %d: o %g, lse %g\n%s", k->seed,
                 ith_dtype_name(c->problem.dtype), (long long)row, keyless ? "without" : "with", k->nan[row],
                 k->infinite[row], (double)o[0], lse ? (double)*lse : 0, c->plan);
    if (!k->nan[row] && !k->infinite[row])
        return;
    memcpy(o, k->o + row * D, (size_t)D * sizeof *o);
    if (lse)
        *lse = k->lse[lse_row];
}

void keyless_case_check(ith_context *context, keyless_case *k, int ranks)
{
    const ith_attn_problem *p = &k->c.problem;
    check_run(context, &k->c, ranks);
    for (int64_t row = 0; row < p->batch * p->q_len * p->heads; row++) {
        const int64_t head = row % p->heads, query = row / p->heads % p->q_len, entry = row / p->heads / p->q_len;
        check_row(k, row, (entry * p->heads + head) * p->q_len + query);
    }
    check_result(&k->c, k->o, k->lse, k->seed);
}
