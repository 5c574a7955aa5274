/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of runs on many ranks of one process: communicators, their sub-groups and the ranks' records are predicted
 * too, and they stay small beside the plans and buffers of the ranks. */
#include "support/engine/engine_ranks.h"
#include "support/engine/pipeline_fixture.h"
#include "support/fixture.h"

#include <string.h>

typedef struct arrangement {
    int ranks;
    ith_strategy strategy;
    int ulysses, ring; /* 0: the library chooses */
    ith_cfg cfg;
} arrangement;

static void expect_memory_predicted(const arrangement *a)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    ith_context *own = NULL;
    ith_pipeline *fresh = NULL;
    int64_t before = 0;
    attention.strategy = a->strategy, attention.ulysses = a->ulysses, attention.ring = a->ring;
    options.prompt = "A red circle moves to the right on a black background.";
    options.frames = 5, options.height = 64, options.width = 64, options.steps = 1, options.threads = 1;
    options.precision = ITH_PRECISION_F32, options.attention = &attention, options.cfg = a->cfg;
    check(NULL, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, MODEL, &fresh));
    check(own, ith_pipeline_predict(fresh, &options, a->ranks, a->ranks, &before));
    check(own, engine_generate(own, fresh, a->ranks, &options, &report));
    const double predicted = (double)report.predicted_bytes, held = (double)report.peak_bytes;
    if (predicted < held * 0.999 || predicted > held * 1.05 || (double)before < held * 0.999)
        fail_msg("%d ranks, %s: predicted %.2f MB in the run and %.2f MB before, held %.2f MB", a->ranks,
                 ith_strategy_name(a->strategy), predicted / 1e6, (double)before / 1e6, held / 1e6);
    ith_pipeline_close(&fresh);
    assert_int_equal(memory_of(own).current_bytes, 0);
    ith_context_destroy(&own);
}

static void memory_of_many_ranks_is_predicted(void **state)
{
    (void)state;
    const arrangement list[] = {
        {6, ITH_STRATEGY_ULYSSES, 0, 0, ITH_CFG_BATCH},        {7, ITH_STRATEGY_RING, 0, 0, ITH_CFG_BATCH},
        {48, ITH_STRATEGY_ULYSSES_RING, 3, 16, ITH_CFG_BATCH}, {48, ITH_STRATEGY_ULYSSES_RING, 3, 8, ITH_CFG_PARALLEL},
        {96, ITH_STRATEGY_RING, 0, 0, ITH_CFG_SEQUENTIAL},     {120, ITH_STRATEGY_AUTO, 0, 0, ITH_CFG_BATCH},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect_memory_predicted(&list[i]);
}

/* Predicts the memory of a run. user: the bytes; 0: there is no earlier prediction. */
static ith_status predict_again(ith_context *own, void *user)
{
    int64_t *bytes = user, found = 7;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_pipeline *fresh = NULL;
    options.prompt = "a circle", options.frames = 1, options.height = 32, options.width = 32, options.threads = 1;
    ith_status status = ith_pipeline_open(own, MODEL, &fresh);
    if (!status)
        status = ith_pipeline_predict(fresh, &options, 1, 1, &found);
    if (status || !*bytes)
        assert_int_equal(found == 7, status != ITH_OK);
    else
        assert_int_equal(found, *bytes);
    *bytes = status ? *bytes : found;
    ith_pipeline_close(&fresh);
    return status;
}

/* A prediction without memory fails. It does not give a number that is too small. */
static void a_prediction_is_whole_or_none(void **state)
{
    (void)state;
    ith_context *own = NULL;
    int64_t bytes = 0;
    check(NULL, ith_context_create(NULL, &own));
    check(own, predict_again(own, &bytes));
    ith_context_destroy(&own);
    refuse_every_allocation(predict_again, &bytes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_of_many_ranks_is_predicted),
                                       cmocka_unit_test(a_prediction_is_whole_or_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
