/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of a scheduler's configuration has the effect that it has in diffusers, or is refused with its name and
 * value. */
#include "support/engine/sampler_golden.h"
#include "support/fixture.h"
#include "support/temporary.h"

#include <stdio.h>
#include <string.h>

#define DPMPP                                                                                                          \
    "\"_class_name\": \"DPMSolverMultistepScheduler\", \"prediction_type\": \"flow_prediction\", "                     \
    "\"use_flow_sigmas\": true"

static ith_status read_config(const char *text, ith_scheduler *out)
{
    char *folder = temporary_folder();
    temporary_write(temporary_path(folder, "scheduler_config.json"), text, strlen(text));
    ith_status status = ith_scheduler_read(context, folder, out);
    temporary_remove(folder);
    return status;
}

/* name: three characters and ".x". Runs of the published code begin with p. */
static void replay(const ith_tensor_file *file, const char *name)
{
    char run[4] = {0};
    memcpy(run, name, 3);
    const char *text = ith_tensor_file_metadata(file, run);
    assert_non_null(text);
    const ith_tensor *trace = golden_tensor(file, run, "x");
    ith_scheduler scheduler;
    ith_sampler *sampler = NULL;
    check(context, read_config(text, &scheduler));
    const ith_sigmas sigmas = name[0] == 'p' ? ITH_SIGMAS_OFFICIAL : ITH_SIGMAS_DIFFUSERS;
    const ith_sampling sampling = {scheduler.solver, sigmas, trace->shape[0], scheduler.shift};
    check(context, ith_sampler_create(context, &scheduler, &sampling, trace->shape[1], &sampler));
    replay_trajectory(sampler, scheduler.solver, file, run);
    ith_sampler_destroy(context, &sampler);
}

static void replay_all(const char *path, int count)
{
    ith_tensor_file *file = NULL;
    check(context, ith_tensor_file_open(context, path, &file));
    int cases = 0;
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
        const char *name = ith_tensor_file_at(file, i)->name;
        if (strlen(name) == 5 && !strcmp(name + 3, ".x"))
            replay(file, name), cases++;
    }
    assert_int_equal(cases, count);
    ith_tensor_file_close(&file);
}

static void fields_are_honoured_as_in_diffusers(void **state)
{
    (void)state;
    replay_all("golden/scheduler.safetensors", 64);
}

static void dpm_solver_is_the_published_and_that_of_diffusers(void **state)
{
    (void)state;
    replay_all("golden/dpmpp.safetensors", 67);
}

/* With another class of scheduler, DPM-Solver++ has the settings of the published code, and UniPC has its own beside a
 * DPMSolverMultistepScheduler. */
static void other_schedulers_leave_a_solver_its_defaults(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"_class_name\": \"UniPCMultistepScheduler\", \"prediction_type\": \"flow_prediction\", "
        "\"use_flow_sigmas\": true, \"solver_order\": 3, \"final_sigmas_type\": \"sigma_min\"}",
        "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\"}"};
    ith_tensor_file *file = NULL, *unipc = NULL;
    ith_scheduler scheduler;
    ith_sampler *sampler = NULL;
    check(context, ith_tensor_file_open(context, "golden/dpmpp.safetensors", &file));
    check(context, ith_tensor_file_open(context, "golden/sampler.safetensors", &unipc));
    for (int i = 0; i < 2; i++) {
        const ith_sampling sampling = {ITH_SOLVER_DPMPP, ITH_SIGMAS_OFFICIAL, 4, 3};
        check(context, read_config(configs[i], &scheduler));
        check(context, ith_sampler_create(context, &scheduler, &sampling, 3, &sampler));
        replay_trajectory(sampler, ITH_SOLVER_DPMPP, file, "p01");
        ith_sampler_destroy(context, &sampler);
    }
    const ith_sampling sampling = {ITH_SOLVER_UNIPC, ITH_SIGMAS_OFFICIAL, 8, 3};
    check(context, read_config("{" DPMPP ", \"solver_order\": 3, \"final_sigmas_type\": \"sigma_min\"}", &scheduler));
    check(context, ith_sampler_create(context, &scheduler, &sampling, 24, &sampler));
    replay_trajectory(sampler, ITH_SOLVER_UNIPC, unipc, "unipc_official_8_3");
    ith_sampler_destroy(context, &sampler);
    ith_tensor_file_close(&file);
    ith_tensor_file_close(&unipc);
}

typedef struct refusal {
    const char *field, *value;
} refusal;

static void assert_refused(const char *text, const char *field, const char *value)
{
    ith_scheduler scheduler;
    ith_status status = read_config(text, &scheduler);
    const char *sentence = ith_context_error(context);
    if (status != ITH_ERR_UNSUPPORTED && status != ITH_ERR_FORMAT)
        fail_msg("%s: %s", text, ith_status_name(status));
    if (!strstr(sentence, field) || !strstr(sentence, value) || !strstr(sentence, "scheduler_config.json"))
        fail_msg("\"%s\" does not name %s, %s and the file", sentence, field, value);
}

/* Sets fields of a scheduler to values that must be refused. The message must show the value or, if the value has a
 * '#', the text after it. */
static void refuse_all(const char *base, const refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[512], value[64];
        snprintf(value, sizeof value, "%s", refusals[i].value);
        char *shown = strchr(value, '#');
        if (shown)
            *shown++ = '\0';
        snprintf(text, sizeof text, "{%s, \"%s\": %s}", base, refusals[i].field, value);
        assert_refused(text, refusals[i].field, shown ? shown : value);
    }
}

static void other_values_of_unipc_are_refused_by_name(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"thresholding", "true"},
        {"thresholding", "1"},
        {"predict_x0", "false"},
        {"predict_x0", "null"},
        {"solver_type", "\"bh1\""},
        {"solver_type", "\"dpm\""},
        {"solver_type", "null"},
        {"solver_p", "[\"diffusers\",\"DDIMScheduler\"]"},
        {"solver_p", "{\"a\":1}"},
        {"use_karras_sigmas", "true"},
        {"use_exponential_sigmas", "true"},
        {"use_beta_sigmas", "true"},
        {"use_dynamic_shifting", "true"},
        {"final_sigmas_type", "\"last\""},
        {"final_sigmas_type", "null"},
        {"lower_order_final", "false"},
        {"lower_order_final", "null"},
        {"solver_order", "0"},
        {"solver_order", "4"},
        {"solver_order", "2.0#2"},
        {"solver_order", "\"2\""},
        {"disable_corrector", "[0.5]#0.5"},
        {"disable_corrector", "true"},
        {"disable_corrector", "0"},
        {"shift_terminal", "1"},
        {"shift_terminal", "-0.1"},
        {"shift_terminal", "true"},
        {"num_train_timesteps", "1"},
        {"num_train_timesteps", "0"},
        {"num_train_timesteps", "1000.0#1000"},
        {"flow_shift", "0"},
        {"flow_shift", "-3"},
        {"flow_shift", "1e300#1e+300"},
        {"flow_shift", "1001"},
        {"flow_shift", "0.0009"},
        {"flow_shift", "\"3\""},
        {"flow_shift", "null"},
        {"beta_start", "null"},
        {"beta_end", "null"},
        {"solver_order", "null"},
        {"disable_corrector", "null"},
        {"num_train_timesteps", "null"},
        {"use_karras_sigmas", "null"},
        {"beta_schedule", "\"cosine\""},
        {"timestep_spacing", "\"log\""},
        {"_use_default_values", "[\"flow_shift\"]"},
        {"quantization_config", "{\"bits\":8}"},
    };
    refuse_all("\"_class_name\": \"UniPCMultistepScheduler\", \"prediction_type\": \"flow_prediction\", "
               "\"use_flow_sigmas\": true",
               refusals, sizeof refusals / sizeof refusals[0]);
}

static void other_noise_than_a_flow_s_is_refused_by_name(void **state)
{
    (void)state;
    static const refusal predictions[] = {{"prediction_type", "\"epsilon\""},
                                          {"prediction_type", "\"sample\""},
                                          {"prediction_type", "\"v_prediction\""},
                                          {"prediction_type", "null"}};
    static const refusal sigmas[] = {{"use_flow_sigmas", "false"}, {"use_flow_sigmas", "null"}};
#define UNIPC "\"_class_name\": \"UniPCMultistepScheduler\""
    refuse_all(UNIPC ", \"use_flow_sigmas\": true", predictions, 4);
    refuse_all(UNIPC ", \"prediction_type\": \"flow_prediction\"", sigmas, 2);
    assert_refused("{" UNIPC ", \"use_flow_sigmas\": true}", "prediction_type", "absent");
    assert_refused("{" UNIPC ", \"prediction_type\": \"flow_prediction\"}", "use_flow_sigmas", "absent");
#undef UNIPC
#define SOLVER "\"_class_name\": \"DPMSolverMultistepScheduler\""
    refuse_all(SOLVER ", \"use_flow_sigmas\": true", predictions, 4);
    refuse_all(SOLVER ", \"prediction_type\": \"flow_prediction\"", sigmas, 2);
    assert_refused("{" SOLVER ", \"use_flow_sigmas\": true}", "prediction_type", "absent");
    assert_refused("{" SOLVER ", \"prediction_type\": \"flow_prediction\"}", "use_flow_sigmas", "absent");
#undef SOLVER
}

static void other_values_of_dpm_solver_are_refused_by_name(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"algorithm_type", "\"sde-dpmsolver++\""},
        {"algorithm_type", "\"dpmsolver\""},
        {"algorithm_type", "\"sde-dpmsolver\""},
        {"algorithm_type", "\"deis\""},
        {"algorithm_type", "null"},
        {"thresholding", "true"},
        {"solver_order", "0"},
        {"solver_order", "4"},
        {"solver_order", "null"},
        {"solver_type", "\"dpm\""},
        {"solver_type", "null"},
        {"lower_order_final", "1"},
        {"euler_at_final", "\"no\""},
        {"final_sigmas_type", "\"last\""},
        {"final_sigmas_type", "null"},
        {"use_karras_sigmas", "true"},
        {"use_exponential_sigmas", "true"},
        {"use_beta_sigmas", "true"},
        {"use_lu_lambdas", "true"},
        {"variance_type", "\"learned\""},
        {"variance_type", "\"learned_range\""},
        {"use_dynamic_shifting", "true"},
        {"lambda_min_clipped", "null"},
        {"flow_shift", "-Infinity"},
        {"flow_shift", "0"},
        {"num_train_timesteps", "1"},
        {"beta_schedule", "\"cosine\""},
    };
    static const refusal ends[] = {
        {"beta_start", "0"},
        {"beta_start", "0.75"},
        {"beta_start", "-1"},
        {"beta_start", "\"x\"#x"},
        {"trained_betas", "[0.5,0.25]"},
        {"beta_schedule", "\"squaredcos_cap_v2\""},
        {"rescale_betas_zero_snr", "true"},
    };
    refuse_all(DPMPP, refusals, sizeof refusals / sizeof refusals[0]);
    refuse_all(DPMPP ", \"final_sigmas_type\": \"sigma_min\"", ends, sizeof ends / sizeof ends[0]);
}

static void other_values_of_euler_are_refused_by_name(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"use_dynamic_shifting", "true"},
        {"invert_sigmas", "true"},
        {"use_karras_sigmas", "true"},
        {"use_exponential_sigmas", "true"},
        {"use_beta_sigmas", "true"},
        {"stochastic_sampling", "true"},
        {"shift", "0"},
        {"shift", "null"},
        {"time_shift_type", "\"quadratic\""},
        {"shift_terminal", "1.5"},
        {"num_train_timesteps", "-5"},
        {"_use_default_values", "[\"shift\"]"},
    };
    refuse_all("\"_class_name\": \"FlowMatchEulerDiscreteScheduler\"", refusals, sizeof refusals / sizeof refusals[0]);
}

static void other_classes_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"DDIMScheduler", "DPMSolverSinglestepScheduler",
                                        "FlowMatchHeunDiscreteScheduler", "FlowMatchLCMScheduler",
                                        "UniPCMultistepSchedule"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"_class_name\": \"%s\"}", names[i]);
        assert_refused(text, names[i], "UniPCMultistepScheduler, FlowMatchEulerDiscreteScheduler and DPMSolver");
    }
    assert_refused("{}", "_class_name", "missing");
    assert_refused("{\"_class_name\": 1}", "_class_name", "1");
}

/* shift_terminal divides by zero if the run has one step, so this is refused when the run's steps are known. */
static void a_schedule_that_cannot_be_stepped_is_refused(void **state)
{
    (void)state;
    ith_scheduler scheduler = ith_scheduler_default();
    ith_sampler *sampler = NULL;
    scheduler.shift_terminal = 0.25;
    const ith_sampling one = {ITH_SOLVER_UNIPC, ITH_SIGMAS_DIFFUSERS, 1, 3};
    assert_int_equal(ith_sampler_create(context, &scheduler, &one, 4, &sampler), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "shift_terminal 0.25"));
    /* the last sigma of "sigma_min", 0.01, would lie above the sigmas before it */
    const ith_sampling many = {ITH_SOLVER_DPMPP, ITH_SIGMAS_DIFFUSERS, 200, 1};
    check(context, read_config("{" DPMPP ", \"final_sigmas_type\": \"sigma_min\"}", &scheduler));
    assert_int_equal(ith_sampler_create(context, &scheduler, &many, 4, &sampler), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context),
                           "200 steps with shift 1: sigma 199 is 0.004995, which is not above the last one, 0.010"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_honoured_as_in_diffusers),
        cmocka_unit_test(dpm_solver_is_the_published_and_that_of_diffusers),
        cmocka_unit_test(other_schedulers_leave_a_solver_its_defaults),
        cmocka_unit_test(other_values_of_dpm_solver_are_refused_by_name),
        cmocka_unit_test(other_values_of_unipc_are_refused_by_name),
        cmocka_unit_test(other_noise_than_a_flow_s_is_refused_by_name),
        cmocka_unit_test(other_values_of_euler_are_refused_by_name),
        cmocka_unit_test(other_classes_are_refused_by_name),
        cmocka_unit_test(a_schedule_that_cannot_be_stepped_is_refused),
    };
    return cmocka_run_group_tests_name("scheduler", tests, context_set_up, context_tear_down);
}
