/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of GGUF files (gguf.h). It trusts nothing in the file. All numbers are little-endian:
 *
 *     "GGUF", u32 version, u64 number of tensors, u64 number of pairs
 *     each pair: string key, u32 type, value
 *     each tensor: string name, u32 number of sizes, u64 sizes (contiguous elements first), u32 kind, u64 offset
 *     data, from the next multiple of the alignment on; offsets count from there
 *
 * A string is a u64 length and its bytes. The reader passes over the header twice: the first pass finds the memory that
 * the strings take, the second fills in the lists. It copies the header from the mapped file through a window, because
 * another process may cut the file meanwhile. */
#include "gguf.h"

#include "../base/plain_text.h"
#include "../base/size.h"
#include "quote.h"
#include "tensor_file_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 3
#define MOST_ENTRIES (1 << 20) /* the most tensors, and the most pairs */
#define MOST_ALIGNMENT (1 << 20)
#define NUMBER_BYTES 32 /* room for a number as text */
#define ALIGNMENT_KEY "general.alignment"
#define SHAPE_KEY "comfy.gguf.orig_shape." /* before the name of a tensor: its shape before a converter changed it */

/* The kinds of tensors, by their numbers in the format. */
static const ith_dtype kinds[] = {[0] = ITH_F32,   [1] = ITH_F16,   [2] = ITH_Q4_0,    [3] = ITH_Q4_1,  [6] = ITH_Q5_0,
                                  [7] = ITH_Q5_1,  [8] = ITH_Q8_0,  [10] = ITH_Q2_K,   [11] = ITH_Q3_K, [12] = ITH_Q4_K,
                                  [13] = ITH_Q5_K, [14] = ITH_Q6_K, [20] = ITH_IQ4_NL, [24] = ITH_I8,   [25] = ITH_I16,
                                  [26] = ITH_I32,  [27] = ITH_I64,  [28] = ITH_F64,    [30] = ITH_BF16};

/* The names of kinds that are not read, by their numbers. */
static const char *const unread_kinds[] = {
    [9] = "Q8_1",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [29] = "IQ1_M",
    [34] = "TQ1_0", [35] = "TQ2_0", [39] = "MXFP4",   [40] = "NVFP4",  [41] = "Q1_0"};
#define KNOWN_KINDS "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K and IQ4_NL are known"

/* The bytes of a number of the metadata; 0 for strings, arrays and unknown types. */
static int64_t number_bytes(uint32_t type)
{
    static const int8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* ---- The window ------------------------------------------------------------------------------------------------ */

/* A pass over the header, and its position. */
typedef struct reader {
    ith_tensor_file *file;
    int64_t at;                     /* offset of the next byte in the file */
    int64_t begin, filled;          /* the window holds bytes [begin, begin + filled) of the file */
    bool fills;                     /* the second pass, which fills in the lists */
    int64_t text_bytes;             /* bytes of all strings that the lists need, which the first pass counts */
    int64_t text_end;               /* bytes of the strings that the second pass has kept so far */
    int64_t alignment;              /* of the data of tensors */
    int64_t tensors, pairs, arrays; /* entries for which the lists have room, in the second pass */
    uint32_t aligned_by;            /* the type of the alignment in the metadata; ITH_GGUF_U32 if they have none */
    bool describes;                 /* the description of a tensor is read, and fail_tensor names the file */
    char window[1 << 16];
} reader;

static ith_status fail(const reader *r, const char *what)
{
    return ith_fail(r->file->context, ITH_ERR_FORMAT, "%s%sat byte %lld of the header: %s",
                    r->describes ? "" : r->file->path, r->describes ? "" : ": ", (long long)r->at, what);
}

/* Fails because the second pass has found more than the first pass. */
static ith_status fail_changed(const reader *r)
{
    return ith_fail(r->file->context, ITH_ERR_IO, "%s changed while it was read", r->file->path);
}

/* Checks that `bytes` more bytes of the header are there. */
static ith_status need(const reader *r, uint64_t bytes)
{
    if (bytes > (uint64_t)(r->file->mapping.bytes - r->at))
        return fail(r, "the file ends there, in the middle of its header: it is cut");
    if (bytes > (uint64_t)(ITH_TENSOR_HEADER_MOST_BYTES - r->at))
        return fail(r, "the header has more than 100000000 bytes");
    return ITH_OK;
}

/* Copies the next bytes of the header to `to`. */
static ith_status take(reader *r, void *to, int64_t bytes)
{
    ith_status status = need(r, (uint64_t)bytes);
    for (int64_t done = 0; done < bytes && !status;) {
        if (r->at < r->begin || r->at >= r->begin + r->filled) {
            r->begin = r->at, r->filled = ith_min64(sizeof r->window, r->file->mapping.bytes - r->at);
            status =
                ith_mapping_copy(r->file->context, r->file->path, r->window, r->file->mapping.data + r->at, r->filled);
            if (status)
                return status;
        }
        const int64_t some = ith_min64(bytes - done, r->begin + r->filled - r->at);
        memcpy((char *)to + done, r->window + (r->at - r->begin), (size_t)some);
        done += some, r->at += some;
    }
    return status;
}

/* Reads a little-endian number of 1 to 8 bytes. */
static ith_status take_number(reader *r, int64_t bytes, uint64_t *number)
{
    unsigned char digits[8] = {0};
    ith_status status = take(r, digits, bytes);
    *number = status ? 0 : ith_little_endian(digits, bytes);
    return status;
}

static ith_status take_u32(reader *r, uint32_t *number)
{
    uint64_t wide = 0;
    ith_status status = take_number(r, 4, &wide);
    *number = (uint32_t)wide;
    return status;
}

static ith_status skip(reader *r, uint64_t bytes)
{
    ith_status status = need(r, bytes);
    r->at += status ? 0 : (int64_t)bytes;
    return status;
}

/* ---- Strings --------------------------------------------------------------------------------------------------- */

/* Takes memory for a string of `bytes` bytes. The first pass only counts it, and returns NULL in *text. */
static ith_status take_text(reader *r, int64_t bytes, char **text)
{
    *text = NULL;
    if (!r->fills) {
        r->text_bytes += bytes + 1;
        return ITH_OK;
    }
    if (bytes + 1 > r->text_bytes - r->text_end)
        return fail_changed(r);
    *text = r->file->text + r->text_end;
    (*text)[bytes] = '\0';
    r->text_end += bytes + 1;
    return ITH_OK;
}

/* Reads a string. The first pass skips it, and returns NULL in *string. */
static ith_status take_string(reader *r, const char **string)
{
    uint64_t bytes = 0;
    char *text = NULL;
    *string = NULL;
    ith_status status = take_number(r, 8, &bytes);
    if (!status)
        status = need(r, bytes);
    if (!status)
        status = take_text(r, (int64_t)bytes, &text);
    if (status || !text)
        return status ? status : skip(r, bytes);
    status = take(r, text, (int64_t)bytes);
    if (!status && memchr(text, '\0', (size_t)bytes))
        status = fail(r, "a string before it has a zero byte");
    *string = text;
    return status;
}

/* ---- Metadata -------------------------------------------------------------------------------------------------- */

/* Writes a number of the metadata as text. */
static void print_number(uint32_t type, uint64_t bits, char text[NUMBER_BYTES])
{
    const int64_t unused = 64 - 8 * number_bytes(type);
    float f32;
    double f64;
    switch (type) {
    case ITH_GGUF_I8:
    case ITH_GGUF_I16:
    case ITH_GGUF_I32:
    case ITH_GGUF_I64: snprintf(text, NUMBER_BYTES, "%" PRId64, (int64_t)(bits << unused) >> unused); break;
    case ITH_GGUF_F32:
        memcpy(&f32, &(uint32_t){(uint32_t)bits}, sizeof f32);
        ith_number_print((double)f32, 9, text, NUMBER_BYTES);
        break;
    case ITH_GGUF_F64:
        memcpy(&f64, &bits, sizeof f64);
        ith_number_print(f64, 17, text, NUMBER_BYTES);
        break;
    case ITH_GGUF_BOOL: snprintf(text, NUMBER_BYTES, "%s", bits ? "true" : "false"); break;
    default: snprintf(text, NUMBER_BYTES, "%" PRIu64, bits); break;
    }
}

/* Reads a number or a boolean as text. */
static ith_status take_number_text(reader *r, uint32_t type, const char **value)
{
    uint64_t bits = 0;
    char *text = NULL;
    ith_status status = take_number(r, number_bytes(type), &bits);
    if (!status && type == ITH_GGUF_BOOL && bits > 1)
        status = fail(r, "a boolean before it is neither 0 nor 1");
    if (!status)
        status = take_text(r, NUMBER_BYTES - 1, &text);
    if (text)
        print_number(type, bits, text);
    *value = text;
    return status;
}

/* Skips the items of an array, and records their place in the file. */
static ith_status take_array(reader *r, const char *key)
{
    ith_metadata_array array = {.key = key};
    uint64_t count = 0, bytes = 0;
    ith_status status = take_u32(r, &array.type);
    if (!status)
        status = take_number(r, 8, &count);
    if (status)
        return status;
    const int64_t item = number_bytes(array.type);
    if (!item && array.type != ITH_GGUF_STRING)
        return fail(r, array.type == ITH_GGUF_ARRAY ? "an array of arrays" : "an array of an unknown type");
    if (count > ITH_TENSOR_HEADER_MOST_BYTES)
        return fail(r, "an array with more items than the header has bytes");
    array.begin = r->at, array.count = (int64_t)count;
    if (item)
        status = skip(r, count * (uint64_t)item);
    for (uint64_t i = 0; !item && i < count && !status; i++)
        if (!(status = take_number(r, 8, &bytes)))
            status = skip(r, bytes);
    array.bytes = r->at - array.begin;
    if (r->fills && r->file->array_count == r->arrays && !status)
        return fail_changed(r);
    if (r->fills && !status)
        r->file->arrays[r->file->array_count] = array;
    r->file->array_count += !status;
    return status;
}

static ith_status take_pair(reader *r)
{
    ith_metadata_pair pair = {NULL, NULL};
    uint32_t type = 0;
    ith_status status = take_string(r, &pair.key);
    if (!status)
        status = take_u32(r, &type);
    if (status)
        return status;
    if (r->fills && !strcmp(pair.key, ALIGNMENT_KEY))
        r->aligned_by = type;
    if (type == ITH_GGUF_ARRAY)
        return take_array(r, pair.key);
    if (type != ITH_GGUF_STRING && !number_bytes(type))
        return fail(r, "a value of an unknown type before it");
    status = type == ITH_GGUF_STRING ? take_string(r, &pair.value) : take_number_text(r, type, &pair.value);
    if (r->fills && r->file->pair_count == r->pairs && !status)
        return fail_changed(r);
    if (r->fills && !status)
        r->file->pairs[r->file->pair_count] = pair;
    r->file->pair_count += !status;
    return status;
}

/* Sets the alignment of the data from the metadata. */
static ith_status find_alignment(reader *r)
{
    const char *text = ith_tensor_file_metadata(r->file, ALIGNMENT_KEY);
    const long long number = text ? strtoll(text, NULL, 10) : 32;
    if (number < 1 || number > MOST_ALIGNMENT || (number & (number - 1)) || r->aligned_by != ITH_GGUF_U32)
        return ith_fail(r->file->context, ITH_ERR_FORMAT,
                        "%s: " ALIGNMENT_KEY " is %s; it must be a power of two up to %d, of type u32", r->file->path,
                        text ? ith_quote(text).text : "an array", MOST_ALIGNMENT);
    r->alignment = number;
    return ITH_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* Reads the sizes of a tensor into its shape, the last size first. */
static ith_status take_shape(reader *r, ith_tensor *tensor)
{
    uint32_t dims = 0;
    ith_status status = take_u32(r, &dims);
    if (!status && (dims < 1 || dims > ITH_MAX_DIMS))
        return ith_fail(r->file->context, ITH_ERR_UNSUPPORTED, "has %u sizes; 1 to %d are possible", dims,
                        ITH_MAX_DIMS);
    tensor->dims = (int)dims;
    for (int i = tensor->dims - 1; i >= 0 && !status; i--) {
        uint64_t size = 0;
        status = take_number(r, 8, &size);
        if (!status && size > INT64_MAX)
            status = ith_fail(r->file->context, ITH_ERR_FORMAT, "has a size of %" PRIu64, size);
        tensor->shape[i] = (int64_t)size;
    }
    return status;
}

static ith_status take_kind(reader *r, ith_dtype *type)
{
    uint32_t kind = 0;
    ith_status status = take_u32(r, &kind);
    *type = kind < sizeof kinds / sizeof *kinds ? kinds[kind] : ITH_DTYPE_NONE;
    if (status || *type != ITH_DTYPE_NONE)
        return status;
    const char *name = kind < sizeof unread_kinds / sizeof *unread_kinds ? unread_kinds[kind] : NULL;
    if (name)
        return ith_fail(r->file->context, ITH_ERR_UNSUPPORTED, "is of the kind %s, which is not read; " KNOWN_KINDS,
                        name);
    return ith_fail(r->file->context, ITH_ERR_UNSUPPORTED, "is of the unknown kind %u; " KNOWN_KINDS, kind);
}

/* Reads the description of a tensor after its name: its shape, its type and *offset, where its data begin. */
static ith_status take_description(reader *r, ith_tensor *tensor, uint64_t *offset)
{
    ith_status status = take_shape(r, tensor);
    if (!status)
        status = take_kind(r, &tensor->dtype);
    if (!status)
        status = take_number(r, 8, offset);
    if (status)
        return status;
    if (tensor->shape[tensor->dims - 1] % ith_dtype_run(tensor->dtype))
        return ith_fail(r->file->context, ITH_ERR_FORMAT, "has rows of %lld numbers of type %s, whose blocks have %lld",
                        (long long)tensor->shape[tensor->dims - 1], ith_dtype_name(tensor->dtype),
                        (long long)ith_dtype_run(tensor->dtype));
    if (!ith_tensor_bytes(tensor->dtype, tensor->dims, tensor->shape, &tensor->bytes))
        return ith_fail(r->file->context, ITH_ERR_FORMAT, "has the shape %s, which is more than a size can hold",
                        ith_shape_print(tensor->dims, tensor->shape).text);
    return ITH_OK;
}

/* Adds the file and the tensor to the sentence of a failure. `begin` is the offset of the tensor's name in the file:
 * the first pass does not keep names. */
static ith_status fail_tensor(reader *r, ith_status status, int64_t begin)
{
    char name[sizeof(ith_quoted)] = "";
    uint64_t bytes = 0;
    if (status == ITH_ERR_IO) /* the sentence names the file */
        return status;
    r->at = begin;
    if (!take_number(r, 8, &bytes))
        (void)take(r, name, ith_min64((int64_t)bytes, sizeof name - 1));
    return ith_fail_in(r->file->context, status, "%s: tensor '%s'", r->file->path, ith_quote(name).text);
}

/* Reads the description of a tensor. Its data are set to its offset, until the place of the data is known. */
static ith_status take_tensor(reader *r)
{
    const int64_t begin = r->at;
    ith_tensor tensor = ITH_TENSOR_INIT;
    uint64_t offset = 0;
    ith_status status = take_string(r, &tensor.name);
    if (status)
        return status;
    r->describes = true;
    status = take_description(r, &tensor, &offset);
    r->describes = false;
    if (status)
        return fail_tensor(r, status, begin);
    if (r->fills) {
        if (r->file->count == r->tensors)
            return fail_changed(r);
        if (offset > (uint64_t)r->file->mapping.bytes || offset % (uint64_t)r->alignment)
            return ith_fail(r->file->context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' begins at byte %" PRIu64 " of the data: beyond the end of the file, or "
                            "no multiple of %lld",
                            r->file->path, ith_quote(tensor.name).text, offset, (long long)r->alignment);
        tensor.data = (const char *)r->file->mapping.data + offset;
        r->file->tensors[r->file->count] = tensor;
    }
    r->file->count++;
    return ITH_OK;
}

/* ---- The header ------------------------------------------------------------------------------------------------ */

/* Reads the numbers at the beginning of the file. */
static ith_status take_counts(reader *r, uint64_t *tensors, uint64_t *pairs)
{
    ith_context *context = r->file->context;
    uint32_t version = 0;
    ith_status status = skip(r, sizeof ITH_GGUF_MAGIC - 1);
    if (!status)
        status = take_u32(r, &version);
    if (!status && version && !(version & 0xffff))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: a GGUF file of version %u with big-endian numbers; they must be little-endian: "
                        "gguf-convert-endian of the Python package gguf converts them",
                        r->file->path, version >> 24);
    if (!status && version != VERSION)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: a GGUF file of version %u; version %d is needed",
                        r->file->path, version, VERSION);
    if (!status)
        status = take_number(r, 8, tensors);
    if (!status)
        status = take_number(r, 8, pairs);
    if (!status && (*tensors > MOST_ENTRIES || *pairs > MOST_ENTRIES))
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: claims %" PRIu64 " tensors and %" PRIu64 " metadata; %d is the most", r->file->path,
                        *tensors, *pairs, MOST_ENTRIES);
    return status;
}

/* Passes over the header: counts its entries and their text, or reads them. */
static ith_status take_header(reader *r)
{
    uint64_t tensors = 0, pairs = 0;
    r->at = r->file->count = r->file->pair_count = r->file->array_count = 0;
    ith_status status = take_counts(r, &tensors, &pairs);
    for (uint64_t i = 0; i < pairs && !status; i++)
        status = take_pair(r);
    if (!status && r->fills) {
        ith_tensor_file_order(r->file); /* only the metadata: there are no tensors so far */
        status = find_alignment(r);
    }
    for (uint64_t i = 0; i < tensors && !status; i++)
        status = take_tensor(r);
    return status;
}

/* Allocates the lists whose entries the first pass has counted. */
static ith_status allocate(reader *r)
{
    ith_tensor_file *file = r->file;
    r->tensors = file->count, r->pairs = file->pair_count, r->arrays = file->array_count;
    file->tensors = ith_alloc_zero(file->context, file->count, sizeof *file->tensors, "a list of tensors");
    file->pairs = ith_alloc_zero(file->context, file->pair_count, sizeof *file->pairs, "metadata");
    file->arrays = ith_alloc_zero(file->context, file->array_count, sizeof *file->arrays, "metadata");
    file->text = ith_alloc(file->context, r->text_bytes, 1, "names of tensors");
    return file->tensors && file->pairs && file->arrays && file->text ? ITH_OK : ITH_ERR_MEMORY;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const ith_metadata_array *)a)->key, ((const ith_metadata_array *)b)->key);
}

static ith_status fail_twice(const ith_tensor_file *file, const char *key)
{
    return ith_fail(file->context, ITH_ERR_FORMAT, "%s: the metadata have '%s' twice", file->path, ith_quote(key).text);
}

/* Checks that no tensor occurs twice, and no key of a value or of an array. */
static ith_status check_names(const ith_tensor_file *file)
{
    qsort(file->arrays, (size_t)file->array_count, sizeof *file->arrays, by_key);
    for (int64_t i = 1; i < file->array_count; i++)
        if (!strcmp(file->arrays[i].key, file->arrays[i - 1].key))
            return fail_twice(file, file->arrays[i].key);
    for (int64_t i = 0; i < file->array_count; i++)
        if (ith_tensor_file_metadata(file, file->arrays[i].key))
            return fail_twice(file, file->arrays[i].key);
    for (int64_t i = 1; i < file->count; i++)
        if (!strcmp(file->tensors[i].name, file->tensors[i - 1].name))
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: tensor '%s' is there twice", file->path,
                            ith_quote(file->tensors[i].name).text);
    for (int64_t i = 1; i < file->pair_count; i++)
        if (!strcmp(file->pairs[i].key, file->pairs[i - 1].key))
            return fail_twice(file, file->pairs[i].key);
    return ITH_OK;
}

/* Gives a tensor the shape that an array of the metadata has for it, if this shape takes as many bytes. Otherwise the
 * tensor keeps its own shape. */
static ith_status restore_shape(const ith_tensor_file *file, const ith_metadata_array *array)
{
    const ith_tensor *found = ith_tensor_file_find(file, array->key + strlen(SHAPE_KEY));
    unsigned char digits[ITH_MAX_DIMS * 4];
    int64_t shape[ITH_MAX_DIMS], bytes = 0;
    if (!found || array->type != ITH_GGUF_I32 || array->count < 1 || array->count > ITH_MAX_DIMS)
        return ITH_OK;
    const int dims = (int)array->count;
    ith_status status =
        ith_mapping_copy(file->context, file->path, digits, file->mapping.data + array->begin, array->bytes);
    for (int i = 0; i < dims && !status; i++)
        shape[i] = (int32_t)ith_little_endian(digits + 4 * i, 4);
    if (status || !ith_tensor_bytes(found->dtype, dims, shape, &bytes) || bytes != found->bytes)
        return status;
    ith_tensor *tensor = &file->tensors[found - file->tensors];
    tensor->dims = dims;
    memcpy(tensor->shape, shape, (size_t)dims * sizeof *shape);
    return ITH_OK;
}

/* Restores the shapes of the tensors that a converter has changed (ComfyUI-GGUF). */
static ith_status restore_shapes(const ith_tensor_file *file)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < file->array_count && !status; i++)
        if (!strncmp(file->arrays[i].key, SHAPE_KEY, strlen(SHAPE_KEY)))
            status = restore_shape(file, &file->arrays[i]);
    return status;
}

/* Finds the data behind the header, turns the offsets of the tensors into addresses, and checks the lists. */
static ith_status set_data(const reader *r)
{
    ith_tensor_file *file = r->file;
    const int64_t begin = ith_min64(ith_round_up(r->at, r->alignment), file->mapping.bytes);
    file->data = (const char *)file->mapping.data + begin;
    file->data_bytes = file->mapping.bytes - begin;
    for (int64_t i = 0; i < file->count; i++) {
        const int64_t offset = (const char *)file->tensors[i].data - (const char *)file->mapping.data;
        if (offset > file->data_bytes)
            return ith_fail(file->context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' begins beyond the end of the file: it is cut", file->path,
                            ith_quote(file->tensors[i].name).text);
        file->tensors[i].data = file->data + offset;
    }
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, ith_tensor_by_place);
    ith_status status = ith_tensor_file_check_cover(file, r->alignment);
    ith_tensor_file_order(file);
    if (!status)
        status = check_names(file);
    return status ? status : restore_shapes(file);
}

ith_status ith_gguf_read(ith_tensor_file *file)
{
    reader *r = ith_alloc_zero(file->context, 1, sizeof *r, "the header of a tensor file");
    if (!r)
        return ITH_ERR_MEMORY;
    r->file = file, file->is_gguf = true, r->aligned_by = ITH_GGUF_U32;
    ith_status status = take_header(r);
    if (!status)
        status = allocate(r);
    r->fills = true;
    if (!status)
        status = take_header(r);
    if (!status)
        status = set_data(r);
    ith_free(file->context, r);
    return status;
}

/* ---- Arrays ---------------------------------------------------------------------------------------------------- */

bool ith_gguf_is(const ith_tensor_file *file)
{
    return file->is_gguf;
}

ith_status ith_gguf_array_read(ith_context *context, const ith_tensor_file *file, const char *key,
                               ith_gguf_array *array)
{
    *array = (ith_gguf_array){.data = NULL};
    for (int64_t i = 0; i < file->array_count; i++) {
        const ith_metadata_array *a = &file->arrays[i];
        if (strcmp(a->key, key))
            continue;
        char *data = ith_alloc(context, a->bytes, 1, key);
        if (!data)
            return ITH_ERR_MEMORY;
        ith_status status = ith_mapping_copy(context, file->path, data, file->mapping.data + a->begin, a->bytes);
        if (status) {
            ith_free(context, data);
            return status;
        }
        *array = (ith_gguf_array){(ith_gguf_type)a->type, a->count, a->bytes, data};
        return ITH_OK;
    }
    return ITH_OK;
}

const char *ith_gguf_array_string(const ith_gguf_array *array, int64_t *at, int64_t *bytes)
{
    const int64_t left = array->bytes - *at;
    if (array->type != ITH_GGUF_STRING || left < 8)
        return NULL;
    const uint64_t length = ith_little_endian((const unsigned char *)array->data + *at, 8);
    if (length > (uint64_t)(left - 8))
        return NULL;
    const char *text = array->data + *at + 8;
    *bytes = (int64_t)length;
    *at += 8 + (int64_t)length;
    return text;
}
