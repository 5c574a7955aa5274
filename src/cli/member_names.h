/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries name members of their structs in error messages. The user of the program knows them as options. */
#ifndef ITH_CLI_MEMBER_NAMES_H
#define ITH_CLI_MEMBER_NAMES_H

#include <stddef.h>

/* Copies a sentence, as far as there is room. A member's name that stands alone becomes its option: "dit_low" becomes
 * "--dit-low". */
void ith_member_names_replace(const char *sentence, char *out, size_t bytes);

#endif
