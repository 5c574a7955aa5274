/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that Python's json module writes and JSON does not have: NaN, Infinity and -Infinity. diffusers saves
 * "lambda_min_clipped": -Infinity. */
#ifndef ITH_FILES_JSON_WORDS_H
#define ITH_FILES_JSON_WORDS_H

#include "../base/context.h"

/* Puts these words between quotation marks, so that they are read as strings; keys and words in strings stay as they
 * are. A text that has such words is replaced by a longer one. The caller frees *text with ith_free, also after a
 * failure. */
ith_status ith_json_quote_words(ith_context *context, char **text, int64_t *bytes);

#endif
