/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt cleaning as in the reference: ftfy's repairs, html.unescape twice, single spaces. */
#ifndef ITH_WAN_PROMPT_H
#define ITH_WAN_PROMPT_H

#include "../../base/context.h"

/* Cleans a prompt into *out (UTF-8), which the caller frees with ith_free. ITH_ERR_ARGUMENT with the byte offset if
 * text is not UTF-8. ITH_ERR_INTERRUPTED if the context is interrupted before the repairs come to an end. */
ith_status ith_prompt_clean(ith_context *context, const char *text, char **out);

#endif
