/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files: names of types, sizes, conversion to f32 (ithaca/files.h). */
#include "tensor.h"

#include "../base/count.h"
#include "../base/dtype.h"
#include "../base/file_fault.h"
#include "../base/hash.h"
#include "../base/size.h"
#include "../base/sized.h"
#include "../kernels/unpack.h"
#include "mapping.h"
#include "quote.h"

#include <stdio.h>
#include <string.h>

/* The element types and their names in the format. */
static const struct {
    const char *name;
    ith_dtype type;
} types[] = {{"F32", ITH_F32},   {"BF16", ITH_BF16}, {"F16", ITH_F16},         {"F64", ITH_F64},
             {"BOOL", ITH_BOOL}, {"U8", ITH_U8},     {"I8", ITH_I8},           {"I16", ITH_I16},
             {"I32", ITH_I32},   {"I64", ITH_I64},   {"F8_E4M3", ITH_F8_E4M3}, {"F8_E5M2", ITH_F8_E5M2}};

const char *ith_tensor_type_name(ith_dtype type)
{
    for (int i = 0; i < ITH_COUNT(types); i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

ith_dtype ith_tensor_type_parse(const char *name)
{
    for (int i = 0; i < ITH_COUNT(types); i++)
        if (!strcmp(types[i].name, name))
            return types[i].type;
    return ITH_DTYPE_NONE;
}

bool ith_tensor_bytes(ith_dtype type, int dims, const int64_t *shape, int64_t *bytes)
{
    const int64_t run = ith_dtype_run(type);
    int64_t product = ith_dtype_bytes(type);
    bool fits = true, empty = false; /* a size of 0 makes the product 0, even if the other sizes overflow */
    for (int i = 0; i < dims; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
        fits = fits && ith_size_mul(product, shape[i], &product);
    }
    *bytes = empty ? 0 : product / run;
    return (fits && (dims ? shape[dims - 1] : 1) % run == 0) || empty;
}

ith_status ith_tensor_check_bytes(ith_context *context, const ith_tensor *tensor)
{
    int64_t bytes = 0;
    if (tensor->dims < 0 || tensor->dims > ITH_MAX_DIMS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "tensor '%s' has %d dimensions; 0 to %d are possible",
                        ith_quote(tensor->name).text, tensor->dims, ITH_MAX_DIMS);
    if (!ith_tensor_bytes(tensor->dtype, tensor->dims, tensor->shape, &bytes) || bytes != tensor->bytes)
        return ith_fail(context, ITH_ERR_ARGUMENT, "tensor '%s' has %lld bytes, which %s of %s do not take",
                        ith_quote(tensor->name).text, (long long)tensor->bytes,
                        ith_shape_print(tensor->dims, tensor->shape).text, ith_dtype_name(tensor->dtype));
    return ITH_OK;
}

/* Copies the caller's struct, whose version may differ from the library's, and checks it. */
static ith_status read_tensor(ith_context *context, const ith_tensor *given, ith_tensor *tensor)
{
    *tensor = (ith_tensor)ITH_TENSOR_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_tensor, ITH_TENSOR_INIT, given, tensor);
    if (!status)
        status = ith_tensor_check_bytes(context, tensor);
    return !status && tensor->bytes ? ith_need(context, tensor->data, "the tensor's data") : status;
}

/* The number of elements of a tensor whose shape has been checked. */
static int64_t elements_of(const ith_tensor *tensor)
{
    int64_t element_bytes = ith_dtype_bytes(tensor->dtype);
    return element_bytes ? tensor->bytes / element_bytes * ith_dtype_run(tensor->dtype) : 0;
}

int64_t ith_tensor_elements(const ith_tensor *given)
{
    ith_tensor tensor;
    return read_tensor(NULL, given, &tensor) ? 0 : elements_of(&tensor);
}

ith_shape_text ith_shape_print(int dims, const int64_t *shape)
{
    ith_shape_text out = {"["};
    size_t length = 1;
    for (int i = 0; i < dims; i++)
        length +=
            (size_t)snprintf(out.text + length, sizeof out.text - length, i ? ", %lld" : "%lld", (long long)shape[i]);
    memcpy(out.text + length, "]", 2);
    return out;
}

/* ---- Reading elements ------------------------------------------------------------------------------------------ */

#define ALIGNED_MOST 1024 /* the most elements that are copied to aligned memory and converted at a time */

/* A request to convert mapped numbers, which a guard protects. */
typedef struct conversion {
    float *to;
    const char *from;
    ith_dtype type;
    int64_t first, count;
    ith_unpack_fn unpack;
} conversion;

/* Whether data are aligned to their type. Quantised types may lie anywhere. */
static bool is_aligned(const void *data, ith_dtype type)
{
    return ith_unpack_has(type) || (uintptr_t)data % (uintptr_t)ith_dtype_bytes(type) == 0;
}

static void convert(void *user)
{
    const conversion *c = user;
    const int64_t element_bytes = ith_dtype_bytes(c->type);
    if (is_aligned(c->from, c->type)) {
        c->unpack(c->type, c->from, c->first, c->count, c->to);
        return;
    }
    double aligned[ALIGNED_MOST]; /* aligned for every element type, of which double is the largest */
    for (int64_t i = 0; i < c->count; i += ALIGNED_MOST) {
        int64_t part = ith_min64(ALIGNED_MOST, c->count - i);
        memcpy(aligned, c->from + (c->first + i) * element_bytes, (size_t)(part * element_bytes));
        ith_to_f32(c->to + i, aligned, c->type, part);
    }
}

ith_status ith_tensor_part_to_f32(ith_context *context, const char *file, const ith_tensor *tensor, int64_t first,
                                  int64_t count, float *out)
{
    conversion c = {out, tensor->data, tensor->dtype, first, count, ith_unpack_choose(ith_context_cpu(context))};
    if (count && !ith_file_fault_guard(convert, &c))
        return ith_fail_file_fault(context, file);
    return ITH_OK;
}

ith_status ith_tensor_align(ith_context *context, const char *file, const ith_tensor *tensor, void **copy)
{
    *copy = NULL;
    if (is_aligned(tensor->data, tensor->dtype))
        return ITH_OK;
    *copy = ith_alloc(context, tensor->bytes, 1, tensor->name);
    ith_status status = *copy ? ith_mapping_copy(context, file, *copy, tensor->data, tensor->bytes) : ITH_ERR_MEMORY;
    if (status) {
        ith_free(context, *copy);
        *copy = NULL;
    }
    return status;
}

#define SAMPLE_BYTES 64

ith_status ith_tensor_hash_sample(ith_context *context, const char *file, const ith_tensor *tensor, uint64_t *hash)
{
    char sample[SAMPLE_BYTES];
    const int64_t bytes = ith_min64(tensor->bytes, SAMPLE_BYTES);
    ith_status status =
        ith_mapping_copy(context, file, sample, (const char *)tensor->data + (tensor->bytes - bytes) / 2, bytes);
    if (!status && bytes)
        *hash = ith_hash(*hash, sample, bytes);
    return status;
}

/* Words that stand for the unknown path of a tensor's file. */
typedef struct file_words {
    char text[192];
} file_words;

static file_words file_of(const ith_tensor *tensor)
{
    file_words words;
    snprintf(words.text, sizeof words.text, "the file of tensor '%s'", ith_quote(tensor->name).text);
    return words;
}

ith_status ith_tensor_to_f32(ith_context *context, const ith_tensor *given, float *out)
{
    ith_tensor tensor;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = read_tensor(context, given, &tensor);
    if (status)
        return status;
    ith_dtype type = tensor.dtype;
    if (!ith_dtype_is_operand(type) && type != ITH_F64 && !ith_unpack_has(type))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "tensor '%s' is of type %s; F32, BF16, F16, F64, fp8, I8 or a type of GGUF files is needed "
                        "here",
                        ith_quote(tensor.name).text, ith_dtype_name(type));
    int64_t count = elements_of(&tensor);
    if (count && !out)
        return ith_need(context, out, "out");
    return ith_tensor_part_to_f32(context, file_of(&tensor).text, &tensor, 0, count, out);
}

ith_status ith_tensor_copy(ith_context *context, const ith_tensor *given, void *out)
{
    ith_tensor tensor;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = read_tensor(context, given, &tensor);
    if (!status && tensor.bytes)
        status = ith_need(context, out, "out");
    if (status)
        return status;
    return ith_mapping_copy(context, file_of(&tensor).text, out, tensor.data, tensor.bytes);
}

ith_status ith_tensor_from_f32(ith_context *context, const float *values, int64_t count, ith_dtype type, void *out)
{
    ith_status status = ith_need(NULL, context, "context");
    if (!status && (count < 0 || count > INT64_MAX / (int64_t)sizeof *values))
        status = ith_fail(context, ITH_ERR_ARGUMENT, "count is %lld, and must be from 0 to %lld", (long long)count,
                          (long long)(INT64_MAX / (int64_t)sizeof *values));
    if (!status && count)
        status = ith_need(context, values, "values");
    if (!status && count)
        status = ith_need(context, out, "out");
    if (status)
        return status;
    if (!ith_dtype_is_operand(type))
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "values cannot be rounded to type %s; F32, BF16 or F16 is needed",
                        ith_dtype_name(type));
    if (count)
        ith_from_f32(out, type, values, count);
    return ITH_OK;
}
