/* SPDX-License-Identifier: Apache-2.0 */
/* Character references of HTML, in the two readings that prompt cleaning needs. Both append to `out`. */
#ifndef ITH_WAN_HTML_UNESCAPE_H
#define ITH_WAN_HTML_UNESCAPE_H

#include "text_codepoints.h"

/* As Python's html.unescape, the rules of HTML 5: names with or without ';' (the longest one that fits), numbers with
 * Windows-1252 for 128-159, U+FFFD or nothing for what is no character. */
ith_status ith_html_unescape(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

/* As ftfy's unescape_html: only what ends in ';' and can be read in one way; names also in capitals ("&EACUTE;"). */
ith_status ith_html_unescape_plain(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

/* A C1 control as Windows-1252 reads that byte, where it has a character there; any other code point as it is. */
uint32_t ith_windows_1252(uint32_t codepoint);

#endif
