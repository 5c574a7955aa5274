/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of random numbers (random_tensors.h). A tensor repeats a pattern of PATTERN numbers. PATTERN is prime, so
 * that the rows of a matrix differ. */
#include "random_tensors.h"

#include "../base/dtype.h"
#include "../base/random_numbers.h"
#include "../base/size.h"
#include "../kernels/unpack.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

#define PATTERN 65521  /* numbers that a tensor repeats */
#define NAME_BYTES 256 /* no weight of a model has a longer name */

/* A tensor that was made. Its data follows in the same allocation. */
typedef struct random_tensor {
    struct random_tensor *next;
    ith_tensor tensor;
    char name[NAME_BYTES];
} random_tensor;

/* The tensors that were made so far, and the numbers that they repeat. */
struct ith_random_tensors {
    ith_context *context;
    ith_dtype type;
    random_tensor *first;
    int64_t bytes;
    float uniform[PATTERN]; /* numbers with mean 0 and variance 1 */
};

/* The offset of a tensor's data from the beginning of its random_tensor. */
static int64_t data_offset(void)
{
    return ith_round_up((int64_t)sizeof(random_tensor), 64);
}

ith_status ith_random_tensors_create(ith_context *context, ith_dtype type, ith_random_tensors **out)
{
    *out = NULL;
    if (!ith_dtype_is_operand(type) && !ith_unpack_has(type))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "weights of type %s: they must be F32, BF16, F16 or a quantised type", ith_dtype_name(type));
    ith_random_tensors *t = ith_alloc_zero(context, 1, sizeof *t, "random weights");
    if (!t)
        return ITH_ERR_MEMORY;
    uint64_t state = 1;
    t->context = context, t->type = type;
    for (int i = 0; i < PATTERN; i++)
        t->uniform[i] = (float)(sqrt(12.0) * ((double)(ith_random_word(&state) >> 11) * 0x1p-53 - 0.5));
    *out = t;
    return ITH_OK;
}

void ith_random_tensors_free(ith_random_tensors **tensors)
{
    if (!*tensors)
        return;
    ith_random_tensors *t = *tensors;
    while (t->first) {
        random_tensor *next = t->first->next;
        ith_free(t->context, t->first);
        t->first = next;
    }
    ith_free(t->context, t);
    *tensors = NULL;
}

/* The type of a tensor. In files only matrices have quantised types. */
static ith_dtype type_of(const ith_random_tensors *t, int dims, const int64_t *shape)
{
    return !ith_unpack_has(t->type) || (dims == 2 && shape[1] % ith_dtype_run(t->type) == 0) ? t->type : ITH_BF16;
}

/* Fills a tensor of a quantised type with random bytes below 0x18. So a scale of a quantisation block, an f16 number,
 * is below 2^-9. */
static ith_status fill_quantised(const ith_random_tensors *t, unsigned char *to, int64_t bytes)
{
    uint64_t state = 1;
    ith_status status = ITH_OK;
    for (int64_t begin = 0; begin < bytes && !(status = ith_context_check(t->context)); begin += PATTERN)
        for (int64_t i = begin; i < ith_min64(begin + PATTERN, bytes); i++)
            to[i] = (unsigned char)(ith_random_word(&state) % 0x18);
    return status;
}

/* Fills `count` numbers at `to` with copies of the pattern, scaled by `scale` and rounded to `type`. */
static ith_status fill(const ith_random_tensors *t, ith_dtype type, char *to, int64_t count, float scale)
{
    float scaled[1024];
    const int64_t element = ith_dtype_bytes(type), pattern = ith_min64(count, PATTERN);
    for (int64_t begin = 0; begin < pattern; begin += 1024) {
        int64_t some = ith_min64(1024, pattern - begin);
        for (int64_t i = 0; i < some; i++)
            scaled[i] = scale * t->uniform[begin + i];
        ith_from_f32(to + begin * element, type, scaled, some);
    }
    ith_status status = ITH_OK;
    for (int64_t done = pattern; done < count && !(status = ith_context_check(t->context)); done += PATTERN)
        memcpy(to + done * element, to, (size_t)(ith_min64(PATTERN, count - done) * element));
    return status;
}

static ith_status make(ith_random_tensors *t, const char *name, int dims, const int64_t *shape, int64_t bytes,
                       const ith_tensor **out)
{
    random_tensor *made = ith_alloc(t->context, 1, data_offset() + bytes, "random weights");
    if (!made)
        return ITH_ERR_MEMORY;
    const ith_dtype type = type_of(t, dims, shape);
    const int64_t count = bytes / ith_dtype_bytes(type) * ith_dtype_run(type);
    char *data = (char *)made + data_offset();
    *made = (random_tensor){.next = t->first, .tensor = ITH_TENSOR_INIT};
    strncpy(made->name, name, sizeof made->name - 1);
    made->tensor.name = made->name, made->tensor.dtype = type, made->tensor.dims = dims;
    memcpy(made->tensor.shape, shape, (size_t)dims * sizeof *shape);
    made->tensor.data = data, made->tensor.bytes = bytes;
    t->first = made;
    *out = &made->tensor;
    if (ith_unpack_has(type))
        return fill_quantised(t, (unsigned char *)data, bytes);
    return fill(t, type, data, count, dims && count ? sqrtf((float)shape[0] / (float)count) : 1.0f);
}

ith_status ith_random_tensors_take(ith_random_tensors *t, const char *name, int dims, const int64_t *shape,
                                   const ith_tensor **out)
{
    int64_t bytes = 0, all = 0;
    const int64_t more = data_offset() + ITH_ALLOC_HEADER;
    for (random_tensor *made = t->first; made && out; made = made->next)
        if (!strcmp(made->name, name)) {
            *out = &made->tensor;
            return ITH_OK;
        }
    if (!ith_tensor_bytes(type_of(t, dims, shape), dims, shape, &bytes) || !ith_size_add(bytes, more, &all) ||
        !ith_size_add(t->bytes, all, &all))
        return ith_fail(t->context, ITH_ERR_MEMORY, "random weights take more memory than a size can hold");
    if (out)
        return make(t, name, dims, shape, bytes, out);
    t->bytes = all;
    return ITH_OK;
}

int64_t ith_random_tensors_bytes(const ith_random_tensors *t)
{
    return t->bytes + (int64_t)sizeof *t + ITH_ALLOC_HEADER;
}
