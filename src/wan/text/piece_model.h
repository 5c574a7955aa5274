/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a SentencePiece model from a vocabulary in another form, so that one tokenizer serves for all. The model is a
 * protocol buffer message (sentencepiece_check.c), in memory. */
#ifndef ITH_WAN_PIECE_MODEL_H
#define ITH_WAN_PIECE_MODEL_H

#include <ithaca/files.h>

#include "../../base/context.h"
#include "sentencepiece_fields.h"

#include <jansson.h>

/* A growing message. After a failed allocation `data` is NULL, `failed` is true, and nothing is added any more. */
typedef struct ith_piece_model {
    ith_context *context;
    char *data; /* the caller frees it with ith_free, also after a failure */
    int64_t bytes, room;
    int64_t byte_pieces; /* number of pieces of type ITH_PIECE_BYTE */
    bool failed;
} ith_piece_model;

/* Appends the next piece of the vocabulary. Its id is the number of pieces before it. */
void ith_piece_model_add(ith_piece_model *model, const char *piece, int64_t piece_bytes, float score,
                         ith_piece_type type);
/* How the normaliser treats spaces. */
typedef struct ith_piece_spaces {
    bool prefix; /* puts a space before the text */
    bool joins;  /* makes one space of several, and removes the spaces at both ends */
} ith_piece_spaces;

/* Appends the trainer's and the normaliser's settings, which end the message. charsmap: the table of the normaliser, as
 * in SentencePiece's own files; of 0 bytes: none. */
void ith_piece_model_end(ith_piece_model *model, ith_piece_spaces spaces, const void *charsmap, int64_t charsmap_bytes);

/* Makes a SentencePiece model from the root of a tokenizer.json with a Unigram model. path: for messages. */
ith_status ith_piece_model_from_json(ith_context *context, const char *path, const json_t *root, ith_piece_model *out);

/* Makes a SentencePiece model from the metadata tokenizer.ggml.* of a GGUF file. path: for messages. ITH_ERR_ARGUMENT
 * if the file has no tokenizer. */
ith_status ith_piece_model_from_gguf(ith_context *context, const char *path, const ith_tensor_file *file,
                                     ith_piece_model *out);

#endif
