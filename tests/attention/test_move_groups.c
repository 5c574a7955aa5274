/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of moves of a POST step (ith_move_group): the sums of a group are the sums over its moves, which this test
 * adds up one by one. The sizes and the bytes of a plan are found in a moment, however many ranks and chunks it has. */
#include "attention/schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/in_range.h"
#include "support/random.h"

/* The sums of the moves with each tensor and place. */
typedef struct sums {
    int64_t vectors[ITH_PLACES][ITH_TENSORS], kept[ITH_PLACES][ITH_TENSORS], regions[ITH_PLACES][ITH_TENSORS],
        extent[ITH_PLACES][ITH_TENSORS];
} sums;

static ith_attn_setting setting;

/* The number of pieces into which the ends of batch entries cut a move's heads; one for lse. */
static int64_t regions_of(const ith_move *move)
{
    const int64_t of_entry = ith_tensor_is_kv(move->tensor) ? setting.problem.kv_heads : setting.problem.heads;
    int64_t pieces = 0;
    for (int64_t n = move->first; n < move->first + move->heads && move->rows.rows; n++)
        pieces += n == move->first || (n % of_entry == 0 && move->tensor != ITH_TENSOR_LSE);
    return pieces;
}

static sums sum_of_moves(const ith_schedule *schedule, const ith_step *step, bool sent)
{
    sums all = {0};
    for (int i = 0; i < step->moves; i++) {
        const ith_move m = ith_schedule_move(schedule, step, sent, i);
        const int64_t vectors = m.rows.rows * m.heads, extent = (m.at + m.rows.rows) * m.heads;
        int64_t *most = &all.extent[m.place][m.tensor];
        all.vectors[m.place][m.tensor] += vectors;
        all.regions[m.place][m.tensor] += regions_of(&m);
        assert_int_equal(ith_move_regions(&setting, &m), regions_of(&m));
        if (step->exchange != ITH_EXCHANGE_HOP && m.peer == schedule->ulysses_index)
            all.kept[m.place][m.tensor] += vectors;
        if (m.place != ITH_PLACE_CALLER && extent > *most)
            *most = extent;
    }
    return all;
}

static sums sum_of_groups(const ith_schedule *schedule, const ith_step *step, bool sent)
{
    sums all = {0};
    for (int i = 0; i < step->groups; i++) {
        const ith_move_group g = ith_schedule_group(schedule, step, sent, i);
        int64_t *most = &all.extent[g.place][g.tensor];
        all.vectors[g.place][g.tensor] += g.vectors;
        all.regions[g.place][g.tensor] += g.regions;
        all.kept[g.place][g.tensor] += g.kept;
        *most = g.extent > *most ? g.extent : *most;
    }
    return all;
}

/* A setting with few or many ranks, heads and rows; there may be fewer heads or rows than ranks. */
static void draw_setting(uint64_t *seed)
{
    static const ith_exchange_mode modes[] = {ITH_EXCHANGE_COPY, ITH_EXCHANGE_IN_PLACE, ITH_EXCHANGE_MIXED};
    const int64_t per_key = random_between(seed, 1, 6);
    setting = (ith_attn_setting){.ulysses = (int)random_between(seed, 1, random_below(seed, 2) ? 4 : 40),
                                 .ring = (int)random_between(seed, 1, 4),
                                 .strategy = ITH_STRATEGY_ULYSSES_RING,
                                 .direction = random_below(seed, 2) ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI,
                                 .chunks = (int)random_between(seed, 1, 6),
                                 .folded = random_below(seed, 3) > 0,
                                 .exchange = modes[random_below(seed, 3)],
                                 .unhidden = random_below(seed, 4) == 0,
                                 .element_bytes = 2,
                                 .problem = {.batch = random_between(seed, 1, 9), .head_dim = 8}};
    setting.problem.kv_heads = random_between(seed, 1, random_below(seed, 2) ? 5 : 30);
    setting.problem.heads = setting.problem.kv_heads * per_key;
    setting.problem.q_len = random_between(seed, 1, random_below(seed, 2) ? 30 : 900);
    setting.problem.kv_len = random_between(seed, 1, random_below(seed, 2) ? 30 : 900);
}

static void groups_are_sums_of_moves(void **state)
{
    (void)state;
    uint64_t seed = 36;
    for (int n = 0; n < 1500; n++) {
        draw_setting(&seed);
        const int rank = (int)random_below(&seed, (uint32_t)(setting.ulysses * setting.ring));
        ith_schedule schedule = ith_schedule_of(&setting, rank);
        for (ith_step step; ith_schedule_next(&schedule, &step);)
            for (int sent = 0; step.kind == ITH_STEP_POST && sent < 2; sent++) {
                const sums moves = sum_of_moves(&schedule, &step, sent), groups = sum_of_groups(&schedule, &step, sent);
                assert_memory_equal(&moves, &groups, sizeof moves);
            }
    }
}

/* Sums over some ranks of an axis. */
static void runs_are_sums_of_ranks(void **state)
{
    (void)state;
    uint64_t seed = 37;
    for (int n = 0; n < 3000; n++) {
        draw_setting(&seed);
        const int chunk = (int)random_below(&seed, (uint32_t)ith_chunk_count(&setting));
        const int64_t begin = random_between(&seed, 0, setting.ulysses),
                      end = random_between(&seed, 0, setting.ulysses);
        const ith_heads_run run = ith_chunk_run(&setting, chunk, begin, end);
        int64_t ranks = 0, heads = 0, kv_heads = 0;
        for (int64_t u = begin; u < end; u++) {
            const ith_heads h = ith_chunk_heads(&setting, chunk, (int)u);
            ranks += h.count > 0, heads += h.count, kv_heads += h.kv_heads;
        }
        assert_int_equal(run.ranks, ranks);
        assert_int_equal(ith_run_heads(&run), heads);
        assert_int_equal(ith_run_groups(&run, setting.problem.heads / setting.problem.kv_heads), kv_heads);
    }
}

/* Predicts the plan of one rank of an axis of ulysses that exchanges many chunks by copies. */
static ith_plan_info predict(const ith_attn_problem *problem, int ranks, int rank, int chunks)
{
    ith_context *context;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    options.strategy = ITH_STRATEGY_ULYSSES, options.exchange = ITH_EXCHANGE_COPY, options.chunks = chunks;
    options.threads = 1;
    if (ith_plan_predict(context, problem, &options, ranks, rank, false, &info))
        fail_msg("%s", ith_context_error(context));
    assert_int_equal(info.chunks, chunks);
    ith_context_destroy(&context);
    return info;
}

/* Eight moves for each of 100000 ranks in each of 65536 chunks: to walk over the moves would take hours. */
static void a_plan_of_many_ranks_and_chunks(void **state)
{
    (void)state;
    const int ranks = 100000, chunks = 65536;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.q_len = problem.kv_len = ranks;
    problem.heads = (int64_t)ranks * chunks * 4, problem.kv_heads = problem.heads / 4, problem.head_dim = 8;
    const ith_plan_info info = predict(&problem, ranks, 54321, chunks);
    /* one row of 4 * chunks query heads goes to each other rank, and comes back; k and v have a quarter each */
    assert_int_equal(info.sent_bytes, (int64_t)(ranks - 1) * chunks * 4 * 8 * 4 * 5 / 2);
    assert_true(in_range(info.memory_bytes, (int64_t)100 * ranks, (int64_t)100000 * ranks)); /* lists of transfers */
}

/* Nearly each of 65535 chunks has the end of a batch entry among the heads of 1000000 ranks, which it may cut. */
static void a_plan_of_many_ranks_and_entries(void **state)
{
    (void)state;
    const int ranks = 1000000, chunks = 65535;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = 99999, problem.heads = problem.kv_heads = 1655369, problem.head_dim = 8;
    problem.q_len = problem.kv_len = 1;
    const ith_plan_info info = predict(&problem, ranks, 0, chunks);
    /* q, k and v of the heads of all ranks but the first one, which has its share of each chunk */
    assert_true(in_range(info.sent_bytes, problem.batch * problem.heads / ranks * (ranks - 2) * 8 * 4 * 3,
                         problem.batch * problem.heads * 8 * 4 * 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_sums_of_moves),
        cmocka_unit_test(runs_are_sums_of_ranks),
        cmocka_unit_test(a_plan_of_many_ranks_and_chunks),
        cmocka_unit_test(a_plan_of_many_ranks_and_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
