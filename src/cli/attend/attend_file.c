/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the tensors of ithaca attend, and writes its results (attend_file.h). */
#include "attend_file.h"

#include "../cli.h"
#include "../option/complaint.h"
#include "../support/text_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(const char *what, int64_t bytes)
{
    return ith_cli_error("there is no memory for %s (%lld bytes)", what, (long long)bytes);
}

/* Writes the shape of a tensor into text, such as "[2, 131, 6, 64]", and returns text. */
static const char *shape_text(const ith_tensor *tensor, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < tensor->dims && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    if (length < bytes)
        snprintf(text + length, bytes - length, "]");
    return text;
}

/* Prints that a tensor has the wrong shape. rule: the shape that it must have, in words. */
static int misshapen(const ith_attend_file *t, const ith_tensor *tensor, const char *rule)
{
    char text[200];
    return ith_cli_error("%s: tensor '%s' is of shape %s; it must be %s", t->path, tensor->name,
                         shape_text(tensor, text, sizeof text), rule);
}

/* Whether sizes and strides can be computed from the shape of a tensor with four dimensions. An empty sequence counts
 * as one row, because it takes no bytes from the file. */
static bool is_countable(const ith_tensor *tensor)
{
    int64_t product = 64; /* the library asks for as much room (ith_attn_problem) */
    for (int i = 0; i < 4; i++)
        if (__builtin_mul_overflow(product, tensor->shape[i] ? tensor->shape[i] : 1, &product))
            return false;
    return true;
}

/* Finds the tensor `name` (q, k or v) in the file, and checks that it has four dimensions and a type for attention. */
static int find(const ith_attend_file *t, const char *name, const ith_tensor **tensor)
{
    *tensor = ith_tensor_file_find(t->file, name);
    if (!*tensor)
        return ith_cli_error("%s: there is no tensor '%s'; q, k and v are needed", t->path, name);
    if ((*tensor)->dims != 4)
        return misshapen(t, *tensor, "[batch, sequence, heads, head size]");
    if ((*tensor)->shape[0] < 1 || (*tensor)->shape[2] < 1 || (*tensor)->shape[3] < 1)
        return misshapen(t, *tensor, "at least 1 everywhere but in its sequence");
    if (!is_countable(*tensor))
        return misshapen(t, *tensor, "smaller: its sizes multiply to more than a size can hold");
    ith_dtype type = (*tensor)->dtype;
    if (type != ITH_F32 && type != ITH_BF16 && type != ITH_F16)
        return ith_cli_error("%s: tensor '%s' is of type %s; attention takes f32, bf16 and f16", t->path, name,
                             ith_dtype_name(type));
    return ITH_EXIT_DONE;
}

/* Checks that the shapes and the types of q, k and v fit together. */
static int check_shapes(const ith_attend_file *t, const ith_tensor *q, const ith_tensor *k, const ith_tensor *v)
{
    if (memcmp(k->shape, v->shape, 4 * sizeof *k->shape))
        return misshapen(t, v, "the shape of k");
    if (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3])
        return misshapen(t, k, "of q's batch and head size");
    if (q->shape[2] % k->shape[2])
        return misshapen(t, k, "of a number of heads that divides q's");
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return ith_cli_error("%s: q, k and v are of types %s, %s and %s; they must be of one", t->path,
                             ith_dtype_name(q->dtype), ith_dtype_name(k->dtype), ith_dtype_name(v->dtype));
    return ITH_EXIT_DONE;
}

/* Allocates an array of `count` elements, which ith_attend_file_close frees. what: the name of the array in the error
 * message. */
static int own(ith_attend_file *t, const char *what, int64_t count, int64_t element_bytes, void **out)
{
    int64_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        return ith_cli_error("%s has more elements than there can be memory for", what);
    *out = ith_attend_own(&t->whole, bytes);
    return *out ? ITH_EXIT_DONE : no_memory(what, bytes);
}

/* Converts the elements of a tensor to another type, in new memory. */
static int convert(ith_context *context, ith_attend_file *t, const ith_tensor *tensor, ith_dtype type, void **out)
{
    int64_t count = ith_tensor_elements(tensor);
    if (type == ITH_F32) {
        int code = own(t, tensor->name, count, 4, out);
        if (!code && ith_tensor_to_f32(context, tensor, *out))
            code = ith_cli_error("%s: %s", t->path, ith_context_error(context));
        return code;
    }
    float *values = malloc((size_t)count * sizeof *values + 1);
    int code = values ? own(t, tensor->name, count, ith_dtype_bytes(type), out) : no_memory(tensor->name, count * 4);
    if (!code &&
        (ith_tensor_to_f32(context, tensor, values) || ith_tensor_from_f32(context, values, count, type, *out)))
        code = ith_cli_error("%s: %s", t->path, ith_context_error(context));
    free(values);
    return code;
}

/* Sets *data to a copy of the elements of a tensor in `type`. The computation does not read the mapped file itself,
 * because another process may cut it. */
static int load(ith_context *context, ith_attend_file *t, const ith_tensor *tensor, ith_dtype type, const void **data)
{
    void *copy = NULL;
    int code = ITH_EXIT_DONE;
    if (tensor->dtype != type) {
        code = convert(context, t, tensor, type, &copy);
    } else {
        code = own(t, tensor->name, tensor->bytes, 1, &copy);
        if (!code && ith_tensor_copy(context, tensor, copy))
            code = ith_cli_error("%s: %s", t->path, ith_context_error(context));
    }
    *data = copy;
    return code;
}

/* Reads the optional i32 tensor kv_lengths [B], and checks that each length is from 0 to Skv. */
static int read_lengths(ith_context *context, ith_attend_file *t)
{
    const ith_tensor *lengths = ith_tensor_file_find(t->file, "kv_lengths");
    ith_attn_problem *p = &t->whole.problem;
    const void *data = NULL;
    if (!lengths)
        return ITH_EXIT_DONE;
    if (lengths->dims != 1 || lengths->shape[0] != p->batch)
        return misshapen(t, lengths, "[batch]");
    if (lengths->dtype != ITH_I32)
        return ith_cli_error("%s: tensor 'kv_lengths' is of type %s; it must be i32", t->path,
                             ith_dtype_name(lengths->dtype));
    int code = load(context, t, lengths, ITH_I32, &data);
    const int32_t *values = data;
    for (int64_t b = 0; !code && b < p->batch; b++)
        if (values[b] < 0 || values[b] > p->kv_len)
            return ith_cli_error("%s: kv_lengths[%lld] is %d; k has %lld rows", t->path, (long long)b, (int)values[b],
                                 (long long)p->kv_len);
    t->whole.tensors.kv_lengths = values;
    p->has_kv_lengths = true;
    return code;
}

/* Reads the optional f32 tensor key_bias [B, Skv]. */
static int read_key_bias(ith_context *context, ith_attend_file *t)
{
    const ith_tensor *bias = ith_tensor_file_find(t->file, "key_bias");
    ith_attn_problem *p = &t->whole.problem;
    const void *data = NULL;
    if (!bias)
        return ITH_EXIT_DONE;
    if (bias->dims != 2 || bias->shape[0] != p->batch || bias->shape[1] != p->kv_len)
        return misshapen(t, bias, "[batch, keys]");
    if (bias->dtype != ITH_F32)
        return ith_cli_error("%s: tensor 'key_bias' is of type %s; it must be f32", t->path,
                             ith_dtype_name(bias->dtype));
    int code = load(context, t, bias, ITH_F32, &data);
    t->whole.tensors.key_bias = data;
    p->has_key_bias = true;
    return code;
}

/* Copies the single row of a mask [.., .., 1, Skv] once for each query, because the library takes masks with a row per
 * query. */
static int repeat_rows(ith_context *context, ith_attend_file *t, const ith_tensor *mask, const void **data)
{
    const ith_attn_problem *p = &t->whole.problem;
    int64_t rows, row_bytes = mask->shape[3] * ith_dtype_bytes(mask->dtype);
    const void *once = NULL;
    void *all = NULL;
    if (__builtin_mul_overflow(mask->shape[0] * mask->shape[1], p->q_len, &rows))
        return ith_cli_error("the mask has more rows than there can be memory for");
    int code = load(context, t, mask, mask->dtype, &once);
    if (!code)
        code = own(t, "the mask", rows, row_bytes, &all);
    for (int64_t row = 0; !code && row < rows; row++)
        memcpy((char *)all + row * row_bytes, (const char *)once + row / p->q_len * row_bytes, (size_t)row_bytes);
    *data = all;
    return code;
}

/* Whether an axis of a mask can be broadcast: its size is 1 or the size of the problem's axis. */
static bool broadcasts(int64_t size, int64_t whole)
{
    return size == 1 || size == whole;
}

/* Reads the optional tensor mask [B or 1, H or 1, Sq or 1, Skv] of type bool or f32. */
static int read_mask(ith_context *context, ith_attend_file *t)
{
    const ith_tensor *mask = ith_tensor_file_find(t->file, "mask");
    ith_attn_problem *p = &t->whole.problem;
    if (!mask)
        return ITH_EXIT_DONE;
    if (mask->dims != 4 || !broadcasts(mask->shape[0], p->batch) || !broadcasts(mask->shape[1], p->heads) ||
        !broadcasts(mask->shape[2], p->q_len) || mask->shape[3] != p->kv_len)
        return misshapen(t, mask, "[batch or 1, heads or 1, queries, keys]");
    if (mask->dtype != ITH_BOOL && mask->dtype != ITH_F32)
        return ith_cli_error("%s: tensor 'mask' is of type %s; it must be bool or f32", t->path,
                             ith_dtype_name(mask->dtype));
    p->mask = mask->dtype == ITH_BOOL ? ITH_MASK_BOOL : ITH_MASK_ADDITIVE;
    p->mask_batch = mask->shape[0], p->mask_heads = mask->shape[1];
    if (mask->shape[2] != p->q_len)
        return repeat_rows(context, t, mask, &t->whole.tensors.mask);
    return load(context, t, mask, mask->dtype, &t->whole.tensors.mask);
}

/* Reads the scale of the logits from the file's metadata 'scale'. Python writers store metadata as JSON, so the number
 * may be in quotes. */
static int read_scale(ith_attend_file *t)
{
    const char *text = ith_tensor_file_metadata(t->file, "scale");
    if (!text)
        return ITH_EXIT_DONE;
    char *end = NULL;
    double scale = strtod(text + (*text == '"'), &end);
    bool whole = end != text && (*end == '\0' || (*text == '"' && !strcmp(end, "\"")));
    if (!whole || !isfinite((float)scale) || (float)scale == 0)
        return ith_cli_error("%s: metadata 'scale' is '%.40s'; it must be a finite f32 number other than 0", t->path,
                             text);
    t->whole.problem.scale = (float)scale;
    return ITH_EXIT_DONE;
}

/* Fills in the problem's sizes, type and strides from the shapes of q and k. */
static void describe(ith_attend_file *t, const ith_tensor *q, const ith_tensor *k, ith_dtype type)
{
    ith_attn_problem *p = &t->whole.problem;
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = q->shape[0], p->q_len = q->shape[1], p->heads = q->shape[2], p->head_dim = q->shape[3];
    p->kv_len = k->shape[1], p->kv_heads = k->shape[2];
    p->dtype = type;
    ith_attend_set_strides(p);
}

/* Reads all input tensors, converts them to the type of the computation, and allocates o and lse. */
static int read_tensors(ith_context *context, ith_dtype compute, ith_attend_file *t)
{
    const ith_tensor *q, *k, *v;
    ith_attn_tensors *all = &t->whole.tensors;
    if (find(t, "q", &q) || find(t, "k", &k) || find(t, "v", &v) || check_shapes(t, q, k, v))
        return ITH_EXIT_FAILED;
    t->stored = q->dtype;
    ith_dtype type = compute ? compute : q->dtype;
    describe(t, q, k, type);
    if (load(context, t, q, type, &all->q) || load(context, t, k, type, &all->k) || load(context, t, v, type, &all->v))
        return ITH_EXIT_FAILED;
    if (read_lengths(context, t) || read_key_bias(context, t) || read_mask(context, t) || read_scale(t))
        return ITH_EXIT_FAILED;
    return ith_attend_own_results(&t->whole) ? ITH_EXIT_DONE : ith_cli_error("there is no memory for o and lse");
}

void ith_attend_file_warn(const ith_attend_file *t)
{
    /* the tensors that are used, and results, which may lie beside them */
    static const char *const known[] = {"q", "k", "v", "kv_lengths", "key_bias", "mask", "o", "lse", NULL};
    const char *first = NULL;
    char more[40] = "";
    int64_t count = 0;
    for (int64_t i = 0; i < ith_tensor_file_count(t->file); i++)
        if (!ith_text_is_among(ith_tensor_file_at(t->file, i)->name, known) && !count++)
            first = ith_tensor_file_at(t->file, i)->name;
    if (count > 1)
        snprintf(more, sizeof more, " and %lld more", (long long)count - 1);
    if (count)
        ith_error_print("warning: %s: not used: tensor '%.100s'%s; q, k, v, kv_lengths, key_bias and mask are used",
                        t->path, first, more);
}

int ith_attend_file_read(ith_context *context, const char *path, ith_dtype compute, ith_attend_file *t)
{
    *t = (ith_attend_file){.path = path};
    if (ith_tensor_file_open(context, path, &t->file))
        return ith_cli_error("%s", ith_context_error(context));
    return read_tensors(context, compute, t);
}

int ith_attend_file_write(ith_context *context, const char *path, ith_attend_file *t, const char *plan)
{
    const ith_attn_problem *p = &t->whole.problem;
    ith_tensor o = {.struct_size = sizeof(ith_tensor),
                    .name = "o",
                    .dtype = p->dtype,
                    .dims = 4,
                    .shape = {p->batch, p->q_len, p->heads, p->head_dim}};
    ith_tensor lse = {.struct_size = sizeof(ith_tensor),
                      .name = "lse",
                      .dtype = ITH_F32,
                      .dims = 3,
                      .shape = {p->batch, p->heads, p->q_len}};
    int64_t count = p->batch * p->o_batch_stride;
    o.data = t->whole.tensors.o, o.bytes = count * ith_dtype_bytes(o.dtype);
    lse.data = t->whole.tensors.lse, lse.bytes = p->batch * p->heads * p->q_len * 4;
    if (t->stored != o.dtype) {
        void *rounded = NULL;
        if (convert(context, t, &o, t->stored, &rounded))
            return ITH_EXIT_FAILED;
        o.data = rounded, o.dtype = t->stored, o.bytes = count * ith_dtype_bytes(o.dtype);
    }
    const ith_tensor both[2] = {o, lse};
    static const char *const keys[] = {"plan"};
    if (ith_tensor_file_write(context, path, both, 2, keys, &plan, 1))
        return ith_cli_error("%s", ith_context_error(context));
    return ITH_EXIT_DONE;
}

void ith_attend_file_close(ith_attend_file *t)
{
    ith_attend_free(&t->whole);
    ith_tensor_file_close(&t->file);
}
