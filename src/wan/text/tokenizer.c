/* SPDX-License-Identifier: Apache-2.0 */
/* Turns text into ids: cleaning, SentencePiece, truncation, and </s> at the end. */
#include "tokenizer.h"

#include "../../base/lent_files.h"
#include "../../files/mapping.h"
#include "../../files/quote.h"
#include "prompt.h"
#include "sentencepiece_check.h"
#include "sentencepiece_shim.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILE_BYTES ((int64_t)1 << 30)
#define LONGEST_TEXT_BYTES (64 << 20) /* SentencePiece's int counts may be several times the bytes of the text */

struct ith_tokenizer {
    ith_sentencepiece *pieces;
    bool fold_bytes; /* characters that the vocabulary lacks become <unk> instead of one id for each UTF-8 byte */
};

static ith_status load_pieces(ith_context *context, const char *folder, ith_tokenizer *tokenizer)
{
    char *model = NULL, *path = ith_format(context, "%s/spiece.model", folder);
    int64_t bytes = 0;
    ith_status status =
        path ? ith_file_read(context, path, "a tokenizer", MOST_FILE_BYTES, &model, &bytes) : ITH_ERR_MEMORY;
    if (!status)
        status = ith_sentencepiece_check(context, path, model, bytes);
    if (!status)
        status = ith_sentencepiece_create(context, path, model, bytes, &tokenizer->pieces);
    if (!status && ith_sentencepiece_end_id(tokenizer->pieces) < 0)
        status = ith_fail(context, ITH_ERR_FORMAT, "%s has no </s>, which ends every prompt", path);
    ith_free(context, model);
    ith_free(context, path);
    return status;
}

/* Reads model.byte_fallback of a tokenizer.json; false if it is absent. */
static ith_status read_byte_fallback(ith_context *context, const char *path, bool *out)
{
    char *text = NULL;
    int64_t text_bytes = 0;
    ith_status status = ith_file_read(context, path, "a tokenizer", MOST_FILE_BYTES, &text, &text_bytes);
    if (status)
        return status;
    json_error_t error;
    json_t *json = json_loadb(text, (size_t)text_bytes, JSON_REJECT_DUPLICATES, &error);
    ith_free(context, text);
    json_t *model = json_object_get(json, "model"), *field = json_object_get(model, "byte_fallback");
    if (!json)
        status = ith_fail(context, ITH_ERR_FORMAT, "%s is not JSON: line %d: %s", path, error.line,
                          ith_quote(error.text).text);
    else if (!json_is_object(model))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s: 'model' must be an object", path);
    else if (field && !json_is_boolean(field) && !json_is_null(field))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s: model.byte_fallback must be true or false", path);
    *out = json_is_true(field);
    json_decref(json);
    return status;
}

/* Decides the ids of characters that the vocabulary lacks. The reference reads tokenizer.json. If byte_fallback is not
 * true there, these characters become <unk>, even if spiece.model has an id for every byte. */
static ith_status load_unknown_rule(ith_context *context, const char *folder, ith_tokenizer *tokenizer)
{
    char *path = ith_format(context, "%s/tokenizer.json", folder);
    if (!path)
        return ITH_ERR_MEMORY;
    bool bytes = true;
    ith_status status = ITH_OK;
    if (access(ith_lent_path(context, path), F_OK) == 0 || errno != ENOENT)
        status = read_byte_fallback(context, path, &bytes);
    tokenizer->fold_bytes = !bytes;
    ith_free(context, path);
    return status;
}

ith_status ith_tokenizer_load(ith_context *context, const char *folder, ith_tokenizer **out)
{
    *out = NULL;
    ith_tokenizer *tokenizer = ith_alloc_zero(context, 1, sizeof *tokenizer, "a tokenizer");
    if (!tokenizer)
        return ITH_ERR_MEMORY;
    ith_status status = load_pieces(context, folder, tokenizer);
    if (!status)
        status = load_unknown_rule(context, folder, tokenizer);
    if (status)
        ith_tokenizer_free(context, &tokenizer);
    *out = tokenizer;
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
    size_t bytes = strlen(text);
    if (bytes > LONGEST_TEXT_BYTES)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a prompt of %zu bytes is longer than the %d that are taken", bytes,
                        LONGEST_TEXT_BYTES);
    char *clean = NULL;
    ith_status status = ith_prompt_clean(context, text, &clean);
    if (!status)
        status = ith_sentencepiece_encode(context, tokenizer->pieces, clean, tokenizer->fold_bytes, ITH_TEXT_LEN - 1,
                                          ids, count);
    if (!status)
        ids[(*count)++] = ith_sentencepiece_end_id(tokenizer->pieces);
    ith_free(context, clean);
    return status;
}

int64_t ith_tokenizer_vocab(const ith_tokenizer *tokenizer)
{
    return ith_sentencepiece_count(tokenizer->pieces);
}

int64_t ith_tokenizer_bytes(void)
{
    return (int64_t)sizeof(ith_tokenizer);
}
