/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt cleaning, as the reference does it: ftfy's fixes, html.unescape twice, white space made single. */
#ifndef ITH_WAN_PROMPT_H
#define ITH_WAN_PROMPT_H

#include "../../base/context.h"

/* *out: UTF-8, freed with ith_free. ITH_ERR_ARGUMENT, with the byte offset, for text that is not UTF-8. */
ith_status ith_prompt_clean(ith_context *context, const char *text, char **out);

#endif
