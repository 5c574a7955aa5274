/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of GGUF files (gguf.h). It trusts nothing in the file. All numbers are little-endian:
 *
 *     "GGUF", u32 version, u64 number of tensors, u64 number of pairs
 *     each pair: string key, u32 type, value
 *     each tensor: string name, u32 number of sizes, u64 sizes (contiguous elements first), u32 kind, u64 offset
 *     data, from the next multiple of the alignment on; offsets count from there
 *
 * A string is a u64 length and its bytes. The header is walked twice: first to find how much memory its strings take,
 * then to read them. It is copied from the mapped file through a window, because the file may be cut meanwhile. */
#include "gguf.h"

#include "../base/size.h"
#include "quote.h"
#include "tensor_file_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 3
#define MOST_ENTRIES (1 << 20) /* of tensors and of pairs */
#define MOST_ALIGNMENT (1 << 20)
#define NUMBER_BYTES 32 /* of a number as text */
#define ALIGNMENT_KEY "general.alignment"

/* The kinds of tensors, by their numbers in the format. */
static const ith_dtype kinds[] = {[0] = ITH_F32,   [1] = ITH_F16,   [2] = ITH_Q4_0,    [3] = ITH_Q4_1,  [6] = ITH_Q5_0,
                                  [7] = ITH_Q5_1,  [8] = ITH_Q8_0,  [10] = ITH_Q2_K,   [11] = ITH_Q3_K, [12] = ITH_Q4_K,
                                  [13] = ITH_Q5_K, [14] = ITH_Q6_K, [20] = ITH_IQ4_NL, [24] = ITH_I8,   [25] = ITH_I16,
                                  [26] = ITH_I32,  [27] = ITH_I64,  [28] = ITH_F64,    [30] = ITH_BF16};

/* The bytes of a number of the metadata; 0 for strings, arrays and unknown types. */
static int64_t number_bytes(uint32_t type)
{
    static const int8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* ---- The window ------------------------------------------------------------------------------------------------ */

/* A position in the header. */
typedef struct walk {
    ith_tensor_file *file;
    int64_t at;            /* offset in the file of the next byte */
    int64_t begin, filled; /* the bytes of the file in the window */
    bool reads;            /* the second walk */
    int64_t text_bytes;    /* bytes of all strings that are kept */
    int64_t text_end;      /* the second walk: bytes of them so far */
    int64_t alignment;
    char window[1 << 16];
} walk;

static ith_status fail(const walk *w, const char *what)
{
    return ith_fail(w->file->context, ITH_ERR_FORMAT, "%s: at byte %lld of the header: %s", w->file->path,
                    (long long)w->at, what);
}

/* Checks that `bytes` more bytes of the header are there. */
static ith_status need(const walk *w, uint64_t bytes)
{
    if (bytes > (uint64_t)(w->file->mapping.bytes - w->at))
        return fail(w, "the file ends there, in the middle of its header: it is cut");
    if (bytes > (uint64_t)(ITH_TENSOR_HEADER_MOST_BYTES - w->at))
        return fail(w, "the header has more than 100000000 bytes");
    return ITH_OK;
}

/* Copies the next bytes of the header to `to`. */
static ith_status take(walk *w, void *to, int64_t bytes)
{
    ith_status status = need(w, (uint64_t)bytes);
    for (int64_t done = 0; done < bytes && !status;) {
        if (w->at < w->begin || w->at >= w->begin + w->filled) {
            w->begin = w->at, w->filled = ith_min64(sizeof w->window, w->file->mapping.bytes - w->at);
            status =
                ith_mapping_copy(w->file->context, w->file->path, w->window, w->file->mapping.data + w->at, w->filled);
            if (status)
                return status;
        }
        const int64_t some = ith_min64(bytes - done, w->begin + w->filled - w->at);
        memcpy((char *)to + done, w->window + (w->at - w->begin), (size_t)some);
        done += some, w->at += some;
    }
    return status;
}

/* Reads a little-endian number of 1 to 8 bytes. */
static ith_status take_number(walk *w, int64_t bytes, uint64_t *number)
{
    unsigned char digits[8];
    *number = 0;
    ith_status status = take(w, digits, bytes);
    for (int64_t i = bytes - 1; i >= 0 && !status; i--)
        *number = *number << 8 | digits[i];
    return status;
}

static ith_status take_u32(walk *w, uint32_t *number)
{
    uint64_t wide = 0;
    ith_status status = take_number(w, 4, &wide);
    *number = (uint32_t)wide;
    return status;
}

static ith_status skip(walk *w, uint64_t bytes)
{
    ith_status status = need(w, bytes);
    w->at += status ? 0 : (int64_t)bytes;
    return status;
}

/* ---- Strings --------------------------------------------------------------------------------------------------- */

/* Takes memory for a string of `bytes` bytes. The first walk only counts it, and returns NULL in *text. */
static ith_status take_text(walk *w, int64_t bytes, char **text)
{
    *text = NULL;
    if (!w->reads) {
        w->text_bytes += bytes + 1;
        return ITH_OK;
    }
    if (bytes + 1 > w->text_bytes - w->text_end)
        return ith_fail(w->file->context, ITH_ERR_IO, "%s changed while it was read", w->file->path);
    *text = w->file->text + w->text_end;
    (*text)[bytes] = '\0';
    w->text_end += bytes + 1;
    return ITH_OK;
}

/* Reads a string. The first walk skips it, and returns NULL. */
static ith_status take_string(walk *w, const char **string)
{
    uint64_t bytes = 0;
    char *text = NULL;
    *string = NULL;
    ith_status status = take_number(w, 8, &bytes);
    if (!status)
        status = need(w, bytes);
    if (!status)
        status = take_text(w, (int64_t)bytes, &text);
    if (status || !text)
        return status ? status : skip(w, bytes);
    status = take(w, text, (int64_t)bytes);
    if (!status && memchr(text, '\0', (size_t)bytes))
        status = fail(w, "a string before it has a zero byte");
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
        snprintf(text, NUMBER_BYTES, "%.9g", (double)f32);
        break;
    case ITH_GGUF_F64:
        memcpy(&f64, &bits, sizeof f64);
        snprintf(text, NUMBER_BYTES, "%.17g", f64);
        break;
    case ITH_GGUF_BOOL: snprintf(text, NUMBER_BYTES, "%s", bits ? "true" : "false"); break;
    default: snprintf(text, NUMBER_BYTES, "%" PRIu64, bits); break;
    }
}

/* Reads a number or a boolean as text. */
static ith_status take_number_text(walk *w, uint32_t type, const char **value)
{
    uint64_t bits = 0;
    char *text = NULL;
    ith_status status = take_number(w, number_bytes(type), &bits);
    if (!status && type == ITH_GGUF_BOOL && bits > 1)
        status = fail(w, "a boolean before it is neither 0 nor 1");
    if (!status)
        status = take_text(w, NUMBER_BYTES - 1, &text);
    if (text)
        print_number(type, bits, text);
    *value = text;
    return status;
}

/* Walks over the items of an array, and records where they lie. */
static ith_status take_array(walk *w, const char *key)
{
    ith_metadata_array array = {.key = key};
    uint64_t count = 0, bytes = 0;
    ith_status status = take_u32(w, &array.type);
    if (!status)
        status = take_number(w, 8, &count);
    if (status)
        return status;
    const int64_t item = number_bytes(array.type);
    if (!item && array.type != ITH_GGUF_STRING)
        return fail(w, array.type == ITH_GGUF_ARRAY ? "an array of arrays" : "an array of an unknown type");
    if (count > ITH_TENSOR_HEADER_MOST_BYTES)
        return fail(w, "an array with more items than the header has bytes");
    array.begin = w->at, array.count = (int64_t)count;
    if (item)
        status = skip(w, count * (uint64_t)item);
    for (uint64_t i = 0; !item && i < count && !status; i++)
        if (!(status = take_number(w, 8, &bytes)))
            status = skip(w, bytes);
    array.bytes = w->at - array.begin;
    if (w->reads && !status)
        w->file->arrays[w->file->array_count] = array;
    w->file->array_count += !status;
    return status;
}

static ith_status take_pair(walk *w)
{
    ith_metadata_pair pair = {NULL, NULL};
    uint32_t type = 0;
    ith_status status = take_string(w, &pair.key);
    if (!status)
        status = take_u32(w, &type);
    if (status)
        return status;
    if (type == ITH_GGUF_ARRAY)
        return take_array(w, pair.key);
    if (type != ITH_GGUF_STRING && !number_bytes(type))
        return fail(w, "a value of an unknown type before it");
    status = type == ITH_GGUF_STRING ? take_string(w, &pair.value) : take_number_text(w, type, &pair.value);
    if (w->reads && !status)
        w->file->pairs[w->file->pair_count] = pair;
    w->file->pair_count += !status;
    return status;
}

/* Sets the alignment of the data from the metadata. */
static ith_status find_alignment(walk *w)
{
    const char *text = ith_tensor_file_metadata(w->file, ALIGNMENT_KEY);
    const long long number = text ? strtoll(text, NULL, 10) : 32;
    if (number < 1 || number > MOST_ALIGNMENT || (number & (number - 1)))
        return ith_fail(w->file->context, ITH_ERR_FORMAT,
                        "%s: " ALIGNMENT_KEY " is %s; it must be a power of two up to %d", w->file->path,
                        ith_quote(text).text, MOST_ALIGNMENT);
    w->alignment = number;
    return ITH_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* Reads the sizes of a tensor into its shape, the last size first. */
static ith_status take_shape(walk *w, ith_tensor *tensor)
{
    uint32_t dims = 0;
    ith_status status = take_u32(w, &dims);
    if (!status && (dims < 1 || dims > ITH_MAX_DIMS))
        return ith_fail(w->file->context, ITH_ERR_UNSUPPORTED, "has %u sizes; 1 to %d are possible", dims,
                        ITH_MAX_DIMS);
    tensor->dims = (int)dims;
    for (int i = tensor->dims - 1; i >= 0 && !status; i--) {
        uint64_t size = 0;
        status = take_number(w, 8, &size);
        if (!status && size > INT64_MAX)
            status = ith_fail(w->file->context, ITH_ERR_FORMAT, "has a size of %" PRIu64, size);
        tensor->shape[i] = (int64_t)size;
    }
    return status;
}

static ith_status take_kind(walk *w, ith_dtype *type)
{
    uint32_t kind = 0;
    ith_status status = take_u32(w, &kind);
    *type = kind < sizeof kinds / sizeof *kinds ? kinds[kind] : ITH_DTYPE_NONE;
    if (!status && *type == ITH_DTYPE_NONE)
        status = ith_fail(w->file->context, ITH_ERR_UNSUPPORTED,
                          "is of the unknown kind %u; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K and "
                          "IQ4_NL are known",
                          kind);
    return status;
}

/* Reads what follows the name of a tensor. *offset: where its data begin. */
static ith_status take_description(walk *w, ith_tensor *tensor, uint64_t *offset)
{
    ith_status status = take_shape(w, tensor);
    if (!status)
        status = take_kind(w, &tensor->dtype);
    if (!status)
        status = take_number(w, 8, offset);
    if (status)
        return status;
    if (tensor->shape[tensor->dims - 1] % ith_dtype_run(tensor->dtype))
        return ith_fail(w->file->context, ITH_ERR_FORMAT, "has rows of %lld numbers of type %s, whose blocks have %lld",
                        (long long)tensor->shape[tensor->dims - 1], ith_dtype_name(tensor->dtype),
                        (long long)ith_dtype_run(tensor->dtype));
    if (!ith_tensor_bytes(tensor->dtype, tensor->dims, tensor->shape, &tensor->bytes))
        return ith_fail(w->file->context, ITH_ERR_FORMAT, "has the shape %s, which is more than a size can hold",
                        ith_shape_print(tensor->dims, tensor->shape).text);
    return ITH_OK;
}

/* Adds the file and the tensor to the sentence of a failure. The name begins at byte `begin` of the file: the first
 * walk has only skipped it. */
static ith_status fail_tensor(walk *w, ith_status status, int64_t begin)
{
    char name[sizeof(ith_quoted)] = "";
    uint64_t bytes = 0;
    w->at = begin;
    if (!take_number(w, 8, &bytes))
        (void)take(w, name, ith_min64((int64_t)bytes, sizeof name - 1));
    return ith_fail_in(w->file->context, status, "%s: tensor '%s'", w->file->path, ith_quote(name).text);
}

/* Reads the description of a tensor. Its data are set to its offset, until the place of the data is known. */
static ith_status take_tensor(walk *w)
{
    const int64_t begin = w->at;
    ith_tensor tensor = ITH_TENSOR_INIT;
    uint64_t offset = 0;
    ith_status status = take_string(w, &tensor.name);
    if (status)
        return status;
    status = take_description(w, &tensor, &offset);
    if (status)
        return fail_tensor(w, status, begin);
    if (w->reads) {
        if (offset > (uint64_t)w->file->mapping.bytes || offset % (uint64_t)w->alignment)
            return ith_fail(w->file->context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' begins at byte %" PRIu64 " of the data: beyond the end of the file, or "
                            "no multiple of %lld",
                            w->file->path, ith_quote(tensor.name).text, offset, (long long)w->alignment);
        tensor.data = (const char *)w->file->mapping.data + offset;
        w->file->tensors[w->file->count] = tensor;
    }
    w->file->count++;
    return ITH_OK;
}

/* ---- The header ------------------------------------------------------------------------------------------------ */

/* Reads the numbers at the beginning of the file. */
static ith_status take_counts(walk *w, uint64_t *tensors, uint64_t *pairs)
{
    ith_context *context = w->file->context;
    uint32_t version = 0;
    ith_status status = skip(w, sizeof ITH_GGUF_MAGIC - 1);
    if (!status)
        status = take_u32(w, &version);
    if (!status && version != VERSION)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: a GGUF file of version %u%s; version %d is needed",
                        w->file->path, version & 0xffff ? version : version >> 24,
                        version & 0xffff ? "" : " with the bytes of numbers turned round", VERSION);
    if (!status)
        status = take_number(w, 8, tensors);
    if (!status)
        status = take_number(w, 8, pairs);
    if (!status && (*tensors > MOST_ENTRIES || *pairs > MOST_ENTRIES))
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: claims %" PRIu64 " tensors and %" PRIu64 " metadata; %d is the most", w->file->path,
                        *tensors, *pairs, MOST_ENTRIES);
    return status;
}

/* Walks over the header: counts its entries and their text, or reads them. */
static ith_status walk_header(walk *w)
{
    uint64_t tensors = 0, pairs = 0;
    w->at = w->file->count = w->file->pair_count = w->file->array_count = 0;
    ith_status status = take_counts(w, &tensors, &pairs);
    for (uint64_t i = 0; i < pairs && !status; i++)
        status = take_pair(w);
    if (!status && w->reads) {
        ith_tensor_file_order(w->file);
        status = find_alignment(w);
    }
    for (uint64_t i = 0; i < tensors && !status; i++)
        status = take_tensor(w);
    return status;
}

/* Allocates the lists that the first walk has counted. */
static ith_status allocate(const walk *w)
{
    ith_tensor_file *file = w->file;
    file->tensors = ith_alloc_zero(file->context, file->count, sizeof *file->tensors, "a list of tensors");
    file->pairs = ith_alloc_zero(file->context, file->pair_count, sizeof *file->pairs, "metadata");
    file->arrays = ith_alloc_zero(file->context, file->array_count, sizeof *file->arrays, "metadata");
    file->text = ith_alloc(file->context, w->text_bytes, 1, "names of tensors");
    return file->tensors && file->pairs && file->arrays && file->text ? ITH_OK : ITH_ERR_MEMORY;
}

/* Checks that the tensors lie one behind the other in the data, each at the next multiple of the alignment, and that
 * the file ends with the last. */
static ith_status check_places(const walk *w)
{
    const ith_tensor_file *file = w->file;
    int64_t next = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const ith_tensor *tensor = &file->tensors[i];
        const int64_t begin = (const char *)tensor->data - file->data;
        if (begin != next)
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: tensor '%s' starts at byte %lld of the data, %s",
                            file->path, ith_quote(tensor->name).text, (long long)begin,
                            begin < next ? "where it overlaps another tensor" : "and leaves a gap before it");
        if (tensor->bytes > file->data_bytes - begin)
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: tensor '%s' ends beyond the file: it is cut",
                            file->path, ith_quote(tensor->name).text);
        next = ith_round_up(begin + tensor->bytes, w->alignment);
    }
    if (file->data_bytes > next)
        return ith_fail(file->context, ITH_ERR_FORMAT, "%s: holds %lld bytes of data, but its tensors take %lld",
                        file->path, (long long)file->data_bytes, (long long)next);
    return ITH_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const ith_metadata_array *)a)->key, ((const ith_metadata_array *)b)->key);
}

static ith_status fail_twice(const ith_tensor_file *file, const char *key)
{
    return ith_fail(file->context, ITH_ERR_FORMAT, "%s: the metadata '%s' are there twice", file->path,
                    ith_quote(key).text);
}

/* Checks that no tensor occurs twice, and no key of a value or of an array. */
static ith_status check_names(const ith_tensor_file *file)
{
    qsort(file->arrays, (size_t)file->array_count, sizeof *file->arrays, by_key);
    for (int64_t i = 1; i < file->array_count; i++)
        if (!strcmp(file->arrays[i].key, file->arrays[i - 1].key))
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

/* Finds the data behind the header, and sets the places of the tensors, whose data are offsets so far. */
static ith_status place(const walk *w)
{
    ith_tensor_file *file = w->file;
    const int64_t begin = ith_min64(ith_round_up(w->at, w->alignment), file->mapping.bytes);
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
    ith_status status = check_places(w);
    ith_tensor_file_order(file);
    return status ? status : check_names(file);
}

ith_status ith_gguf_read(ith_tensor_file *file)
{
    walk *w = ith_alloc_zero(file->context, 1, sizeof *w, "the header of a tensor file");
    if (!w)
        return ITH_ERR_MEMORY;
    w->file = file, file->is_gguf = true;
    ith_status status = walk_header(w);
    if (!status)
        status = allocate(w);
    w->reads = true;
    if (!status)
        status = walk_header(w);
    if (!status)
        status = place(w);
    ith_free(file->context, w);
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
    uint64_t length = 0;
    const int64_t left = array->bytes - *at;
    if (array->type != ITH_GGUF_STRING || left < 8)
        return NULL;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)array->data[*at + i];
    if (length > (uint64_t)(left - 8))
        return NULL;
    const char *text = array->data + *at + 8;
    *bytes = (int64_t)length;
    *at += 8 + (int64_t)length;
    return text;
}
