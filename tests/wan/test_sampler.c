/* SPDX-License-Identifier: Apache-2.0 */
/* Solvers compared with diffusers: the sigmas of its runs, and whole trajectories on an analytic velocity in
 * float64. */
#include "support/engine/sampler_golden.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "wan/run/denoise/denoise_choice.h"
#include "wan/run/pipeline.h"

#include <ithaca/files.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ith_status create_sampler(ith_context *c, ith_solver solver, ith_sigmas sigmas, int64_t steps, double shift,
                                 int64_t elements, ith_sampler **out)
{
    const ith_scheduler scheduler = ith_scheduler_default();
    const ith_sampling sampling = {solver, sigmas, steps, shift};
    return ith_sampler_create(c, &scheduler, &sampling, elements, out);
}

static ith_tensor_file *open_file(const char *path)
{
    ith_tensor_file *file = NULL;
    if (ith_tensor_file_open(context, path, &file))
        fail_msg("%s", ith_context_error(context));
    return file;
}

static void replay(const ith_tensor_file *file, ith_solver solver, ith_sigmas sigmas, const char *run)
{
    const ith_tensor *trace = golden_tensor(file, run, "x");
    double shift = strtod(strrchr(run, '_') + 1, NULL);
    ith_sampler *sampler = NULL;
    assert_int_equal(create_sampler(context, solver, sigmas, trace->shape[0], shift, trace->shape[1], &sampler),
                     ITH_OK);
    replay_trajectory(sampler, solver, file, run);
    ith_sampler_destroy(context, &sampler);
}

static void trajectories_are_those_of_diffusers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ith_solver solver;
        ith_sigmas sigmas;
    } kinds[] = {{"unipc_official", ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL},
                 {"unipc_diffusers", ITH_SOLVER_UNIPC, ITH_SIGMAS_DIFFUSERS},
                 {"euler_official", ITH_SOLVER_EULER, ITH_SIGMAS_OFFICIAL},
                 {"euler_diffusers", ITH_SOLVER_EULER, ITH_SIGMAS_DIFFUSERS}};
    ith_tensor_file *file = open_file("golden/sampler.safetensors");
    int runs = 0;
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
        const char *name = ith_tensor_file_at(file, i)->name, *end = strrchr(name, '.');
        if (!end || strcmp(end, ".x") != 0)
            continue;
        char run[64];
        snprintf(run, sizeof run, "%.*s", (int)(end - name), name);
        for (int k = 0; k < 4; k++)
            if (strncmp(run, kinds[k].name, strlen(kinds[k].name)) == 0)
                replay(file, kinds[k].solver, kinds[k].sigmas, run), runs++;
    }
    assert_int_equal(runs, 32);
    ith_tensor_file_close(&file);
}

static void sigmas_are_those_of_the_golden_runs(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        ith_solver solver;
        ith_sigmas sigmas;
        int64_t steps;
        double shift;
    } runs[] = {
        {"golden/shapes/denoise_unipc_diffusers.safetensors", ITH_SOLVER_UNIPC, ITH_SIGMAS_DIFFUSERS, 8, 3},
        {"golden/shapes/denoise_unipc_official.safetensors", ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 12, 12},
        {"golden/shapes/denoise_euler_diffusers.safetensors", ITH_SOLVER_EULER, ITH_SIGMAS_DIFFUSERS, 6, 5},
        {"golden/shapes/denoise_dpmpp_official.safetensors", ITH_SOLVER_DPMPP, ITH_SIGMAS_OFFICIAL, 5, 3},
    };
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        ith_tensor_file *file = open_file(runs[r].path);
        ith_sampler *sampler = NULL;
        assert_int_equal(
            create_sampler(context, runs[r].solver, runs[r].sigmas, runs[r].steps, runs[r].shift, 1, &sampler), ITH_OK);
        const float *timesteps = ith_tensor_file_find(file, "timesteps")->data;
        double wanted[16];
        for (int64_t i = 0; i < runs[r].steps; i++)
            wanted[i] = (double)timesteps[i];
        assert_sigmas(sampler, runs[r].solver, runs[r].path, ith_tensor_file_find(file, "sigmas")->data, wanted,
                      runs[r].steps);
        ith_sampler_destroy(context, &sampler);
        ith_tensor_file_close(&file);
    }
}

/* Two samplers, each on half of the elements, give the bits of one sampler on all. `kept`: the number of arrays of the
 * history. */
static void step_shares(ith_solver solver, int kept)
{
    enum { COUNT = 1003, CUT = 517, STEPS = 6 };
    const ith_scheduler scheduler = ith_scheduler_default();
    float whole[COUNT], parts[COUNT], v[COUNT];
    for (int i = 0; i < COUNT; i++)
        whole[i] = parts[i] = (float)sin(i);
    ith_sampler *all = NULL, *first = NULL, *second = NULL;
    assert_int_equal(create_sampler(context, solver, ITH_SIGMAS_OFFICIAL, STEPS, 5, COUNT, &all), 0);
    assert_int_equal(create_sampler(context, solver, ITH_SIGMAS_OFFICIAL, STEPS, 5, CUT, &first), 0);
    assert_int_equal(create_sampler(context, solver, ITH_SIGMAS_OFFICIAL, STEPS, 5, COUNT - CUT, &second), 0);
    int64_t bytes = ith_sampler_bytes(&scheduler, solver, STEPS, COUNT);
    assert_int_equal(ith_sampler_array_count(&scheduler, solver), kept);
    assert_true(memory_of(context).current_bytes >= 2 * bytes && bytes >= kept * COUNT * (int64_t)sizeof(float));
    for (int step = 0; step < STEPS; step++) {
        flow_velocity(v, whole, 100, COUNT);
        ith_sampler_step(all, step, v, whole);
        ith_sampler_step(first, step, v, parts);
        ith_sampler_step(second, step, v + CUT, parts + CUT);
        assert_memory_equal(whole, parts, sizeof whole);
    }
    ith_sampler_destroy(context, &all);
    ith_sampler_destroy(context, &first);
    ith_sampler_destroy(context, &second);
    assert_null(all);
    ith_sampler_destroy(context, &all);
}

static void shares_are_stepped_alike(void **state)
{
    (void)state;
    step_shares(ITH_SOLVER_UNIPC, 3);
    step_shares(ITH_SOLVER_EULER, 0);
    step_shares(ITH_SOLVER_DPMPP, 2);
}

static void assert_refused(ith_solver solver, ith_sigmas sigmas, int64_t steps, double shift, const char *word)
{
    ith_sampler *sampler = (ith_sampler *)context;
    assert_int_equal(create_sampler(context, solver, sigmas, steps, shift, 4, &sampler), ITH_ERR_ARGUMENT);
    assert_null(sampler);
    assert_non_null(strstr(ith_context_error(context), word));
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    assert_refused(ITH_SOLVER_AUTO, ITH_SIGMAS_OFFICIAL, 4, 3, "solver number 0");
    assert_refused((ith_solver)4, ITH_SIGMAS_OFFICIAL, 4, 3, "solver number 4");
    assert_refused((ith_solver)-1, ITH_SIGMAS_OFFICIAL, 4, 3, "solver number -1");
    assert_refused(ITH_SOLVER_UNIPC, (ith_sigmas)0, 4, 3, "list of sigmas number 0");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 0, 3, "0 steps");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, -5, 3, "-5 steps");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 4, 0, "shift 0");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 4, (double)NAN, "shift nan");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 4, (double)INFINITY, "shift inf");
    assert_refused(ITH_SOLVER_EULER, ITH_SIGMAS_OFFICIAL, 50, 1e12, "the same number");
    assert_refused(ITH_SOLVER_DPMPP, ITH_SIGMAS_OFFICIAL, 50, 1e12, "sigmas 0 and 1 are the same number");
    assert_refused(ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 1, 1e-60, "sigmas 0 and 1 are the same number");
}

static ith_status create(ith_context *poor, void *user)
{
    (void)user;
    ith_sampler *sampler = NULL;
    ith_status status = create_sampler(poor, ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 4, 3, 10, &sampler);
    assert_true(!status == (sampler != NULL));
    ith_sampler_destroy(poor, &sampler);
    return status;
}

static void failed_allocations_are_survived(void **state)
{
    (void)state;
    assert_int_equal(refuse_every_allocation(create, NULL, 1), 2);
}

/* Time step 875 belongs to the expert of high noise if the boundary is 0.875, as in the reference. Only the steps of
 * this expert are guided here. */
static void the_boundary_belongs_to_high_noise(void **state)
{
    (void)state;
    ith_model model = {.info = ITH_MODEL_INFO_INIT, .scheduler = ith_scheduler_default()};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    int64_t count = 0;
    model.info.experts = 2;
    options.solver = ITH_SOLVER_UNIPC, options.sigmas = ITH_SIGMAS_DIFFUSERS, options.steps = 8, options.shift = 1;
    options.guidance[0] = 5, options.guidance[1] = 1;
    const double boundaries[] = {0.874, 0.875, 0.876};
    for (int i = 0; i < 3; i++) {
        options.boundary = boundaries[i];
        assert_int_equal(ith_denoise_guided_steps(context, &model, &options, 0, &count), ITH_OK);
        assert_int_equal(count, i < 2 ? 2 : 1); /* time steps 999 and 875, ... */
        assert_int_equal(ith_denoise_guided_steps(context, &model, &options, 1, &count), ITH_OK);
        assert_int_equal(count, i < 2 ? 1 : 0); /* the first step is done */
    }
}

/* UniPC and DPM-Solver++ may stop before 0. Euler goes on to 0, whatever the scheduler's file says. */
static void euler_ends_at_zero(void **state)
{
    (void)state;
    float ends[2];
    for (int stops = 0; stops < 2; stops++) {
        ith_scheduler scheduler = ith_scheduler_default();
        const ith_sampling sampling = {ITH_SOLVER_EULER, ITH_SIGMAS_OFFICIAL, 4, 3};
        ith_sampler *sampler = NULL;
        scheduler.unipc.stops_at_last = stops, scheduler.dpmpp.last_sigma = stops ? 0.01 : 0;
        assert_int_equal(ith_sampler_create(context, &scheduler, &sampling, 1, &sampler), ITH_OK);
        ends[stops] = 0;
        for (int64_t step = 0; step < 4; step++)
            ith_sampler_step(sampler, step, &(const float){1}, &ends[stops]);
        ith_sampler_destroy(context, &sampler);
    }
    assert_true(ends[0] < -0.99f && ends[1] == ends[0]);
}

/* A first sigma that f32 would round to 1 is lowered by 1e-6, as in diffusers: lambda of 1 is infinite. The velocity of
 * the line from noise to a clean x0 leads exactly there. */
static void a_first_sigma_near_1_is_lowered(void **state)
{
    (void)state;
    enum { STEPS = 2 };
    ith_scheduler scheduler = ith_scheduler_default();
    const ith_sampling sampling = {ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, STEPS, 100};
    const float noise = 2, clean = -0.5f, velocity = noise - clean;
    ith_sampler *sampler = NULL;
    scheduler.train_steps = 1000000; /* the first sigma is 1 - 1e-8 */
    assert_int_equal(ith_sampler_create(context, &scheduler, &sampling, 1, &sampler), ITH_OK);
    assert_true(ith_sampler_timestep(sampler, 0) == 999998);
    float x = noise;
    for (int64_t step = 0; step < STEPS; step++)
        ith_sampler_step(sampler, step, &velocity, &x);
    assert_true(fabs((double)x - (double)clean) < 1e-5);
    ith_sampler_destroy(context, &sampler);
}

/* With cfg parallel only runs with guidance divide their ranks into two halves. */
static void runs_without_guidance_have_no_halves(void **state)
{
    (void)state;
    ith_model model = {.info = ITH_MODEL_INFO_INIT};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    model.info.experts = 1;
    options.cfg = ITH_CFG_PARALLEL;
    options.guidance[0] = options.guidance[1] = 5;
    assert_int_equal(ith_denoise_sequence_ranks(&model, &options, 4), 2);
    options.guidance[0] = 1;
    assert_int_equal(ith_denoise_sequence_ranks(&model, &options, 4), 4);
}

/* The boundary is a share of the time steps with which the model was trained. */
static void the_boundary_is_a_share_of_the_training(void **state)
{
    (void)state;
    ith_model model = {.info = ITH_MODEL_INFO_INIT, .scheduler = ith_scheduler_default()};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    model.info.experts = 2, model.scheduler.train_steps = 500, options.boundary = 0.5;
    assert_true(ith_denoise_step_is_high(&model, &options, 250));
    assert_false(ith_denoise_step_is_high(&model, &options, 249));
}

/* A run has guidance if either of its experts has. */
static void guidance_of_the_second_expert_counts(void **state)
{
    (void)state;
    ith_model model = {.info = ITH_MODEL_INFO_INIT};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.guidance[0] = 1, options.guidance[1] = 3;
    for (int experts = 1; experts <= 2; experts++) {
        model.info.experts = experts;
        assert_int_equal(ith_denoise_is_guided(&model, &options), experts == 2);
        options.cfg = ITH_CFG_BATCH;
        assert_int_equal(ith_denoise_batch(&model, &options), experts);
        options.cfg = ITH_CFG_PARALLEL;
        assert_int_equal(ith_denoise_sequence_ranks(&model, &options, 4), 4 / experts);
    }
}

/* Weights with a merged LoRA are kept if a pass has few rows, beside which merging them again would take long: the rows
 * of one rank, of all guidance branches that it computes together. */
static void few_rows_keep_adapted_weights(void **state)
{
    (void)state;
    enum { LIMIT = 16384 };
    static const struct {
        ith_cfg cfg;
        double guidance;
        int ranks;
        bool keeps;
    } cases[] = {{ITH_CFG_SEQUENTIAL, 5, 1, false}, {ITH_CFG_SEQUENTIAL, 5, 2, true}, {ITH_CFG_BATCH, 5, 2, false},
                 {ITH_CFG_BATCH, 1, 2, true},       {ITH_CFG_BATCH, 5, 3, true},      {ITH_CFG_PARALLEL, 5, 2, false},
                 {ITH_CFG_PARALLEL, 1, 2, true}};
    const ith_latent_size size = {.channels = 16, .frames = LIMIT / 256, .height = 32, .width = 32};
    int lora;
    ith_model model = {.info = ITH_MODEL_INFO_INIT, .loras = {NULL, (ith_lora *)(void *)&lora}};
    model.info.experts = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.cfg = cases[i].cfg, options.guidance[0] = options.guidance[1] = cases[i].guidance;
        const int ranks = cases[i].ranks;
        assert_int_equal(ith_denoise_keep(&model, &options, 0, &size, ranks), ITH_LINEAR_KEEP_NONE);
        assert_int_equal(ith_denoise_keep(&model, &options, 1, &size, ranks),
                         cases[i].keeps ? ITH_LINEAR_KEEP_MERGED : ITH_LINEAR_KEEP_NONE);
        options.keep_packed = ITH_KEEP_ALL;
        assert_int_equal(ith_denoise_keep(&model, &options, 0, &size, ranks), ITH_LINEAR_KEEP_ALL);
        options.keep_packed = ITH_KEEP_NONE;
        assert_int_equal(ith_denoise_keep(&model, &options, 1, &size, ranks), ITH_LINEAR_KEEP_NONE);
        options.keep_packed = ITH_KEEP_AUTO, options.shard_weights = true;
        assert_int_equal(ith_denoise_keep(&model, &options, 1, &size, ranks), ITH_LINEAR_KEEP_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(trajectories_are_those_of_diffusers),
        cmocka_unit_test(sigmas_are_those_of_the_golden_runs),
        cmocka_unit_test(shares_are_stepped_alike),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(failed_allocations_are_survived),
        cmocka_unit_test(the_boundary_belongs_to_high_noise),
        cmocka_unit_test(euler_ends_at_zero),
        cmocka_unit_test(a_first_sigma_near_1_is_lowered),
        cmocka_unit_test(runs_without_guidance_have_no_halves),
        cmocka_unit_test(the_boundary_is_a_share_of_the_training),
        cmocka_unit_test(guidance_of_the_second_expert_counts),
        cmocka_unit_test(few_rows_keep_adapted_weights),
    };
    return cmocka_run_group_tests_name("sampler", all, context_set_up, context_tear_down);
}
