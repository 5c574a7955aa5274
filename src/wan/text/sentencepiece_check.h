/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a SentencePiece model before the library loads it. The library itself follows the tables in a model without
 * checking their bounds. */
#ifndef ITH_WAN_SENTENCEPIECE_CHECK_H
#define ITH_WAN_SENTENCEPIECE_CHECK_H

#include "../../base/context.h"

/* Returns ITH_ERR_FORMAT if the bytes are no SentencePiece model, or if its normaliser would read beyond its table;
 * ITH_ERR_UNSUPPORTED for a model of any type but Unigram. `path` is used in error messages only. */
ith_status ith_sentencepiece_check(ith_context *context, const char *path, const void *model, int64_t bytes);

#endif
