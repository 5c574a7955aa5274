/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point state of the threads that execute a plan (rounding, traps, subnormal numbers) changes no bit of a
 * result, and is afterwards as it was. */
#include "support/attention_case.h"
#include "support/fixture.h"
#include "support/subnormal.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

enum { Q = 70, KEYS = 300, HEADS = 2, DIM = 64, THREADS = 3 };

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
    c->options.softmax = softmax, c->options.kernel = kernel, c->options.threads = THREADS;
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

/* ---- States that a program may have set -------------------------------------------------------------------------- */

static void round_up(void)
{
    fesetround(FE_UPWARD);
}

static void trap_exceptions(void)
{
    feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
}

static void reset_state(void)
{
    fesetenv(FE_DFL_ENV);
}

/* Calls `set` on the calling thread and on OpenMP's threads. */
static void set_everywhere(void (*set)(void))
{
#pragma omp parallel num_threads(THREADS)
    set();
}

/* The state of the calling thread. */
typedef struct float_state {
    int rounding, traps;
    bool flushes;
} float_state;

static float_state current_state(void)
{
    return (float_state){fegetround(), fegetexcept(), flushes_subnormals()};
}

/* ---- The tests --------------------------------------------------------------------------------------------------- */

/* Computes the case in a state, and expects the usual bits and the same state afterwards. */
static void expect_usual(const attention_case *c, const void *usual, void (*set)(void))
{
    set_everywhere(set);
    const float_state before = current_state();
    void *o = attend(c);
    const float_state after = current_state();
    set_everywhere(reset_state);
    assert_non_null(o);
    assert_memory_equal(usual, o, (size_t)(Q * HEADS * DIM * ith_dtype_bytes(c->problem.dtype)));
    assert_int_equal(after.rounding, before.rounding);
    assert_int_equal(after.traps, before.traps);
    assert_true(after.flushes == before.flushes);
    free(o);
}

/* Returns whether the kernel computes the case. */
static bool is_usual_in_every_state(const attention_case *c)
{
    static void (*const states[])(void) = {reset_state, flush_subnormals, round_up, trap_exceptions};
    void *usual = attend(c);
    for (size_t i = 0; usual && i < sizeof states / sizeof *states; i++)
        expect_usual(c, usual, states[i]);
    free(usual);
    return usual != NULL;
}

static void bits_do_not_depend_on_the_state(void **state)
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
            computed += is_usual_in_every_state(&c);
            case_free(&c);
        }
    assert_true(computed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_do_not_depend_on_the_state)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
