/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fault_subject.h"
#include "base/context.h"
#include "base/dtype.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint32_t fault_draw(fault_scene *s, uint32_t below)
{
    return random_below(&s->random, below);
}

void fault_poison(fault_subject *subject, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        memset(subject->shares[rank].o, POISON, subject->shares[rank].o_bytes);
        memset(subject->shares[rank].lse, POISON, subject->shares[rank].lse_bytes);
    }
}

ith_attn_tensors fault_tensors(const fault_subject *subject, int rank)
{
    const fault_share *share = &subject->shares[rank];
    ith_attn_tensors tensors = case_tensors(&subject->c);
    tensors.q = share->q, tensors.k = share->k, tensors.v = share->v, tensors.o = share->o;
    tensors.lse = subject->c.wants_lse ? share->lse : NULL;
    return tensors;
}

void fault_note(fault_scene *s, int rank, ith_status status)
{
    s->seen[rank] = status;
    snprintf(s->sentences[rank], FAULT_SENTENCE, "%s", status ? ith_context_error(s->g.contexts[rank]) : "");
}

static void fault_share_create(fault_subject *subject, fault_share *share, int rank, int ranks)
{
    const attention_case *c = &subject->c;
    const ith_attn_problem *p = &c->problem;
    int64_t width = p->heads * p->head_dim, kv_width = case_kv_heads(c) * p->head_dim;
    int64_t begin, rows, kv_begin = 0, kv_rows = p->kv_len;
    ith_share(p->q_len, ranks, rank, &begin, &rows);
    if (!p->replicated_kv)
        ith_share(p->kv_len, ranks, rank, &kv_begin, &kv_rows);
    share->q = case_share(c, c->q, p->q_len, width, begin, rows);
    share->k = case_share(c, c->k, p->kv_len, kv_width, kv_begin, kv_rows);
    share->v = case_share(c, c->v, p->kv_len, kv_width, kv_begin, kv_rows);
    share->o = case_share(c, NULL, p->q_len, width, begin, rows);
    share->right_o = case_share(c, NULL, p->q_len, width, begin, rows);
    share->o_bytes = (size_t)(p->batch * rows * (width + c->gap)) * (size_t)ith_dtype_bytes(p->dtype);
    share->lse_bytes = (size_t)(p->batch * p->heads * rows) * sizeof(float);
    share->lse = malloc(share->lse_bytes + 1), share->right_lse = malloc(share->lse_bytes + 1);
}

void fault_subject_create(fault_subject *subject, uint32_t seed, int64_t longest, int ranks)
{
    subject->c = random_case(seed, longest);
    subject->problem = subject->c.problem;
    ith_attn_problem *p = &subject->problem;
    if (subject->c.gap) {
        p->q_row_stride = p->o_row_stride = p->heads * p->head_dim + subject->c.gap;
        p->k_row_stride = p->v_row_stride = case_kv_heads(&subject->c) * p->head_dim + subject->c.gap;
    }
    for (int rank = 0; rank < ranks; rank++)
        fault_share_create(subject, &subject->shares[rank], rank, ranks);
    ith_context *context = NULL;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    if (ith_plan_predict(context, p, &subject->options, ranks, 0, true, &info))
        subject->options.kernel = "f32_ref"; /* the kernel that was drawn does not take the problem */
    ith_context_destroy(&context);
}

void fault_subject_destroy(fault_subject *subject, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        fault_share *x = &subject->shares[rank];
        free(x->q), free(x->k), free(x->v), free(x->o), free(x->right_o), free(x->lse), free(x->right_lse);
    }
    case_free(&subject->c);
}

static void fault_plan_in_rank(rank_group *g, int rank, void *user)
{
    fault_scene *s = user;
    ith_status status = ITH_OK;
    omp_set_num_threads(1 + (rank + s->ranks) % 2);
    ith_comm_set_timeout(g->comms[rank], 60);
    for (int i = 0; i < SUBJECTS && !status; i++)
        status = ith_plan_create(g->contexts[rank], &s->subjects[i].problem, &s->subjects[i].options, g->comms[rank],
                                 &s->subjects[i].plans[rank]);
    fault_note(s, rank, status);
}

void fault_group_create(fault_scene *s)
{
    assert_int_equal(ith_context_create(NULL, &s->root), ITH_OK);
    assert_int_equal(group_create(&s->g, s->root, s->ranks), ITH_OK);
    group_run(&s->g, fault_plan_in_rank, s);
    for (int rank = 0; rank < s->ranks; rank++)
        if (s->seen[rank])
            fail_msg("planning on rank %d: %s", rank, s->sentences[rank]);
}

void fault_group_destroy(fault_scene *s)
{
    for (int i = 0; i < SUBJECTS; i++)
        for (int rank = 0; rank < s->ranks; rank++)
            ith_plan_destroy(&s->subjects[i].plans[rank]);
    group_destroy(&s->g);
    assert_int_equal(ith_context_bytes(s->root), 0);
    ith_context_destroy(&s->root);
}

bool fault_is_right(const fault_subject *subject, int rank)
{
    const fault_share *x = &subject->shares[rank];
    return !memcmp(x->o, x->right_o, x->o_bytes) && !memcmp(x->lse, x->right_lse, x->lse_bytes);
}

static bool fault_is_poison(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[i] != POISON)
            return false;
    return true;
}

bool fault_is_untouched(const fault_subject *subject, int rank)
{
    const fault_share *x = &subject->shares[rank];
    return fault_is_poison(x->o, x->o_bytes) && fault_is_poison(x->lse, x->lse_bytes);
}

static void fault_execute_in_rank(rank_group *g, int rank, void *user)
{
    fault_scene *s = user;
    (void)g;
    for (int i = 0; i < SUBJECTS; i++) {
        ith_attn_tensors tensors = fault_tensors(&s->subjects[i], rank);
        fault_note(s, rank, ith_plan_execute(s->subjects[i].plans[rank], &tensors));
        if (s->seen[rank])
            return;
    }
}

void fault_expect_right(fault_scene *s, const char *after)
{
    for (int i = 0; i < SUBJECTS; i++)
        fault_poison(&s->subjects[i], s->ranks);
    group_run(&s->g, fault_execute_in_rank, s);
    for (int rank = 0; rank < s->ranks; rank++) {
        if (s->seen[rank])
            fail_msg("after %s, rank %d: %s: %s", after, rank, ith_status_name(s->seen[rank]), s->sentences[rank]);
        for (int i = 0; i < SUBJECTS; i++)
            if (!fault_is_right(&s->subjects[i], rank))
                fail_msg("after %s, rank %d: plan %d gives other bits", after, rank, i);
    }
}

/* Copies a rank's rows of o to the whole o of the case, as f32. */
static void fault_collect(fault_subject *subject, int rank, int ranks)
{
    const ith_attn_problem *p = &subject->c.problem;
    int64_t width = p->heads * p->head_dim, begin, rows;
    size_t stride = (size_t)((width + subject->c.gap) * ith_dtype_bytes(p->dtype));
    ith_share(p->q_len, ranks, rank, &begin, &rows);
    for (int64_t i = 0; i < p->batch * rows; i++)
        ith_to_f32(subject->c.o + (i / rows * p->q_len + begin + i % rows) * width,
                   (char *)subject->shares[rank].right_o + (size_t)i * stride, p->dtype, width);
}

void fault_learn(fault_scene *s)
{
    for (int i = 0; i < SUBJECTS; i++)
        fault_poison(&s->subjects[i], s->ranks);
    group_run(&s->g, fault_execute_in_rank, s);
    for (int i = 0; i < SUBJECTS; i++) {
        fault_subject *subject = &s->subjects[i];
        const ith_attn_problem *p = &subject->c.problem;
        int64_t count = p->batch * p->q_len * p->heads * p->head_dim;
        float *o = malloc((size_t)(count + 1) * sizeof *o);
        float *lse = malloc((size_t)(p->batch * p->heads * p->q_len + 1) * sizeof *lse);
        double error = 0, norm = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            fault_share *x = &subject->shares[rank];
            assert_int_equal(s->seen[rank], ITH_OK);
            memcpy(x->right_o, x->o, x->o_bytes);
            memcpy(x->right_lse, x->lse, x->lse_bytes);
            fault_collect(subject, rank, s->ranks);
        }
        case_oracle(&subject->c, o, lse);
        for (int64_t n = 0; n < count; n++) {
            double off = (double)subject->c.o[n] - (double)o[n];
            error += off * off, norm += (double)o[n] * (double)o[n];
        }
        if (!(error <= norm * case_bound(&subject->c) * case_bound(&subject->c)))
            fail_msg("error %g, bound %g", sqrt(error / norm), case_bound(&subject->c));
        free(o), free(lse);
    }
}
