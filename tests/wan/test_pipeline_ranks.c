/* SPDX-License-Identifier: Apache-2.0 */
/* The same video on any number of ranks: every strategy and mesh, every way to share the guidance branches. Ulysses
 * gives the bits of one rank; strategies with a ring agree to rounding. */
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/golden_run.h"
#include "support/engine/pipeline_fixture.h"

#include <stdio.h>
#include <string.h>

/* 2 latent frames of 6 x 5 tokens: 60, which neither 4 nor 7 ranks share evenly with 6 heads. */
static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A green square moves upwards on a black background.";
    options.negative = "a red square";
    options.frames = 5, options.height = 96, options.width = 80, options.steps = 4;
    options.shift = 3, options.guidance[0] = 4, options.guidance[1] = 3;
    options.precision = ITH_PRECISION_F32, options.seed = 3;
    return options;
}

typedef struct outcome {
    double after_one_step, at_the_end;
    bool same_bits;
} outcome;

static outcome compare(const ith_tensor_file *reference, int ranks, const ith_generate_options *options)
{
    ith_tensor_file *dump = golden_generate(context, pipeline, ranks, options, NULL);
    const ith_tensor *ours = ith_tensor_file_find(dump, "latents"),
                     *theirs = ith_tensor_file_find(reference, "latents");
    int64_t count = ours->bytes / 4 / ours->shape[0];
    outcome result = {.after_one_step = relative_l2(ours->data, theirs->data, count),
                      .at_the_end = relative_l2((const float *)ours->data + (ours->shape[0] - 1) * count,
                                                (const float *)theirs->data + (ours->shape[0] - 1) * count, count),
                      .same_bits = !memcmp(ours->data, theirs->data, (size_t)ours->bytes)};
    ith_tensor_file_close(&dump);
    return result;
}

typedef struct mesh {
    int ranks;
    ith_strategy strategy;
    int ulysses, ring;
} mesh;

static const mesh meshes[] = {
    {2, ITH_STRATEGY_ULYSSES, 2, 1},      {3, ITH_STRATEGY_ULYSSES, 3, 1},      {4, ITH_STRATEGY_ULYSSES, 4, 1},
    {6, ITH_STRATEGY_ULYSSES, 6, 1},      {2, ITH_STRATEGY_RING, 1, 2},         {3, ITH_STRATEGY_RING, 1, 3},
    {4, ITH_STRATEGY_RING, 1, 4},         {6, ITH_STRATEGY_RING, 1, 6},         {4, ITH_STRATEGY_ULYSSES_RING, 2, 2},
    {6, ITH_STRATEGY_ULYSSES_RING, 2, 3}, {6, ITH_STRATEGY_ULYSSES_RING, 3, 2}, {6, ITH_STRATEGY_ULYSSES_RING, 6, 1},
    {3, ITH_STRATEGY_ULYSSES_RING, 1, 3},
};

static void check_mesh(const ith_tensor_file *reference, const mesh *m, ith_cfg cfg)
{
    ith_generate_options options = small_run();
    options.cfg = cfg;
    int ranks = cfg == ITH_CFG_PARALLEL ? 2 * m->ranks : m->ranks;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    options.attention = &attention;
    attention.strategy = m->strategy;
    attention.ulysses = m->ulysses, attention.ring = m->ring;
    outcome result = compare(reference, ranks, &options);
    printf("%d ranks, %s %d x %d, cfg %d: %.1e after a step, %.1e at the end%s\n", ranks,
           ith_strategy_name(m->strategy), m->ulysses, m->ring, cfg, result.after_one_step, result.at_the_end,
           result.same_bits ? ", same bits" : "");
    if (m->ring == 1)
        assert_true(result.same_bits);
    assert_true(result.after_one_step <= 1e-5);
    assert_true(result.at_the_end <= 1e-4);
}

static void every_mesh_gives_the_same_video(void **state)
{
    (void)state;
    ith_generate_options one = small_run();
    ith_tensor_file *reference = golden_generate(context, pipeline, 1, &one, NULL);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
        check_mesh(reference, &meshes[i], ITH_CFG_BATCH);
    ith_tensor_file_close(&reference);
}

static void the_guidance_branches_may_share_in_any_way(void **state)
{
    (void)state;
    ith_generate_options one = small_run();
    ith_tensor_file *reference = golden_generate(context, pipeline, 1, &one, NULL);
    const mesh single = {1, ITH_STRATEGY_SINGLE, 1, 1};
    check_mesh(reference, &single, ITH_CFG_SEQUENTIAL);
    check_mesh(reference, &single, ITH_CFG_PARALLEL);
    check_mesh(reference, &meshes[0], ITH_CFG_PARALLEL);
    check_mesh(reference, &meshes[1], ITH_CFG_SEQUENTIAL);
    check_mesh(reference, &meshes[5], ITH_CFG_PARALLEL);
    check_mesh(reference, &meshes[8], ITH_CFG_SEQUENTIAL);
    ith_tensor_file_close(&reference);
}

/* Only one expert uses guidance, so the steps of the other have one branch. */
static void guidance_may_end_with_an_expert(void **state)
{
    (void)state;
    ith_generate_options one = small_run();
    one.guidance[1] = 1;
    ith_tensor_file *reference = golden_generate(context, pipeline, 1, &one, NULL);
    for (int cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
        ith_generate_options options = one;
        options.cfg = (ith_cfg)cfg;
        ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
        options.attention = &attention;
        attention.strategy = ITH_STRATEGY_ULYSSES;
        assert_true(compare(reference, 4, &options).same_bits);
    }
    ith_tensor_file_close(&reference);
}

static void more_ranks_than_tokens(void **state)
{
    (void)state;
    ith_generate_options one = small_run();
    one.frames = 1, one.height = 16, one.width = 32, one.steps = 2;
    ith_tensor_file *reference = golden_generate(context, pipeline, 1, &one, NULL);
    const ith_strategy strategies[] = {ITH_STRATEGY_ULYSSES, ITH_STRATEGY_RING, ITH_STRATEGY_ULYSSES_RING};
    for (int i = 0; i < 3; i++) {
        ith_generate_options options = one;
        ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
        options.attention = &attention;
        attention.strategy = strategies[i];
        outcome result = compare(reference, 6, &options);
        assert_true(result.at_the_end <= 1e-4);
    }
    ith_tensor_file_close(&reference);
}

static void an_illegal_mesh_is_refused(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    options.attention = &attention;
    attention.strategy = ITH_STRATEGY_ULYSSES_RING;
    attention.ulysses = 3, attention.ring = 2;
    assert_int_equal(engine_generate(context, pipeline, 4, &options, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_gives_the_same_video), cmocka_unit_test(the_guidance_branches_may_share_in_any_way),
        cmocka_unit_test(guidance_may_end_with_an_expert), cmocka_unit_test(more_ranks_than_tokens),
        cmocka_unit_test(an_illegal_mesh_is_refused),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
