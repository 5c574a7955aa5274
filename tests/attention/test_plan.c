/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: the choices that they make, the problems and options that they refuse, and ranks that disagree. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/memory.h"
#include "support/other_locale.h"
#include "support/plan_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- Choices --------------------------------------------------------------------------------------------------- */

static void choices_are_made(void **state)
{
    (void)state;
    static const struct {
        int ranks, heads;
        ith_strategy strategy;
        int ulysses, ring;
        const char *chosen;
    } rows[] = {
        {1, 3, ITH_STRATEGY_AUTO, 0, 0, "single over 1 rank, ulysses 1 x ring 1"},
        {1, 3, ITH_STRATEGY_ULYSSES_RING, 1, 1, "single over 1 rank, ulysses 1 x ring 1"},
        {4, 4, ITH_STRATEGY_AUTO, 0, 0, "ulysses over 4 ranks, ulysses 4 x ring 1"},      /* 8 heads with the batch */
        {4, 3, ITH_STRATEGY_AUTO, 0, 0, "ulysses_ring over 4 ranks, ulysses 2 x ring 2"}, /* 6 heads */
        {4, 1, ITH_STRATEGY_AUTO, 0, 0, "ulysses_ring over 4 ranks, ulysses 2 x ring 2"},
        {3, 1, ITH_STRATEGY_AUTO, 0, 0, "ring over 3 ranks, ulysses 1 x ring 3"},
        {4, 1, ITH_STRATEGY_AUTO, 4, 0, "ulysses over 4 ranks, ulysses 4 x ring 1"},
        {6, 3, ITH_STRATEGY_AUTO, 0, 3, "ulysses_ring over 6 ranks, ulysses 2 x ring 3"},
        {6, 3, ITH_STRATEGY_ULYSSES_RING, 0, 0, "ulysses_ring over 6 ranks, ulysses 3 x ring 2"},
        {4, 3, ITH_STRATEGY_ULYSSES_RING, 0, 0, "ulysses_ring over 4 ranks, ulysses 2 x ring 2"},
        {6, 3, ITH_STRATEGY_ULYSSES_RING, 2, 0, "ulysses_ring over 6 ranks, ulysses 2 x ring 3"},
        {5, 3, ITH_STRATEGY_RING, 0, 0, "ring over 5 ranks, ulysses 1 x ring 5"},
        {6, 1, ITH_STRATEGY_ULYSSES, 0, 0, "ulysses over 6 ranks, ulysses 6 x ring 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t = new_trial();
        t.problem.heads = rows[i].heads;
        t.options.strategy = rows[i].strategy;
        t.options.ulysses = rows[i].ulysses;
        t.options.ring = rows[i].ring;
        assert_int_equal(run_trial(&t, rows[i].ranks), ITH_OK);
        if (strncmp(t.plan, rows[i].chosen, strlen(rows[i].chosen)))
            print_error("row %zu: %s\n", i, t.plan);
        assert_memory_equal(t.plan, rows[i].chosen, strlen(rows[i].chosen));
    }
    trial t = new_trial();
    t.problem.replicated_kv = true;
    t.options.strategy = ITH_STRATEGY_RING;
    assert_int_equal(run_trial(&t, 3), ITH_OK);
    assert_non_null(strstr(t.plan, "single over 3 ranks (keys replicated)"));
    assert_non_null(strstr(t.plan, "sends 0.000 MiB"));
}

static void illegal_choices_name_the_nearest_legal(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        ith_strategy strategy;
        int ulysses, ring;
        const char *word;
    } rows[] = {
        {4, ITH_STRATEGY_SINGLE, 0, 0, "ulysses, ring and ulysses_ring use"},
        {4, ITH_STRATEGY_ULYSSES, 2, 2, "ulysses must be 4"},
        {4, ITH_STRATEGY_RING, 2, 0, "ring must be 4"},
        {6, ITH_STRATEGY_ULYSSES_RING, 4, 0, "the nearest that does is 3"},
        {6, ITH_STRATEGY_AUTO, 0, 5, "the nearest that does is 3"},
        {6, ITH_STRATEGY_AUTO, 2, 2, "ulysses 2 x ring 3"},
        {2, ITH_STRATEGY_AUTO, 9, 9, "ulysses 2 x ring 1"},
        {2, ITH_STRATEGY_AUTO, INT32_MAX, INT32_MAX, "ulysses 2 x ring 1"},
        {2, ITH_STRATEGY_AUTO, -1, 0, "ulysses is -1"},
        {2, ITH_STRATEGY_AUTO, 0, -3, "ring is -3"},
        {2, (ith_strategy)77, 0, 0, "strategy is 77"},
        {1, ITH_STRATEGY_RING, 0, 2, "ring is 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t = new_trial();
        t.options.strategy = rows[i].strategy;
        t.options.ulysses = rows[i].ulysses;
        t.options.ring = rows[i].ring;
        expect_refusal(&t, rows[i].ranks, ITH_ERR_ARGUMENT, rows[i].word);
    }
}

/* ---- Bad problems, on all ranks, on one ------------------------------------------------------------------------ */

SPOIL(no_batch, p->batch = 0)
SPOIL(negative_heads, p->heads = -1)
SPOIL(uneven_groups, p->kv_heads = 2)
SPOIL(many_groups, (p->heads = 36, p->kv_heads = 35))
SPOIL(few_groups, (p->heads = 36, p->kv_heads = 5))
SPOIL(endless_groups, (p->heads = INT64_MAX, p->kv_heads = INT64_MAX - 1))
SPOIL(negative_groups, p->kv_heads = -3)
SPOIL(no_head_dim, p->head_dim = 0)
SPOIL(negative_queries, p->q_len = -5)
SPOIL(negative_keys, p->kv_len = -5)
SPOIL(endless_keys, p->kv_len = INT64_MAX / 8)
SPOIL(wrong_type, p->dtype = ITH_I32)
SPOIL(unknown_type, p->dtype = (ith_dtype)1234)
SPOIL(no_scale, p->scale = NAN)
SPOIL(narrow_rows, p->q_row_stride = 23)
SPOIL(backward_rows, p->k_row_stride = -24)
SPOIL(overlapping_batch, p->o_batch_stride = 25)
SPOIL(backward_batch, p->v_batch_stride = -1)
SPOIL(too_many_products, (p->heads = 1 << 20, p->kv_len = (int64_t)1 << 34, p->head_dim = 8)) /* 2^58 of them */
SPOIL(endless_batch, p->v_batch_stride = INT64_MAX / 2)
SPOIL(endless_rows, p->q_row_stride = INT64_MAX / 2)
SPOIL(unknown_mask, p->mask = (ith_mask)3)
SPOIL(three_masks, p->mask_batch = 3)
SPOIL(two_head_masks, p->mask_heads = 2)
SPOIL(endless_masks, (p->heads = p->mask_heads = 8, p->head_dim = p->mask = 1, p->q_len = p->kv_len = 1 << 30))
SPOIL(negative_masks, p->mask_heads = INT64_MIN)
SPOIL(old_problem, p->struct_size = 4)
SPOIL(old_options, o->struct_size = 4)
SPOIL(unknown_kernel, o->kernel = "abacus")
SPOIL(large_head, p->head_dim = 1 << 20)

static void bad_problems_name_the_parameter(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(ith_attn_problem *, ith_attn_options *);
        const char *word;
    } rows[] = {
        {no_batch, "batch"},
        {negative_heads, "heads"},
        {uneven_groups, "kv_heads is 2, and must be a divisor of heads, which is 3; the nearest is 1"},
        {many_groups, "kv_heads is 35, and must be a divisor of heads, which is 36; the nearest is 36"},
        {few_groups, "kv_heads is 5, and must be a divisor of heads, which is 36; the nearest is "},
        {endless_groups, "kv_heads is 9223372036854775806, and must be a divisor of heads"},
        {negative_groups, "kv_heads"},
        {no_head_dim, "head_dim"},
        {negative_queries, "q_len"},
        {negative_keys, "kv_len"},
        {endless_keys, "kv_len"},
        {too_many_products, "batch, heads, head_dim and q_len or kv_len multiply to more than a size can hold"},
        {wrong_type, "dtype is 9 (i32), and must be f32, bf16 or f16"},
        {unknown_type, "dtype is 1234 (none), and must be f32, bf16 or f16"},
        {no_scale, "scale"},
        {narrow_rows, "q_row_stride"},
        {backward_rows, "k_row_stride"},
        {overlapping_batch, "o_batch_stride"},
        {backward_batch, "v_batch_stride"},
        {endless_batch, "v_batch_stride"},
        {endless_rows, "q_row_stride"},
        {unknown_mask, "mask is 3"},
        {three_masks, "mask_batch is 3, and must be 1 or batch, which is 2; the nearest is 2"},
        {two_head_masks, "mask_heads is 2, and must be 1 or heads, which is 3; the nearest is 3"},
        {endless_masks, "mask has more elements than a size can hold"},
        {negative_masks, "mask_heads is -9223372036854775808, and must be 1 or heads, which is 3; the nearest is 1"},
        {old_problem, "struct_size of the ith_attn_problem is 4"},
        {old_options, "struct_size of the ith_attn_options is 4"},
        {unknown_kernel, "abacus"},
        {large_head, "head_dim"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_refusals(rows[i].spoil, rows[i].word);
    ith_context *context = NULL;
    ith_plan *plan = NULL;
    trial t = new_trial();
    ith_context_create(NULL, &context);
    assert_int_equal(ith_plan_create(context, NULL, NULL, NULL, &plan), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_create(NULL, &t.problem, NULL, NULL, &plan), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_create(context, &t.problem, NULL, NULL, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_create(context, &t.problem, NULL, NULL, &plan), ITH_OK);
    char text[8];
    assert_int_equal(strlen(ith_plan_print(plan, text, sizeof text)), 7);
    ith_plan_destroy(&plan);
    ith_plan_destroy(&plan);
    ith_plan_destroy(NULL);
    assert_int_equal(ith_plan_execute(NULL, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

SPOIL(other_batch, p->batch = 1)
SPOIL(other_heads, p->heads = p->kv_heads = 5)
SPOIL(other_groups, p->kv_heads = 1)
SPOIL(other_queries, p->q_len = 11)
SPOIL(other_keys, p->kv_len = 11)
SPOIL(other_type, p->dtype = ITH_BF16)
SPOIL(other_scale, p->scale = 0.5f)
SPOIL(near_scale, p->scale = nextafterf(1 / sqrtf((float)p->head_dim), 1)) /* the next f32 */
SPOIL(other_bias, p->has_key_bias = true)
SPOIL(other_lengths, p->has_kv_lengths = true)
SPOIL(other_mask, p->mask = ITH_MASK_BOOL)
SPOIL(other_mask_batch, p->mask_batch = 2)
SPOIL(other_mask_heads, p->mask_heads = 3)
SPOIL(other_direction, o->direction = ITH_DIRECTION_BIDIR)
SPOIL(other_chunks, o->chunks = 2)
SPOIL(other_folding, o->fold = ITH_CHOICE_OFF)
SPOIL(other_softmax, o->softmax = ITH_SOFTMAX_FIXED_M)
SPOIL(other_smoothing, o->smooth = ITH_CHOICE_OFF)
SPOIL(other_exchange, o->exchange = ITH_EXCHANGE_COPY)
SPOIL(other_overlap, o->overlap = ITH_CHOICE_OFF)
SPOIL(other_block_q, o->block_q = 48)
SPOIL(other_block_kv, o->block_kv = 1024)
SPOIL(other_compute, o->block_kv_compute = 64)
SPOIL(other_compute_in, o->block_kv_compute_in = 64)
SPOIL(other_copies, p->replicated_kv = true)
SPOIL(other_strategy, o->strategy = ITH_STRATEGY_RING)
SPOIL(other_ulysses, o->ulysses = 1)
SPOIL(other_ring, o->ring = 1)
SPOIL(other_kernel, o->kernel = "f32_ref")

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(ith_attn_problem *, ith_attn_options *);
        const char *word;
    } rows[] = {
        {other_batch, "batch is"},
        {other_heads, "heads is 5"},
        {other_groups, "kv_heads is"},
        {other_queries, "q_len is"},
        {other_keys, "kv_len is"},
        {other_type, "dtype is bf16 on rank"},
        {other_scale, "scale is 0.5 on rank"},
        {near_scale, "scale is 0."},
        {other_lengths, "has_kv_lengths is"},
        {other_bias, "has_key_bias is"},
        {other_mask, "mask is"},
        {other_mask_batch, "mask_batch is"},
        {other_mask_heads, "mask_heads is"},
        {other_copies, "replicated_kv is"},
        {other_strategy, "strategy is ring on rank"},
        {other_ulysses, "ulysses is"},
        {other_ring, "ring is"},
        {other_direction, "direction is bidir on rank"},
        {other_chunks, "chunks is 2 on rank"},
        {other_folding, "fold is"},
        {other_softmax, "softmax is fixed_m on rank"},
        {other_smoothing, "smooth is"},
        {other_exchange, "exchange is copy on rank"},
        {other_overlap, "overlap is"},
        {other_block_q, "block_q is 48"},
        {other_block_kv, "block_kv is 1024"},
        {other_compute, "block_kv_compute is 64"},
        {other_compute_in, "block_kv_compute_in is 64"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int odd = 1; odd < 3; odd++) {
            trial t = new_trial();
            t.odd_rank = odd;
            t.spoil = rows[i].spoil;
            expect_refusal(&t, 3, ITH_ERR_ARGUMENT, rows[i].word);
        }
    trial t = new_trial();
    t.odd_rank = 1;
    t.spoil = other_kernel;
    expect_refusal(&t, 3, ITH_ERR_ARGUMENT, "kernel is f32_ref on rank 1 and NULL on rank 0");
}

static void ranks_that_disagree_are_told_in_every_locale(void **state)
{
    in_other_locale("tr_TR.UTF-8", ranks_that_disagree_are_told, state);
}

static locale_t turkish;

SPOIL(other_locale, uselocale(turkish))

/* Ranks of other processes may have another decimal point. */
static void ranks_with_other_locales_agree(void **state)
{
    (void)state;
    other_locale_make("tr_TR.UTF-8");
    turkish = newlocale(LC_ALL_MASK, "tr_TR.UTF-8", (locale_t)0);
    trial t = new_trial();
    t.problem.scale = 0.125f;
    t.odd_rank = 1;
    t.spoil = other_locale;
    assert_int_equal(run_trial(&t, 3), ITH_OK);
    freelocale(turkish);
}

/* ---- Bad tensors ----------------------------------------------------------------------------------------------- */

static void no_q(ith_attn_tensors *t)
{
    t->q = NULL;
}
static void no_v(ith_attn_tensors *t)
{
    t->v = NULL;
}
static void no_o(ith_attn_tensors *t)
{
    t->o = NULL;
}
static void crooked_k(ith_attn_tensors *t)
{
    t->k = (const char *)t->k + 2;
}
static void crooked_lse(ith_attn_tensors *t)
{
    t->lse = (float *)(void *)((char *)t->o + 4001);
}
static void o_in_q(ith_attn_tensors *t)
{
    t->o = (float *)t->q + 3;
}
static void lse_in_o(ith_attn_tensors *t)
{
    t->lse = (float *)t->o + 5;
}
static void unexpected_bias(ith_attn_tensors *t)
{
    t->key_bias = (const float *)t->q;
}

static void bad_tensors_name_the_parameter(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(ith_attn_tensors *);
        const char *word;
    } rows[] = {
        {no_q, "q is NULL"},          {no_v, "v is NULL"},           {no_o, "o is NULL"},
        {crooked_k, "k is not"},      {crooked_lse, "lse is not"},   {o_in_q, "o overlaps q"},
        {lse_in_o, "o overlaps lse"}, {unexpected_bias, "key_bias"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int odd = -1; odd < ranks; odd++)
                for (int strategy = ITH_STRATEGY_AUTO; strategy <= ITH_STRATEGY_ULYSSES_RING; strategy++) {
                    if (strategy == ITH_STRATEGY_SINGLE)
                        continue;
                    trial t = new_trial();
                    t.odd_rank = odd;
                    t.spoil_tensors = rows[i].spoil;
                    t.options.strategy = (ith_strategy)strategy;
                    if (odd < 0) { /* all ranks make the same mistake */
                        assert_int_equal(run_trial(&t, ranks), ITH_ERR_ARGUMENT);
                        assert_non_null(strstr(t.sentences[0], rows[i].word));
                        continue;
                    }
                    expect_refusal(&t, ranks, ITH_ERR_ARGUMENT, rows[i].word);
                }
    trial t = new_trial();
    t.problem.has_key_bias = true;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT, "key_bias is NULL");
}

static void wants_lse(ith_attn_tensors *t)
{
    static float lse[TRIAL_NUMBERS];
    t->lse = lse;
}

static void lse_is_for_all_or_none(void **state)
{
    (void)state;
    for (int odd = 0; odd < 3; odd++) {
        trial t = new_trial();
        t.odd_rank = odd;
        t.spoil_tensors = wants_lse;
        t.may_write = true;
        t.options.strategy = ITH_STRATEGY_ULYSSES;
        ith_context *context = NULL;
        ith_context_create(NULL, &context);
        assert_int_equal(ith_run_ranks(context, 3, 3, trial_in_rank, &t), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "lse must be given on every rank or on none"));
        ith_context_destroy(&context);
    }
}

/* One query and one key: rank 0 holds both, and the other ranks hold nothing. */
static ith_status attend_with_nothing(ith_context *context, ith_comm *comm, void *user)
{
    const ith_attn_options *options = user;
    const float in[2] = {1, 2};
    float o[2] = {0, 0};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = 1, problem.head_dim = 2, problem.q_len = problem.kv_len = 1;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    if (ith_comm_rank(comm) == 0)
        tensors.q = tensors.k = tensors.v = in, tensors.o = o;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    if (!status && ith_comm_rank(comm) == 0 && (o[0] != 1 || o[1] != 2))
        return ITH_ERR_INTERNAL;
    return status;
}

static void tensors_without_rows_may_be_null(void **state)
{
    (void)state;
    for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_RING; strategy++)
        for (int exchange = ITH_EXCHANGE_IN_PLACE; exchange <= ITH_EXCHANGE_COPY; exchange++) {
            ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
            options.strategy = (ith_strategy)strategy, options.exchange = (ith_exchange_mode)exchange;
            ith_context *context = NULL;
            assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
            assert_int_equal(ith_run_ranks(context, 3, 3, attend_with_nothing, &options), ITH_OK);
            ith_context_destroy(&context);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_made),
        cmocka_unit_test(illegal_choices_name_the_nearest_legal),
        cmocka_unit_test(bad_problems_name_the_parameter),
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(ranks_that_disagree_are_told_in_every_locale),
        cmocka_unit_test(ranks_with_other_locales_agree),
        cmocka_unit_test(bad_tensors_name_the_parameter),
        cmocka_unit_test(lse_is_for_all_or_none),
        cmocka_unit_test(tensors_without_rows_may_be_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
