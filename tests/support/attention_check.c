/* SPDX-License-Identifier: Apache-2.0 */
#include "support/attention_check.h"

#include "support/compare.h"
#include "support/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

void check_run(ith_context *context, attention_case *c, int ranks)
{
    ith_status status = ith_run_ranks(context, ranks, ranks == 1 ? 2 : ranks, case_in_rank, c);
    if (status)
        print_error("%d ranks: %s\n", ranks, ith_context_error(context));
    assert_int_equal(status, ITH_OK);
    assert_int_equal(memory_of(context).current_bytes, 0);
}

static void check_describe(const attention_case *c, uint32_t seed, double error)
{
    const ith_attn_problem *p = &c->problem;
    print_error(
        "problem %u: B %d H %d/%d D %d Sq %d Skv %d %s, kind %d, lengths %d bias %d mask %d, error %.3g bound %.3g "
        "plain %.3g largest logit %.3g\n%s\n",
        seed, (int)p->batch, (int)p->heads, (int)case_kv_heads(c), (int)p->head_dim, (int)p->q_len, (int)p->kv_len,
        ith_dtype_name(p->dtype), (int)c->kind, p->has_kv_lengths, p->has_key_bias, (int)p->mask, error, case_bound(c),
        c->plain_error, c->largest_logit, c->plan);
}

void check_result(const attention_case *c, const float *o, const float *lse, uint32_t seed)
{
    const ith_attn_problem *p = &c->problem;
    int64_t rows = p->batch * p->heads * p->q_len, count = rows * p->head_dim;
    double error = relative_l2(c->o, o, count);
    if (!(error <= case_bound(c)))
        check_describe(c, seed, error);
    assert_true(error <= case_bound(c));
    double tolerance = 1e-4 + c->largest_logit * 0x1p-20 +
                       (p->dtype == ITH_BF16  ? 0x1p-8
                        : p->dtype == ITH_F16 ? 0x1p-10
                                              : 0);
    for (int64_t i = 0; c->wants_lse && i < rows; i++) {
        bool endless = lse[i] < -1e30f; /* all keys are hidden, or all have a bias near the end of f32's range */
        bool good = fabs((double)c->lse[i] - (double)lse[i]) <= tolerance;
        if (endless)
            good = c->lse[i] < -1e30f && isinf(c->lse[i]) == isinf(lse[i]);
        if (!good) {
            check_describe(c, seed, error);
            print_error("lse[%d] is %g, not %g\n", (int)i, (double)c->lse[i], (double)lse[i]);
        }
        assert_true(good);
    }
}
