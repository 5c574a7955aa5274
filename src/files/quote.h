/* SPDX-License-Identifier: Apache-2.0 */
/* Makes text from a file safe to show in a sentence: short, on one line, UTF-8 without control characters. */
#ifndef ITH_FILES_QUOTE_H
#define ITH_FILES_QUOTE_H

#include "../base/context.h"

/* Text that is safe to show, returned by value. */
typedef struct ith_quoted {
    char text[128];
} ith_quoted;

/* Replaces control characters, and bytes that are not UTF-8, by '?'. Cuts long text between two UTF-8 characters and
 * ends it with "...". NULL gives "". Returns a struct to be used at once:
 * ith_fail(context, status, "tensor '%s' ...", ith_quote(name).text). */
ith_quoted ith_quote(const char *text);

#endif
