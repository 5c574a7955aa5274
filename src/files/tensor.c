/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files: names of types, sizes, conversion to f32. */
#include "tensor.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "quote.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    ith_dtype type;
} types[] = {{"F32", ITH_F32}, {"BF16", ITH_BF16}, {"F16", ITH_F16}, {"F64", ITH_F64}, {"BOOL", ITH_BOOL},
             {"U8", ITH_U8},   {"I8", ITH_I8},     {"I16", ITH_I16}, {"I32", ITH_I32}, {"I64", ITH_I64}};
#define TYPE_COUNT (sizeof types / sizeof types[0])

const char *ith_tensor_type_name(ith_dtype type)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

ith_dtype ith_tensor_type_parse(const char *name)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (!strcmp(types[i].name, name))
            return types[i].type;
    return ITH_DTYPE_NONE;
}

bool ith_tensor_bytes(ith_dtype type, int dims, const int64_t *shape, int64_t *bytes)
{
    int64_t product = ith_dtype_bytes(type);
    bool fits = true, empty = false; /* one size of 0 makes the product 0, however large the others are */
    for (int i = 0; i < dims; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
        fits = fits && ith_size_mul(product, shape[i], &product);
    }
    *bytes = empty ? 0 : product;
    return fits || empty;
}

int64_t ith_tensor_elements(const ith_tensor *tensor)
{
    int64_t element_bytes = ith_dtype_bytes(tensor->dtype);
    return element_bytes ? tensor->bytes / element_bytes : 0;
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

/* Elements that are converted at a time where they must be copied to an aligned place first. */
#define CHUNK 1024

ith_status ith_tensor_to_f32(ith_context *context, const ith_tensor *tensor, float *out)
{
    ith_dtype type = tensor->dtype;
    if (type != ITH_F32 && type != ITH_BF16 && type != ITH_F16 && type != ITH_F64)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "tensor '%s' is of type %s; F32, BF16, F16 or F64 is needed here",
                        ith_quote(tensor->name).text, ith_dtype_name(type));
    int64_t element_bytes = ith_dtype_bytes(type), count = ith_tensor_elements(tensor);
    if ((uintptr_t)tensor->data % (uintptr_t)element_bytes == 0) {
        if (count)
            ith_to_f32(out, tensor->data, type, count);
        return ITH_OK;
    }
    double aligned[CHUNK]; /* large enough for any of the types */
    const char *data = tensor->data;
    for (int64_t i = 0; i < count; i += CHUNK) {
        int64_t part = ith_min64(CHUNK, count - i);
        memcpy(aligned, data + i * element_bytes, (size_t)(part * element_bytes));
        ith_to_f32(out + i, aligned, type, part);
    }
    return ITH_OK;
}

ith_status ith_tensor_from_f32(ith_context *context, const float *values, int64_t count, ith_dtype type, void *out)
{
    if (type != ITH_F32 && type != ITH_BF16 && type != ITH_F16)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "values cannot be rounded to type %s; F32, BF16 or F16 is needed",
                        ith_dtype_name(type));
    if (count)
        ith_from_f32(out, type, values, count);
    return ITH_OK;
}
