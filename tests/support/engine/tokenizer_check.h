/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_TESTS_TOKENIZER_CHECK_H
#define ITH_TESTS_TOKENIZER_CHECK_H

#include "wan/text/tokenizer.h"

/* The tokenizer of the small model, saved by transformers 5. */
#define TOKENIZER_SAVED "golden/transformers_5/tokenizer.json"

/* Checks that a text has these ids. */
void expect_ids(const ith_tokenizer *tokenizer, const char *text, const int32_t *wanted, int64_t wanted_count);

/* Loads the tokenizer at a path and encodes a text. For refuse_every_allocation. */
ith_status load_and_tokenize(ith_context *poor, void *path);

#endif
