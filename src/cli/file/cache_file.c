/* SPDX-License-Identifier: Apache-2.0 */
/* Names files in the user's cache, and makes its folder (cache_file.h). */
#include "cache_file.h"

#include "../cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ith_cache_path(const char *name, char path[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = cache && *cache == '/' ? snprintf(path, PATH_MAX, "%s/ithaca/%s", cache, name)
                 : home && *home == '/' ? snprintf(path, PATH_MAX, "%s/.cache/ithaca/%s", home, name)
                                        : 0;
    if (length > 0 && length < PATH_MAX)
        return true;
    path[0] = '\0';
    return false;
}

int ith_cache_make(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = folder; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(folder, 0777) && errno != EEXIST)
            return ith_cli_error("cannot make the folder %s: %s", folder, strerror(errno));
        *slash = '/';
    }
    return ITH_EXIT_DONE;
}
