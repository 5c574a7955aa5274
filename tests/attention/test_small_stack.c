/* SPDX-License-Identifier: Apache-2.0 */
/* A thread with a small stack makes, executes and destroys plans. */
#include "support/attention_case.h"
#include "support/fixture.h"
#include "support/small_stack.h"

#include <string.h>

typedef struct work {
    const attention_case *c;
    ith_status status;
} work;

static void *work_in_thread(void *user)
{
    work *w = user;
    ith_plan *plan = NULL;
    ith_attn_tensors tensors = case_tensors(w->c);
    tensors.o = w->c->o_bits, tensors.lse = w->c->lse;
    w->status = ith_plan_create(context, &w->c->problem, &w->c->options, NULL, &plan);
    if (!w->status)
        w->status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    return NULL;
}

static void compute(const attention_case *c)
{
    work w = {.c = c};
    run_on_stack(SMALL_STACK_BYTES, work_in_thread, &w);
    check(context, w.status);
}

static void set_strides(ith_attn_problem *p)
{
    p->q_row_stride = p->o_row_stride = p->heads * p->head_dim;
    p->k_row_stride = p->v_row_stride = p->kv_heads * p->head_dim;
    p->q_batch_stride = p->o_batch_stride = p->q_len * p->q_row_stride;
    p->k_batch_stride = p->v_batch_stride = p->kv_len * p->k_row_stride;
}

static void a_small_stack_will_do(void **state)
{
    (void)state;
    if (!stack_is_usual())
        skip();
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    static const ith_mask masks[] = {ITH_MASK_NONE, ITH_MASK_BOOL, ITH_MASK_ADDITIVE};
    for (int n = 0; n < 3 * 3 * 2 * 2; n++) {
        attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
        ith_attn_problem *p = &c.problem;
        p->dtype = types[n % 3], p->mask = masks[n / 3 % 3];
        p->batch = 1, p->heads = 2, p->kv_heads = 1, p->head_dim = 72, p->q_len = 200, p->kv_len = 1100;
        p->mask_batch = p->mask_heads = 1;
        p->has_key_bias = p->has_kv_lengths = true;
        c.options.softmax = n / 9 % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        c.options.threads = 1 + n / 18;
        set_strides(p);
        case_fill(&c, (uint64_t)n, 1);
        compute(&c);
        case_free(&c);
    }
}

static void *load_in_thread(void *user)
{
    ith_status *status = user;
    char path[3000];
    memset(path, 'k', sizeof path - 1), path[sizeof path - 1] = '\0';
    *status = ith_wisdom_load(context, path);
    return NULL;
}

static void it_will_do_for_a_long_sentence(void **state)
{
    (void)state;
    ith_status status = ITH_OK;
    if (!stack_is_usual())
        skip();
    run_on_stack(SMALL_STACK_BYTES, load_in_thread, &status);
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "kkk ... kkk"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_stack_will_do),
                                       cmocka_unit_test(it_will_do_for_a_long_sentence)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
