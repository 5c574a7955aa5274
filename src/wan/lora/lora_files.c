/* SPDX-License-Identifier: Apache-2.0 */
/* Opens LoRA files, and lists their tensors and settings (lora.h). */
#include "lora_state.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/dtype.h"
#include "../../base/hash.h"
#include "../../files/quote.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define METADATA "lora_adapter_metadata" /* diffusers' key for the settings of PEFT, as JSON text */
#define PEFT_FILE "adapter_model.safetensors"
#define PEFT_SETTINGS "adapter_config.json"

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Makes an entry of tensor `tensor` of file `index`, whose name was read as `key`. */
static ith_status add_entry(ith_lora *lora, int index, const ith_tensor *tensor, const ith_lora_key *key)
{
    ith_lora_entry *entry = &lora->entries[lora->count];
    *entry = (ith_lora_entry){.file = index,
                              .role = key->role,
                              .tensor = tensor,
                              .adapter = key->adapter,
                              .factor = lora->files[index].strength,
                              .up = -1};
    entry->module = ith_strdup(lora->context, key->module);
    if (!entry->module)
        return ITH_ERR_MEMORY;
    lora->count++;
    return ITH_OK;
}

/* Makes an entry of each tensor of a file. */
static ith_status list_file(ith_lora *lora, int index)
{
    ith_lora_opened *file = &lora->files[index];
    const char *unknown = NULL;
    int64_t unknowns = 0;
    ith_lora_key key;
    for (int64_t i = 0; i < ith_tensor_file_count(file->file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(file->file, i);
        const char *form = ith_lora_key_unsupported(tensor->name);
        if (form)
            return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                            "%s: tensor '%s' belongs to a %s; only LoRA and plain differences are supported",
                            file->path, ith_quote(tensor->name).text, form);
        if (!ith_lora_key_read(tensor->name, &key)) {
            unknown = unknown ? unknown : tensor->name;
            unknowns++;
            continue;
        }
        if (file->leaves_out_image && ith_lora_reads_image(key.module)) {
            file->left_out++;
            continue;
        }
        if (add_entry(lora, index, tensor, &key))
            return ITH_ERR_MEMORY;
    }
    if (file->left_out == ith_tensor_file_count(file->file))
        return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                        "%s: all of its tensors are for the rows of an image encoder, and this model has none",
                        file->path);
    if (!unknown)
        return ITH_OK;
    return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                    "%s: tensor '%s' is no part of a LoRA for a Wan transformer (%lld of %lld tensors are none)",
                    file->path, ith_quote(unknown).text, (long long)unknowns,
                    (long long)ith_tensor_file_count(file->file));
}

/* Reads the settings that PEFT writes beside its own file, if they are there. */
static ith_status read_beside(ith_lora *lora, ith_lora_opened *file)
{
    const char *slash = strrchr(file->path, '/');
    const int folder = slash ? (int)(slash + 1 - file->path) : 0;
    if (strcmp(file->path + folder, PEFT_FILE))
        return ITH_OK;
    char *path = ith_format(lora->context, "%.*s" PEFT_SETTINGS, folder, file->path);
    ith_status status = path ? ITH_OK : ITH_ERR_MEMORY;
    struct stat info;
    if (path && !lstat(path, &info)) /* a link to nothing is an error */
        status = ith_json_read(lora->context, path, &file->settings);
    ith_free(lora->context, path);
    return status;
}

/* Refuses a LoRA whose training began with a part of the model's weights (PiSSA, OLoRA, CorDA, LoftQ): PEFT subtracts
 * this part from the weights. */
static ith_status check_start(const ith_lora *lora, const ith_lora_opened *file)
{
    static const char *const starts[] = {"absent",       "null",    "true",           "false",
                                         "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\""};
    const char *name = ith_lora_setting(file, ITH_LORA_PREFIX "init_lora_weights");
    const ith_json_text start = ith_json_print(file->settings, name);
    for (int i = 0; i < ITH_COUNT(starts); i++)
        if (!strcmp(start.text, starts[i]))
            return ITH_OK;
    return ith_fail(lora->context, ITH_ERR_UNSUPPORTED,
                    "%s: %s is %s, which also changes the weights of the model; only LoRA is supported", file->path,
                    name, ith_quote(start.text).text);
}

/* Refuses the forms of PEFT that compute another product than a LoRA, or with other layers. */
static ith_status check_form(const ith_lora *lora, const ith_lora_opened *file)
{
    static const struct {
        const char *setting, *usual; /* the name of a setting, and its value in a LoRA besides null, false and [] */
    } forms[] = {{ITH_LORA_PREFIX "peft_type", "\"LORA\""},
                 {ITH_LORA_PREFIX "use_qalora", ""},
                 {ITH_LORA_PREFIX "use_bdlora", ""},
                 {ITH_LORA_PREFIX "layer_replication", ""},
                 {ITH_LORA_PREFIX "alora_invocation_tokens", ""},
                 {ITH_LORA_PREFIX "arrow_config", ""}};
    for (int i = 0; i < ITH_COUNT(forms); i++) {
        const char *name = ith_lora_setting(file, forms[i].setting);
        const ith_json_text value = ith_json_print(file->settings, name);
        const char *const usual[] = {"absent", "null", "false", "[]", forms[i].usual};
        bool is_usual = false;
        for (int j = 0; j < ITH_COUNT(usual); j++)
            is_usual |= !strcmp(value.text, usual[j]);
        if (!is_usual)
            return ith_fail(lora->context, ITH_ERR_UNSUPPORTED, "%s: %s is %s; only plain LoRA is supported",
                            file->path, name, ith_quote(value.text).text);
    }
    return ITH_OK;
}

/* Reads the settings of PEFT, which diffusers writes into the metadata of a file, and PEFT beside it. */
static ith_status read_settings(ith_lora *lora, ith_lora_opened *file)
{
    const char *text = ith_tensor_file_metadata(file->file, METADATA);
    char *where = text ? ith_format(lora->context, "%s: " METADATA, file->path) : NULL;
    ith_status status = ITH_OK;
    if (!text)
        status = read_beside(lora, file);
    else
        status =
            where ? ith_json_parse(lora->context, where, text, (int64_t)strlen(text), &file->settings) : ITH_ERR_MEMORY;
    ith_free(lora->context, where);
    if (status || !file->settings)
        return status;
    bool dora = false;
    for (const char *key = NULL; (key = ith_json_next_key(file->settings, key));)
        file->has_prefix |= ith_name_after(key, ITH_LORA_PREFIX) != NULL;
    status =
        ith_json_bool(lora->context, file->settings, ith_lora_setting(file, ITH_LORA_PREFIX "use_dora"), false, &dora);
    if (!status && dora)
        status = ith_fail(lora->context, ITH_ERR_UNSUPPORTED, "%s: it is a DoRA; only LoRA is supported", file->path);
    if (!status)
        status = check_form(lora, file);
    return status ? status : check_start(lora, file);
}

static ith_status open_file(ith_lora *lora, const ith_lora_source *source)
{
    ith_context *context = lora->context;
    ith_lora_opened *file = &lora->files[lora->file_count++];
    file->strength = source->strength;
    file->leaves_out_image = source->leaves_out_image;
    if (!isfinite((float)source->strength)) /* f32 numbers are multiplied by it */
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: a strength of %g; it must be a finite f32 number", source->path,
                        source->strength);
    file->path = ith_strdup(context, source->path);
    if (!file->path)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tensor_file_open(context, source->path, &file->file);
    if (!status && !ith_tensor_file_count(file->file))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: has no tensors", source->path);
    return status ? status : read_settings(lora, file);
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
        status = ith_lora_join(lora);
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
        const ith_lora_entry *e = &lora->entries[i];
        if ((e->role == ITH_LORA_DOWN || e->role == ITH_LORA_UP) && ith_name_after(e->module, "blocks."))
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

int64_t ith_lora_left_out(const ith_lora *lora, int index)
{
    return lora->files[index].left_out;
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
        const ith_lora_entry *e = &lora->entries[i];
        const ith_tensor *t = e->tensor;
        const int64_t numbers[3] = {t->dtype, t->bytes, e->file};
        *hash = ith_hash(*hash + 1, t->name, (int64_t)strlen(t->name));
        *hash = ith_hash(*hash, numbers, sizeof numbers);
        *hash = ith_hash(*hash, &e->factor, sizeof e->factor);
        status = ith_tensor_hash_sample(context, ith_lora_path_of(lora, e), t, hash);
    }
    return status;
}
