/* q [B, Sq, H, D], k and v [B, Skv, Hkv, D]; kv_lengths [B] and a mask that is the same for all heads and queries
 * become a bias on the keys, 0 or -inf (or the mask's own number), [B, Skv]. */
#include "attend_tensors.h"

#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(const char *what, int64_t bytes)
{
    return ith_cli_error("there is no memory for %s (%lld bytes)", what, (long long)bytes);
}

static const char *shape_text(const ith_tensor *tensor, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < tensor->dims && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    if (length < bytes)
        snprintf(text + length, bytes - length, "]");
    return text;
}

static int misshapen(const char *path, const ith_tensor *tensor, const char *rule)
{
    char text[200];
    return ith_cli_error("%s: tensor '%s' is of shape %s; it must be %s", path, tensor->name,
                         shape_text(tensor, text, sizeof text), rule);
}

static int find(const char *path, const ith_tensor_file *file, const char *name, const ith_tensor **tensor)
{
    *tensor = ith_tensor_file_find(file, name);
    if (!*tensor)
        return ith_cli_error("%s: there is no tensor '%s'; q, k and v are needed", path, name);
    if ((*tensor)->dims != 4)
        return misshapen(path, *tensor, "[batch, sequence, heads, head size]");
    for (int i = 0; i < 4; i++)
        if ((*tensor)->shape[i] < 1)
            return misshapen(path, *tensor, "at least 1 everywhere");
    ith_dtype type = (*tensor)->dtype;
    if (type != ITH_F32 && type != ITH_BF16 && type != ITH_F16)
        return ith_cli_error("%s: tensor '%s' is of type %s; attention takes f32, bf16 and f16", path, name,
                             ith_dtype_name(type));
    return ITH_EXIT_DONE;
}

static int check_shapes(const char *path, const ith_tensor *q, const ith_tensor *k, const ith_tensor *v)
{
    if (memcmp(k->shape, v->shape, 4 * sizeof *k->shape))
        return misshapen(path, v, "the shape of k");
    if (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3])
        return misshapen(path, k, "of q's batch and head size");
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return ith_cli_error("%s: q, k and v are of types %s, %s and %s; they must be of one", path,
                             ith_dtype_name(q->dtype), ith_dtype_name(k->dtype), ith_dtype_name(v->dtype));
    return ITH_EXIT_DONE;
}

static void *allocate(int64_t bytes)
{
    return aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
}

/* A new array of the tensor's elements in another type, to be freed with free. */
static int convert(ith_context *context, const ith_tensor *tensor, ith_dtype type, void **out)
{
    int64_t count = ith_tensor_elements(tensor);
    float *values = allocate(count * 4);
    *out = type == ITH_F32 ? values : allocate(count * ith_dtype_bytes(type));
    int code = ITH_EXIT_DONE;
    if (!values || !*out)
        code = no_memory(tensor->name, count * 4);
    else if (ith_tensor_to_f32(context, tensor, values) ||
             (type != ITH_F32 && ith_tensor_from_f32(context, values, count, type, *out)))
        code = ith_cli_error("%s", ith_context_error(context));
    if (type != ITH_F32)
        free(values);
    return code;
}

/* The tensor in the type that is computed in: where it lies if it can be used there, otherwise in a copy. */
static int load(ith_context *context, const ith_tensor *tensor, ith_dtype type, const void **data, void **copy)
{
    *data = tensor->data;
    int code = ITH_EXIT_DONE;
    if (tensor->dtype != type) {
        code = convert(context, tensor, type, copy);
        *data = *copy;
    } else if ((uintptr_t)tensor->data % (uintptr_t)ith_dtype_bytes(type)) {
        *data = *copy = allocate(tensor->bytes);
        if (!*copy)
            return no_memory(tensor->name, tensor->bytes);
        memcpy(*copy, tensor->data, (size_t)tensor->bytes);
    }
    return code;
}

static int need_bias(ith_attend_tensors *t)
{
    int64_t count = t->problem.batch * t->problem.kv_len;
    if (!t->key_bias)
        t->key_bias = calloc((size_t)count, sizeof *t->key_bias);
    t->problem.has_key_bias = true;
    return t->key_bias ? ITH_EXIT_DONE : no_memory("the mask", count * 4);
}

static int apply_lengths(const char *path, ith_attend_tensors *t)
{
    const ith_tensor *lengths = ith_tensor_file_find(t->file, "kv_lengths");
    if (!lengths)
        return ITH_EXIT_DONE;
    if (lengths->dims != 1 || lengths->shape[0] != t->problem.batch)
        return misshapen(path, lengths, "[batch]");
    if (lengths->dtype != ITH_I32)
        return ith_cli_error("%s: tensor 'kv_lengths' is of type %s; it must be i32", path,
                             ith_dtype_name(lengths->dtype));
    int code = need_bias(t);
    for (int64_t b = 0; !code && b < t->problem.batch; b++) {
        int32_t length;
        memcpy(&length, (const char *)lengths->data + b * (int64_t)sizeof length, sizeof length);
        if (length < 0 || length > t->problem.kv_len)
            return ith_cli_error("%s: kv_lengths[%lld] is %d; k has %lld rows", path, (long long)b, (int)length,
                                 (long long)t->problem.kv_len);
        for (int64_t j = length; j < t->problem.kv_len; j++)
            t->key_bias[b * t->problem.kv_len + j] = -INFINITY;
    }
    return code;
}

/* Whether every head and every query of a batch entry has the same row. */
static bool same_rows(const ith_tensor *mask)
{
    int64_t rows = mask->shape[1] * mask->shape[2];
    size_t row_bytes = (size_t)(mask->shape[3] * ith_dtype_bytes(mask->dtype));
    for (int64_t b = 0; b < mask->shape[0]; b++) {
        const char *first = (const char *)mask->data + (size_t)(b * rows) * row_bytes;
        for (int64_t i = 1; i < rows; i++)
            if (memcmp(first, first + (size_t)i * row_bytes, row_bytes))
                return false;
    }
    return true;
}

static void add_mask(const ith_tensor *mask, ith_attend_tensors *t)
{
    int64_t kv_len = t->problem.kv_len;
    int64_t batch_elements = mask->shape[1] * mask->shape[2] * kv_len;
    for (int64_t b = 0; b < t->problem.batch; b++)
        for (int64_t j = 0; j < kv_len; j++) {
            int64_t at = (mask->shape[0] == 1 ? 0 : b) * batch_elements + j;
            float bias;
            if (mask->dtype == ITH_BOOL)
                bias = ((const uint8_t *)mask->data)[at] ? 0 : -INFINITY;
            else
                memcpy(&bias, (const char *)mask->data + at * (int64_t)sizeof bias, sizeof bias);
            t->key_bias[b * kv_len + j] += bias;
        }
}

static bool broadcasts(int64_t size, int64_t whole)
{
    return size == 1 || size == whole;
}

static int apply_mask(const char *path, ith_attend_tensors *t)
{
    const ith_tensor *mask = ith_tensor_file_find(t->file, "mask");
    const ith_attn_problem *p = &t->problem;
    if (!mask)
        return ITH_EXIT_DONE;
    if (mask->dims != 4 || !broadcasts(mask->shape[0], p->batch) || !broadcasts(mask->shape[1], p->heads) ||
        !broadcasts(mask->shape[2], p->q_len) || mask->shape[3] != p->kv_len)
        return misshapen(path, mask, "[batch or 1, heads or 1, queries or 1, keys]");
    if (mask->dtype != ITH_BOOL && mask->dtype != ITH_F32)
        return ith_cli_error("%s: tensor 'mask' is of type %s; it must be bool or f32", path,
                             ith_dtype_name(mask->dtype));
    if (!same_rows(mask))
        return ith_cli_error("%s: tensor 'mask' differs between heads or queries; only a mask of the keys is built",
                             path);
    int code = need_bias(t);
    if (!code)
        add_mask(mask, t);
    return code;
}

/* Python writers keep metadata as JSON, in which a number may stand in quotes. */
static int read_scale(const char *path, ith_attend_tensors *t)
{
    const char *text = ith_tensor_file_metadata(t->file, "scale");
    if (!text)
        return ITH_EXIT_DONE;
    char *end = NULL;
    double scale = strtod(text + (*text == '"'), &end);
    bool whole = end != text && (*end == '\0' || (*text == '"' && !strcmp(end, "\"")));
    if (!whole || !isfinite(scale) || (float)scale == 0)
        return ith_cli_error("%s: metadata 'scale' is '%.40s'; it must be a number other than 0", path, text);
    t->problem.scale = (float)scale;
    return ITH_EXIT_DONE;
}

static void describe(ith_attend_tensors *t, const ith_tensor *q, const ith_tensor *k, ith_dtype type)
{
    ith_attn_problem *p = &t->problem;
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = q->shape[0], p->q_len = q->shape[1], p->heads = q->shape[2], p->head_dim = q->shape[3];
    p->kv_len = k->shape[1], p->kv_heads = k->shape[2];
    p->dtype = type;
    /* Ranks read their rows where they lie in the whole. */
    p->q_row_stride = p->o_row_stride = p->heads * p->head_dim;
    p->q_batch_stride = p->o_batch_stride = p->q_len * p->q_row_stride;
    p->k_row_stride = p->v_row_stride = p->kv_heads * p->head_dim;
    p->k_batch_stride = p->v_batch_stride = p->kv_len * p->k_row_stride;
}

static int allocate_results(ith_attend_tensors *t)
{
    const ith_attn_problem *p = &t->problem;
    int64_t o_bytes = p->batch * p->q_batch_stride * ith_dtype_bytes(p->dtype);
    int64_t lse_bytes = p->batch * p->heads * p->q_len * 4;
    t->o = allocate(o_bytes);
    t->lse = allocate(lse_bytes);
    return t->o && t->lse ? ITH_EXIT_DONE : no_memory("o and lse", o_bytes + lse_bytes);
}

static int read_tensors(ith_context *context, const char *path, ith_dtype compute, ith_attend_tensors *t)
{
    const ith_tensor *q, *k, *v;
    if (find(path, t->file, "q", &q) || find(path, t->file, "k", &k) || find(path, t->file, "v", &v) ||
        check_shapes(path, q, k, v))
        return ITH_EXIT_FAILED;
    t->stored = q->dtype;
    ith_dtype type = compute ? compute : q->dtype;
    describe(t, q, k, type);
    if (load(context, q, type, &t->q, &t->copies[0]) || load(context, k, type, &t->k, &t->copies[1]) ||
        load(context, v, type, &t->v, &t->copies[2]))
        return ITH_EXIT_FAILED;
    if (apply_lengths(path, t) || apply_mask(path, t) || read_scale(path, t))
        return ITH_EXIT_FAILED;
    return allocate_results(t);
}

int ith_attend_read(ith_context *context, const char *path, ith_dtype compute, ith_attend_tensors *t)
{
    *t = (ith_attend_tensors){0};
    if (ith_tensor_file_open(context, path, &t->file))
        return ith_cli_error("%s", ith_context_error(context));
    return read_tensors(context, path, compute, t);
}

int ith_attend_write(ith_context *context, const char *path, ith_attend_tensors *t, const char *plan)
{
    const ith_attn_problem *p = &t->problem;
    ith_tensor o = {.name = "o", .dtype = p->dtype, .dims = 4, .shape = {p->batch, p->q_len, p->heads, p->head_dim}};
    ith_tensor lse = {.name = "lse", .dtype = ITH_F32, .dims = 3, .shape = {p->batch, p->heads, p->q_len}};
    int64_t count = p->batch * p->q_batch_stride;
    void *rounded = NULL;
    o.data = t->o;
    o.bytes = count * ith_dtype_bytes(o.dtype);
    int code = t->stored == o.dtype ? ITH_EXIT_DONE : convert(context, &o, t->stored, &rounded);
    if (rounded)
        o.data = rounded, o.dtype = t->stored, o.bytes = count * ith_dtype_bytes(o.dtype);
    lse.data = t->lse, lse.bytes = p->batch * p->heads * p->q_len * 4;
    const ith_tensor both[2] = {o, lse};
    static const char *const keys[] = {"plan"};
    if (!code && ith_tensor_file_write(context, path, both, 2, keys, &plan, 1))
        code = ith_cli_error("%s", ith_context_error(context));
    free(rounded);
    return code;
}

void ith_attend_free(ith_attend_tensors *t)
{
    for (int i = 0; i < 3; i++)
        free(t->copies[i]);
    free(t->key_bias);
    free(t->o);
    free(t->lse);
    ith_tensor_file_close(&t->file);
}
