/* SPDX-License-Identifier: Apache-2.0 */
/* Between the first denoising step of an expert and its last, nothing is allocated. */
#include "support/engine/engine_ranks.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <ithaca/wan.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define STEPS 4

typedef struct counts {
    failing_allocator allocator;
    ith_stage last;
    long allocations; /* their number at the end of the previous part */
    int64_t done;     /* steps in thousandths */
    int parts, phases, steps;
    long more_allocations; /* the number of allocations within phases */
} counts;

/* Called at the end of each part of a layer and of each step. */
static void count(void *user, ith_stage stage, int64_t done, int64_t total)
{
    counts *c = user;
    (void)total;
    if (stage == ITH_STAGE_DENOISE && c->last != stage && done == c->done)
        return; /* the beginning of a phase, when other ranks may still allocate */
    long allocations = atomic_load(&c->allocator.calls);
    if (stage == ITH_STAGE_DENOISE && c->last == ITH_STAGE_DENOISE) {
        c->more_allocations += allocations - c->allocations;
        c->parts++;
    } else if (stage == ITH_STAGE_DENOISE) {
        c->phases++;
    }
    if (stage == ITH_STAGE_DENOISE && done % ITH_PROGRESS_UNIT == 0 && done != c->done)
        c->steps++, c->done = done;
    c->last = stage, c->allocations = allocations;
}

/* dump: a file, or NULL. */
static void denoise(int ranks, ith_cfg cfg, const ith_attn_options *attention, ith_precision precision,
                    const char *dump)
{
    counts c = {.last = ITH_STAGE_LOAD};
    ith_context *context = failing_context(&c.allocator, -1);
    ith_pipeline *pipeline = NULL;
    assert_int_equal(ith_pipeline_open(context, "../models/shapes", &pipeline), ITH_OK);
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a red square", options.negative = "a green circle on a black background";
    options.frames = 5, options.height = 96, options.width = 80, options.steps = STEPS;
    options.shift = 3, options.guidance[0] = 4, options.guidance[1] = 3;
    options.precision = precision, options.cfg = cfg, options.attention = attention, options.dump_file = dump;
    options.on_progress = count, options.user = &c;
    ith_status status = engine_generate(context, pipeline, ranks, &options, NULL);
    if (status)
        fail_msg("%s", ith_context_error(context));
    assert_int_equal(c.more_allocations, 0);
    assert_int_equal(c.phases, 2);
    assert_int_equal(c.steps, STEPS);
    assert_true(c.parts > 2 * STEPS);
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    const ith_precision precisions[] = {ITH_PRECISION_F32, ITH_PRECISION_BF16};
    char *folder = temporary_folder();
    for (int i = 0; i < 2; i++) {
        ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
        denoise(1, ITH_CFG_BATCH, &attention, precisions[i], NULL);
        denoise(1, ITH_CFG_SEQUENTIAL, &attention, precisions[i], NULL);
        attention.strategy = ITH_STRATEGY_ULYSSES;
        denoise(3, ITH_CFG_BATCH, &attention, precisions[i], NULL);
        denoise(4, ITH_CFG_PARALLEL, &attention, precisions[i], NULL);
        attention.exchange = ITH_EXCHANGE_COPY;
        denoise(2, ITH_CFG_BATCH, &attention, precisions[i], temporary_path(folder, "dump.safetensors"));
        attention.strategy = ITH_STRATEGY_ULYSSES_RING, attention.ulysses = attention.ring = 2;
        denoise(4, ITH_CFG_BATCH, &attention, precisions[i], NULL);
    }
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
