/* SPDX-License-Identifier: Apache-2.0 */
/* Reads LoRA files, and finds the changes to each module in them (lora.h). The tensors of all files form one list,
 * ordered by module. */
#include "lora.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/dtype.h"
#include "../../base/hash.h"
#include "../../base/size.h"
#include "../../files/json.h"
#include "../../files/mapping.h"
#include "../../files/quote.h"
#include "../../files/suffix.h"
#include "../../files/tensor.h"
#include "lora_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "lora_adapter_metadata" /* diffusers' key for the settings of PEFT, as JSON text */

/* The names of the settings. A pipeline of diffusers saves them with a prefix, and a transformer without. */
typedef struct setting_names {
    const char *alpha, *patterns, *root, *dora;
} setting_names;
static const setting_names prefixed = {"transformer.lora_alpha", "transformer.alpha_pattern", "transformer.use_rslora",
                                       "transformer.use_dora"};
static const setting_names bare = {"lora_alpha", "alpha_pattern", "use_rslora", "use_dora"};

/* A tensor of a file, and its part in a module. */
typedef struct lora_entry {
    char *module; /* canonical name */
    int file;
    ith_lora_role role;
    const ith_tensor *tensor;
    void *copy;    /* aligned copy of data that are misaligned in the file; NULL: none */
    double factor; /* DOWN: strength alpha / rank; other roles: strength */
    int64_t up;    /* DOWN: index of the UP of the same product */
    bool taken;
} lora_entry;

typedef struct lora_file {
    char *path;
    ith_tensor_file *file;
    ith_json *settings; /* NULL: the file has none */
    const setting_names *names;
    double strength;
} lora_file;

struct ith_lora {
    ith_context *context;
    lora_file files[ITH_LORA_FILES_MAX];
    int file_count;
    lora_entry *entries; /* ordered by module, file and role */
    int64_t count;
    int64_t random_rank, random_count; /* without files: the rank, and the number of numbers that all matrices share */
    uint16_t *random;                  /* [random_count], bf16 */
};

static int by_place(const void *a, const void *b)
{
    const lora_entry *x = a, *y = b;
    const int order = strcmp(x->module, y->module);
    if (order)
        return order;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x->role > y->role) - (x->role < y->role);
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Makes an entry of each tensor of a file. */
static ith_status list_file(ith_lora *lora, int index)
{
    const lora_file *file = &lora->files[index];
    const char *unknown = NULL;
    int64_t unknowns = 0;
    ith_lora_key key;
    for (int64_t i = 0; i < ith_tensor_file_count(file->file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(file->file, i);
        const char *form = ith_lora_key_unbuilt(tensor->name);
        if (form)
            return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                            "%s: tensor '%s' belongs to a %s; only LoRA and plain differences are built", file->path,
                            ith_quote(tensor->name).text, form);
        if (!ith_lora_key_read(tensor->name, &key)) {
            unknown = unknown ? unknown : tensor->name;
            unknowns++;
            continue;
        }
        lora_entry *entry = &lora->entries[lora->count];
        *entry = (lora_entry){.file = index, .role = key.role, .tensor = tensor, .factor = file->strength, .up = -1};
        entry->module = ith_strdup(lora->context, key.module);
        if (!entry->module)
            return ITH_ERR_MEMORY;
        lora->count++;
    }
    if (!unknown)
        return ITH_OK;
    return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                    "%s: tensor '%s' is no part of a LoRA for a Wan transformer (%lld of %lld tensors are none)",
                    file->path, ith_quote(unknown).text, (long long)unknowns,
                    (long long)ith_tensor_file_count(file->file));
}

/* Reads the settings that diffusers writes into the metadata of a file. */
static ith_status read_settings(ith_lora *lora, lora_file *file)
{
    const char *text = ith_tensor_file_metadata(file->file, METADATA);
    if (!text)
        return ITH_OK;
    char *where = ith_format(lora->context, "%s: " METADATA, file->path);
    ith_status status =
        where ? ith_json_parse(lora->context, where, text, (int64_t)strlen(text), &file->settings) : ITH_ERR_MEMORY;
    ith_free(lora->context, where);
    bool dora = false;
    file->names = &bare;
    for (const char *key = NULL; !status && (key = ith_json_next_key(file->settings, key));)
        if (!strncmp(key, "transformer.", strlen("transformer.")))
            file->names = &prefixed;
    if (!status)
        status = ith_json_bool(lora->context, file->settings, file->names->dora, false, &dora);
    if (!status && dora)
        status = ith_fail(lora->context, ITH_ERR_UNSUPPORTED, "%s: it is a DoRA; only LoRA is built", file->path);
    return status;
}

static ith_status open_file(ith_lora *lora, const ith_lora_source *source)
{
    ith_context *context = lora->context;
    lora_file *file = &lora->files[lora->file_count++];
    file->strength = source->strength;
    if (!isfinite(source->strength))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: a strength of %g; it must be finite", source->path,
                        source->strength);
    file->path = ith_strdup(context, source->path);
    if (!file->path)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tensor_file_open(context, source->path, &file->file);
    if (!status && !ith_tensor_file_count(file->file))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: has no tensors", source->path);
    return status ? status : read_settings(lora, file);
}

/* ---- Factors ---------------------------------------------------------------------------------------------------- */

static const char *path_of(const ith_lora *lora, const lora_entry *entry)
{
    return lora->files[entry->file].path;
}

/* Whether a pattern of PEFT fits a module: its name, or the name's end after a dot; after '^' the whole name alone. */
static bool fits(const char *pattern, const char *module)
{
    const bool whole = *pattern == '^';
    const char *at = whole ? NULL : ith_suffix(module, pattern);
    return at ? at[-1] == '.' : !strcmp(module, pattern + whole);
}

/* Reads alpha of a module from the settings' patterns: the first one that fits the module counts, as in PEFT. */
static ith_status alpha_of_patterns(const ith_lora *lora, const lora_entry *down, double *alpha)
{
    const lora_file *file = &lora->files[down->file];
    const char *pattern = NULL;
    double own = 0;
    ith_status status = ITH_OK;
    while (!(status = ith_json_next_number(lora->context, file->settings, file->names->patterns, &pattern, &own)) &&
           pattern) {
        if (strpbrk(pattern + (*pattern == '^'), "\\^$*+?()[]{}|"))
            return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                            "%s: '%s' is a regular expression; only names of modules and their ends are built",
                            ith_json_path(file->settings), ith_quote(pattern).text);
        if (fits(pattern, down->module)) {
            *alpha = own;
            break;
        }
    }
    return status;
}

/* Reads alpha of a module from the settings. */
static ith_status alpha_of_settings(const ith_lora *lora, const lora_entry *down, double rank, double *alpha)
{
    const lora_file *file = &lora->files[down->file];
    ith_context *context = lora->context;
    *alpha = rank;
    if (!file->settings)
        return ITH_OK;
    bool root = false;
    ith_status status = ith_json_double(context, file->settings, file->names->alpha, rank, alpha);
    if (!status)
        status = alpha_of_patterns(lora, down, alpha);
    if (!status)
        status = ith_json_bool(context, file->settings, file->names->root, false, &root);
    if (root) /* arXiv:2312.03732: alpha / sqrt(rank) */
        *alpha *= sqrt(rank);
    return status;
}

/* Reads the alpha of a file. Files that tools have converted have it as an integer. */
static ith_status read_alpha(const ith_lora *lora, const lora_entry *entry, double *alpha)
{
    const ith_tensor *t = entry->tensor;
    int32_t whole = 0;
    int64_t wide = 0;
    float real = 0;
    ith_status status = ITH_OK;
    if (ith_tensor_elements(t) != 1)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' has %lld numbers; alpha is one number",
                        path_of(lora, entry), ith_quote(t->name).text, (long long)ith_tensor_elements(t));
    if (t->dtype == ITH_I32)
        status = ith_mapping_copy(lora->context, path_of(lora, entry), &whole, t->data, sizeof whole);
    else if (t->dtype == ITH_I64)
        status = ith_mapping_copy(lora->context, path_of(lora, entry), &wide, t->data, sizeof wide);
    else
        status = ith_tensor_part_to_f32(lora->context, path_of(lora, entry), t, 0, 1, &real);
    *alpha = (double)whole + (double)wide + (double)real;
    return status;
}

/* Sets the factor of a DOWN entry, strength alpha / rank. alpha: the ALPHA entry of the same module; NULL: none. */
static ith_status set_factor(const ith_lora *lora, lora_entry *down, const lora_entry *alpha)
{
    const double rank = (double)down->tensor->shape[0];
    double value = 0;
    ith_status status = alpha ? read_alpha(lora, alpha, &value) : alpha_of_settings(lora, down, rank, &value);
    if (!status && !isfinite(value))
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: alpha of '%s' is not finite", path_of(lora, down),
                        down->module);
    down->factor *= value / rank;
    return status;
}

/* Finds the entry with a role among the `count` entries of one module in one file. */
static lora_entry *with_role(lora_entry *entries, int64_t count, ith_lora_role role)
{
    for (int64_t i = 0; i < count; i++)
        if (entries[i].role == role)
            return &entries[i];
    return NULL;
}

/* Joins DOWN, UP, ALPHA and UP_BIAS among the `count` entries of one module in one file. */
static ith_status join(ith_lora *lora, lora_entry *entries, int64_t count)
{
    lora_entry *down = with_role(entries, count, ITH_LORA_DOWN), *up = with_role(entries, count, ITH_LORA_UP);
    lora_entry *bias = with_role(entries, count, ITH_LORA_UP_BIAS);
    const lora_entry *alpha = with_role(entries, count, ITH_LORA_ALPHA);
    const lora_entry *lone = down ? down : up ? up : alpha ? alpha : bias;
    for (int64_t i = 1; i < count; i++)
        if (entries[i].role == entries[i - 1].role)
            return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensors '%s' and '%s' are for the same part",
                            path_of(lora, entries), ith_quote(entries[i - 1].tensor->name).text,
                            ith_quote(entries[i].tensor->name).text);
    if (!lone)
        return ITH_OK;
    if (!down || !up)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' is there, but not %s", path_of(lora, entries),
                        ith_quote(lone->tensor->name).text, down ? "the matrix up of its product" : "the matrix down");
    if (down->tensor->dims < 2 || down->tensor->shape[0] < 1)
        return ith_fail(lora->context, ITH_ERR_FORMAT, "%s: tensor '%s' has the shape %s instead of [rank, inputs]",
                        path_of(lora, down), ith_quote(down->tensor->name).text,
                        ith_shape_print(down->tensor->dims, down->tensor->shape).text);
    down->up = up - lora->entries;
    const ith_status status = set_factor(lora, down, alpha);
    if (bias)
        bias->role = ITH_LORA_BIAS, bias->factor = down->factor;
    return status;
}

/* Checks the type of an entry. Copies the data of a matrix whose address is not a multiple of the size of its type. */
static ith_status align(ith_lora *lora, lora_entry *entry)
{
    const ith_tensor *t = entry->tensor;
    if (entry->role == ITH_LORA_ALPHA && (t->dtype == ITH_I32 || t->dtype == ITH_I64 || t->dtype == ITH_F64))
        return ITH_OK;
    if (!ith_dtype_is_operand(t->dtype))
        return ith_fail(lora->context, ITH_ERR_UNSUPPORTED, "%s: tensor '%s' is of type %s; a LoRA is F32, F16 or BF16",
                        path_of(lora, entry), ith_quote(t->name).text, ith_tensor_type_name(t->dtype));
    if ((uintptr_t)t->data % (uintptr_t)ith_dtype_bytes(t->dtype) == 0)
        return ITH_OK;
    entry->copy = ith_alloc(lora->context, t->bytes, 1, "a LoRA");
    return entry->copy ? ith_mapping_copy(lora->context, path_of(lora, entry), entry->copy, t->data, t->bytes)
                       : ITH_ERR_MEMORY;
}

/* Orders the entries of all files by module, and joins the entries of each module. */
static ith_status join_all(ith_lora *lora)
{
    ith_status status = ITH_OK;
    qsort(lora->entries, (size_t)lora->count, sizeof *lora->entries, by_place);
    for (int64_t i = 0; i < lora->count && !status; i++)
        status = align(lora, &lora->entries[i]);
    for (int64_t first = 0, end; first < lora->count && !status; first = end) {
        lora_entry *e = &lora->entries[first];
        for (end = first + 1; end < lora->count && lora->entries[end].file == e->file; end++)
            if (strcmp(lora->entries[end].module, e->module))
                break;
        status = join(lora, e, end - first);
    }
    return status;
}

ith_status ith_lora_open(ith_context *context, const ith_lora_source *sources, int64_t count, ith_lora **out)
{
    *out = NULL;
    if (count > ITH_LORA_FILES_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld LoRA files for one transformer; there may be at most %d",
                        (long long)count, ITH_LORA_FILES_MAX);
    ith_lora *lora = ith_alloc_zero(context, 1, sizeof *lora, "a LoRA");
    if (!lora)
        return ITH_ERR_MEMORY;
    lora->context = ith_context_hold(context);
    int64_t tensors = 0;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        status = open_file(lora, &sources[i]);
        tensors += ith_tensor_file_count(lora->files[i].file);
    }
    if (!status && !(lora->entries = ith_alloc_zero(context, tensors, sizeof *lora->entries, "a LoRA")))
        status = ITH_ERR_MEMORY;
    for (int i = 0; i < lora->file_count && !status; i++)
        status = list_file(lora, i);
    if (!status)
        status = join_all(lora);
    if (status)
        ith_lora_close(&lora);
    *out = lora;
    return status;
}

void ith_lora_close(ith_lora **lora)
{
    if (!*lora)
        return;
    ith_lora *l = *lora;
    ith_context *context = l->context;
    for (int64_t i = 0; i < l->count; i++) {
        ith_free(context, l->entries[i].module);
        ith_free(context, l->entries[i].copy);
    }
    for (int i = 0; i < l->file_count; i++) {
        ith_json_close(&l->files[i].settings);
        ith_tensor_file_close(&l->files[i].file);
        ith_free(context, l->files[i].path);
    }
    ith_free(context, l->entries);
    ith_free(context, l->random);
    ith_free(context, l);
    ith_context_release(context);
    *lora = NULL;
}

/* ---- Without files ----------------------------------------------------------------------------------------------- */

ith_status ith_lora_make_random(ith_context *context, int64_t rank, int64_t widest, ith_lora **out)
{
    *out = ith_alloc_zero(context, 1, sizeof **out, "a LoRA");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->context = ith_context_hold(context);
    (*out)->random_rank = rank, (*out)->random_count = rank * widest;
    return ITH_OK;
}

ith_status ith_lora_fill_random(ith_lora *lora)
{
    lora->random = ith_alloc(lora->context, lora->random_count, sizeof *lora->random, "a LoRA");
    if (!lora->random)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < lora->random_count; i++) /* from -1/32 to 1/32 */
        lora->random[i] = ith_bf16_from_f32((float)(int32_t)((uint32_t)i * 2654435761u) * 0x1p-36f);
    return ITH_OK;
}

int64_t ith_lora_random_bytes(const ith_lora *lora)
{
    return lora ? (int64_t)sizeof *lora + lora->random_count * (int64_t)sizeof *lora->random + 2 * ITH_ALLOC_HEADER : 0;
}

int64_t ith_lora_block_numbers(const ith_lora *lora)
{
    int64_t numbers = 0;
    for (int64_t i = 0; lora && i < lora->count; i++) {
        const lora_entry *e = &lora->entries[i];
        if ((e->role == ITH_LORA_DOWN || e->role == ITH_LORA_UP) && !strncmp(e->module, "blocks.", 7))
            numbers += ith_tensor_elements(e->tensor);
    }
    return numbers;
}

/* ---- The files --------------------------------------------------------------------------------------------------- */

int ith_lora_count(const ith_lora *lora)
{
    return lora ? lora->file_count : 0;
}

const char *ith_lora_path(const ith_lora *lora, int index)
{
    return lora->files[index].path;
}

double ith_lora_strength(const ith_lora *lora, int index)
{
    return lora->files[index].strength;
}

bool ith_lora_has_path(const ith_lora *lora, const char *path)
{
    for (int i = 0; i < ith_lora_count(lora); i++)
        if (!strcmp(ith_lora_path(lora, i), path))
            return true;
    return false;
}

int64_t ith_lora_bytes(const ith_lora *lora)
{
    int64_t bytes = 0;
    for (int64_t i = 0; lora && i < lora->count; i++)
        bytes += lora->entries[i].tensor->bytes;
    return bytes;
}

ith_status ith_lora_check_unchanged(ith_context *context, const ith_lora *lora)
{
    ith_status status = ITH_OK;
    for (int i = 0; lora && i < lora->file_count && !status; i++)
        status = ith_tensor_file_check(context, lora->files[i].file);
    return status;
}

ith_status ith_lora_hash(ith_context *context, const ith_lora *lora, uint64_t *hash)
{
    ith_status status = ITH_OK;
    *hash = 0;
    for (int64_t i = 0; lora && i < lora->count && !status; i++) {
        const lora_entry *e = &lora->entries[i];
        const ith_tensor *t = e->tensor;
        const int64_t numbers[3] = {t->dtype, t->bytes, e->file};
        *hash = ith_hash(*hash + 1, t->name, (int64_t)strlen(t->name));
        *hash = ith_hash(*hash, numbers, sizeof numbers);
        *hash = ith_hash(*hash, &e->factor, sizeof e->factor);
        status = ith_tensor_hash_sample(context, path_of(lora, e), t, hash);
    }
    return status;
}

/* ---- Taking ------------------------------------------------------------------------------------------------------ */

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
static ith_status check_shape(ith_context *context, const ith_lora *lora, const lora_entry *e, int64_t rows,
                              int64_t width)
{
    const ith_tensor *t = e->tensor;
    if (t->dims >= 1 && t->shape[0] == rows && ith_tensor_elements(t) == rows * width)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT,
                    "%s: tensor '%s' has the shape %s; the model asks for [%lld, %lld]: the LoRA is for a model of "
                    "another size",
                    path_of(lora, e), ith_quote(t->name).text, ith_shape_print(t->dims, t->shape).text, (long long)rows,
                    (long long)width);
}

static ith_linear_weight matrix_of(const ith_lora *lora, const lora_entry *e)
{
    return (ith_linear_weight){.data = e->copy ? e->copy : e->tensor->data,
                               .type = e->tensor->dtype,
                               .rows = e->tensor->shape[0],
                               .file = e->copy ? NULL : path_of(lora, e)};
}

ith_status ith_lora_matrix(ith_context *context, ith_lora *lora, const char *module, int index, int64_t rows,
                           int64_t in, bool marks, ith_linear_addition *out, int64_t *count)
{
    ith_status status = ITH_OK;
    if (lora && lora->random_rank && !strncmp(module, "blocks.", 7))
        out[(*count)++] =
            (ith_linear_addition){.matrix = index,
                                  .factor = 1,
                                  .down = {.data = lora->random, .type = ITH_BF16, .rows = lora->random_rank},
                                  .up = {.data = lora->random, .type = ITH_BF16, .rows = rows}};
    for (int64_t i = first_of(lora, module); is_of(lora, i, module) && !status; i++) {
        lora_entry *e = &lora->entries[i];
        ith_linear_addition addition = {.matrix = index, .factor = (float)e->factor};
        if (e->role == ITH_LORA_DOWN) {
            const lora_entry *up = &lora->entries[e->up];
            status = check_shape(context, lora, e, e->tensor->shape[0], in);
            if (!status)
                status = check_shape(context, lora, up, rows, e->tensor->shape[0]);
            addition.down = matrix_of(lora, e), addition.up = matrix_of(lora, up);
        } else if (e->role == ITH_LORA_WEIGHT) {
            status = check_shape(context, lora, e, rows, in);
            addition.up = matrix_of(lora, e);
        }
        if (addition.up.data)
            out[(*count)++] = addition;
        if (marks)
            e->taken |= e->role == ITH_LORA_UP || e->role == ITH_LORA_ALPHA || addition.up.data;
    }
    return status;
}

/* Adds the changes with a role in a module to values [count]; NULL: only checks them. */
static ith_status add_vector(ith_context *context, ith_lora *lora, const char *module, ith_lora_role role,
                             int64_t count, bool marks, float *values)
{
    ith_status status = ITH_OK;
    for (int64_t i = first_of(lora, module); is_of(lora, i, module) && !status; i++) {
        lora_entry *e = &lora->entries[i];
        float piece[256];
        if (e->role != role)
            continue;
        e->taken |= marks;
        if (ith_tensor_elements(e->tensor) != count)
            return ith_fail(context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' has the shape %s; the model asks for %lld numbers", path_of(lora, e),
                            ith_quote(e->tensor->name).text, ith_shape_print(e->tensor->dims, e->tensor->shape).text,
                            (long long)count);
        for (int64_t k = 0; values && k < count && !status; k += ITH_COUNT(piece)) {
            const int64_t n = ith_min64(ITH_COUNT(piece), count - k);
            status = ith_tensor_part_to_f32(context, path_of(lora, e), e->tensor, k, n, piece);
            for (int64_t j = 0; j < n && !status; j++)
                values[k + j] += (float)e->factor * piece[j];
        }
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

/* Adds factor times numbers [first, first + in) of a matrix to `to`. */
static ith_status add_row(ith_context *context, const ith_linear_weight *matrix, int64_t first, int64_t in,
                          float factor, float *to)
{
    float piece[256];
    ith_status status = ITH_OK;
    const ith_tensor tensor = {.dtype = matrix->type, .data = matrix->data};
    for (int64_t k = 0; k < in && !status; k += ITH_COUNT(piece)) {
        const int64_t n = ith_min64(ITH_COUNT(piece), in - k);
        status = ith_tensor_part_to_f32(context, matrix->file ? matrix->file : "a LoRA", &tensor, first + k, n, piece);
        for (int64_t j = 0; j < n && !status; j++)
            to[k + j] += factor * piece[j];
    }
    return status;
}

ith_status ith_lora_merge_row(ith_context *context, const ith_linear_addition *additions, int64_t count, int64_t row,
                              int64_t in, float *to)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        const ith_linear_addition *a = &additions[i];
        const int64_t rank = a->down.rows;
        if (!rank)
            status = add_row(context, &a->up, row * in, in, a->factor, to);
        for (int64_t r = 0; r < rank && !status; r++) {
            float up = 0;
            status = add_row(context, &a->up, row * rank + r, 1, a->factor, &up);
            if (!status)
                status = add_row(context, &a->down, r * in, in, up, to);
        }
    }
    return status;
}

ith_status ith_lora_check_all_taken(ith_context *context, const ith_lora *lora)
{
    const lora_entry *first = NULL;
    int64_t left = 0;
    for (int64_t i = 0; lora && i < lora->count; i++)
        if (!lora->entries[i].taken) {
            first = first ? first : &lora->entries[i];
            left++;
        }
    if (!first)
        return ITH_OK;
    const bool with_clip = strstr(first->module, "attn2.add_") || strstr(first->module, "attn2.norm_added") ||
                           strstr(first->module, "image_embedder") || strstr(first->module, "_img") ||
                           strstr(first->module, "img_emb");
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: tensor '%s' changes nothing in this model (%lld such)%s",
                    path_of(lora, first), ith_quote(first->tensor->name).text, (long long)left,
                    with_clip ? ": the LoRA is for a Wan 2.1 image-to-video model" : "");
}
