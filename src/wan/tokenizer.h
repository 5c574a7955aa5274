/* The model's own SentencePiece tokenizer. */
#ifndef ITH_WAN_TOKENIZER_H
#define ITH_WAN_TOKENIZER_H

#include "../base/context.h"

#define ITH_TEXT_LEN 512

typedef struct ith_tokenizer ith_tokenizer;

/* folder/spiece.model; a tokenizer.json beside it decides whether unknown characters become bytes or <unk>. */
ith_status ith_tokenizer_load(ith_context *context, const char *folder, ith_tokenizer **out);
void ith_tokenizer_free(ith_context *context, ith_tokenizer **tokenizer);
/* Cleans the text, cuts to ITH_TEXT_LEN - 1 ids, appends </s>. ids holds ITH_TEXT_LEN. */
ith_status ith_tokenizer_encode(ith_context *context, const ith_tokenizer *tokenizer, const char *text, int32_t *ids,
                                int64_t *count);
int64_t ith_tokenizer_vocab(const ith_tokenizer *tokenizer);

#endif
