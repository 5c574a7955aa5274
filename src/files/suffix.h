/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of names and paths. */
#ifndef ITH_FILES_SUFFIX_H
#define ITH_FILES_SUFFIX_H

#include <string.h>

/* Returns the place in `name` where its suffix `end` begins, behind at least one character; NULL if `name` has another
 * end. */
static inline const char *ith_suffix(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && !strcmp(name + length - tail, end) ? name + length - tail : NULL;
}

#endif
