/* SPDX-License-Identifier: Apache-2.0 */
/* A C interface to SentencePiece, which is C++. It catches all exceptions. */
#ifndef ITH_WAN_SENTENCEPIECE_SHIM_H
#define ITH_WAN_SENTENCEPIECE_SHIM_H

#include "../../base/context.h"

typedef struct ith_sentencepiece ith_sentencepiece;

/* Creates a tokenizer from the bytes of a model file. The bytes are copied, and must have passed
 * ith_sentencepiece_check. `path` is used in error messages only. */
ith_status ith_sentencepiece_create(ith_context *context, const char *path, const void *model, int64_t bytes,
                                    ith_sentencepiece **out);
void ith_sentencepiece_free(ith_sentencepiece **pieces);

/* The number of pieces (words and parts of words) in the vocabulary. */
int64_t ith_sentencepiece_count(const ith_sentencepiece *pieces);
/* The id of </s>; -1 if the model has none. */
int32_t ith_sentencepiece_end_id(const ith_sentencepiece *pieces);

/* How a text is encoded. folds_bytes: characters that the vocabulary lacks become one <unk> together, not an id for
 * each of their UTF-8 bytes. in_double: sums of scores are double, as in transformers' fast tokenizers; otherwise
 * float, as in SentencePiece. */
typedef struct ith_sentencepiece_way {
    bool folds_bytes, in_double;
} ith_sentencepiece_way;

/* Encodes a text into at most `most` ids. The name of a special piece (</s>, <pad>, <s>, <unk>, and others that the
 * model marks) becomes the id of the piece; the name of a byte, such as <0x41>, is text. */
ith_status ith_sentencepiece_encode(ith_context *context, const ith_sentencepiece *pieces, const char *text,
                                    ith_sentencepiece_way way, int64_t most, int32_t *ids, int64_t *count);

#endif
