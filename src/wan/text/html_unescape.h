/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes HTML character references, by the two sets of rules that prompt cleaning uses: Python's and ftfy's. Both
 * functions append to `out`. */
#ifndef ITH_WAN_HTML_UNESCAPE_H
#define ITH_WAN_HTML_UNESCAPE_H

#include "text_codepoints.h"

/* Like Python's html.unescape, by the rules of HTML 5: names with or without ';' (the longest match), numbers 128-159
 * read as Windows-1252, and U+FFFD or nothing for numbers that are no character. */
ith_status ith_html_unescape(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

/* Like ftfy's unescape_html: only unambiguous references that end in ';', and also names in capitals ("&EACUTE;"). */
ith_status ith_html_unescape_plain(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

/* Returns the Windows-1252 character of a C1 control (U+0080 to U+009F) if there is one, and any other code point
 * unchanged. */
uint32_t ith_windows_1252(uint32_t codepoint);

#endif
