/* SPDX-License-Identifier: Apache-2.0 */
/* Text from a file made fit for a sentence: short, on one line, without control characters. */
#ifndef ITH_FILES_QUOTE_H
#define ITH_FILES_QUOTE_H

#include "../base/context.h"

typedef struct ith_quoted {
    char text[128];
} ith_quoted;

/* Control characters become '?', what is too long ends in "...", cut between UTF-8 characters. NULL gives "". Meant to
 * be used where it stands: ith_fail(context, status, "tensor '%s' ...", ith_quote(name).text). */
ith_quoted ith_quote(const char *text);

#endif
