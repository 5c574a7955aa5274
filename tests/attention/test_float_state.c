/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point state of a thread that executes a plan: rounding and the treatment of subnormal numbers are
 * afterwards as they were, and do not change a result if only subnormal numbers are flushed. */
#include "support/attention_case.h"
#include "support/fixture.h"
#include "support/subnormal.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

enum { Q = 70, KEYS = 300, HEADS = 2, DIM = 64 };

static void fill(attention_case *c, ith_dtype type, ith_softmax softmax, const char *kernel)
{
    *c = (attention_case){.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
    ith_attn_problem *p = &c->problem;
    p->dtype = type, p->mask = ITH_MASK_ADDITIVE, p->has_key_bias = p->has_kv_lengths = true;
    p->batch = p->mask_batch = p->mask_heads = 1, p->heads = p->kv_heads = HEADS;
    p->head_dim = DIM, p->q_len = Q, p->kv_len = KEYS;
    p->q_row_stride = p->k_row_stride = p->v_row_stride = p->o_row_stride = HEADS * DIM;
    p->q_batch_stride = p->o_batch_stride = Q * HEADS * DIM;
    p->k_batch_stride = p->v_batch_stride = KEYS * HEADS * DIM;
    c->options.softmax = softmax, c->options.kernel = kernel, c->options.threads = 1;
    case_fill(c, 5, 1);
}

/* Returns the outputs, to be freed with free(); NULL if the kernel does not compute the type. */
static void *attend(const attention_case *c)
{
    ith_plan *plan = NULL;
    ith_attn_tensors tensors = case_tensors(c);
    if (ith_plan_create(context, &c->problem, &c->options, NULL, &plan))
        return NULL;
    tensors.o = calloc(Q * HEADS * DIM, sizeof(float));
    assert_non_null(tensors.o);
    check(context, ith_plan_execute(plan, &tensors));
    ith_plan_destroy(&plan);
    return tensors.o;
}

static void expect_state(int rounding, bool flushes)
{
    assert_int_equal(fegetround(), rounding);
    assert_true(flushes_subnormals() == flushes);
    assert_false(fegetexcept());
}

/* Returns whether the kernel computes the case. */
static bool keeps_state(const attention_case *c)
{
    void *usual = attend(c);
    if (!usual)
        return false;
    expect_state(FE_TONEAREST, false);
    flush_subnormals();
    const bool flushes = flushes_subnormals(); /* x86 only */
    void *flushed = attend(c);
    expect_state(FE_TONEAREST, flushes);
    fesetenv(FE_DFL_ENV);
    assert_memory_equal(usual, flushed, (size_t)(Q * HEADS * DIM * ith_dtype_bytes(c->problem.dtype)));
    fesetround(FE_UPWARD);
    free(attend(c));
    expect_state(FE_UPWARD, false);
    fesetenv(FE_DFL_ENV);
    free(flushed);
    free(usual);
    return true;
}

static void a_plan_leaves_the_state_as_it_was(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    int computed = 0;
    const char *kernel;
    bool usable;
    for (int index = 0; (kernel = ith_kernel_list(context, index, &usable)); index++)
        for (int n = 0; usable && n < 3 * 2; n++) {
            attention_case c;
            fill(&c, types[n / 2], n % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE, kernel);
            computed += keeps_state(&c);
            case_free(&c);
        }
    assert_true(computed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_leaves_the_state_as_it_was)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
