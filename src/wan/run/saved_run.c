/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads files of saved runs (saved_run.h). */
#include "saved_run.h"

#include "../../base/context.h"
#include "../../base/hash.h"
#include "../../base/output_place.h"
#include "run_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define VERSION_KEY "ithaca" /* the key that marks the file as a saved run; its value is ITH_SAVED_VERSION */
#define MOST_PAIRS 64
#define VALUE_BYTES 32

/* The name of tensor `index` of the saved run of a solver. */
static const char *name_of(ith_solver solver, int64_t index)
{
    return index ? ith_sampler_array_name(solver, index - 1) : "latents";
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

/* The metadata of a file that is written. */
typedef struct pairs {
    const char *keys[MOST_PAIRS], *values[MOST_PAIRS];
    char texts[MOST_PAIRS][VALUE_BYTES]; /* memory of values that are numbers */
    int64_t count;
} pairs;

static void add_text(pairs *p, const char *key, const char *value)
{
    p->keys[p->count] = key;
    p->values[p->count++] = value;
}

static void add_hash(pairs *p, const char *key, uint64_t value)
{
    snprintf(p->texts[p->count], VALUE_BYTES, "%016" PRIx64, value);
    add_text(p, key, p->texts[p->count]);
}

/* Adds the fields of the struct `base` that a saved run keeps. A text that is NULL is left out. */
static void add_fields(pairs *p, const ith_field *fields, int count, const void *base)
{
    for (int i = 0; i < count; i++) {
        const char *text;
        if (!fields[i].saved)
            continue;
        if (fields[i].kind == ITH_FIELD_TEXT) {
            memcpy(&text, (const char *)base + fields[i].offset, sizeof text);
            if (text)
                add_text(p, fields[i].name, text);
            continue;
        }
        ith_field_print(&fields[i], ith_field_value(&fields[i], base), p->texts[p->count], VALUE_BYTES);
        add_text(p, fields[i].name, p->texts[p->count]);
    }
}

/* ---- The hash of the metadata ---------------------------------------------------------------------------------- */

/* A function that finds the value of a key of the metadata; NULL if there is none. */
typedef const char *find_value(const void *from, const char *key);

static uint64_t hash_value(uint64_t hash, const void *from, find_value *find, const char *key)
{
    const char *value = find(from, key);
    hash = ith_hash(hash, key, (int64_t)strlen(key) + 1);
    return value ? ith_hash(hash, value, (int64_t)strlen(value) + 1) : hash;
}

static uint64_t hash_fields(uint64_t hash, const void *from, find_value *find, const ith_field *fields, int count)
{
    for (int i = 0; i < count; i++)
        hash = fields[i].saved ? hash_value(hash, from, find, fields[i].name) : hash;
    return hash;
}

/* The hash of all keys and values of the metadata but the hash itself and the version, which is compared. A run that
 * goes on from a file whose metadata were changed would give other bits. */
static uint64_t hash_metadata(const void *from, find_value *find)
{
    static const char *const keys[] = {"step", "model", "noise", "state", "plan", "attention"};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        hash = hash_value(hash, from, find, keys[i]);
    hash = hash_fields(hash, from, find, ith_option_fields, ITH_OPTION_FIELDS);
    return hash_fields(hash, from, find, ith_attention_fields, ITH_ATTENTION_FIELDS);
}

static const char *find_pair(const void *from, const char *key)
{
    const pairs *p = from;
    for (int64_t i = 0; i < p->count; i++)
        if (!strcmp(p->keys[i], key))
            return p->values[i];
    return NULL;
}

static const char *find_in_file(const void *from, const char *key)
{
    return ith_tensor_file_metadata(from, key);
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

/* The hash of a file is the exclusive or of the hashes of its tensors, so that they may be read in any order. */
static uint64_t hash_tensor(int64_t index, const float *numbers, int64_t count)
{
    return ith_hash((uint64_t)index + 1, numbers, count * (int64_t)sizeof *numbers);
}

ith_status ith_saved_run_write(ith_context *context, const char *path, const ith_saved_facts *facts,
                               const ith_latent_size *size, float *const *tensors, int64_t count)
{
    const int64_t numbers = ith_latent_count(size);
    ith_tensor all[ITH_SAVED_MOST_TENSORS];
    uint64_t hash = 0;
    pairs p = {.count = 0};
    for (int64_t i = 0; i < count; i++) {
        all[i] = (ith_tensor)ITH_TENSOR_INIT;
        all[i].name = name_of(facts->options->solver, i), all[i].dtype = ITH_F32, all[i].dims = 4,
        all[i].data = tensors[i];
        all[i].shape[0] = size->channels, all[i].shape[1] = size->frames;
        all[i].shape[2] = size->height, all[i].shape[3] = size->width;
        all[i].bytes = numbers * (int64_t)sizeof(float);
        hash ^= hash_tensor(i, tensors[i], numbers);
    }
    add_text(&p, VERSION_KEY, ITH_SAVED_VERSION);
    snprintf(p.texts[p.count], VALUE_BYTES, "%lld", (long long)facts->step);
    add_text(&p, "step", p.texts[p.count]);
    add_hash(&p, "model", facts->model_hash);
    add_hash(&p, "noise", facts->noise_hash);
    add_hash(&p, "state", hash);
    add_text(&p, "plan", facts->plan);
    add_text(&p, "attention", facts->attention);
    add_fields(&p, ith_option_fields, ITH_OPTION_FIELDS, facts->options);
    add_fields(&p, ith_attention_fields, ITH_ATTENTION_FIELDS, facts->options->attention);
    add_hash(&p, "metadata", hash_metadata(&p, find_pair));
    return ith_tensor_file_write(context, path, all, count, p.keys, p.values, p.count);
}

int64_t ith_saved_run_bytes(const ith_latent_size *size, int64_t count)
{
    return ith_latent_count(size) * (int64_t)sizeof(float) * count;
}

ith_status ith_saved_run_check_room(ith_context *context, const char *path, int64_t bytes)
{
    struct statvfs disk;
    char target[PATH_MAX];
    errno = ith_output_target(path, target);
    if (errno || statvfs(dirname(target), &disk))
        return ith_fail(context, ITH_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    const double room = (double)disk.f_bavail * (double)disk.f_frsize, needed = 2 * (double)bytes;
    if (room >= needed || !disk.f_blocks) /* a device has no blocks */
        return ITH_OK;
    return ith_fail(context, ITH_ERR_IO,
                    "cannot write %s: its disk has %.3g MB free, and the saved run takes %.3g MB while it is replaced",
                    path, room / 1e6, needed / 1e6);
}

void ith_saved_attention(const ith_plan *plan, char text[ITH_SAVED_ATTENTION_BYTES])
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    text[0] = '\0';
    if (!ith_plan_describe(plan, &info))
        snprintf(text, ITH_SAVED_ATTENTION_BYTES, "%s, softmax %s, tiles of %lld/%lld/%lld keys", info.kernel,
                 ith_softmax_name(info.softmax), (long long)info.block_kv, (long long)info.block_kv_compute,
                 (long long)info.block_kv_compute_in);
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Reads the number at `key` of the metadata, with digits of base `base`. */
static ith_status read_number(ith_context *context, const ith_saved_run *saved, const char *key, int base,
                              uint64_t *out)
{
    const char *text = ith_tensor_file_metadata(saved->file, key);
    char *end = NULL;
    errno = 0;
    *out = text ? strtoull(text, &end, base) : 0;
    if (text && *text && *text != '-' && !*end && !errno)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT, "%s: %s in its metadata is missing or no number", saved->path, key);
}

static ith_status read_metadata(ith_context *context, ith_saved_run *saved)
{
    const char *version = ith_tensor_file_metadata(saved->file, VERSION_KEY);
    uint64_t step = 0;
    if (!version)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: it is no saved run: its metadata has no '" VERSION_KEY "', the version that wrote it",
                        saved->path);
    if (strcmp(version, ITH_SAVED_VERSION))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: ithaca %.32s has saved this run, and this is ithaca " ITH_SAVED_VERSION
                        ": only the same version gives the same bits",
                        saved->path, version);
    ith_status status = read_number(context, saved, "step", 10, &step);
    saved->step = step <= INT64_MAX ? (int64_t)step : INT64_MAX;
    if (!status)
        status = read_number(context, saved, "model", 16, &saved->model_hash);
    if (!status)
        status = read_number(context, saved, "noise", 16, &saved->noise_hash);
    if (!status)
        status = read_number(context, saved, "state", 16, &saved->state_hash);
    if (!status)
        status = read_number(context, saved, "metadata", 16, &saved->metadata_hash);
    saved->attention = ith_tensor_file_metadata(saved->file, "attention");
    return status;
}

ith_status ith_saved_run_open(ith_context *context, const char *path, ith_saved_run **out)
{
    *out = NULL;
    ith_saved_run *saved = ith_alloc_zero(context, 1, sizeof *saved, "a saved run");
    if (!saved)
        return ITH_ERR_MEMORY;
    saved->path = ith_strdup(context, path);
    ith_status status = saved->path ? ith_tensor_file_open(context, path, &saved->file) : ITH_ERR_MEMORY;
    if (!status)
        status = read_metadata(context, saved);
    if (status)
        ith_saved_run_close(context, &saved);
    *out = saved;
    return status;
}

bool ith_saved_run_is_denoised(const ith_saved_run *saved, const ith_generate_options *options)
{
    return saved && saved->step >= options->steps;
}

void ith_saved_run_close(ith_context *context, ith_saved_run **saved)
{
    if (!*saved)
        return;
    ith_tensor_file_close(&(*saved)->file);
    ith_free(context, (*saved)->path);
    ith_free(context, *saved);
    *saved = NULL;
}

/* ---- Options --------------------------------------------------------------------------------------------------- */

static size_t member_bytes(const ith_field *field)
{
    return field->kind == ITH_FIELD_INT ? sizeof(int) : sizeof(int64_t);
}

/* Whether the caller has set the field: its value is not NAN, and differs from its value in the struct `init`. */
static bool is_given(const ith_field *field, const void *given, const void *init)
{
    if (field->kind == ITH_FIELD_REAL) {
        double real;
        memcpy(&real, (const char *)given + field->offset, sizeof real);
        if (isnan(real))
            return false;
    }
    return ith_field_value(field, given) != ith_field_value(field, init);
}

static ith_status contradict(ith_context *context, const ith_saved_run *saved, const ith_field *field, int64_t given,
                             int64_t kept)
{
    char asked[64], there[64];
    if (field->kind == ITH_FIELD_TEXT)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is not the same in the saved run %s: leave it out, or begin another run", field->name,
                        saved->path);
    ith_field_print(field, given, asked, sizeof asked);
    ith_field_print(field, kept, there, sizeof there);
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "%s is %s, and %s in the saved run %s: leave it out, or begin another run", field->name, asked,
                    there, saved->path);
}

/* Checks that the caller gives the image of the saved run, by its hash in the file. */
static ith_status check_same_image(ith_context *context, const ith_saved_run *saved, const ith_field *field,
                                   const void *given)
{
    const char *text = ith_tensor_file_metadata(saved->file, field->name);
    char asked[VALUE_BYTES];
    ith_field_print(field, ith_field_value(field, given), asked, sizeof asked);
    if (text && !strcmp(text, asked))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "%s differs from the saved run's (%s keeps no images): give the same image again, or none if the "
                    "run had none",
                    field->name, saved->path);
}

/* Fills in one field of the struct `given` from the metadata. init: the struct without any option. */
static ith_status take_field(ith_context *context, const ith_saved_run *saved, const ith_field *field, void *given,
                             const void *init)
{
    union {
        const char *text;
        int64_t whole;
    } value = {.whole = 0};
    if (field->kind == ITH_FIELD_IMAGE)
        return check_same_image(context, saved, field, given);
    ith_field alone = *field; /* the field as the only member of a struct */
    alone.offset = 0;
    const char *text = ith_tensor_file_metadata(saved->file, field->name);
    if (!text && field->kind != ITH_FIELD_TEXT)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: its metadata has no %s", saved->path, field->name);
    if (text && !ith_field_parse(&alone, text, &value))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %s in its metadata has no value that it can have", saved->path,
                        field->name);
    const int64_t kept = ith_field_value(&alone, &value), asked = ith_field_value(field, given);
    if (is_given(field, given, init) && asked != kept)
        return contradict(context, saved, field, asked, kept);
    memcpy((char *)given + field->offset, &value, member_bytes(field));
    return ITH_OK;
}

static ith_status take_fields(ith_context *context, const ith_saved_run *saved, const ith_field *fields, int count,
                              void *given, const void *init)
{
    ith_status status = ITH_OK;
    for (int i = 0; i < count && !status; i++)
        if (fields[i].saved)
            status = take_field(context, saved, &fields[i], given, init);
    return status;
}

ith_status ith_saved_run_take(ith_context *context, const ith_saved_run *saved, ith_generate_options *options,
                              ith_attn_options *attention)
{
    const ith_generate_options no_options = ITH_GENERATE_OPTIONS_INIT;
    const ith_attn_options no_attention = ITH_ATTN_OPTIONS_INIT;
    ith_status status = take_fields(context, saved, ith_option_fields, ITH_OPTION_FIELDS, options, &no_options);
    if (!status)
        status = take_fields(context, saved, ith_attention_fields, ITH_ATTENTION_FIELDS, attention, &no_attention);
    if (!status && saved->step > options->steps)
        status = ith_fail(context, ITH_ERR_FORMAT, "%s: step %lld of %lld in its metadata is none", saved->path,
                          (long long)saved->step, (long long)options->steps);
    if (!status && saved->metadata_hash != hash_metadata(saved->file, find_in_file))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s: its metadata was changed or is damaged", saved->path);
    return status;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

ith_status ith_saved_run_read(ith_context *context, const ith_saved_run *saved, ith_solver solver, int64_t index,
                              const ith_latent_size *size, float *out, uint64_t *hash)
{
    const char *name = name_of(solver, index);
    const ith_tensor *tensor = ith_tensor_file_find(saved->file, name);
    const int64_t count = ith_latent_count(size);
    if (!tensor)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: has no tensor %s", saved->path, name);
    if (tensor->dtype != ITH_F32 || tensor->dims != 4 || tensor->shape[0] != size->channels ||
        tensor->shape[1] != size->frames || tensor->shape[2] != size->height || tensor->shape[3] != size->width)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %s is not f32 [%lld, %lld, %lld, %lld], the size of its run",
                        saved->path, name, (long long)size->channels, (long long)size->frames, (long long)size->height,
                        (long long)size->width);
    ith_status status = ith_tensor_part_to_f32(context, saved->path, tensor, 0, count, out);
    if (!status)
        status = ith_latents_check_finite(context, saved->path, name, out, count);
    if (!status)
        *hash ^= hash_tensor(index, out, count);
    return status;
}

ith_status ith_saved_run_check_hash(ith_context *context, const ith_saved_run *saved, uint64_t hash)
{
    if (hash == saved->state_hash)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT, "%s: its tensors have changed since they were saved: their hash differs",
                    saved->path);
}
