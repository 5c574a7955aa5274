/* SPDX-License-Identifier: Apache-2.0 */
#include "module_name.h"

#include <stdio.h>
#include <string.h>

bool ith_cli_module_name(const char *path, const char *kind, char *name, size_t bytes)
{
    char prefix[32];
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const int length = snprintf(prefix, sizeof prefix, "ithaca_%s_", kind);
    if (strncmp(file, prefix, (size_t)length) != 0)
        return false;
    file += length;
    snprintf(name, bytes, "%.*s", (int)strcspn(file, "."), file);
    return true;
}
