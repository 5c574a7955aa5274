/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a SentencePiece model before SentencePiece does, which trusts the tables in it. */
#ifndef ITH_WAN_SENTENCEPIECE_CHECK_H
#define ITH_WAN_SENTENCEPIECE_CHECK_H

#include "../../base/context.h"

/* ITH_ERR_FORMAT: no SentencePiece model, or one whose normaliser would read beyond its table. ITH_ERR_UNSUPPORTED: of
 * another type than Unigram. path is for the sentence. */
ith_status ith_sentencepiece_check(ith_context *context, const char *path, const void *model, int64_t bytes);

#endif
