/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the scales of weights that are stored as fp8 or int8, w = scale * q, in the forms of ComfyUI and LightX2V:
 *
 *     MODULE.scale_weight or MODULE.weight_scale   one factor ([] or [1]), or one for each row ([rows] or [rows, 1])
 *     MODULE.scale_input, MODULE.input_scale       scales of activations, which are not used
 *     scaled_fp8                                   says that all fp8 matrices have scales
 *     MODULE.comfy_quant                           JSON {"format": ...} in bytes
 *     "_quantization_metadata"                     metadata: JSON {"layers": {MODULE: {"format": ...}}}
 *
 * fp8 numbers mean nothing without their scales. So an fp8 matrix without scales is an error if the file announces
 * scales. */
#include "../base/count.h"
#include "../base/dtype.h"
#include "../kernels/unpack.h"
#include "json_load.h"
#include "mapping.h"
#include "quote.h"
#include "store_parts.h"
#include "suffix.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

#define QUANTISATION_KEY "_quantization_metadata"
#define MOST_FORMAT_BYTES 65536 /* the most bytes of a MODULE.comfy_quant */

/* The formats, the type of their numbers, and another type under which a file may store them. */
static const struct {
    const char *name;
    ith_dtype type, other;
} formats[] = {
    {"float8_e4m3fn", ITH_F8_E4M3, ITH_U8}, {"float8_e5m2", ITH_F8_E5M2, ITH_U8}, {"int8_tensorwise", ITH_I8, ITH_I8}};

/* Whether a name ends with `end`. *module becomes the length of the part before it, or 0. */
static bool ends(const char *name, const char *end, size_t *module)
{
    const char *at = ith_suffix(name, end);
    *module = at ? (size_t)(at - name) : 0;
    return at;
}

/* The weight of the module whose name is the first `length` bytes of `name`; NULL if there is none. */
static ith_store_entry *weight_of(const ith_store *store, const char *name, size_t length)
{
    char weight[ITH_STORE_NAME_BYTES];
    if (length + sizeof ".weight" > sizeof weight)
        return NULL;
    memcpy(weight, name, length);
    strcpy(weight + length, ".weight");
    return ith_store_find(store, weight);
}

/* ---- Formats --------------------------------------------------------------------------------------------------- */

/* Whether a format says that the weights are rotated: in "convrot", or else in the parameters. */
static bool is_rotated(const json_t *json)
{
    const json_t *own = json_object_get(json, "convrot");
    const json_t *rotated = own ? own : json_object_get(json_object_get(json, "params"), "convrot");
    return rotated && !json_is_false(rotated) && !json_is_null(rotated);
}

/* Checks the format of a weight, a JSON object, and sets the type of the weight. */
static ith_status set_format(ith_store *store, ith_store_entry *weight, const json_t *json)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    int i = 0;
    while (format && i < ITH_COUNT(formats) && strcmp(format, formats[i].name))
        i++;
    if (!format || i == ITH_COUNT(formats) || is_rotated(json))
        return ith_fail(store->context, ITH_ERR_UNSUPPORTED,
                        "%s: tensor '%s' has the quantisation '%s'%s; float8_e4m3fn, float8_e5m2 and int8_tensorwise "
                        "without rotation can be used",
                        ith_store_path_of(store, weight), ith_quote(weight->origin->name).text, ith_quote(format).text,
                        format && i < ITH_COUNT(formats) ? " and is rotated (convrot)" : "");
    if (weight->tensor.dtype != formats[i].type && weight->tensor.dtype != formats[i].other)
        return ith_fail(store->context, ITH_ERR_FORMAT, "%s: tensor '%s' has the quantisation '%s', but the type %s",
                        ith_store_path_of(store, weight), ith_quote(weight->origin->name).text, format,
                        ith_dtype_name(weight->tensor.dtype));
    weight->tensor.dtype = formats[i].type, weight->needs_scale = true;
    return ITH_OK;
}

/* Reports that `what` in a file is not a JSON object. error: the parser's reason; NULL: there is another kind of value,
 * or no text. */
static ith_status fail_json(const ith_store *store, const char *path, const char *what, const json_error_t *error)
{
    if (error && ith_json_lacks_memory(error))
        return ith_fail(store->context, ITH_ERR_MEMORY, "%s: out of memory for '%s'", path, ith_quote(what).text);
    return ith_fail(store->context, ITH_ERR_FORMAT, "%s: '%s' is not a JSON object as ComfyUI writes it", path,
                    ith_quote(what).text);
}

/* Reads MODULE.comfy_quant. */
static ith_status read_format(ith_store *store, const ith_store_entry *entry, ith_store_entry *weight)
{
    const ith_tensor *tensor = &entry->tensor;
    if (tensor->dtype != ITH_U8 || tensor->bytes > MOST_FORMAT_BYTES)
        return fail_json(store, ith_store_path_of(store, entry), entry->origin->name, NULL);
    json_error_t error;
    char *text = ith_alloc(store->context, tensor->bytes + 1, 1, "a format");
    if (!text)
        return ITH_ERR_MEMORY;
    ith_status status =
        ith_mapping_copy(store->context, ith_store_path_of(store, entry), text, tensor->data, tensor->bytes);
    json_t *json = status ? NULL : ith_json_tree(text, tensor->bytes, &error);
    if (!status)
        status = json_is_object(json)
                     ? set_format(store, weight, json)
                     : fail_json(store, ith_store_path_of(store, entry), entry->origin->name, json ? NULL : &error);
    json_decref(json);
    ith_free(store->context, text);
    return status;
}

/* Returns the format of a weight among the layers in the metadata of its file. The name of its layer is the name of its
 * module, perhaps without a prefix. NULL: it has none. */
static const json_t *format_of(const json_t *layers, const ith_store_entry *entry)
{
    size_t module;
    char name[ITH_STORE_NAME_BYTES];
    const json_t *format = NULL;
    if (!ends(entry->origin->name, ".weight", &module) || module >= sizeof name)
        return NULL;
    memcpy(name, entry->origin->name, module);
    name[module] = '\0';
    for (const char *at = name, *dot; at && !format; at = (dot = strchr(at, '.')) ? dot + 1 : NULL)
        format = json_object_get(layers, at);
    return format;
}

/* Refuses layers in the metadata that are rotated, even if no tensor has the name. */
static ith_status check_layers(const ith_store *store, const char *path, json_t *layers)
{
    const char *name;
    json_t *format;
    json_object_foreach(layers, name, format)
    {
        if (is_rotated(format))
            return ith_fail(store->context, ITH_ERR_UNSUPPORTED,
                            "%s: layer '%s' is rotated (convrot); weights without rotation can be used", path,
                            ith_quote(name).text);
    }
    return ITH_OK;
}

/* Reads the formats in the metadata of a file. */
static ith_status read_metadata(ith_store *store, int64_t shard)
{
    const char *path = store->shards[shard].path;
    const char *text = ith_tensor_file_metadata(store->shards[shard].file, QUANTISATION_KEY);
    json_t *json = NULL;
    if (!text)
        return ITH_OK;
    char *where = ith_format(store->context, "%s: " QUANTISATION_KEY, path);
    ith_status status =
        where ? ith_json_load(store->context, where, text, (int64_t)strlen(text), &json) : ITH_ERR_MEMORY;
    ith_free(store->context, where);
    json_t *layers = json_object_get(json, "layers");
    if (!status && !json_is_object(layers))
        status = fail_json(store, path, QUANTISATION_KEY, NULL);
    if (!status)
        status = check_layers(store, path, layers);
    for (int64_t i = 0; i < store->entry_count && !status; i++) {
        ith_store_entry *entry = &store->entries[i];
        const json_t *format = entry->shard == shard ? format_of(layers, entry) : NULL;
        if (format)
            status = set_format(store, entry, format);
    }
    json_decref(json);
    return status;
}

/* ---- Scales ---------------------------------------------------------------------------------------------------- */

/* Checks the shape of the scales of a weight, and records them. */
static ith_status set_scale(ith_store *store, ith_store_entry *weight, const ith_store_entry *scale)
{
    const ith_tensor *s = &scale->tensor, *w = &weight->tensor;
    const int64_t count = ith_tensor_elements(s), rows = w->dims ? w->shape[0] : 1;
    const bool is_row = s->dims >= 1 && s->dims <= 2 && s->shape[0] == rows && count == rows;
    if (weight->scale)
        return ith_fail(store->context, ITH_ERR_FORMAT, "%s: tensor '%s' has two kinds of scales",
                        ith_store_path_of(store, weight), ith_quote(weight->origin->name).text);
    if (!ith_dtype_is_operand(s->dtype) || (count != 1 && !is_row))
        return ith_fail(store->context, ITH_ERR_FORMAT,
                        "%s: tensor '%s' of type %s and shape %s does not hold scales of %lld rows",
                        ith_store_path_of(store, scale), ith_quote(scale->origin->name).text, ith_dtype_name(s->dtype),
                        ith_shape_print(s->dims, s->shape).text, (long long)rows);
    weight->scale = s;
    return ITH_OK;
}

/* Takes an entry if it describes the quantisation of a weight. *announced becomes true if the entry says that the file
 * has scales. */
static ith_status take_entry(ith_store *store, ith_store_entry *entry, bool *announced)
{
    const char *name = entry->tensor.name;
    size_t module = 0;
    if (!strcmp(name, "scaled_fp8") || ends(name, ".scaled_fp8", &module))
        entry->taken = *announced = true;
    if (ends(name, ".scale_input", &module) || ends(name, ".input_scale", &module))
        entry->taken = true;
    const bool is_format = ends(name, ".comfy_quant", &module);
    if (!is_format && !ends(name, ".scale_weight", &module) && !ends(name, ".weight_scale", &module))
        return ITH_OK;
    ith_store_entry *weight = weight_of(store, name, module);
    if (!weight)
        return ITH_OK;
    entry->taken = *announced = true;
    return is_format ? read_format(store, entry, weight) : set_scale(store, weight, entry);
}

/* Checks that a weight has scales where it needs them, and only there. */
static ith_status check_weight(const ith_store *store, const ith_store_entry *entry, bool announced)
{
    const ith_dtype type = entry->tensor.dtype;
    const bool is_byte = ith_unpack_has(type) && ith_dtype_run(type) == 1;
    const char *path = ith_store_path_of(store, entry);
    size_t module;
    if (entry->scale && !is_byte)
        return ith_fail(store->context, ITH_ERR_FORMAT,
                        "%s: tensor '%s' has scales, but is of type %s, not fp8 or int8", path,
                        ith_quote(entry->origin->name).text, ith_dtype_name(type));
    if (!is_byte || entry->scale || !ends(entry->tensor.name, ".weight", &module))
        return ITH_OK;
    if (entry->needs_scale || type == ITH_I8 || (announced && entry->tensor.dims == 2))
        return ith_fail(store->context, ITH_ERR_FORMAT,
                        "%s: tensor '%s' is of type %s and lacks its scales (scale_weight or weight_scale), without "
                        "which its numbers mean nothing",
                        path, ith_quote(entry->origin->name).text, ith_dtype_name(type));
    return ITH_OK;
}

ith_status ith_store_find_scales(ith_store *store)
{
    bool announced = false;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < store->shard_count && !status; i++)
        status = read_metadata(store, i);
    for (int64_t i = 0; i < store->entry_count && !status; i++)
        status = take_entry(store, &store->entries[i], &announced);
    for (int64_t i = 0; i < store->entry_count && !status; i++)
        status = check_weight(store, &store->entries[i], announced);
    return status;
}

ith_status ith_store_scale(ith_context *context, const ith_store *store, const ith_tensor *tensor, const float **scale,
                           int64_t *stride)
{
    ith_store_entry *entry = store->random ? NULL : ith_store_find(store, tensor->name);
    *scale = NULL, *stride = 0;
    if (!entry || !entry->scale)
        return ITH_OK;
    const int64_t count = ith_tensor_elements(entry->scale);
    if (!entry->factors) {
        float *factors = ith_alloc(context, count, sizeof *factors, "scales of weights");
        if (!factors)
            return ITH_ERR_MEMORY;
        ith_status status =
            ith_tensor_part_to_f32(context, ith_store_path_of(store, entry), entry->scale, 0, count, factors);
        for (int64_t i = 0; i < count && !status; i++)
            if (!isfinite(factors[i]))
                status = ith_fail(context, ITH_ERR_FORMAT, "%s: a scale of tensor '%s' is not finite",
                                  ith_store_path_of(store, entry), ith_quote(entry->origin->name).text);
        if (status) {
            ith_free(context, factors);
            return status;
        }
        entry->factors = factors;
    }
    *scale = entry->factors, *stride = count > 1;
    return ITH_OK;
}
