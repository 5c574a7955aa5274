/* SPDX-License-Identifier: Apache-2.0 */
/* The model's own SentencePiece tokenizer. */
#ifndef ITH_WAN_TOKENIZER_H
#define ITH_WAN_TOKENIZER_H

#include "../../base/context.h"

#define ITH_TEXT_LEN 512

typedef struct ith_tokenizer ith_tokenizer;

/* folder/spiece.model, a Unigram model. Characters that its vocabulary lacks become what it says, byte pieces or <unk>;
 * a tokenizer.json beside it, which the reference reads, makes them <unk> unless its model.byte_fallback is true. */
ith_status ith_tokenizer_load(ith_context *context, const char *folder, ith_tokenizer **out);
void ith_tokenizer_free(ith_context *context, ith_tokenizer **tokenizer);
/* Cleans the text (ith_prompt_clean), cuts to ITH_TEXT_LEN - 1 ids, appends </s>. ids holds ITH_TEXT_LEN. */
ith_status ith_tokenizer_encode(ith_context *context, const ith_tokenizer *tokenizer, const char *text, int32_t *ids,
                                int64_t *count);
/* One more than the largest id. */
int64_t ith_tokenizer_vocab(const ith_tokenizer *tokenizer);
/* Bytes it holds of the context's memory; what SentencePiece holds is not counted there. */
int64_t ith_tokenizer_bytes(const ith_tokenizer *tokenizer);

#endif
