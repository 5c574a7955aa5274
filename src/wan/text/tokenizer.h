/* SPDX-License-Identifier: Apache-2.0 */
/* The SentencePiece tokenizer of a checkpoint. <ithaca/wan.h> has the functions for a tokenizer without a model. */
#ifndef ITH_WAN_TOKENIZER_H
#define ITH_WAN_TOKENIZER_H

#include <ithaca/wan.h>

#include "../../base/context.h"
#include "text_length.h"

/* The files of a tokenizer's folder, of which one may be missing. */
#define ITH_TOKENIZER_MODEL "spiece.model"
#define ITH_TOKENIZER_JSON "tokenizer.json"

/* The folder of these files in a model: in the layout of diffusers, and in repositories of original weights. */
#define ITH_TOKENIZER_FOLDER "tokenizer"
#define ITH_TOKENIZER_ORIGINAL_FOLDER "google/umt5-xxl"

/* Whether a folder has one of these files. */
bool ith_tokenizer_is_in(ith_context *context, const char *folder);
/* Sets *out to the place of a tokenizer: to `path`, or to the tokenizer's folder in it if `path` is the folder of a
 * model. The caller frees it. */
ith_status ith_tokenizer_find(ith_context *context, const char *path, char **out);

/* Loads a tokenizer from a file, or from a folder: spiece.model, a Unigram model, or the same model in tokenizer.json
 * or in the metadata of a GGUF file. A character that its vocabulary lacks becomes one id for each UTF-8 byte or <unk>,
 * as the model says. If the folder has a tokenizer.json, the character becomes <unk> unless model.byte_fallback is true
 * there. */
ith_status ith_tokenizer_load(ith_context *context, const char *path, ith_tokenizer **out);
/* Makes a tokenizer from the bytes of a spiece.model. path: for messages. */
ith_status ith_tokenizer_make(ith_context *context, const char *path, const void *model, int64_t bytes,
                              ith_tokenizer **out);
void ith_tokenizer_free(ith_context *context, ith_tokenizer **tokenizer);
/* Cleans the text (ith_prompt_clean), encodes it, truncates it to ITH_TEXT_LEN - 1 ids, and appends </s>. `ids` has
 * room for ITH_TEXT_LEN. */
ith_status ith_tokenizer_encode(ith_context *context, const ith_tokenizer *tokenizer, const char *text, int32_t *ids,
                                int64_t *count);
/* Checks the arguments of a function that encodes one text for a caller of the library. */
ith_status ith_tokenizer_check(ith_context *context, const char *text, const int32_t *ids, const int64_t *count);
/* The size of the vocabulary: the largest id + 1. */
int64_t ith_tokenizer_vocab(const ith_tokenizer *tokenizer);
/* The bytes of a tokenizer in the context's memory. SentencePiece's own memory is not counted. */
int64_t ith_tokenizer_bytes(void);

#endif
