/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose options or models differ are refused before they act, on all ranks with one status and one sentence,
 * which names the difference. */
#include "support/engine/altered_model.h"
#include "support/engine/rank_team.h"
#include "support/temporary.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEEDS_ONE_PIPELINE = 13, ENDS_THE_GROUP = 16 };

/* Changes something of rank 1. Returns words of the sentence with which the ranks are refused; NULL if there is no such
 * change. */
static const char *change(member *m, int which)
{
    ith_generate_options *o = &m->options;
    switch (which) {
    case 0: o->prompt = "another"; return "prompt on rank 1";
    case 1: o->negative = "another"; return "negative on rank 1";
    case 2: o->frames = 9; return "frames is 9 on rank 1 and 5 on rank 0";
    case 3: o->seed = 4; return "seed is 4 on rank 1 and 3 on rank 0";
    case 4: o->steps = 4; return "steps is 4 on rank 1 and 3 on rank 0";
    case 5: o->guidance[1] = 1; return "guidance of the low-noise expert is 1 on rank 1 and 3 on rank 0";
    case 6: o->solver = ITH_SOLVER_EULER; return "solver is euler on rank 1 and unipc on rank 0";
    case 7: o->cfg = ITH_CFG_SEQUENTIAL; return "cfg is sequential on rank 1 and batch on rank 0";
    case 8: o->precision = ITH_PRECISION_BF16; return "precision is bf16 on rank 1 and f32 on rank 0";
    case 9: m->attention.strategy = ITH_STRATEGY_RING; return "strategy is ring on rank 1 and ulysses on rank 0";
    case 10: m->attention.chunks = 3; return "chunks is 3 on rank 1 and 0 on rank 0";
    case 11: m->attention.kernel = "f32_ref"; return "kernel on rank 1";
    case 12: m->attention.block_kv = 512; return "block_kv is 512 on rank 1 and 0 on rank 0";
    case 13: o->threads = 3; return "threads is 3 on rank 1 and 2 on rank 0";
    case 14: o->prompt = NULL; return "rank 1: a prompt is needed";
    case 15: o->from_latents = "/nowhere"; return "from_latents is given on rank 1 and not given on rank 0";
    /* a file of another size, which only the rank that makes the noise reads */
    case 16: o->noise_file = "golden/shapes/denoise_unipc_diffusers.safetensors"; return "rank 1: golden/shapes";
    case 17: m->pipeline = NULL; return "rank 1: pipeline is NULL";
    case 18: o->struct_size = 3; return "rank 1: struct_size of the ith_generate_options is 3";
    case 19: o->shard_weights = 1; return "shard_weights is 1 on rank 1 and 0 on rank 0";
    case 20: o->shard_weights = o->keep_packed = 1; return "rank 1: keep_packed keeps all weights in each process";
    case 21: m->attention.direction = ITH_DIRECTION_BIDIR; return "direction is bidir on rank 1 and auto on rank 0";
    case 22: m->attention.exchange = ITH_EXCHANGE_COPY; return "exchange is copy on rank 1 and auto on rank 0";
    case 23: m->attention.effort = ITH_EFFORT_MEASURE; return "effort is measure on rank 1 and estimate on rank 0";
    default: return NULL;
    }
}

static void ranks_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    for (int pipelines = 1; pipelines <= 2; pipelines++) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 2, pipelines);
        const member before = t->members[1];
        const char *words;
        for (int i = 0; (words = change(&t->members[1], i)); i++) {
            if (i != ENDS_THE_GROUP && (i != NEEDS_ONE_PIPELINE || pipelines == 1)) {
                team_run(t);
                team_expect_failure(t, ITH_ERR_ARGUMENT, words);
            }
            t->members[1].options = before.options, t->members[1].attention = before.attention;
            t->members[1].pipeline = before.pipeline;
        }
        for (int r = 0; r < 2; r++)
            t->members[r].options.prompt = NULL;
        team_run(t);
        team_expect_failure(t, ITH_ERR_ARGUMENT, "a prompt is needed");
        assert_null(strstr(t->members[0].sentence, "rank"));
        for (int r = 0; r < 2; r++)
            t->members[r].options.prompt = "a";
        team_run(t); /* the group can still be used */
        team_expect_success(t);
        if (pipelines == 2) {
            words = change(&t->members[1], ENDS_THE_GROUP);
            team_run(t);
            team_expect_failure(t, ITH_ERR_ARGUMENT, words);
        }
        team_close(t);
        free(t);
    }
}

/* Opens the altered model as the model of rank 1. */
static void expect_other_model(team *t)
{
    t->models[1] = folder;
    team_open(t, 2, 2);
    team_run(t);
    team_expect_failure(t, ITH_ERR_ARGUMENT, "the model of rank 1 and of rank 0 differ");
    team_close(t);
    *t = (team){.ranks = 0};
}

/* Rank 1 opens a model of the same shapes with another configuration, or with other numbers in its weights. */
static void another_model_is_refused(void **state)
{
    (void)state;
    team *t = calloc(1, sizeof *t);
    edit_part("vae/config.json", "{", "{\"_name_or_path\": \"x\",");
    expect_other_model(t);
    link_part("vae/config.json");
    edit_part("scheduler/scheduler_config.json", "\"solver_order\": 2", "\"solver_order\": 3");
    expect_other_model(t);
    link_part("scheduler/scheduler_config.json");
    size_t bytes;
    char *data = temporary_read(temporary_path(folder, "transformer_2/" SHARD_2), &bytes);
    for (size_t i = bytes / 2; i < bytes; i++)
        data[i] ^= 1;
    replace_part("transformer_2/" SHARD_2, data, bytes);
    free(data);
    expect_other_model(t);
    link_part("transformer_2/" SHARD_2);
    static const char tokenizer[] = "{\"model\": {\"byte_fallback\": false}}"; /* it is read besides spiece.model */
    replace_part("tokenizer/tokenizer.json", tokenizer, sizeof tokenizer - 1);
    expect_other_model(t);
    unlink(temporary_path(folder, "tokenizer/tokenizer.json"));
    free(t);
}

static void the_context_is_of_the_pipelines_family(void **state)
{
    (void)state;
    team *t = calloc(1, sizeof *t);
    team_open(t, 2, 2);
    t->members[1].pipeline = t->opened[0];
    team_run(t);
    team_expect_failure(t, ITH_ERR_ARGUMENT, "rank 1: the communicator's context is not of the pipeline's family");
    t->members[1].pipeline = t->opened[1];
    team_close(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_differ_are_refused_by_name),
        cmocka_unit_test(another_model_is_refused),
        cmocka_unit_test(the_context_is_of_the_pipelines_family),
    };
    return cmocka_run_group_tests(tests, altered_model_set_up, folder_tear_down);
}
