/* SPDX-License-Identifier: Apache-2.0 */
/* Reads scheduler_config.json, with all fields that UniPCMultistepScheduler, FlowMatchEulerDiscreteScheduler and
 * DPMSolverMultistepScheduler have in diffusers 0.42. tools/check_scheduler_fields.py has determined the effect of each
 * field there. */
#include "scheduler.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../../files/quote.h"
#include "../part/config_fields.h"

#include <math.h>
#include <string.h>

#define MOST_TRAIN_STEPS 1000000

#define NOT_TRUE "absent|false|null"
#define BOOLEAN "absent|false|true|null"

static const char not_flow[] = "these are not the noise levels of a flow model";
static const char needs_mu[] = "diffusers' Wan pipeline does not pass the shift that it asks for";

/* The fields that UniPCMultistepScheduler and DPMSolverMultistepScheduler share. With flow sigmas and no other
 * schedule, diffusers does not use the spacing of time steps. It uses the betas only for DPM-Solver++'s last sigma
 * "sigma_min". */
static const ith_config_field multistep_fields[] = {
    {"num_train_timesteps", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_start", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_end", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_schedule", "absent|\"linear\"|\"scaled_linear\"|\"squaredcos_cap_v2\"", NULL},
    {"trained_betas", NULL, NULL},
    {"rescale_betas_zero_snr", NULL, NULL},
    {"timestep_spacing", "absent|\"linspace\"|\"leading\"|\"trailing\"", NULL},
    {"steps_offset", NULL, NULL},
    {"time_shift_type", NULL, NULL},            /* diffusers reads it with use_dynamic_shifting only */
    {"dynamic_thresholding_ratio", NULL, NULL}, /* diffusers reads it with thresholding only */
    {"sample_max_value", NULL, NULL},
    {"flow_shift", ITH_CONFIG_NOT_NULL, NULL},
    {"solver_order", ITH_CONFIG_NOT_NULL, NULL},
    {"prediction_type", "\"flow_prediction\"", NULL},
    {"use_flow_sigmas", "true", not_flow},
    {"thresholding", NOT_TRUE, "it would need the largest values of all latents in every step"},
    {"use_karras_sigmas", "absent|false", not_flow},
    {"use_exponential_sigmas", "absent|false", not_flow},
    {"use_beta_sigmas", "absent|false", not_flow},
    {"final_sigmas_type", "absent|\"zero\"|\"sigma_min\"", NULL},
    {"use_dynamic_shifting", NOT_TRUE, needs_mu},
};

static const ith_config_field unipc_fields[] = {
    {"sigma_min", NULL, NULL}, /* diffusers reads it with Karras, exponential or beta sigmas only */
    {"sigma_max", NULL, NULL},
    {"shift_terminal", NULL, NULL},
    {"lower_order_final", NULL, NULL},
    {"disable_corrector", ITH_CONFIG_NOT_NULL, NULL},
    {"predict_x0", "absent|true", "diffusers has no flow prediction without it"},
    /* diffusers treats midpoint, heun and logrho, which are older names, as bh2. */
    {"solver_type", "absent|\"bh2\"|\"midpoint\"|\"heun\"|\"logrho\"",
     "bh1 ends in NaN in diffusers when the last sigma is 0"},
    {"solver_p", "absent|null", NULL},
};

static const ith_config_field euler_fields[] = {
    {"num_train_timesteps", ITH_CONFIG_NOT_NULL, NULL},
    {"shift", ITH_CONFIG_NOT_NULL, NULL},
    {"shift_terminal", NULL, NULL},
    {"base_shift", NULL, NULL}, /* diffusers reads this field and the next four with use_dynamic_shifting only */
    {"max_shift", NULL, NULL},
    {"base_image_seq_len", NULL, NULL},
    {"max_image_seq_len", NULL, NULL},
    {"time_shift_type", "absent|\"exponential\"|\"linear\"", NULL},
    {"use_dynamic_shifting", NOT_TRUE, needs_mu},
    {"invert_sigmas", NOT_TRUE, "the latents would go from video to noise"},
    {"use_karras_sigmas", "absent|false", NULL},
    {"use_exponential_sigmas", "absent|false", NULL},
    {"use_beta_sigmas", "absent|false", NULL},
    {"stochastic_sampling", NOT_TRUE, "it would need new noise in every step"},
};

static const ith_config_field dpmpp_fields[] = {
    {"lambda_min_clipped", ITH_CONFIG_NOT_NULL, NULL}, /* diffusers does not use it with flow sigmas */
    {"lower_order_final", BOOLEAN, NULL},
    {"euler_at_final", BOOLEAN, NULL},
    {"algorithm_type", "absent|\"dpmsolver++\"", "the others add new noise in every step, or know no flow prediction"},
    /* diffusers treats bh1, bh2 and logrho, which are names of UniPC, as midpoint. */
    {"solver_type", "absent|\"midpoint\"|\"heun\"|\"bh1\"|\"bh2\"|\"logrho\"", NULL},
    {"use_lu_lambdas", NOT_TRUE, not_flow},
    {"variance_type", "absent|null", "a transformer of Wan predicts no variance"},
};

ith_scheduler ith_scheduler_default(void)
{
    return (ith_scheduler){.solver = ITH_SOLVER_UNIPC,
                           .shift = 1,
                           .train_steps = 1000,
                           .unipc = {.order = 2},
                           .dpmpp = {.order = 2, .lower_order_final = true}};
}

static ith_status read_shift(ith_context *context, const ith_json *json, const char *key, ith_scheduler *out)
{
    ith_status status = ith_json_double(context, json, key, 1.0, &out->shift);
    if (!status && !(out->shift >= ITH_SHIFT_LEAST && out->shift <= ITH_SHIFT_MOST))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %s is %g; it must lie between %g and %g", ith_json_path(json),
                        key, out->shift, ITH_SHIFT_LEAST, ITH_SHIFT_MOST);
    if (!status)
        status = ith_json_int(context, json, "num_train_timesteps", 2, MOST_TRAIN_STEPS, 1000, &out->train_steps);
    return status;
}

static ith_status read_terminal(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    ith_status status = ith_json_double(context, json, "shift_terminal", 0, &out->shift_terminal);
    if (!status && !(out->shift_terminal >= 0 && out->shift_terminal < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: shift_terminal is %g; it must lie in [0, 1)", ith_json_path(json),
                        out->shift_terminal);
    return status;
}

static ith_status read_order(ith_context *context, const ith_json *json, int64_t *order)
{
    return ith_json_int(context, json, "solver_order", 1, ITH_SCHEDULER_MOST_ORDER, *order, order);
}

/* Whether final_sigmas_type is "sigma_min". */
static bool stops_early(const ith_json *json)
{
    return !strcmp(ith_json_print(json, "final_sigmas_type").text, "\"sigma_min\"");
}

static ith_status read_unipc(ith_context *context, const ith_json *json, ith_scheduler *scheduler)
{
    ith_unipc_fields *out = &scheduler->unipc;
    ith_status status = read_terminal(context, json, scheduler);
    if (!status)
        status = read_order(context, json, &out->order);
    if (!status)
        status = ith_json_ints(context, json, "disable_corrector", INT32_MIN, INT32_MAX, ITH_SCHEDULER_MOST_UNCORRECTED,
                               out->uncorrected, &out->uncorrected_count);
    if (status)
        return status;
    out->stops_at_last = stops_early(json);
    const ith_json_text lower = ith_json_print(json, "lower_order_final");
    if (out->order > 1 && strcmp(lower.text, "absent") && strcmp(lower.text, "true"))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: lower_order_final is %s; only true is supported: without it the last step of an order "
                        "above 1 ends in NaN in diffusers",
                        ith_json_path(json), lower.text);
    return ITH_OK;
}

/* The last sigma of DPMSolverMultistepScheduler with final_sigmas_type "sigma_min". With flow sigmas, too, diffusers
 * computes it from the first beta: sqrt((1 - a) / a), a = 1 - beta, with every operation rounded to f32. */
static ith_status read_last_sigma(ith_context *context, const ith_json *json, double *out)
{
    static const ith_config_field others[] = {
        {"beta_schedule", "absent|\"linear\"|\"scaled_linear\"", "with final_sigmas_type \"sigma_min\""},
        {"trained_betas", "absent|null", "with final_sigmas_type \"sigma_min\""},
        {"rescale_betas_zero_snr", NOT_TRUE, "with final_sigmas_type \"sigma_min\""},
    };
    double first = 0;
    ith_status status = ith_config_fields_check(context, json, others, ITH_COUNT(others));
    if (!status)
        status = ith_json_double(context, json, "beta_start", 1e-4, &first);
    if (status)
        return status;
    const bool scaled = !strcmp(ith_json_print(json, "beta_schedule").text, "\"scaled_linear\"");
    const float root = (float)sqrt(first), beta = scaled ? root * root : (float)first, a = 1.0f - beta;
    *out = (double)sqrtf((1.0f - a) / a);
    if (*out > 0 && *out < 1)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: with beta_start %g and final_sigmas_type \"sigma_min\" the last sigma is %g; it must lie "
                    "between 0 and 1",
                    ith_json_path(json), first, *out);
}

/* Reads true or false; null is false, as in diffusers. */
static bool is_true(const ith_json *json, const char *key, bool otherwise)
{
    const ith_json_text value = ith_json_print(json, key);
    return !strcmp(value.text, "absent") ? otherwise : !strcmp(value.text, "true");
}

static ith_status read_dpmpp(ith_context *context, const ith_json *json, ith_scheduler *scheduler)
{
    ith_dpmpp_fields *out = &scheduler->dpmpp;
    ith_status status = read_order(context, json, &out->order);
    out->heun = !strcmp(ith_json_print(json, "solver_type").text, "\"heun\"");
    out->lower_order_final = is_true(json, "lower_order_final", true);
    out->euler_at_final = is_true(json, "euler_at_final", false);
    return status || !stops_early(json) ? status : read_last_sigma(context, json, &out->last_sigma);
}

/* The classes, in the order of ith_solver. shift: the name of a field. read: reads the fields of this class alone. */
static const struct {
    const char *name, *shift;
    ith_config_table tables[2];
    ith_status (*read)(ith_context *context, const ith_json *json, ith_scheduler *scheduler);
} classes[] = {
    [ITH_SOLVER_UNIPC] = {ITH_UNIPC_CLASS,
                          "flow_shift",
                          {{multistep_fields, ITH_COUNT(multistep_fields)}, {unipc_fields, ITH_COUNT(unipc_fields)}},
                          read_unipc},
    [ITH_SOLVER_EULER] = {ITH_EULER_CLASS, "shift", {{euler_fields, ITH_COUNT(euler_fields)}}, read_terminal},
    [ITH_SOLVER_DPMPP] = {ITH_DPMPP_CLASS,
                          "flow_shift",
                          {{multistep_fields, ITH_COUNT(multistep_fields)}, {dpmpp_fields, ITH_COUNT(dpmpp_fields)}},
                          read_dpmpp},
};

const char *ith_scheduler_class(ith_solver solver)
{
    return classes[solver].name;
}

ith_solver ith_scheduler_of_class(const char *name)
{
    for (int i = ITH_SOLVER_UNIPC; i < ITH_COUNT(classes); i++)
        if (!strcmp(name, classes[i].name))
            return (ith_solver)i;
    return ITH_SOLVER_AUTO;
}

static ith_status read_class(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    const char *name = NULL;
    ith_status status = ith_json_string(context, json, "_class_name", true, &name);
    if (status)
        return status;
    out->solver = ith_scheduler_of_class(name);
    if (out->solver)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: a %s is not supported; " ITH_UNIPC_CLASS ", " ITH_EULER_CLASS " and " ITH_DPMPP_CLASS " are",
                    ith_json_path(json), ith_quote(name).text);
}

static ith_status read_fields(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    ith_status status = read_class(context, json, out);
    if (!status)
        status = ith_config_fields_check_all(context, json, classes[out->solver].tables, 2);
    if (!status)
        status = read_shift(context, json, classes[out->solver].shift, out);
    return status ? status : classes[out->solver].read(context, json, out);
}

ith_status ith_scheduler_read(ith_context *context, const char *folder, ith_scheduler *out)
{
    *out = ith_scheduler_default();
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "scheduler_config.json", &json);
    if (!status)
        status = read_fields(context, json, out);
    ith_json_close(&json);
    return status;
}
