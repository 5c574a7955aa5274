/* SPDX-License-Identifier: Apache-2.0 */
/* Text as Unicode code points, in an array that grows. */
#ifndef ITH_WAN_TEXT_CODEPOINTS_H
#define ITH_WAN_TEXT_CODEPOINTS_H

#include "../../base/context.h"

/* A text, which ith_codepoints_free frees. */
typedef struct ith_codepoints {
    uint32_t *at;
    int64_t count, capacity;
} ith_codepoints; /* a struct of zeros is an empty text */

/* Append one code point, or `count` code points. ITH_ERR_MEMORY on failure; the text then stays as it is. */
ith_status ith_codepoints_push(ith_context *context, ith_codepoints *text, uint32_t codepoint);
ith_status ith_codepoints_append(ith_context *context, ith_codepoints *text, const uint32_t *at, int64_t count);
void ith_codepoints_free(ith_context *context, ith_codepoints *text);

/* Checks that a text is UTF-8, of at most ITH_TEXT_BYTES bytes. name: the text's name in the error message, such as
 * "the prompt". */
ith_status ith_text_check(ith_context *context, const char *name, const char *utf8);
/* Decodes and appends a text in UTF-8. ITH_ERR_ARGUMENT with the position of the first byte that is not UTF-8; overlong
 * forms and surrogates are refused. */
ith_status ith_codepoints_append_utf8(ith_context *context, ith_codepoints *text, const char *utf8);
/* Encodes the text into *out, which the caller frees with ith_free. */
ith_status ith_codepoints_to_utf8(ith_context *context, const ith_codepoints *text, char **out);

#endif
