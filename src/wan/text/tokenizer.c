/* SPDX-License-Identifier: Apache-2.0 */
/* Turns text into ids: cleaning, SentencePiece, truncation, and </s> at the end. */
#include "tokenizer.h"

#include "../../base/count.h"
#include "../../base/lent_files.h"
#include "../../files/json_load.h"
#include "../../files/mapping.h"
#include "../../files/suffix.h"
#include "piece_model.h"
#include "prompt.h"
#include "sentencepiece_check.h"
#include "sentencepiece_shim.h"
#include "text_codepoints.h"
#include "tokenizer_steps.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILE_BYTES ((int64_t)1 << 30)

/* A tokenizer. */
struct ith_tokenizer {
    ith_sentencepiece *pieces;
    ith_sentencepiece_way way;
    ith_context *context; /* held by ith_tokenizer_open; otherwise NULL */
};

static bool exists(ith_context *context, const char *path)
{
    return access(ith_lent_path(context, path), F_OK) == 0 || errno != ENOENT;
}

bool ith_tokenizer_is_in(ith_context *context, const char *folder)
{
    static const char *const names[] = {ITH_TOKENIZER_MODEL, ITH_TOKENIZER_JSON};
    char path[PATH_MAX]; /* on the stack: a lack of memory must not look like a lack of the file */
    for (int i = 0; i < ITH_COUNT(names); i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < PATH_MAX &&
            !access(ith_lent_path(context, path), F_OK))
            return true;
    return false;
}

ith_status ith_tokenizer_find(ith_context *context, const char *path, char **out)
{
    static const char *const places[] = {ITH_TOKENIZER_FOLDER, ITH_TOKENIZER_ORIGINAL_FOLDER};
    for (int i = 0; i < ITH_COUNT(places) && !ith_tokenizer_is_in(context, path); i++) {
        if (!(*out = ith_format(context, "%s/%s", path, places[i])))
            return ITH_ERR_MEMORY;
        if (ith_tokenizer_is_in(context, *out))
            return ITH_OK;
        ith_free(context, *out);
    }
    return (*out = ith_strdup(context, path)) ? ITH_OK : ITH_ERR_MEMORY;
}

/* Makes the tokenizer from a SentencePiece model in memory. path: for messages. */
static ith_status make_pieces(ith_context *context, const char *path, const void *model, int64_t bytes,
                              ith_tokenizer *tokenizer)
{
    ith_status status = ith_sentencepiece_check(context, path, model, bytes);
    if (!status)
        status = ith_sentencepiece_create(context, path, model, bytes, &tokenizer->pieces);
    if (!status && ith_sentencepiece_end_id(tokenizer->pieces) < 0)
        status = ith_fail(context, ITH_ERR_FORMAT, "%s has no </s>, which ends every prompt", path);
    return status;
}

/* Loads a spiece.model. */
static ith_status load_pieces(ith_context *context, const char *path, ith_tokenizer *tokenizer)
{
    char *model = NULL;
    int64_t bytes = 0;
    ith_status status = ith_file_read(context, path, "a tokenizer", MOST_FILE_BYTES, &model, &bytes);
    if (!status)
        status = make_pieces(context, path, model, bytes, tokenizer);
    ith_free(context, model);
    return status;
}

/* Loads the tokenizer in the metadata of a GGUF file. */
static ith_status load_gguf(ith_context *context, const char *path, ith_tokenizer *tokenizer)
{
    ith_tensor_file *file = NULL;
    ith_piece_model made = {.data = NULL};
    ith_status status = ith_tensor_file_open(context, path, &file);
    if (!status)
        status = ith_piece_model_from_gguf(context, path, file, &made);
    if (!status)
        status = make_pieces(context, path, made.data, made.bytes, tokenizer);
    ith_free(context, made.data);
    ith_tensor_file_close(&file);
    return status;
}

/* Takes model.byte_fallback from the root of a tokenizer.json; false if it is absent. */
static ith_status find_byte_fallback(ith_context *context, const char *path, const json_t *root, bool *out)
{
    const json_t *model = json_object_get(root, "model"), *field = json_object_get(model, "byte_fallback");
    *out = json_is_true(field);
    if (!json_is_object(model))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: 'model' must be an object", path);
    if (field && !json_is_boolean(field))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: model.byte_fallback must be true or false", path);
    return ITH_OK;
}

/* Reads a tokenizer.json: its model, unless `model` is NULL, and model.byte_fallback. Checks its other steps. */
static ith_status read_json(ith_context *context, const char *path, ith_piece_model *model, bool *byte_fallback)
{
    char *text = NULL;
    int64_t bytes = 0;
    json_t *root = NULL;
    ith_status status = ith_file_read(context, path, "a tokenizer", MOST_FILE_BYTES, &text, &bytes);
    if (!status)
        status = ith_json_load(context, path, text, bytes, &root);
    ith_free(context, text);
    if (!status)
        status = ith_tokenizer_steps_check(context, path, root);
    if (!status && model)
        status = ith_piece_model_from_json(context, path, root, model);
    if (!status)
        status = find_byte_fallback(context, path, root, byte_fallback);
    json_decref(root);
    return status;
}

/* Loads the model in a tokenizer.json. */
static ith_status load_json(ith_context *context, const char *path, ith_tokenizer *tokenizer)
{
    ith_piece_model model = {.data = NULL};
    bool byte_fallback = true;
    ith_status status = read_json(context, path, &model, &byte_fallback);
    if (!status)
        status = make_pieces(context, path, model.data, model.bytes, tokenizer);
    tokenizer->way = (ith_sentencepiece_way){.folds_bytes = !byte_fallback, .in_double = true};
    ith_free(context, model.data);
    return status;
}

/* Loads a spiece.model, and takes from tokenizer.json the ids of characters that the vocabulary lacks. The reference
 * reads tokenizer.json if there is one, and sums scores in double then. If byte_fallback is not true there, these
 * characters become <unk>, even if the model has an id for every byte. model and json: the paths of the two files, of
 * which one may be missing. */
static ith_status load_both(ith_context *context, const char *model, const char *json, ith_tokenizer *tokenizer)
{
    const bool has_json = exists(context, json);
    bool byte_fallback = true;
    if (has_json && !exists(context, model))
        return load_json(context, json, tokenizer);
    ith_status status = load_pieces(context, model, tokenizer);
    if (!status && has_json)
        status = read_json(context, json, NULL, &byte_fallback);
    tokenizer->way = (ith_sentencepiece_way){.folds_bytes = !byte_fallback, .in_double = has_json};
    return status;
}

/* Says that a folder is missing, or that it has no tokenizer. model: the path of its SentencePiece model. */
static ith_status fail_missing(ith_context *context, const char *folder, const char *model)
{
    struct stat info;
    if (stat(folder, &info))
        return ith_fail(context, ITH_ERR_IO, "cannot open %s: %s", folder, strerror(errno));
    return ith_fail(context, ITH_ERR_IO, "cannot open %s: %s; its folder has no " ITH_TOKENIZER_JSON " either", model,
                    strerror(ENOENT));
}

static ith_status load_folder(ith_context *context, const char *folder, ith_tokenizer *tokenizer)
{
    char *model = ith_format(context, "%s/" ITH_TOKENIZER_MODEL, folder),
         *json = ith_format(context, "%s/" ITH_TOKENIZER_JSON, folder);
    ith_status status = model && json ? ITH_OK : ITH_ERR_MEMORY;
    if (!status && !exists(context, model) && !exists(context, json))
        status = fail_missing(context, folder, model);
    if (!status)
        status = load_both(context, model, json, tokenizer);
    ith_free(context, model);
    ith_free(context, json);
    return status;
}

static ith_tokenizer *new_tokenizer(ith_context *context)
{
    return ith_alloc_zero(context, 1, sizeof(ith_tokenizer), "a tokenizer");
}

ith_status ith_tokenizer_load(ith_context *context, const char *path, ith_tokenizer **out)
{
    struct stat info;
    const bool is_file = !stat(ith_lent_path(context, path), &info) && !S_ISDIR(info.st_mode);
    ith_tokenizer *tokenizer = new_tokenizer(context);
    *out = NULL;
    ith_status status = !tokenizer                  ? ITH_ERR_MEMORY
                        : !is_file                  ? load_folder(context, path, tokenizer)
                        : ith_suffix(path, ".gguf") ? load_gguf(context, path, tokenizer)
                        : ith_suffix(path, ".json") ? load_json(context, path, tokenizer)
                                                    : load_pieces(context, path, tokenizer);
    if (status)
        ith_tokenizer_free(context, &tokenizer);
    *out = tokenizer;
    return status;
}

ith_status ith_tokenizer_make(ith_context *context, const char *path, const void *model, int64_t bytes,
                              ith_tokenizer **out)
{
    *out = new_tokenizer(context);
    ith_status status = *out ? make_pieces(context, path, model, bytes, *out) : ITH_ERR_MEMORY;
    if (status)
        ith_tokenizer_free(context, out);
    return status;
}

void ith_tokenizer_free(ith_context *context, ith_tokenizer **tokenizer)
{
    if (!tokenizer || !*tokenizer)
        return;
    ith_sentencepiece_free(&(*tokenizer)->pieces);
    ith_free(context, *tokenizer);
    *tokenizer = NULL;
}

ith_status ith_tokenizer_encode(ith_context *context, const ith_tokenizer *tokenizer, const char *text, int32_t *ids,
                                int64_t *count)
{
    *count = 0;
    char *clean = NULL;
    ith_status status = ith_text_check(context, "the text", text);
    if (!status)
        status = ith_prompt_clean(context, text, &clean);
    if (!status)
        status =
            ith_sentencepiece_encode(context, tokenizer->pieces, clean, tokenizer->way, ITH_TEXT_LEN - 1, ids, count);
    if (!status)
        ids[(*count)++] = ith_sentencepiece_end_id(tokenizer->pieces);
    ith_free(context, clean);
    return status;
}

ith_status ith_tokenizer_check(ith_context *context, const char *text, const int32_t *ids, const int64_t *count)
{
    ith_status status = ith_need(context, text, "text");
    if (!status)
        status = ith_need(context, ids, "ids");
    return status ? status : ith_need(context, count, "count");
}

int64_t ith_tokenizer_vocab(const ith_tokenizer *tokenizer)
{
    return ith_sentencepiece_count(tokenizer->pieces);
}

int64_t ith_tokenizer_bytes(void)
{
    return (int64_t)sizeof(ith_tokenizer);
}

ith_status ith_tokenizer_open(ith_context *context, const char *path, ith_tokenizer **out)
{
    if (out)
        *out = NULL;
    char *found = NULL;
    ith_status status = ith_need_to_make(context, path, "path", out);
    if (!status && !*path)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "path is an empty name");
    if (!status)
        status = ith_tokenizer_find(context, path, &found);
    if (!status)
        status = ith_tokenizer_load(context, found, out);
    ith_free(context, found);
    if (!status)
        (*out)->context = ith_context_hold(context);
    return status;
}

ith_status ith_tokenizer_ids(const ith_tokenizer *tokenizer, const char *text, int32_t *ids, int64_t *count)
{
    if (count)
        *count = 0;
    ith_status status = ith_need(NULL, tokenizer, "tokenizer");
    if (!status)
        status = ith_tokenizer_check(tokenizer->context, text, ids, count);
    return status ? status : ith_tokenizer_encode(tokenizer->context, tokenizer, text, ids, count);
}

void ith_tokenizer_close(ith_tokenizer **tokenizer)
{
    if (!tokenizer || !*tokenizer)
        return;
    ith_context *context = (*tokenizer)->context;
    ith_tokenizer_free(context, tokenizer);
    ith_context_release(context);
}
