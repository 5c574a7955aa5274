/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the transformer is as predicted: its weights, mapped, packed and shared out between hosts, its texts,
 * and its workspaces on several ranks. Allocations that fail. */
#include "comm/comm.h"
#include "support/engine/golden_pass.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/rank_group.h"
#include "wan/dit/dit_shards.h"
#include "wan/dit/dit_workspace.h"

#include <stdatomic.h>
#include <stdlib.h>

/* The memory of the workspaces that all ranks hold at the same time. Each is made for its rank's number of threads. */
typedef struct memory_job {
    golden_pass *pass;
    ith_dit *outline;
    ith_dit_shape shape;
    atomic_int_fast64_t predicted;
    int64_t groups; /* bytes of the groups of a mesh's two axes */
    int64_t held;   /* bytes of all workspaces */
} memory_job;

/* Gives rank 0 the bytes that all ranks hold now. */
static ith_status held_by_all(ith_context *c, ith_comm *comm, int64_t *bytes)
{
    ith_status status = ith_comm_agree(comm, ITH_OK);
    if (!ith_comm_rank(comm))
        *bytes = memory_of(c).current_bytes;
    return status ? status : ith_comm_agree(comm, ITH_OK);
}

/* Measures the bytes of the groups that a plan makes for a mesh, which the prediction does not count. */
static ith_status hold_groups(ith_context *c, ith_comm *comm, const ith_attn_options *options, int64_t *bytes)
{
    int64_t before = 0, after = 0;
    int rank = ith_comm_rank(comm), ulysses = options->ulysses;
    ith_comm *axes[2] = {NULL};
    ith_status status = held_by_all(c, comm, &before);
    if (!status && options->strategy == ITH_STRATEGY_ULYSSES_RING)
        status = ith_comm_split(comm, rank / ulysses, rank % ulysses, &axes[0]);
    if (!status && options->strategy == ITH_STRATEGY_ULYSSES_RING)
        status = ith_comm_split(comm, rank % ulysses, rank / ulysses, &axes[1]);
    if (!status)
        status = held_by_all(c, comm, &after);
    *bytes = after - before;
    ith_comm_destroy(&axes[0]);
    ith_comm_destroy(&axes[1]);
    return status;
}

static ith_status hold_workspace(ith_context *c, ith_comm *comm, void *user)
{
    memory_job *job = user;
    ith_dit_workspace *workspace = NULL;
    int64_t bytes = 0, before = 0, after = 0, groups = 0;
    const ith_dit_rank rank = {ith_comm_size(comm), ith_comm_rank(comm), true, &job->pass->options};
    ith_status status = ith_dit_workspace_bytes(c, job->outline, &job->shape, &rank, &bytes);
    atomic_fetch_add(&job->predicted, bytes);
    if (!status)
        status = hold_groups(c, comm, &job->pass->options, &groups);
    if (!status)
        status = held_by_all(c, comm, &before);
    if (!status)
        status = ith_dit_workspace_create(c, job->pass->dit, job->pass->text, &job->shape, &job->pass->options, comm,
                                          &workspace);
    if (!status)
        status = held_by_all(c, comm, &after);
    if (!ith_comm_rank(comm))
        job->held = after - before, job->groups = groups;
    ith_dit_workspace_free(c, &workspace);
    return status;
}

static void workspaces_are_as_predicted(golden_pass *c, ith_dit *outline)
{
    static const struct {
        int ranks, threads;
        ith_strategy strategy;
    } groups[] = {{1, 1, ITH_STRATEGY_AUTO},        {1, 3, ITH_STRATEGY_AUTO}, {2, 3, ITH_STRATEGY_ULYSSES},
                  {3, 2, ITH_STRATEGY_ULYSSES},     {2, 2, ITH_STRATEGY_RING}, {3, 5, ITH_STRATEGY_RING},
                  {4, 4, ITH_STRATEGY_ULYSSES_RING}};
    static const ith_dit_shape shapes[] = {
        {2, 5, 32, 32, 300, 0, 0}, {2, 1, 2, 26, 512, 13, 0}, {2, 3, 60, 30, 300, 450, 0}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            memory_job job = {.pass = c, .outline = outline, .shape = shapes[j]};
            job.shape.image_rows = c->shape.image_rows;
            c->options.strategy = groups[i].strategy;
            c->options.ulysses = c->options.ring = groups[i].strategy == ITH_STRATEGY_ULYSSES_RING ? 2 : 0;
            check(context, ith_run_ranks(context, groups[i].ranks, groups[i].threads, hold_workspace, &job));
            assert_int_equal(job.held, atomic_load(&job.predicted) + job.groups);
        }
}

/* Makes the keys of the images anew, if there are some, and compares their memory with the prediction; a context that
 * holds nothing else shows the peak. */
static void check_image_memory(golden_pass *c, const ith_dit *outline)
{
    const ith_tensor *rows = ith_tensor_file_find(c->file, "image_embeds");
    const int64_t count = rows ? rows->shape[0] : 0, before = memory_of(context).current_bytes;
    int64_t held = 0, making = 0;
    ith_context *own = NULL;
    ith_dit_image *image = NULL;
    ith_dit_image_bytes(outline, count, &held, &making);
    if (rows)
        check(context, ith_dit_image_create(context, c->dit, rows->data, count, &c->image));
    assert_int_equal(memory_of(context).current_bytes - before, held);
    check(context, ith_context_create(NULL, &own));
    const int64_t empty = memory_of(own).current_bytes;
    if (rows)
        check(own, ith_dit_image_create(own, c->dit, rows->data, count, &image));
    assert_int_equal(ith_context_peak_bytes(own) - empty, held + making);
    ith_dit_image_free(own, &image);
    ith_context_destroy(&own);
}

static void memory_is_as_predicted(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int which = 0; which < 3; which++) {
            static const char *const models[] = {"../models/shapes/transformer", SMALL_DIT, IMAGE_DIT};
            const char *model = models[which];
            const bool small = which;
            golden_pass c;
            if (which == 2)
                golden_pass_open(&c, IMAGE_GOLDEN, IMAGE_DIT, kind);
            else if (which == 1)
                golden_pass_open_odd(&c, SMALL_DIT, kind);
            else
                golden_pass_open_expert(&c, false, kind);
            ith_dit *outline = NULL;
            const ith_dit_choices choices = {.types = number_kind(kind)};
            check(context, ith_dit_outline(context, ith_dit_config_of(c.dit), &choices, &outline));
            ith_dit_text_free(context, &c.text);
            ith_dit_image_free(context, &c.image);
            int64_t held = 0, making = 0, weights = 0, files = dit_file_bytes(context, model, &weights);
            int64_t before = memory_of(context).current_bytes, own = ith_dit_bytes(c.dit);
            assert_int_equal(ith_dit_bytes(outline), own);
            assert_true(small || own < weights / 8); /* matrices stay in their files */
            ith_dit_free(context, &c.dit);
            assert_int_equal(before - memory_of(context).current_bytes, own + files);
            check(context, open_dit(context, model, number_kind(kind), ITH_LINEAR_KEEP_NONE, &c.dit));
            float *rows = calloc((size_t)(300 * ith_dit_config_of(c.dit)->text_dim), sizeof *rows);
            const float *both[2] = {rows, rows};
            const int64_t counts[2] = {300, 2};
            ith_dit_text_bytes(outline, 2, 300, &held, &making);
            check(context, ith_dit_text_create(context, c.dit, 2, both, counts, &c.text));
            assert_int_equal(memory_of(context).current_bytes - before, held);
            check_image_memory(&c, outline);
            workspaces_are_as_predicted(&c, outline);
            free(rows);
            ith_dit_free(context, &outline);
            golden_pass_close(&c);
        }
}

/* One of two hosts, with one process each, that share out an expert. Notes whether its memory is as predicted. */
static void share_out(rank_group *g, int rank, void *user)
{
    ith_context *own = g->contexts[rank];
    ith_comm *alone = NULL;
    ith_dit *dit = NULL;
    ith_dit_config config;
    ith_store *store = NULL;
    ith_dit_shards *shards = NULL;
    int64_t predicted = 0;
    bool *right = user;
    ith_status status = ith_comm_split(g->comms[rank], rank, 0, &alone);
    if (!status)
        status = ith_dit_config_read(own, SMALL_DIT, &config);
    if (!status)
        status = ith_store_open(own, SMALL_DIT, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &store);
    if (!status)
        status = ith_dit_shards_bytes(own, &config, store, number_kind(OPERANDS_F32), &(ith_shard_place){2, 1, true},
                                      &predicted);
    if (!status)
        status = open_dit(own, SMALL_DIT, number_kind(OPERANDS_F32), ITH_LINEAR_KEEP_NONE, &dit);
    const ith_shard_ranks ranks = {g->comms[rank], alone, 1, true};
    const int64_t before = memory_of(own).current_bytes;
    if (!status)
        status = ith_dit_shards_create(own, dit, &ranks, config.layers, &shards);
    right[rank] = !status && memory_of(own).current_bytes - before == predicted;
    ith_dit_free(own, &dit);
    ith_dit_shards_free(own, &shards);
    ith_comm_destroy(&alone);
}

static void memory_of_shared_layers_is_as_predicted(void **state)
{
    (void)state;
    rank_group g = {.ranks = 2};
    bool right[2] = {false, false};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ith_context_create(NULL, &g.contexts[i]), ITH_OK);
    assert_int_equal(ith_comm_create_local(g.contexts, 2, g.comms), ITH_OK);
    group_run(&g, share_out, right);
    assert_true(right[0] && right[1]);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
}

static void memory_of_packed_weights_is_as_predicted(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        const char *model = "../models/shapes/transformer";
        ith_dit *dit = NULL, *outline = NULL;
        int64_t weights = 0, files = dit_file_bytes(context, model, &weights),
                before = memory_of(context).current_bytes;
        check(context, open_dit(context, model, number_kind(kind), ITH_LINEAR_KEEP_ALL, &dit));
        assert_int_equal(memory_of(context).current_bytes - before, ith_dit_bytes(dit) + files);
        const ith_dit_choices choices = {.types = number_kind(kind), .keep = ITH_LINEAR_KEEP_ALL};
        check(context, ith_dit_outline(context, ith_dit_config_of(dit), &choices, &outline));
        assert_int_equal(ith_dit_bytes(outline), ith_dit_bytes(dit));
        assert_true(ith_dit_bytes(dit) > weights / 2);
        ith_dit_free(context, &outline);
        ith_dit_free(context, &dit);
    }
}

/* user: the transformer's folder. */
static ith_status whole_call(ith_context *poor, void *user)
{
    const bool has_image = !strcmp(user, IMAGE_DIT);
    ith_dit *dit = NULL;
    ith_dit_text *text = NULL;
    ith_dit_image *image = NULL;
    ith_dit_workspace *run = NULL;
    const ith_dit_shape shape = {1, 1, 4, 4, 0, 0, has_image ? 3 : 0};
    float rows[2 * 128] = {0}, tokens[4 * 144] = {0}, out[4 * 64], image_rows[3 * 32] = {0}, t = 5;
    const float *const prompt = rows;
    const int64_t count = 2;
    ith_status status = open_dit(poor, user, number_kind(OPERANDS_F32), ITH_LINEAR_KEEP_NONE, &dit);
    if (!status)
        status = ith_dit_text_create(poor, dit, 1, &prompt, &count, &text);
    if (!status)
        status = ith_dit_workspace_create(poor, dit, text, &shape, NULL, NULL, &run);
    if (!status && has_image)
        status = ith_dit_image_create(poor, dit, image_rows, shape.image_rows, &image);
    if (!status && has_image)
        ith_dit_workspace_set_image(run, image);
    if (!status)
        status = ith_dit_forward(poor, run, &(ith_dit_tokens){.latents = tokens}, &t, out);
    ith_dit_workspace_free(poor, &run);
    ith_dit_text_free(poor, &text);
    ith_dit_image_free(poor, &image);
    ith_dit_free(poor, &dit);
    return status;
}

static void failed_allocations_are_survived(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(whole_call, SMALL_DIT, 1) > 20);
    assert_true(refuse_every_allocation(whole_call, IMAGE_DIT, 1) > 25);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(memory_is_as_predicted),
        cmocka_unit_test(memory_of_packed_weights_is_as_predicted),
        cmocka_unit_test(memory_of_shared_layers_is_as_predicted),
        cmocka_unit_test(failed_allocations_are_survived),
    };
    return cmocka_run_group_tests_name("dit_memory", all, context_set_up, context_tear_down);
}
