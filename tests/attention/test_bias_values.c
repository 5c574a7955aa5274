/* SPDX-License-Identifier: Apache-2.0 */
/* A key_bias or mask of NaN or +infinity makes o and lse NaN in the rows that attend to the key, and changes no bit of
 * other rows: with every kernel that the machine runs, both softmaxes, and every strategy. */
#include "kernels/kernel.h"
#include "support/attention_check.h"
#include "support/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, LENGTH = 70, KEYS = 2 };

static const int64_t keys[KEYS] = {0, LENGTH - 1}; /* the keys with the value */

typedef struct plan_choice {
    int ranks, ulysses, ring;
} plan_choice;

static const plan_choice choices[] = {{1, 1, 1}, {2, 2, 1}, {3, 1, 3}, {4, 2, 2}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* Whether the mask hides the value from a query. */
static bool is_spared(int64_t query)
{
    return query % 3 == 0;
}

static attention_case make_case(ith_dtype dtype, int64_t head_dim, ith_mask mask)
{
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    c.problem.heads = HEADS;
    c.problem.kv_heads = HEADS / 2;
    c.problem.head_dim = head_dim;
    c.problem.q_len = c.problem.kv_len = LENGTH;
    c.problem.dtype = dtype;
    c.problem.has_key_bias = true;
    c.problem.mask = mask;
    case_fill(&c, 1, 0); /* with biases that are not 0: otherwise the value would change the softmax of its head */
    return c;
}

/* Gives a key `value`, in its bias if the mask is boolean and otherwise in the mask, for all queries but the spared
 * ones. If `hides`, a bias of -infinity hides the key from all. */
static void set_value(attention_case *c, int64_t key, float value, bool hides)
{
    if (c->problem.mask == ITH_MASK_BOOL || hides)
        c->key_bias[key] = hides ? -INFINITY : value;
    for (int64_t i = 0; i < LENGTH; i++)
        if (c->problem.mask == ITH_MASK_BOOL)
            ((uint8_t *)c->mask)[i * LENGTH + key] = !is_spared(i);
        else
            ((float *)c->mask)[i * LENGTH + key] = is_spared(i) ? -INFINITY : value;
}

/* Whether all outputs of a row, and its lse, are NaN. */
static bool is_nan_row(const attention_case *c, int64_t query, int64_t head)
{
    const float *o = c->o + (query * HEADS + head) * c->problem.head_dim;
    bool all = isnan(c->lse[head * LENGTH + query]);
    for (int64_t d = 0; d < c->problem.head_dim; d++)
        all &= isnan(o[d]) != 0;
    return all;
}

/* Whether a row has the bits of the same row of a run without the value. */
static bool is_clean_row(const attention_case *c, const float *o, const float *lse, int64_t query, int64_t head)
{
    const int64_t D = c->problem.head_dim, at = (query * HEADS + head) * D;
    return !memcmp(c->o + at, o + at, (size_t)D * sizeof *o) &&
           !memcmp(c->lse + head * LENGTH + query, lse + head * LENGTH + query, sizeof *lse);
}

/* o, lse: the results with finite values. */
static void check_rows(const attention_case *c, const float *o, const float *lse, float value, bool hides)
{
    for (int64_t i = 0; i < LENGTH; i++)
        for (int64_t h = 0; h < HEADS; h++) {
            const bool clean = hides || is_spared(i);
            if (clean ? is_clean_row(c, o, lse, i, h) : is_nan_row(c, i, h))
                continue;
            fail_msg("%s, value %g, mask %d, hidden %d, query %d, head %d is not %s: o %g, lse %g\n%s",
                     ith_dtype_name(c->problem.dtype), (double)value, (int)c->problem.mask, hides, (int)i, (int)h,
                     clean ? "clean" : "NaN", (double)c->o[(i * HEADS + h) * c->problem.head_dim],
                     (double)c->lse[h * LENGTH + i], c->plan);
        }
}

/* Runs one plan of a case with a finite value, and then with NaN and with infinity. */
static void check_plan(attention_case *c, int ranks, int64_t key, bool hides)
{
    static const float values[] = {NAN, INFINITY};
    const size_t o_bytes = (size_t)(LENGTH * HEADS * c->problem.head_dim) * sizeof(float);
    const size_t lse_bytes = (size_t)LENGTH * HEADS * sizeof(float);
    float *o = malloc(o_bytes), *lse = malloc(lse_bytes);
    set_value(c, key, 0, hides);
    check_run(context, c, ranks);
    memcpy(o, c->o, o_bytes), memcpy(lse, c->lse, lse_bytes);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        set_value(c, key, values[i], hides);
        check_run(context, c, ranks);
        check_rows(c, o, lse, values[i], hides);
    }
    free(o), free(lse);
}

/* Checks a kernel on problems of one type and head size: both softmaxes with each plan, and both masks and both keys
 * with each softmax and with each plan. */
static void check_kernel(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t head_dim)
{
    for (int n = 0; n < 2 * CHOICES; n++) {
        const int number = n % CHOICES, fixed = n / CHOICES;
        const ith_softmax softmax = fixed ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        if (!kernel->supports(dtype, head_dim, softmax))
            continue;
        const plan_choice *choice = &choices[number];
        const int64_t key = keys[(number / 2 + fixed) % KEYS];
        attention_case c = make_case(dtype, head_dim, (number + fixed) % 2 ? ITH_MASK_ADDITIVE : ITH_MASK_BOOL);
        c.options.kernel = kernel->name;
        c.options.softmax = softmax;
        c.options.ulysses = choice->ulysses, c.options.ring = choice->ring;
        check_plan(&c, choice->ranks, key, false);
        if (c.problem.mask == ITH_MASK_ADDITIVE)
            check_plan(&c, choice->ranks, key, true);
        case_free(&c);
    }
}

static void values_that_are_not_finite(void **state)
{
    (void)state;
    static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
    bool usable;
    const char *name;
    for (int i = 0; (name = ith_kernel_list(context, i, &usable)); i++)
        for (size_t t = 0; usable && t < sizeof dtypes / sizeof *dtypes; t++)
            for (int64_t head_dim = 16; head_dim <= 72; head_dim += 56)
                check_kernel(ith_attn_kernel_named(name), dtypes[t], head_dim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_that_are_not_finite)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
