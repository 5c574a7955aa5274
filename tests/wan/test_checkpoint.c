/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a checkpoint's configuration files have the effect that they have in diffusers and transformers, or are
 * refused by name. */
#include "support/engine/altered_model.h"
#include "wan/model/model.h"

#include <math.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INDEX_JSON "model_index.json"
#define SCHEDULER "scheduler/scheduler_config.json"

static void require(ith_status status)
{
    if (status)
        fail_msg("%s", ith_context_error(context));
}

/* ---- model_index.json ------------------------------------------------------------------------------------------ */

static void components_of_other_classes_are_named(void **state)
{
    (void)state;
#define M INDEX_JSON
    static const edit edits[] = {
        {M, "UMT5EncoderModel", "T5EncoderModel", U, M, "text_encoder is [\"transformers\",\"T5EncoderModel\"]"},
        {M, "WanTransformer3DModel", "WanVACETransformer3DModel", U, M, "transformer is"},
        {M, "AutoencoderKLWan", "AutoencoderTiny", U, M, "AutoencoderTiny"},
        {M, "T5TokenizerFast", "LlamaTokenizer", U, M, "LlamaTokenizer"},
        {M, "UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler", F, M, "UniPCMultistepScheduler"},
        {M, "UniPCMultistepScheduler", "LCMScheduler", U, M, "LCMScheduler"},
        {M, "\"scheduler\"", "\"planner\"", U, M, "scheduler is absent"},
        {M, "\"transformer\": [\n    \"diffusers\",\n    \"WanTransformer3DModel\"",
         "\"transformer\": [\n    null,\n    null", U, M, "transformer is [null,null]"},
        {M, "\"vae\"", "\"image_encoder\": [\"transformers\", \"CLIPTextModel\"], \"vae\"", U, M, "image_encoder"},
        {M, "\"expand_timesteps\": false", "\"expand_timesteps\": 1", U, M, "expand_timesteps is 1"},
    };
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
    edit_part(M, "\"vae\"", "\"image_encoder\": [null, null], \"a_field_of_tomorrow\": 1, \"vae\"");
    require(attempt());
}

static void one_expert(void)
{
    edit_part(INDEX_JSON, "\"transformer_2\": [\n    \"diffusers\",\n    \"WanTransformer3DModel\"",
              "\"transformer_2\": [\n    null,\n    null");
}

static ith_status generate_with(double boundary)
{
    ith_pipeline *pipeline = NULL;
    require(ith_pipeline_open(context, folder, &pipeline));
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle";
    options.frames = 1, options.height = options.width = 16, options.steps = 2;
    options.precision = ITH_PRECISION_F32, options.threads = 1, options.boundary = boundary;
    ith_status status = ith_pipeline_resolve(pipeline, &options);
    if (!status)
        status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
    ith_pipeline_close(&pipeline);
    return status;
}

static void a_boundary_needs_two_experts(void **state)
{
    (void)state;
    one_expert();
    assert_refused(F, INDEX_JSON, "boundary_ratio is 0.875");
    edit_part(INDEX_JSON, "\"boundary_ratio\": 0.875", "\"boundary_ratio\": 0");
    assert_int_equal(generate_with((double)NAN), ITH_OK);
    assert_int_equal(generate_with(0.5), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "boundary is 0.5"));
    edit_part(INDEX_JSON, "\"boundary_ratio\": 0", "\"boundary_ratio\": null");
    assert_int_equal(generate_with((double)NAN), ITH_OK);
}

static void two_experts_need_a_boundary(void **state)
{
    (void)state;
    edit_part(INDEX_JSON, "\"boundary_ratio\": 0.875", "\"boundary_ratio\": null");
    assert_int_equal(generate_with((double)NAN), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "boundary_ratio"));
    assert_int_equal(generate_with(0.9), ITH_OK);
    assert_int_equal(generate_with(0), ITH_OK);
    edit_part(INDEX_JSON, "\"boundary_ratio\": null", "\"boundary_ratio\": 0");
    assert_int_equal(generate_with((double)NAN), ITH_OK);
}

/* The mistake is found before anything is loaded. */
static void steps_that_the_scheduler_cannot_make_are_refused(void **state)
{
    (void)state;
    edit_part(SCHEDULER, "\"shift_terminal\": null", "\"shift_terminal\": 0.25");
    ith_pipeline *pipeline = NULL;
    require(ith_pipeline_open(context, folder, &pipeline));
    for (int64_t steps = 1; steps <= 2; steps++) {
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.steps = steps, options.sigmas = ITH_SIGMAS_DIFFUSERS;
        options.precision = ITH_PRECISION_F32;
        ith_status status = ith_pipeline_resolve(pipeline, &options);
        assert_int_equal(status, steps == 1 ? ITH_ERR_ARGUMENT : ITH_OK);
        if (status)
            assert_non_null(strstr(ith_context_error(context), "shift_terminal 0.25"));
    }
    ith_pipeline_close(&pipeline);
}

/* ---- The shift ------------------------------------------------------------------------------------------------- */

static void assert_shift(double shift, const char *source)
{
    ith_model *model = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = folder;
    require(ith_model_read(context, &files, &model));
    assert_float_equal(model->info.shift, shift, 0);
    if (!strstr(model->info.shift_source, source))
        fail_msg("\"%s\" lacks \"%s\"", model->info.shift_source, source);
    ith_model_free(context, &model);
}

/* Gives the folder the configuration of Wan2.1-T2V-1.3B. Weights are not read. */
static void pretend_to_be_official(void)
{
    one_expert();
    edit_part(INDEX_JSON, "\"boundary_ratio\": 0.875", "\"boundary_ratio\": null");
    edit_part("transformer/config.json", "\"attention_head_dim\": 32", "\"attention_head_dim\": 128");
    edit_part("transformer/config.json", "\"num_attention_heads\": 6", "\"num_attention_heads\": 12");
    edit_part("transformer/config.json", "\"num_layers\": 6", "\"num_layers\": 30");
}

static void a_shift_of_its_own_stands_above_the_preset(void **state)
{
    (void)state;
    assert_shift(3, "scheduler_config.json");
    pretend_to_be_official();
    assert_shift(5, "Wan2.1-T2V-1.3B");
    edit_part(SCHEDULER, "\"flow_shift\": 3.0", "\"flow_shift\": 8.0");
    assert_shift(8, "scheduler_config.json");
    edit_part(SCHEDULER, "\"flow_shift\": 8.0,", "");
    assert_shift(1, "scheduler_config.json");
    static const char euler[] = "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0}";
    replace_part(SCHEDULER, euler, strlen(euler));
    edit_part(INDEX_JSON, "UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler");
    assert_shift(3, "scheduler_config.json"); /* no folder with this configuration was published */
}

/* A run that names no solver has the solver of the scheduler. diffusers saves a DPMSolverMultistepScheduler with a
 * number that JSON does not have. */
static void the_solver_is_that_of_the_scheduler(void **state)
{
    (void)state;
    static const char config[] = "{\"_class_name\": \"DPMSolverMultistepScheduler\", \"flow_shift\": 3.0, "
                                 "\"lambda_min_clipped\": -Infinity, \"prediction_type\": \"flow_prediction\", "
                                 "\"use_flow_sigmas\": true}";
    replace_part(SCHEDULER, config, strlen(config));
    assert_refused(F, INDEX_JSON, "is a UniPCMultistepScheduler, but");
    edit_part(INDEX_JSON, "UniPCMultistepScheduler", "DPMSolverMultistepScheduler");
    for (ith_solver solver = ITH_SOLVER_AUTO; solver <= ITH_SOLVER_DPMPP; solver++) {
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        ith_pipeline *pipeline = NULL;
        options.prompt = "a", options.precision = ITH_PRECISION_F32, options.solver = solver;
        require(ith_pipeline_open(context, folder, &pipeline));
        require(ith_pipeline_resolve(pipeline, &options));
        assert_int_equal(options.solver, solver ? solver : ITH_SOLVER_DPMPP);
        ith_pipeline_close(&pipeline);
    }
}

/* ---- The components -------------------------------------------------------------------------------------------- */

static void other_components_are_refused_by_field_and_value(void **state)
{
    (void)state;
#define T "transformer/config.json"
#define T2 "transformer_2/config.json"
#define V "vae/config.json"
#define E "text_encoder/config.json"
#define BIASES "\"relative_attention_max_distance\""
    static const edit edits[] = {
        {T, "\"rms_norm_across_heads\"", "\"rms_norm\"", U, T, "qk_norm is \"rms_norm\""},
        {T, "\"cross_attn_norm\": true", "\"cross_attn_norm\": null", U, T, "cross_attn_norm is null"},
        {T2, "\"cross_attn_norm\": true", "\"cross_attn_norm\": 1", U, T2, "cross_attn_norm is 1"},
        {T, "\"added_kv_proj_dim\": null", "\"added_kv_proj_dim\": 0", F, T, "added_kv_proj_dim"},
        {T, "\"added_kv_proj_dim\": null", "\"added_kv_proj_dim\": 7", U, T, "added_kv_proj_dim is 7"},
        {T, "\"image_dim\": null", "\"image_dim\": false", F, T, "image_dim"},
        {T, "\"image_dim\": null", "\"image_dim\": 9", U, T, "image_dim is 9"},
        {T, "\"eps\"", "\"quantization_config\": {\"quant_method\": \"torchao\"}, \"eps\"", U, T,
         "quantization_config is {\"quant_method\":\"torchao\"}"},
        {T, "\"eps\"", "\"_use_default_values\": [\"eps\"], \"eps\"", U, T, "_use_default_values is [\"eps\"]"},
        {T, "\"out_channels\": 16", "\"out_channels\": 48", U, T, "48"},
        {T, "\"eps\": 1e-06", "\"eps\": null", U, T, "eps is null"},
        {V, "\"z_dim\": 16", "\"z_dim\": null", U, V, "z_dim is null"},
        {E, "\"d_ff\": 256", "\"d_ff\": null", U, E, "d_ff is null"},
        {V, "\"is_residual\": false", "\"is_residual\": 1", F, V, "is_residual"},
        {V, "\"patch_size\": null", "\"patch_size\": 2", F, V, "with a patch_size of 2"},
        {V, "\"out_channels\": 3", "\"out_channels\": 12", F, V, "out_channels\" is 12"},
        {V, "\"scale_factor_spatial\": 8", "\"scale_factor_spatial\": 16", F, V, "scale_factor_spatial"},
        {V, "\"scale_factor_temporal\": 4", "\"scale_factor_temporal\": 8", F, V, "scale_factor_temporal"},
        {E, "\"gated-gelu\"", "\"gated-silu\"", U, E, "feed_forward_proj is \"gated-silu\""},
        {E, "\"gelu_new\"", "\"gelu\"", U, E, "dense_act_fn is \"gelu\""},
        {E, "\"is_gated_act\": true", "\"is_gated_act\": false", U, E, "is_gated_act is false"},
        {E, "\"is_decoder\": false", "\"is_decoder\": true", U, E, "is_decoder is true"},
        {E, BIASES, "\"num_hidden_layers\": 1, " BIASES, U, E, "num_hidden_layers is 1"},
        {E, BIASES, "\"head_dim\": 16, " BIASES, U, E, "head_dim is 16"},
        {E, BIASES, "\"num_attention_heads\": 2, " BIASES, U, E, "num_attention_heads is 2"},
        {E, BIASES ": 128", BIASES ": 3", F, E, "relative_attention_max_distance"},
        {E, BIASES, "\"quantization_config\": {}, " BIASES, U, E, "quantization_config is {}"},
    };
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
}

/* Fields that have no effect in diffusers and transformers have none here: the model is accepted. */
static void fields_without_effect_are_taken(void **state)
{
    (void)state;
    static const edit edits[] = {
        {T, "\"pos_embed_seq_len\": null", "\"pos_embed_seq_len\": 514", 0, NULL, NULL},
        {T, "\"out_channels\": 16", "\"out_channels\": null", 0, NULL, NULL},
        {T, "\"eps\"", "\"window_size\": [-1, -1], \"eps\"", 0, NULL, NULL},
        {T, "\"in_channels\": 16,", "", 0, NULL, NULL},
        {V, "\"attn_scales\": []", "\"attn_scales\": [0.5, 1.0]", 0, NULL, NULL},
        {V, "\"dropout\": 0.0", "\"dropout\": 0.5", 0, NULL, NULL},
        {V, "\"in_channels\": 3", "\"in_channels\": 12", 0, NULL, NULL},
        {V, "\"is_residual\": false", "\"is_residual\": null, \"clip_output\": false", 0, NULL, NULL},
        {V, "\"z_dim\": 16", "\"dropped\": 16", 0, NULL, NULL},
        {E, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", 0, NULL, NULL},
        {E, "\"tie_word_embeddings\": true", "\"scalable_attention\": true", 0, NULL, NULL},
        {E, "\"dense_act_fn\": \"gelu_new\",", "", 0, NULL, NULL},
        {E, BIASES, "\"hidden_size\": 128, " BIASES, 0, NULL, NULL},
        {E, "\"is_encoder_decoder\": true", "\"is_encoder_decoder\": false", 0, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        edit_part(edits[i].part, edits[i].from, edits[i].to);
        require(attempt());
        link_part(edits[i].part);
    }
}

static void positions_end_where_the_transformer_says(void **state)
{
    (void)state;
    edit_part(T2, "\"rope_max_seq_len\": 1024", "\"rope_max_seq_len\": 3");
    ith_pipeline *pipeline = NULL;
    require(ith_pipeline_open(context, folder, &pipeline));
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 9, options.height = 48, options.width = 64;
    options.precision = ITH_PRECISION_F32;
    assert_int_equal(ith_pipeline_resolve(pipeline, &options), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "width is 64"));
    assert_non_null(strstr(ith_context_error(context), "nearest is 48"));
    options.width = 48;
    require(ith_pipeline_resolve(pipeline, &options));
    options.frames = 13;
    assert_int_equal(ith_pipeline_resolve(pipeline, &options), ITH_ERR_ARGUMENT);
    ith_pipeline_close(&pipeline);
}

static bool reads_little; /* every read returns at most 1000 bytes, as it may on a network's file system */

ssize_t read(int file, void *to, size_t bytes)
{
    return syscall(SYS_read, file, to, reads_little && bytes > 1000 ? 1000 : bytes);
}

/* Saved runs keep this hash. If it changes although models/shapes did not, the format in ITH_SAVED_VERSION must grow:
 * otherwise resumed runs are told that the model has changed. The hash does not depend on the lengths of reads. */
static void a_model_has_the_hash_of_earlier_builds(void **state)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_model *model = NULL;
    uint64_t hash = 0, again = 0;
    (void)state;
    files.folder = "../models/shapes";
    require(ith_model_read(context, &files, &model));
    require(ith_model_check_weights(context, model));
    require(ith_model_hash(context, model, &hash));
    reads_little = true;
    require(ith_model_hash(context, model, &again));
    reads_little = false;
    assert_true(again == hash);
    ith_model_free(context, &model);
    if (hash != 0x88a3d2e8b85946bf)
        fail_msg("the hash is %016llx", (unsigned long long)hash);
}

#define test(name) cmocka_unit_test_setup_teardown(name, altered_model_set_up, folder_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(components_of_other_classes_are_named),
        test(a_boundary_needs_two_experts),
        test(two_experts_need_a_boundary),
        test(steps_that_the_scheduler_cannot_make_are_refused),
        test(a_shift_of_its_own_stands_above_the_preset),
        test(the_solver_is_that_of_the_scheduler),
        test(other_components_are_refused_by_field_and_value),
        test(fields_without_effect_are_taken),
        test(positions_end_where_the_transformer_says),
        test(a_model_has_the_hash_of_earlier_builds),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
