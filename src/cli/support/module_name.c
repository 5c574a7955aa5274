/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the name of a module in the name of its file (module_name.h). */
#include "module_name.h"

#include <stdio.h>
#include <string.h>

bool ith_cli_module_name(const char *path, const char *kind, char *name, size_t bytes)
{
    static const char last[] = ".so";
    char first[32];
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const int before = snprintf(first, sizeof first, "ithaca_%s_", kind), after = sizeof last - 1;
    const int length = (int)strlen(file) - before - after;
    if (length <= 0 || strncmp(file, first, (size_t)before) != 0 || strcmp(file + before + length, last) != 0)
        return false;
    snprintf(name, bytes, "%.*s", length, file + before);
    return true;
}
