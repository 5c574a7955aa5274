/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of safetensors files (tensor.h has the format). It trusts nothing in the header: type, shape and offsets
 * of each tensor must agree, and the tensors must cover the data without gap or overlap. */
#include "json_load.h"
#include "plain_header.h"
#include "quote.h"
#include "tensor_file_parts.h"

#include <string.h>

/* ---- The header's length and JSON ------------------------------------------------------------------------------ */

/* Reads the length of the header, and finds the header and the data in the mapped file. */
static ith_status find_header(ith_tensor_file *file, const char **header, int64_t *header_bytes)
{
    ith_context *context = file->context;
    unsigned char digits[ITH_TENSOR_LENGTH_BYTES];
    if (file->mapping.bytes < ITH_TENSOR_LENGTH_BYTES)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: %lld bytes are too few for a safetensors file: it is empty or cut", file->path,
                        (long long)file->mapping.bytes);
    ith_status status = ith_mapping_copy(context, file->path, digits, file->mapping.data, ITH_TENSOR_LENGTH_BYTES);
    if (status)
        return status;
    const uint64_t length = ith_little_endian(digits, ITH_TENSOR_LENGTH_BYTES);
    if (length > ITH_TENSOR_HEADER_MOST_BYTES)
        return ith_fail(
            context, ITH_ERR_FORMAT,
            "%s: claims a header of %llu bytes, where %d is the most: not a safetensors file, or a corrupt one",
            file->path, (unsigned long long)length, ITH_TENSOR_HEADER_MOST_BYTES);
    if ((int64_t)length > file->mapping.bytes - ITH_TENSOR_LENGTH_BYTES)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: claims a header of %llu bytes but holds only %lld: the file is cut", file->path,
                        (unsigned long long)length, (long long)(file->mapping.bytes - ITH_TENSOR_LENGTH_BYTES));
    *header = (const char *)file->mapping.data + ITH_TENSOR_LENGTH_BYTES;
    *header_bytes = (int64_t)length;
    file->data = *header + length;
    file->data_bytes = file->mapping.bytes - ITH_TENSOR_LENGTH_BYTES - (int64_t)length;
    return ITH_OK;
}

/* Copies the header from the mapped file, so that the parser, which allocates memory, reads nothing that can be lost.
 */
static ith_status copy_header(ith_tensor_file *file, char **copy, int64_t *bytes)
{
    const char *header = NULL;
    ith_status status = find_header(file, &header, bytes);
    if (!status && !(*copy = ith_alloc(file->context, *bytes, 1, "the header of a tensor file")))
        status = ITH_ERR_MEMORY;
    return status ? status : ith_mapping_copy(file->context, file->path, *copy, header, *bytes);
}

/* Parses the JSON of the header; the top value must be an object. */
static ith_status parse_header(ith_tensor_file *file, const char *header, int64_t header_bytes, json_t **root)
{
    if (header_bytes < 2 || header[0] != '{')
        return ith_fail(file->context, ITH_ERR_FORMAT, "%s: the header is not a JSON object: not a safetensors file",
                        file->path);
    json_error_t error;
    if (!ith_json_has_few_values(header, header_bytes))
        return ith_fail(file->context, ITH_ERR_FORMAT,
                        "%s: the header has more than %d JSON values, which no file of a model needs", file->path,
                        ITH_JSON_MOST_VALUES);
    *root = ith_json_tree(header, header_bytes, &error);
    if (*root)
        return ITH_OK;
    if (ith_json_lacks_memory(&error))
        return ith_fail(file->context, ITH_ERR_MEMORY, "%s: out of memory for the header", file->path);
    return ith_fail(file->context, ITH_ERR_FORMAT, "%s: the header, at byte %d, is not valid JSON: %s", file->path,
                    error.position, ith_quote(error.text).text);
}

/* ---- One tensor ------------------------------------------------------------------------------------------------ */

/* Reads the element type of a tensor from its member of the header. */
static ith_status read_type(ith_context *context, const json_t *json, ith_dtype *out)
{
    const char *name = json_string_value(json_object_get(json, "dtype"));
    if (!name)
        return ith_fail(context, ITH_ERR_FORMAT, "has no dtype");
    *out = ith_tensor_type_parse(name);
    if (*out == ITH_DTYPE_NONE)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "has the unknown dtype '%s'; F32, BF16, F16, F64, F8_E4M3, F8_E5M2, BOOL, U8, I8, I16, I32 and "
                        "I64 are known",
                        ith_quote(name).text);
    return ITH_OK;
}

/* Reads the shape of a tensor: at most ITH_MAX_DIMS sizes, none of them negative. */
static ith_status read_shape(ith_context *context, const json_t *json, int *dims, int64_t *shape)
{
    const json_t *array = json_object_get(json, "shape");
    if (!json_is_array(array))
        return ith_fail(context, ITH_ERR_FORMAT, "has no array as its shape");
    size_t count = json_array_size(array);
    if (count > ITH_MAX_DIMS)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "has a shape of %zu sizes; %d is the most", count, ITH_MAX_DIMS);
    *dims = (int)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *size = json_array_get(array, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return ith_fail(context, ITH_ERR_FORMAT, "has a shape whose size %zu is not a number of elements", i);
        shape[i] = json_integer_value(size);
    }
    return ITH_OK;
}

/* Reads where the data of a tensor begin and end, and checks that they lie in the file. */
static ith_status read_offsets(ith_context *context, const json_t *json, int64_t data_bytes, int64_t *begin,
                               int64_t *end)
{
    const json_t *array = json_object_get(json, "data_offsets");
    const json_t *first = json_array_get(array, 0), *second = json_array_get(array, 1);
    if (json_array_size(array) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return ith_fail(context, ITH_ERR_FORMAT, "has no pair of integers as its data_offsets");
    *begin = json_integer_value(first);
    *end = json_integer_value(second);
    if (*begin < 0 || *end < *begin)
        return ith_fail(context, ITH_ERR_FORMAT, "has data_offsets [%lld, %lld], which are negative or turned round",
                        (long long)*begin, (long long)*end);
    if (*end > data_bytes)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "ends at byte %lld of the data, of which the file holds %lld: it is cut", (long long)*end,
                        (long long)data_bytes);
    return ITH_OK;
}

/* Reads the member of the header for one tensor, {"dtype", "shape", "data_offsets"}, and checks that the three
 * agree. */
static ith_status read_tensor(ith_tensor_file *file, const json_t *json, ith_tensor *out)
{
    ith_context *context = file->context;
    int64_t begin = 0, end = 0;
    if (!json_is_object(json))
        return ith_fail(context, ITH_ERR_FORMAT, "is not described by a JSON object");
    ith_status status = read_type(context, json, &out->dtype);
    if (!status)
        status = read_shape(context, json, &out->dims, out->shape);
    if (!status)
        status = read_offsets(context, json, file->data_bytes, &begin, &end);
    if (status)
        return status;
    if (!ith_tensor_bytes(out->dtype, out->dims, out->shape, &out->bytes))
        return ith_fail(context, ITH_ERR_FORMAT, "has the shape %s, which is more than a size can hold",
                        ith_shape_print(out->dims, out->shape).text);
    if (out->bytes != end - begin)
        return ith_fail(context, ITH_ERR_FORMAT, "has data_offsets [%lld, %lld], but %s of %s take %lld bytes",
                        (long long)begin, (long long)end, ith_shape_print(out->dims, out->shape).text,
                        ith_tensor_type_name(out->dtype), (long long)out->bytes);
    out->data = file->data + begin;
    return ITH_OK;
}

/* ---- All of them ----------------------------------------------------------------------------------------------- */

/* Checks that the tensors cover the data, and orders the lists. */
static ith_status check_order(ith_tensor_file *file)
{
    ith_tensor_file_sort(file, ith_tensor_by_place);
    ith_status status = ith_tensor_file_check_cover(file, 1);
    ith_tensor_file_order(file);
    return status;
}

/* Copies a string to *end, the next free byte of file->text, moves *end behind it, and returns the copy. */
static const char *keep(char **end, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = memcpy(*end, text, bytes);
    *end += bytes;
    return copy;
}

/* Checks that all metadata are strings, and adds the bytes of their keys and values to *text_bytes. */
static ith_status check_metadata(const ith_tensor_file *file, json_t *metadata, int64_t *text_bytes)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (metadata && !json_is_object(metadata))
        return ith_fail(file->context, ITH_ERR_FORMAT, "%s: %s is not a JSON object", file->path,
                        ITH_TENSOR_METADATA_KEY);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: the value of '%s' in %s is not a string", file->path,
                            ith_quote(key).text, ITH_TENSOR_METADATA_KEY);
        *text_bytes += (int64_t)(strlen(key) + strlen(json_string_value(value)) + 2);
    }
    return ITH_OK;
}

/* Allocates the lists of tensors and of metadata, and memory for all their strings. root: the parsed header. */
static ith_status allocate(ith_tensor_file *file, json_t *root)
{
    const char *name = NULL;
    json_t *value = NULL, *metadata = json_object_get(root, ITH_TENSOR_METADATA_KEY);
    int64_t text_bytes = 0;
    ith_status status = check_metadata(file, metadata, &text_bytes);
    if (status)
        return status;
    json_object_foreach(root, name, value)
    {
        text_bytes += (int64_t)strlen(name) + 1;
    }
    int64_t count = (int64_t)json_object_size(root) - (metadata ? 1 : 0);
    file->tensors = ith_alloc_zero(file->context, count, sizeof *file->tensors, "a list of tensors");
    file->pairs = ith_alloc_zero(file->context, (int64_t)json_object_size(metadata), sizeof *file->pairs, "metadata");
    file->text = ith_alloc(file->context, text_bytes, 1, "names of tensors");
    return file->tensors && file->pairs && file->text ? ITH_OK : ITH_ERR_MEMORY;
}

/* Copies tensors and metadata from the parsed header into the lists. */
static ith_status read_contents(ith_tensor_file *file, json_t *root)
{
    const char *name = NULL;
    json_t *value = NULL, *metadata = json_object_get(root, ITH_TENSOR_METADATA_KEY);
    char *end = file->text;
    json_object_foreach(metadata, name, value)
    {
        ith_metadata_pair *pair = &file->pairs[file->pair_count++];
        pair->key = keep(&end, name);
        pair->value = keep(&end, json_string_value(value));
    }
    json_object_foreach(root, name, value)
    {
        if (value == metadata)
            continue;
        ith_tensor *tensor = &file->tensors[file->count++];
        tensor->struct_size = sizeof *tensor;
        tensor->name = keep(&end, name);
        ith_status status = read_tensor(file, value, tensor);
        if (status)
            return ith_fail_in(file->context, status, "%s: tensor '%s'", file->path, ith_quote(name).text);
    }
    return check_order(file);
}

/* Reads a header with the parser of all JSON. */
static ith_status read_json(ith_tensor_file *file, const char *header, int64_t header_bytes)
{
    json_t *root = NULL;
    ith_status status = parse_header(file, header, header_bytes, &root);
    if (!status)
        status = allocate(file, root);
    if (!status)
        status = read_contents(file, root);
    json_decref(root);
    return status;
}

/* Whether a name or a key occurs twice. The lists are ordered. */
static bool has_duplicates(const ith_tensor_file *file)
{
    for (int64_t i = 1; i < file->count; i++)
        if (!strcmp(file->tensors[i - 1].name, file->tensors[i].name))
            return true;
    for (int64_t i = 1; i < file->pair_count; i++)
        if (!strcmp(file->pairs[i - 1].key, file->pairs[i].key))
            return true;
    return false;
}

static void drop_lists(ith_tensor_file *file)
{
    ith_free(file->context, file->tensors);
    ith_free(file->context, file->pairs);
    ith_free(file->context, file->text);
    file->tensors = NULL, file->pairs = NULL, file->text = NULL;
    file->count = file->pair_count = 0;
}

/* The parser of all JSON reads a header that is not plain, and reports the mistake in a plain header. */
ith_status ith_safetensors_read(ith_tensor_file *file)
{
    char *header = NULL;
    int64_t header_bytes = 0;
    bool plain = false;
    ith_status status = copy_header(file, &header, &header_bytes);
    if (!status)
        status = ith_plain_header_read(file, header, header_bytes, &plain);
    if (!status && (!plain || check_order(file) || has_duplicates(file))) {
        drop_lists(file);
        status = read_json(file, header, header_bytes);
    }
    ith_free(file->context, header);
    return status;
}
