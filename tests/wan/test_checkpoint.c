/* What a checkpoint's configuration files say: honoured as diffusers and transformers honour it, or refused by name. */
#include "support/altered_model.h"
#include "wan/model.h"

#include <math.h>

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
        {M, "\"vae\"", "\"image_encoder\": [\"transformers\", \"CLIPVisionModel\"], \"vae\"", U, M, "image_encoder"},
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
        status = ith_pipeline_generate(pipeline, &options, NULL);
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

/* ---- The shift ------------------------------------------------------------------------------------------------- */

static void assert_shift(double shift, const char *source)
{
    ith_model *model = NULL;
    require(ith_model_read(context, folder, &model));
    assert_float_equal(model->info.shift, shift, 0);
    if (!strstr(model->info.shift_source, source))
        fail_msg("\"%s\" lacks \"%s\"", model->info.shift_source, source);
    ith_model_free(context, &model);
}

/* The folder says that it is a Wan2.1-T2V-1.3B; weights are not looked at. */
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
    assert_shift(3, "scheduler_config.json"); /* no such folder was published */
}

#define test(name) cmocka_unit_test_setup_teardown(name, altered_model_set_up, altered_model_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(components_of_other_classes_are_named),
        test(a_boundary_needs_two_experts),
        test(two_experts_need_a_boundary),
        test(a_shift_of_its_own_stands_above_the_preset),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
