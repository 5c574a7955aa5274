/* SPDX-License-Identifier: Apache-2.0 */
/* Writes safetensors files (tensor.h has the format). Tensors with larger elements come first, and the header is padded
 * with spaces to a multiple of eight bytes, so every tensor is aligned to its elements. */
#include "quote.h"
#include "tensor.h"

#include "../base/output_place.h"
#include "../base/replace_file.h"
#include "../base/size.h"
#include "../base/sized.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_ALIGNMENT 8               /* bytes of the largest element type */
#define PIECE_BYTES ((int64_t)4 << 20) /* bytes written between two checks for an interruption */

/* The caller's metadata: `count` keys and their values. */
typedef struct metadata {
    const char *const *keys, *const *values;
    int64_t count;
} metadata;

/* ---- The header ------------------------------------------------------------------------------------------------ */

/* Checks a tensor of the caller: its name, its type, and ith_tensor_check_bytes. */
static ith_status check_tensor(ith_context *context, const char *path, const ith_tensor *tensor)
{
    if (!tensor->name)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: a tensor has no name", path);
    ith_quoted name = ith_quote(tensor->name);
    if (!strcmp(tensor->name, ITH_TENSOR_METADATA_KEY))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: no tensor may have the name %s", path, name.text);
    if (!ith_tensor_type_name(tensor->dtype) && ith_dtype_bytes(tensor->dtype))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s: tensor '%s' is of type %s, which safetensors files do not have; ith_tensor_to_f32 makes "
                        "f32 of it",
                        path, name.text, ith_dtype_name(tensor->dtype));
    if (!ith_tensor_type_name(tensor->dtype))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: tensor '%s' has no element type", path, name.text);
    if (ith_tensor_check_bytes(context, tensor))
        return ith_fail_in(context, ITH_ERR_ARGUMENT, "%s", path);
    if (tensor->bytes && !tensor->data)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: the data of tensor '%s' is NULL", path, name.text);
    return ITH_OK;
}

/* Returns the member of the header for a tensor, {"dtype": ..., "shape": [...], "data_offsets": [begin, begin +
 * bytes]}; NULL if there is no memory. */
static json_t *describe(const ith_tensor *tensor, int64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        if (json_array_append_new(shape, json_integer(tensor->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ith_tensor_type_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + tensor->bytes));
}

/* Adds a member to a JSON object and takes ownership of value. The object may not have the name already. value NULL:
 * there was no memory for it. */
static ith_status add(ith_context *context, const char *path, json_t *object, const char *name, json_t *value)
{
    ith_status status = ITH_OK;
    if (!value)
        status = ith_fail(context, ITH_ERR_MEMORY, "%s: out of memory for the header", path);
    else if (json_object_get(object, name))
        status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: the name '%s' is there twice", path, ith_quote(name).text);
    else if (json_object_set(object, name, value))
        status =
            ith_fail(context, ITH_ERR_ARGUMENT, "%s: the name '%s' is not valid UTF-8", path, ith_quote(name).text);
    json_decref(value);
    return status;
}

/* Adds the metadata to the header as one member, {"__metadata__": {KEY: VALUE, ...}}. */
static ith_status add_metadata(ith_context *context, const char *path, json_t *root, const metadata *pairs)
{
    json_t *member = json_object();
    ith_status status = ITH_OK;
    for (int64_t i = 0; !status && i < pairs->count; i++) {
        json_t *value = json_string(pairs->values[i]);
        if (!value)
            status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: the value of '%s' in the metadata is not valid UTF-8",
                              path, ith_quote(pairs->keys[i]).text);
        else
            status = add(context, path, member, pairs->keys[i], value);
    }
    if (!status && pairs->count)
        status = add(context, path, root, ITH_TENSOR_METADATA_KEY, json_incref(member));
    json_decref(member);
    return status;
}

/* Writes the header's length, its JSON text and the padding to new memory *out, which the caller frees with
 * ith_free. */
static ith_status pack_header(ith_context *context, const char *path, const json_t *root, char **out, int64_t *bytes)
{
    char *text = json_dumps(root, JSON_COMPACT);
    if (!text)
        return ith_fail(context, ITH_ERR_MEMORY, "%s: out of memory for the header", path);
    ith_status status = ITH_OK;
    int64_t length = (int64_t)strlen(text), padded = ith_round_up(length, DATA_ALIGNMENT);
    *bytes = ITH_TENSOR_LENGTH_BYTES + padded;
    if (padded > ITH_TENSOR_HEADER_MOST_BYTES)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: the header would take %lld bytes, where %d is the most", path,
                          (long long)padded, ITH_TENSOR_HEADER_MOST_BYTES);
    else if (!(*out = ith_alloc(context, *bytes, 1, "a header")))
        status = ITH_ERR_MEMORY;
    if (!status) {
        char *header = *out + ITH_TENSOR_LENGTH_BYTES;
        for (int i = 0; i < ITH_TENSOR_LENGTH_BYTES; i++)
            (*out)[i] = (char)((uint64_t)padded >> 8 * i & 0xff);
        memcpy(header, text, (size_t)length);
        memset(header + length, ' ', (size_t)(padded - length));
    }
    free(text);
    return status;
}

/* Orders the tensors by the size of an element, largest first. Tensors with elements of one size keep their order. */
static void order_by_element(const ith_tensor *tensors, int64_t count, const ith_tensor **order)
{
    for (int64_t element_bytes = 8; element_bytes > 0; element_bytes /= 2)
        for (int64_t i = 0; i < count; i++)
            if (ith_dtype_bytes(tensors[i].dtype) == element_bytes)
                *order++ = &tensors[i];
}

/* Makes the header of the file, with its length in front, for tensors in the given order. */
static ith_status make_header(ith_context *context, const char *path, const ith_tensor *const *order, int64_t count,
                              const metadata *pairs, char **out, int64_t *bytes)
{
    json_t *root = json_object();
    int64_t begin = 0;
    ith_status status = add_metadata(context, path, root, pairs);
    for (int64_t i = 0; !status && i < count; i++) {
        status = add(context, path, root, order[i]->name, describe(order[i], begin));
        if (!status && !ith_size_add(begin, order[i]->bytes, &begin))
            status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: the tensors take more bytes than a size can hold", path);
    }
    if (!status)
        status = pack_header(context, path, root, out, bytes);
    json_decref(root);
    return status;
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

/* The contents of a file that is written. */
typedef struct contents {
    ith_context *context;
    const char *path;
    bool stoppable; /* an interruption of the context ends the writing */
    const char *header;
    int64_t header_bytes;
    const ith_tensor *const *order; /* the tensors in the order of their data */
    int64_t count;
} contents;

/* Sends the data written so far to the disk, so that the fsync at the end is short. The system reports a failure of
 * the disk once, so the fsync would not see a failure that is ignored here. */
static ith_status sync_piece(const contents *c, FILE *file)
{
    const int error = ith_output_sync(fileno(file), true);
    return error ? ith_fail(c->context, ITH_ERR_IO, "cannot write %s: %s", c->path, strerror(error)) : ITH_OK;
}

/* Writes the header and the data to a file (an ith_write_fn). Stops at the first error of fwrite, so that errno keeps
 * the reason. */
static ith_status write_contents(FILE *file, void *user)
{
    const contents *c = user;
    bool done = fwrite(c->header, 1, (size_t)c->header_bytes, file) == (size_t)c->header_bytes;
    ith_status status = ITH_OK;
    for (int64_t i = 0; done && !status && i < c->count; i++)
        for (int64_t from = 0; done && !status && from < c->order[i]->bytes; from += PIECE_BYTES) {
            size_t bytes = (size_t)ith_min64(PIECE_BYTES, c->order[i]->bytes - from);
            if (c->stoppable && ith_context_interrupted(c->context))
                return ith_fail_interrupted(c->context);
            done = fwrite((const char *)c->order[i]->data + from, 1, bytes, file) == bytes;
            if (done && c->stoppable)
                status = sync_piece(c, file);
        }
    return status;
}

/* Copies and checks the caller's tensors, whose struct may be older or newer than this library's (base/sized.h). */
static ith_status read_tensors(ith_context *context, const char *path, const ith_tensor *given, int64_t count,
                               ith_tensor *all)
{
    ith_status status = ith_sized_check_array(context, "ith_tensor", "ITH_TENSOR_INIT", given, count, sizeof *given);
    const char *at = (const char *)given;
    for (int64_t i = 0; !status && i < count; i++, at += given->struct_size) {
        all[i] = (ith_tensor)ITH_TENSOR_INIT;
        status = ITH_SIZED_READ(context, ith_tensor, ITH_TENSOR_INIT, at, &all[i]);
        if (!status)
            status = check_tensor(context, path, &all[i]);
    }
    return status;
}

/* Checks and orders the tensors, makes the header, and writes or replaces the file. stoppable: an interruption of the
 * context ends the writing. */
static ith_status write_file(ith_context *context, const char *path, const ith_tensor *tensors, int64_t tensor_count,
                             const metadata *pairs, bool stoppable)
{
    char *header = NULL;
    int64_t header_bytes = 0;
    ith_tensor *all = ith_alloc(context, tensor_count, sizeof *all, "a list of tensors");
    const ith_tensor **order = all ? ith_alloc(context, tensor_count, sizeof *order, "a list of tensors") : NULL;
    ith_status status = order ? read_tensors(context, path, tensors, tensor_count, all) : ITH_ERR_MEMORY;
    if (!status)
        order_by_element(all, tensor_count, order);
    if (!status)
        status = make_header(context, path, order, tensor_count, pairs, &header, &header_bytes);
    contents whole = {context, path, stoppable, header, header_bytes, order, tensor_count};
    if (!status)
        status = ith_replace_file(context, path, write_contents, &whole);
    ith_free(context, header);
    ith_free(context, order);
    ith_free(context, all);
    return status;
}

/* Checks the caller's metadata: no key and no value may be NULL. */
static ith_status check_pairs(ith_context *context, const char *path, const metadata *pairs)
{
    ith_status status = ITH_OK;
    if (pairs->count < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: pair_count is %lld, and must be 0 or more", path,
                        (long long)pairs->count);
    if (pairs->count)
        status = ith_need(context, pairs->keys, "keys");
    if (!status && pairs->count)
        status = ith_need(context, pairs->values, "values");
    for (int64_t i = 0; !status && i < pairs->count; i++)
        if (!pairs->keys[i] || !pairs->values[i])
            status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: %s[%lld] is NULL", path,
                              pairs->keys[i] ? "values" : "keys", (long long)i);
    return status;
}

ith_status ith_tensor_file_write(ith_context *context, const char *path, const ith_tensor *tensors,
                                 int64_t tensor_count, const char *const *keys, const char *const *values,
                                 int64_t pair_count)
{
    const metadata pairs = {keys, values, pair_count};
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, path, "path");
    if (!status && tensor_count < 0)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "%s: tensor_count is %lld, and must be 0 or more", path,
                          (long long)tensor_count);
    if (!status && tensor_count)
        status = ith_need(context, tensors, "tensors");
    if (!status)
        status = check_pairs(context, path, &pairs);
    return status ? status : write_file(context, path, tensors, tensor_count, &pairs, false);
}

ith_status ith_tensor_file_write_stoppable(ith_context *context, const char *path, const ith_tensor *tensors,
                                           int64_t tensor_count)
{
    return write_file(context, path, tensors, tensor_count, &(metadata){.count = 0}, true);
}
