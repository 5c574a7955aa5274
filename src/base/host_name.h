/* SPDX-License-Identifier: Apache-2.0 */
/* The name of this host, for messages. */
#ifndef ITH_BASE_HOST_NAME_H
#define ITH_BASE_HOST_NAME_H

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Writes the name of this host to `name`, which has room for `bytes` characters with the final 0. A longer name is cut.
 */
static inline void ith_host_name(char *name, size_t bytes)
{
    char whole[HOST_NAME_MAX + 1] = "";
    if (gethostname(whole, sizeof whole) || !whole[0])
        strcpy(whole, "unnamed");
    const size_t length = strnlen(whole, bytes - 1);
    memcpy(name, whole, length);
    name[length] = 0;
}

#endif
