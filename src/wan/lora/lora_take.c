/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the changes of LoRA files to the layers that ask for them (lora.h). */
#include "lora_state.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/size.h"
#include "../../files/quote.h"

#include <stdio.h>
#include <string.h>

void ith_lora_restart(ith_lora *lora)
{
    for (int64_t i = 0; lora && i < lora->count; i++)
        lora->entries[i].taken = false;
}

/* The index of the first entry of a module, or of the place where it would be. */
static int64_t first_of(const ith_lora *lora, const char *module)
{
    int64_t low = 0, high = lora ? lora->count : 0;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (strcmp(lora->entries[middle].module, module) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of(const ith_lora *lora, int64_t index, const char *module)
{
    return lora && index < lora->count && !strcmp(lora->entries[index].module, module);
}

/* Checks that a tensor has `rows` rows of `width` numbers. A row may have several dimensions. */
static ith_status check_shape(ith_context *context, const ith_lora *lora, const ith_lora_entry *e, int64_t rows,
                              int64_t width)
{
    const ith_tensor *t = e->tensor;
    if (t->dims >= 1 && t->shape[0] == rows && ith_tensor_elements(t) == rows * width)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT,
                    "%s: tensor '%s' has the shape %s; the model asks for [%lld, %lld]: the LoRA is for a model of "
                    "another size",
                    ith_lora_path_of(lora, e), ith_quote(t->name).text, ith_shape_print(t->dims, t->shape).text,
                    (long long)rows, (long long)width);
}

static ith_linear_weight matrix_of(const ith_lora *lora, const ith_lora_entry *e)
{
    return (ith_linear_weight){.data = e->copy ? e->copy : e->tensor->data,
                               .type = e->tensor->dtype,
                               .rows = e->tensor->shape[0],
                               .file = e->copy ? NULL : ith_lora_path_of(lora, e)};
}

ith_status ith_lora_matrix(ith_context *context, ith_lora *lora, const ith_lora_target *matrix, bool marks,
                           ith_linear_addition *out, int64_t *count)
{
    const char *module = matrix->module;
    ith_status status = ITH_OK;
    if (lora && lora->random_rank && ith_name_after(module, "blocks."))
        out[(*count)++] =
            (ith_linear_addition){.matrix = matrix->index,
                                  .factor = 1,
                                  .down = {.data = lora->random, .type = ITH_BF16, .rows = lora->random_rank},
                                  .up = {.data = lora->random, .type = ITH_BF16, .rows = matrix->rows}};
    for (int64_t i = first_of(lora, module); is_of(lora, i, module) && !status; i++) {
        ith_lora_entry *e = &lora->entries[i];
        ith_linear_addition addition = {.matrix = matrix->index, .factor = (float)e->factor};
        if (e->role == ITH_LORA_DOWN) {
            const ith_lora_entry *up = &lora->entries[e->up];
            status = check_shape(context, lora, e, e->tensor->shape[0], matrix->in);
            if (!status)
                status = check_shape(context, lora, up, matrix->rows, e->tensor->shape[0]);
            addition.down = matrix_of(lora, e), addition.up = matrix_of(lora, up);
        } else if (e->role == ITH_LORA_WEIGHT) {
            status = check_shape(context, lora, e, matrix->rows, matrix->in);
            addition.up = matrix_of(lora, e);
        }
        if (addition.up.data)
            out[(*count)++] = addition;
        if (marks)
            e->taken |= e->role == ITH_LORA_UP || e->role == ITH_LORA_ALPHA || addition.up.data;
    }
    return status;
}

/* Adds factor times elements [first, first + count) of a tensor to `to`. file: its path, or words for it. */
static ith_status add_elements(ith_context *context, const char *file, const ith_tensor *tensor, int64_t first,
                               int64_t count, float factor, float *to)
{
    float piece[256];
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < count && !status; i += ITH_COUNT(piece)) {
        const int64_t n = ith_min64(ITH_COUNT(piece), count - i);
        status = ith_tensor_part_to_f32(context, file, tensor, first + i, n, piece);
        for (int64_t j = 0; j < n && !status; j++)
            to[i + j] += factor * piece[j];
    }
    return status;
}

/* Adds the changes with a role in a module to values [count]; NULL: only checks them. */
static ith_status add_vector(ith_context *context, ith_lora *lora, const char *module, ith_lora_role role,
                             int64_t count, bool marks, float *values)
{
    ith_status status = ITH_OK;
    for (int64_t i = first_of(lora, module); is_of(lora, i, module) && !status; i++) {
        ith_lora_entry *e = &lora->entries[i];
        if (e->role != role)
            continue;
        e->taken |= marks;
        if (ith_tensor_elements(e->tensor) != count)
            return ith_fail(context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' has the shape %s; the model asks for %lld numbers",
                            ith_lora_path_of(lora, e), ith_quote(e->tensor->name).text,
                            ith_shape_print(e->tensor->dims, e->tensor->shape).text, (long long)count);
        if (values)
            status = add_elements(context, ith_lora_path_of(lora, e), e->tensor, 0, count, (float)e->factor, values);
    }
    return status;
}

ith_status ith_lora_floats(ith_context *context, ith_lora *lora, const char *tensor, int64_t count, bool marks,
                           float *values)
{
    static const struct {
        const char *name;
        ith_lora_role role;
    } kinds[] = {{"weight", ITH_LORA_WEIGHT}, {"bias", ITH_LORA_BIAS}, {"scale_shift_table", ITH_LORA_MODULATION}};
    const char *dot = strrchr(tensor, '.'), *name = dot ? dot + 1 : tensor;
    char module[ITH_STORE_NAME_BYTES];
    ith_status status = add_vector(context, lora, tensor, ITH_LORA_WEIGHT, count, marks, values);
    snprintf(module, sizeof module, "%.*s", dot ? (int)(dot - tensor) : 0, tensor);
    for (int i = 0; i < ITH_COUNT(kinds) && !status; i++)
        if (!strcmp(name, kinds[i].name))
            status = add_vector(context, lora, module, kinds[i].role, count, marks, values);
    return status;
}

/* Adds factor times numbers [first, first + count) of a matrix to `to`. */
static ith_status add_numbers(ith_context *context, const ith_linear_weight *matrix, int64_t first, int64_t count,
                              float factor, float *to)
{
    const ith_tensor tensor = {.dtype = matrix->type, .data = matrix->data};
    return add_elements(context, matrix->file ? matrix->file : "a LoRA", &tensor, first, count, factor, to);
}

ith_status ith_lora_merge_row(ith_context *context, const ith_linear_addition *additions, int64_t count, int64_t row,
                              int64_t in, float *to)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        const ith_linear_addition *a = &additions[i];
        const int64_t rank = a->down.rows;
        if (!rank)
            status = add_numbers(context, &a->up, row * in, in, a->factor, to);
        for (int64_t r = 0; r < rank && !status; r++) {
            float up = 0;
            status = add_numbers(context, &a->up, row * rank + r, 1, a->factor, &up);
            if (!status)
                status = add_numbers(context, &a->down, r * in, in, up, to);
        }
    }
    return status;
}

ith_status ith_lora_check_all_taken(ith_context *context, const ith_lora *lora)
{
    const ith_lora_entry *first = NULL;
    int64_t left = 0;
    for (int64_t i = 0; lora && i < lora->count; i++)
        if (!lora->entries[i].taken) {
            first = first ? first : &lora->entries[i];
            left++;
        }
    if (!first)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: tensor '%s' changes nothing in this model (%lld such)%s",
                    ith_lora_path_of(lora, first), ith_quote(first->tensor->name).text, (long long)left,
                    ith_lora_reads_image(first->module) ? ": the LoRA is for a Wan 2.1 image-to-video model" : "");
}
