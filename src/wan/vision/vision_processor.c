/* SPDX-License-Identifier: Apache-2.0 */
/* Reads preprocessor_config.json of CLIP's image processor. */
#include "vision_config.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../part/config_fields.h"

#include <math.h>
#include <string.h>

/* The default sizes of the processor. */
#define USUAL_RESIZE 224
#define USUAL_CROP 224

/* The fields that change the pixels. A field of null has its default. The processors of transformers' two backends
 * differ by the rounding of their filters; this is the processor of Pillow. */
static const ith_config_field fields[] = {
    {"image_processor_type",
     "absent|null|\"CLIPImageProcessor\"|\"CLIPImageProcessorFast\"|\"CLIPImageProcessorPil\"|\"CLIPFeatureExtractor\"",
     "pictures are prepared as CLIP prepares them"},
    {"feature_extractor_type", "absent|null|\"CLIPFeatureExtractor\"", "pictures are prepared as CLIP prepares them"},
    {"do_resize", "absent|null|true", NULL},
    {"do_center_crop", "absent|null|true", NULL},
    {"do_rescale", "absent|null|true", NULL},
    {"do_normalize", "absent|null|true", NULL},
    {"do_convert_rgb", "absent|null|true", NULL},
    {"do_pad", "absent|null|false", NULL},
    {"use_square_size", "absent|null|false", "pictures keep their shape"},
    {"default_to_square", "absent|null|false", "pictures keep their shape"},
    {"resample", "absent|null|3", "pictures are scaled with the bicubic filter"},
};

/* Refuses a field whose value has none of the supported forms. */
static ith_status refuse(ith_context *context, const ith_json *json, const char *key, const char *forms)
{
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s is %s; only %s is supported", ith_json_path(json), key,
                    ith_json_print(json, key).text, forms);
}

/* Whether a field is absent or null, and has its default. */
static bool is_usual(const ith_json *json, const char *key)
{
    return !ith_json_has(json, key);
}

/* Reads a number of pixels in a field: an integer, or an object in which each of the `count` names has the same
 * integer. */
static ith_status read_side(ith_context *context, const ith_json *json, const char *key, const char *const *names,
                            int count, const char *forms, int64_t *out)
{
    const char *member = NULL;
    double value = 0;
    int found = 0;
    if (is_usual(json, key) || ith_json_print(json, key).text[0] != '{')
        return ith_json_int(context, json, key, 1, INT32_MAX, *out, out);
    for (;; found++) {
        ith_status status = ith_json_next_number(context, json, key, &member, &value);
        if (status)
            return status;
        if (!member)
            break;
        bool known = false;
        for (int i = 0; i < count; i++)
            known |= !strcmp(member, names[i]);
        if (!known || !(value >= 1 && value <= INT32_MAX) || value != floor(value) || (found && (int64_t)value != *out))
            return refuse(context, json, key, forms);
        *out = (int64_t)value;
    }
    return found == count ? ITH_OK : refuse(context, json, key, forms);
}

/* Reads a number for each colour. */
static ith_status read_colours(ith_context *context, const ith_json *json, const char *key, double out[3])
{
    int64_t count = 0;
    if (is_usual(json, key))
        return ITH_OK;
    ith_status status = ith_json_doubles(context, json, key, 3, out, &count);
    if (!status && count != 3)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" has %lld values; it needs one for each of 3 colours",
                        ith_json_path(json), key, (long long)count);
    return status;
}

static ith_status read_processor(ith_context *context, const ith_json *json, ith_vision_config *config)
{
    static const char *const shorter[] = {"shortest_edge"}, *const sides[] = {"height", "width"};
    int64_t crop = USUAL_CROP;
    double factor = 0;
    config->resize = USUAL_RESIZE;
    ith_status status = ith_config_fields_check(context, json, fields, ITH_COUNT(fields));
    if (!status)
        status =
            read_side(context, json, "size", shorter, 1, "a number or {\"shortest_edge\": a number}", &config->resize);
    if (!status)
        status = read_side(context, json, "crop_size", sides, 2,
                           "a number or {\"height\": a number, \"width\": the same number}", &crop);
    if (!status)
        status = ith_json_double(context, json, "rescale_factor", 1.0 / 255, &factor);
    if (!status && !(fabs(factor * 255 - 1) <= 1e-7))
        status = refuse(context, json, "rescale_factor", "1/255");
    if (!status && crop != config->image)
        status = ith_fail(context, ITH_ERR_UNSUPPORTED,
                          "%s: crop_size is %lld, but the image encoder takes pictures of %lld x %lld pixels",
                          ith_json_path(json), (long long)crop, (long long)config->image, (long long)config->image);
    if (!status)
        status = read_colours(context, json, "image_mean", config->mean);
    return status ? status : read_colours(context, json, "image_std", config->std);
}

ith_status ith_vision_processor_read(ith_context *context, const char *folder, ith_vision_config *config)
{
    ith_json *json = NULL;
    ith_vision_config_usual(config);
    ith_status status = ith_json_read_in(context, folder, "preprocessor_config.json", &json);
    if (!status)
        status = read_processor(context, json, config);
    if (!status)
        status = ith_vision_config_check(context, ith_json_path(json), config);
    ith_json_close(&json);
    return status;
}
