/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a tokenizer.json around its vocabulary: the normalizer, the pre_tokenizer, the post_processor and the
 * added tokens. */
#ifndef ITH_WAN_TOKENIZER_STEPS_H
#define ITH_WAN_TOKENIZER_STEPS_H

#include "../../base/context.h"

#include <jansson.h>

/* Checks that the steps do the work of SentencePiece: map characters by the table of the model, make one space of
 * several, put a space before the text, write spaces as "▁", and put </s> at the end. A part that is absent or null
 * passes. root: of the tokenizer.json. path: for messages. */
ith_status ith_tokenizer_steps_check(ith_context *context, const char *path, const json_t *root);

#endif
