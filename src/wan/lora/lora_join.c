/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the matrices of each product of a LoRA with their alpha (lora_state.h). */
#include "lora_state.h"

#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../files/mapping.h"
#include "../../files/quote.h"
#include "../../files/suffix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a pattern of PEFT fits a module. A pattern is the name of the module, or the part of the name after a dot. A
 * pattern that begins with '^' fits the whole name only. */
static bool fits(const char *pattern, const char *module)
{
    const bool whole = *pattern == '^';
    const char *at = whole ? NULL : ith_suffix(module, pattern);
    return at ? at[-1] == '.' : !strcmp(module, pattern + whole);
}

/* Whether a pattern fits the module of a matrix: its name in the file, or its canonical name. */
static bool fits_matrix(const char *pattern, const ith_lora_entry *down)
{
    char module[ITH_STORE_NAME_BYTES];
    const char *name = ith_name_after(down->tensor->name, "base_model.model.");
    name = name ? name : down->tensor->name;
    const char *end = strstr(name, ".lora");
    snprintf(module, sizeof module, "%.*s", end ? (int)(end - name) : 0, name);
    return fits(pattern, module) || fits(pattern, down->module);
}

/* Reads alpha of a module from the settings' patterns: the first one that fits the module counts, as in PEFT. */
static ith_status alpha_of_patterns(const ith_lora *lora, const ith_lora_entry *down, double *alpha)
{
    const ith_lora_opened *file = &lora->files[down->file];
    const char *pattern = NULL;
    double own = 0;
    ith_status status = ITH_OK;
    while (!(status = ith_json_next_number(lora->context, file->settings,
                                           ith_lora_setting(file, ITH_LORA_PREFIX "alpha_pattern"), &pattern, &own)) &&
           pattern) {
        if (strpbrk(pattern + (*pattern == '^'), "\\^$*+?()[]{}|"))
            return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                            "%s: '%s' is a regular expression; only names of modules and their ends are supported",
                            ith_json_path(file->settings), ith_quote(pattern).text);
        if (fits_matrix(pattern, down)) {
            *alpha = own;
            break;
        }
    }
    return status;
}

/* Reads alpha of a module from the settings. */
static ith_status alpha_of_settings(const ith_lora *lora, const ith_lora_entry *down, double rank, double *alpha)
{
    const ith_lora_opened *file = &lora->files[down->file];
    ith_context *context = lora->context;
    *alpha = rank;
    if (!file->settings)
        return ITH_OK;
    bool root = false;
    ith_status status =
        ith_json_double(context, file->settings, ith_lora_setting(file, ITH_LORA_PREFIX "lora_alpha"), rank, alpha);
    if (!status)
        status = alpha_of_patterns(lora, down, alpha);
    if (!status)
        status =
            ith_json_bool(context, file->settings, ith_lora_setting(file, ITH_LORA_PREFIX "use_rslora"), false, &root);
    if (root) /* arXiv:2312.03732: alpha / sqrt(rank) */
        *alpha *= sqrt(rank);
    return status;
}

/* Reads the alpha of a file. Files that tools have converted have it as an integer. */
static ith_status read_alpha(const ith_lora *lora, const ith_lora_entry *entry, double *alpha)
{
    const ith_tensor *t = entry->tensor;
    int32_t whole = 0;
    int64_t wide = 0;
    float real = 0;
    ith_status status = ITH_OK;
    if (ith_tensor_elements(t) != 1)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' has %lld numbers; alpha is one number",
                        ith_lora_path_of(lora, entry), ith_quote(t->name).text, (long long)ith_tensor_elements(t));
    if (t->dtype == ITH_I32)
        status = ith_mapping_copy(lora->context, ith_lora_path_of(lora, entry), &whole, t->data, sizeof whole);
    else if (t->dtype == ITH_I64)
        status = ith_mapping_copy(lora->context, ith_lora_path_of(lora, entry), &wide, t->data, sizeof wide);
    else
        status = ith_tensor_part_to_f32(lora->context, ith_lora_path_of(lora, entry), t, 0, 1, &real);
    *alpha = (double)whole + (double)wide + (double)real;
    return status;
}

/* Sets the factor of a DOWN entry, strength alpha / rank. alpha: the ALPHA entry of the same module; NULL: none. */
static ith_status set_factor(const ith_lora *lora, ith_lora_entry *down, const ith_lora_entry *alpha)
{
    const double rank = (double)down->tensor->shape[0];
    double value = 0;
    ith_status status = alpha ? read_alpha(lora, alpha, &value) : alpha_of_settings(lora, down, rank, &value);
    if (!status && !isfinite((float)value))
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: alpha of '%s' is not finite", ith_lora_path_of(lora, down),
                        down->module);
    down->factor *= value / rank;
    if (!status && !isfinite((float)down->factor)) /* f32 numbers are multiplied by it */
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: strength alpha / rank of '%s' is %g, too large for f32",
                        ith_lora_path_of(lora, down), down->module, down->factor);
    return status;
}

/* Finds the entry with a role among the `count` entries of one module in one file. */
static ith_lora_entry *with_role(ith_lora_entry *entries, int64_t count, ith_lora_role role)
{
    for (int64_t i = 0; i < count; i++)
        if (entries[i].role == role)
            return &entries[i];
    return NULL;
}

/* Checks that two parts of one product are of one adapter. */
static ith_status check_adapter(const ith_lora *lora, const ith_lora_entry *x, const ith_lora_entry *y)
{
    const size_t length = strcspn(x->adapter, ".");
    if (length == strcspn(y->adapter, ".") && !strncmp(x->adapter, y->adapter, length))
        return ITH_OK;
    return ith_fail(lora->context, ITH_ERR_FORMAT,
                    "%s: tensors '%s' and '%s' are of two adapters; a file may have one, with both of its matrices",
                    ith_lora_path_of(lora, x), ith_quote(x->tensor->name).text, ith_quote(y->tensor->name).text);
}

/* Checks that the matrices of one product are of one rank. */
static ith_status check_rank(const ith_lora *lora, const ith_lora_entry *down, const ith_lora_entry *up)
{
    const ith_tensor *a = down->tensor, *b = up->tensor;
    if (a->dims < 2 || a->shape[0] < 1)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' has the shape %s instead of [rank, inputs]",
                        ith_lora_path_of(lora, down), ith_quote(a->name).text, ith_shape_print(a->dims, a->shape).text);
    if (b->dims >= 2 && b->shape[0] >= 1 && ith_tensor_elements(b) / b->shape[0] != a->shape[0])
        return ith_fail(lora->context, ITH_ERR_FORMAT,
                        "%s: tensors '%s' and '%s' have two ranks, %lld and %lld; the matrices of one product have one",
                        ith_lora_path_of(lora, down), ith_quote(a->name).text, ith_quote(b->name).text,
                        (long long)a->shape[0], (long long)(ith_tensor_elements(b) / b->shape[0]));
    return ITH_OK;
}

/* Joins DOWN, UP, ALPHA and UP_BIAS among the `count` entries of one module in one file. */
static ith_status join(ith_lora *lora, ith_lora_entry *entries, int64_t count)
{
    ith_lora_entry *down = with_role(entries, count, ITH_LORA_DOWN), *up = with_role(entries, count, ITH_LORA_UP);
    ith_lora_entry *bias = with_role(entries, count, ITH_LORA_UP_BIAS);
    const ith_lora_entry *alpha = with_role(entries, count, ITH_LORA_ALPHA);
    const ith_lora_entry *lone = down ? down : up ? up : alpha ? alpha : bias;
    for (int64_t i = 1; i < count; i++)
        if (entries[i].role == entries[i - 1].role)
            return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensors '%s' and '%s' are for the same part",
                            ith_lora_path_of(lora, entries), ith_quote(entries[i - 1].tensor->name).text,
                            ith_quote(entries[i].tensor->name).text);
    if (!lone)
        return ITH_OK;
    if (!down || !up)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' is there, but not %s",
                        ith_lora_path_of(lora, entries), ith_quote(lone->tensor->name).text,
                        down ? "the matrix up of its product" : "the matrix down");
    down->up = up - lora->entries;
    ith_status status = check_adapter(lora, down, up);
    if (!status && bias)
        status = check_adapter(lora, up, bias);
    if (!status)
        status = check_rank(lora, down, up);
    if (!status)
        status = set_factor(lora, down, alpha);
    if (bias)
        bias->role = ITH_LORA_BIAS, bias->factor = down->factor;
    return status;
}

/* Checks the type of an entry. Copies the data of a matrix whose address is not a multiple of the size of its type. */
static ith_status align(ith_lora *lora, ith_lora_entry *entry)
{
    const ith_tensor *t = entry->tensor;
    if (entry->role == ITH_LORA_ALPHA && (t->dtype == ITH_I32 || t->dtype == ITH_I64 || t->dtype == ITH_F64))
        return ITH_OK;
    if (!ith_dtype_is_operand(t->dtype))
        return ith_fail(lora->context, ITH_ERR_UNSUPPORTED, "%s: tensor '%s' is of type %s; a LoRA is F32, F16 or BF16",
                        ith_lora_path_of(lora, entry), ith_quote(t->name).text, ith_tensor_type_name(t->dtype));
    return ith_tensor_align(lora->context, ith_lora_path_of(lora, entry), t, &entry->copy);
}

static int by_place(const void *a, const void *b)
{
    const ith_lora_entry *x = a, *y = b;
    const int order = strcmp(x->module, y->module);
    if (order)
        return order;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x->role > y->role) - (x->role < y->role);
}

ith_status ith_lora_join(ith_lora *lora)
{
    ith_status status = ITH_OK;
    qsort(lora->entries, (size_t)lora->count, sizeof *lora->entries, by_place);
    for (int64_t i = 0; i < lora->count && !status; i++)
        status = align(lora, &lora->entries[i]);
    for (int64_t first = 0, end; first < lora->count && !status; first = end) {
        ith_lora_entry *e = &lora->entries[first];
        for (end = first + 1; end < lora->count && lora->entries[end].file == e->file; end++)
            if (strcmp(lora->entries[end].module, e->module))
                break;
        status = join(lora, e, end - first);
    }
    return status;
}
