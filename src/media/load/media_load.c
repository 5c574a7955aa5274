/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and loads the module of pictures and videos. */
#include "media_load.h"

#include "../../base/context.h"
#include "../../base/version.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "ithaca_media_libav.so"

static const char *find_fault(const ith_module_head *table)
{
    static char text[128];
    const char *version = ((const ith_media *)table)->version;
    snprintf(text, sizeof text, "it belongs to Ithaca %.40s, the program to " ITH_VERSION_TEXT, version);
    return strcmp(version, ITH_VERSION_TEXT) ? text : NULL;
}

static const ith_module_kind kind = {
    .name = "media", .symbol = "ith_media_table", .abi = ITH_MEDIA_MODULE_ABI, .find_fault = find_fault};
static ith_module module; /* path NULL: there is no such file */
enum { FOLDER_BYTES = 4096 };
static char folder[FOLDER_BYTES] = "?"; /* the folder of libithaca */

/* Fills `module` and `folder`. */
static void load(void)
{
    static char path[FOLDER_BYTES + 64];
    const void *libithaca = dlsym(RTLD_DEFAULT, "ith_version");
    char *found = libithaca ? ith_module_find_folder(libithaca) : NULL;
    const bool fits = found && strlen(found) < FOLDER_BYTES;
    if (fits)
        snprintf(folder, sizeof folder, "%s", found);
    free(found);
    if (!fits)
        return;
    snprintf(path, sizeof path, "%s/ithaca/" FILE_NAME, folder);
    if (access(path, F_OK))
        snprintf(path, sizeof path, "%s/" FILE_NAME, folder);
    if (access(path, F_OK))
        return;
    module.path = path;
    ith_module_open(&kind, &module);
}

ith_status ith_media_load(ith_context *context, const ith_media **media)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *media = (const ith_media *)module.table;
    if (*media)
        return ITH_OK;
    if (!module.path)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "pictures and videos need " FILE_NAME ", which is neither in %s/ithaca nor in %s", folder,
                        folder);
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "pictures and videos need %s, which cannot be loaded: %s",
                    module.path, module.refusal);
}
