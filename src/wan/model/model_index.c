/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks model_index.json (model_index.h). */
#include "model_index.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../../files/quote.h"
#include "../part/config_fields.h"

#include <math.h>
#include <string.h>

#define TRANSFORMER "[\"diffusers\",\"WanTransformer3DModel\"]"
#define UNIPC "[\"diffusers\",\"" ITH_UNIPC_CLASS "\"]"
#define EULER "[\"diffusers\",\"" ITH_EULER_CLASS "\"]"
#define DPMPP "[\"diffusers\",\"" ITH_DPMPP_CLASS "\"]"
#define NO_COMPONENT "absent|null|[null,null]"

static const ith_config_field fields[] = {
    {"transformer", TRANSFORMER, NULL},
    {"transformer_2", NO_COMPONENT "|" TRANSFORMER, NULL},
    {"vae", "[\"diffusers\",\"AutoencoderKLWan\"]", NULL},
    {"text_encoder", "[\"transformers\",\"UMT5EncoderModel\"]",
     "a T5 encoder uses the first layer's position biases in every layer, a umT5 encoder each layer's own"},
    {"tokenizer", "[\"transformers\",\"T5TokenizerFast\"]|[\"transformers\",\"T5Tokenizer\"]", NULL},
    {"scheduler", UNIPC "|" EULER "|" DPMPP, NULL},
    {"image_encoder",
     NO_COMPONENT "|[\"transformers\",\"CLIPVisionModel\"]|[\"transformers\",\"CLIPVisionModelWithProjection\"]", NULL},
    {"image_processor",
     NO_COMPONENT "|[\"transformers\",\"CLIPImageProcessor\"]|[\"transformers\",\"CLIPImageProcessorFast\"]"
                  "|[\"transformers\",\"CLIPImageProcessorPil\"]",
     NULL},
    {"boundary_ratio", NULL, NULL},
    {"expand_timesteps", "absent|null|false|true", NULL},
};

static ith_status read_pipeline(ith_context *context, const ith_json *json, ith_model_index *out)
{
    const char *class_name = NULL;
    ith_status status = ith_json_string(context, json, "_class_name", true, &class_name);
    if (status)
        return status;
    out->from_image = !strcmp(class_name, "WanImageToVideoPipeline");
    if (!out->from_image && strcmp(class_name, "WanPipeline") != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: a %s is not supported; a WanPipeline and a WanImageToVideoPipeline are",
                        ith_json_path(json), ith_quote(class_name).text);
    return ITH_OK;
}

/* Reads boundary_ratio, and checks that it suits the number of experts. */
static ith_status read_boundary(ith_context *context, const ith_json *json, ith_model_index *out)
{
    bool given = ith_json_has(json, "boundary_ratio");
    ith_status status = ith_json_double(context, json, "boundary_ratio", 0, &out->boundary);
    if (status)
        return status;
    if (!(out->boundary >= 0 && out->boundary <= 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: boundary_ratio is %g, it must lie in [0, 1]", ith_json_path(json),
                        out->boundary);
    if (out->experts == 1 && out->boundary > 0)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: boundary_ratio is %g, but there is no transformer_2 for the time steps below it; null or "
                        "0 leaves all of them to transformer",
                        ith_json_path(json), out->boundary);
    if (out->experts == 2 && !given)
        out->boundary = (double)NAN;
    return ITH_OK;
}

ith_status ith_model_index_read(ith_context *context, const char *folder, ith_model_index *out)
{
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "model_index.json", &json);
    if (!status)
        status = read_pipeline(context, json, out);
    if (!status)
        status = ith_config_fields_check_all(context, json, &(ith_config_table){fields, ITH_COUNT(fields)}, 1);
    if (!status) {
        out->expands = !strcmp(ith_json_print(json, "expand_timesteps").text, "true");
        out->experts = ith_json_string_at(json, "transformer_2", 1) ? 2 : 1;
        out->has_processor = ith_json_string_at(json, "image_processor", 1);
        out->solver = ith_scheduler_of_class(ith_json_string_at(json, "scheduler", 1));
        status = read_boundary(context, json, out);
    }
    ith_json_close(&json);
    return status;
}
