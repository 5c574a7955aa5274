/* SPDX-License-Identifier: Apache-2.0 */
/* Reads scheduler_config.json, with all fields that UniPCMultistepScheduler and FlowMatchEulerDiscreteScheduler have in
 * diffusers 0.42. tools/check_scheduler_fields.py has determined the effect of each field there. */
#include "scheduler.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../../files/quote.h"
#include "../part/config_fields.h"

#include <string.h>

#define MOST_TRAIN_STEPS 1000000

#define NOT_TRUE "absent|false|null"

static const char not_flow[] = "these are not the noise levels of a flow model";
static const char needs_mu[] = "diffusers' Wan pipeline does not pass the shift that it asks for";

/* The fields of UniPCMultistepScheduler. With flow sigmas and no other schedule, diffusers does not use the betas and
 * the spacing of time steps. */
static const ith_config_field unipc_fields[] = {
    {"num_train_timesteps", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_start", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_end", ITH_CONFIG_NOT_NULL, NULL},
    {"beta_schedule", "absent|\"linear\"|\"scaled_linear\"|\"squaredcos_cap_v2\"", NULL},
    {"trained_betas", NULL, NULL},
    {"rescale_betas_zero_snr", NULL, NULL},
    {"timestep_spacing", "absent|\"linspace\"|\"leading\"|\"trailing\"", NULL},
    {"steps_offset", NULL, NULL},
    {"time_shift_type", NULL, NULL}, /* diffusers reads it with use_dynamic_shifting only */
    {"sigma_min", NULL, NULL},       /* diffusers reads it with Karras, exponential or beta sigmas only */
    {"sigma_max", NULL, NULL},
    {"dynamic_thresholding_ratio", NULL, NULL}, /* diffusers reads it with thresholding only */
    {"sample_max_value", NULL, NULL},
    {"flow_shift", ITH_CONFIG_NOT_NULL, NULL},
    {"shift_terminal", NULL, NULL},
    {"solver_order", ITH_CONFIG_NOT_NULL, NULL},
    {"lower_order_final", NULL, NULL},
    {"disable_corrector", ITH_CONFIG_NOT_NULL, NULL},
    {"prediction_type", "\"flow_prediction\"", NULL},
    {"use_flow_sigmas", "true", not_flow},
    {"thresholding", NOT_TRUE, "it would need the largest values of all latents in every step"},
    {"predict_x0", "absent|true", "diffusers has no flow prediction without it"},
    /* diffusers treats midpoint, heun and logrho, which are older names, as bh2. */
    {"solver_type", "absent|\"bh2\"|\"midpoint\"|\"heun\"|\"logrho\"",
     "bh1 ends in NaN in diffusers when the last sigma is 0"},
    {"solver_p", "absent|null", NULL},
    {"use_karras_sigmas", "absent|false", not_flow},
    {"use_exponential_sigmas", "absent|false", not_flow},
    {"use_beta_sigmas", "absent|false", not_flow},
    {"final_sigmas_type", "absent|\"zero\"|\"sigma_min\"", NULL},
    {"use_dynamic_shifting", NOT_TRUE, needs_mu},
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

ith_scheduler ith_scheduler_default(void)
{
    return (ith_scheduler){.solver = ITH_SOLVER_UNIPC, .shift = 1, .train_steps = 1000, .order = 2};
}

static ith_status read_class(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    const char *name = NULL;
    ith_status status = ith_json_string(context, json, "_class_name", true, &name);
    if (status)
        return status;
    out->solver = !strcmp(name, ITH_UNIPC_CLASS) ? ITH_SOLVER_UNIPC : ITH_SOLVER_EULER;
    if (out->solver == ITH_SOLVER_UNIPC || !strcmp(name, ITH_EULER_CLASS))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: a %s is not supported; " ITH_UNIPC_CLASS " and " ITH_EULER_CLASS " are", ith_json_path(json),
                    ith_quote(name).text);
}

static ith_status read_shift(ith_context *context, const ith_json *json, const char *key, ith_scheduler *out)
{
    ith_status status = ith_json_double(context, json, key, 1.0, &out->shift);
    if (!status && !(out->shift >= ITH_SHIFT_LEAST && out->shift <= ITH_SHIFT_MOST))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %s is %g; it must lie between %g and %g", ith_json_path(json),
                        key, out->shift, ITH_SHIFT_LEAST, ITH_SHIFT_MOST);
    if (!status)
        status = ith_json_int(context, json, "num_train_timesteps", 2, MOST_TRAIN_STEPS, 1000, &out->train_steps);
    if (!status)
        status = ith_json_double(context, json, "shift_terminal", 0, &out->shift_terminal);
    if (!status && !(out->shift_terminal >= 0 && out->shift_terminal < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: shift_terminal is %g; it must lie in [0, 1)", ith_json_path(json),
                        out->shift_terminal);
    return status;
}

static ith_status read_unipc(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    const char *last = NULL;
    ith_status status =
        ith_json_int(context, json, "solver_order", 1, ITH_SCHEDULER_MOST_ORDER, out->order, &out->order);
    if (!status)
        status = ith_json_ints(context, json, "disable_corrector", INT32_MIN, INT32_MAX, ITH_SCHEDULER_MOST_UNCORRECTED,
                               out->uncorrected, &out->uncorrected_count);
    if (!status)
        status = ith_json_string(context, json, "final_sigmas_type", false, &last);
    if (status)
        return status;
    out->stops_at_last = last && !strcmp(last, "sigma_min");
    const ith_json_text lower = ith_json_print(json, "lower_order_final");
    if (out->order > 1 && strcmp(lower.text, "absent") && strcmp(lower.text, "true"))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: lower_order_final is %s; only true is supported: without it the last step of an order "
                        "above 1 ends in NaN in diffusers",
                        ith_json_path(json), lower.text);
    return ITH_OK;
}

static ith_status read_fields(ith_context *context, const ith_json *json, ith_scheduler *out)
{
    ith_status status = read_class(context, json, out);
    if (status)
        return status;
    bool unipc = out->solver == ITH_SOLVER_UNIPC;
    if (unipc)
        status = ith_config_fields_check_all(context, json, unipc_fields, ITH_COUNT(unipc_fields));
    else
        status = ith_config_fields_check_all(context, json, euler_fields, ITH_COUNT(euler_fields));
    if (!status)
        status = read_shift(context, json, unipc ? "flow_shift" : "shift", out);
    return status || !unipc ? status : read_unipc(context, json, out);
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
