/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens the modules of plugin.h. */
#include "plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modules[] = {"ithaca_kernels.so"};
enum { MODULES = sizeof modules / sizeof *modules, PATH_BYTES = 4096 };

static const ith_attn_kernel *const *found[MODULES]; /* the kernels of each module, NULL without it */

static const ith_attn_kernel *const *open_module(const char *folder, const char *below, const char *module)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s%s", folder, below, module);
    if (length < 0 || length >= PATH_BYTES)
        return NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return NULL;
    const ith_kernel_plugin_table *table = dlsym(handle, ITH_KERNEL_PLUGIN_SYMBOL);
    if (table != NULL && table->abi == ITH_KERNEL_PLUGIN_ABI)
        return table->kernels;
    dlclose(handle);
    return NULL;
}

/* The folder of the library, or of the program that it is part of; false if it is not known. */
static bool find_own_folder(char *folder)
{
    Dl_info here;
    if (dladdr(modules, &here) == 0 || here.dli_fname == NULL)
        return false;
    const char *end = strrchr(here.dli_fname, '/');
    if (end == NULL || end - here.dli_fname >= PATH_BYTES)
        return false;
    size_t length = (size_t)(end - here.dli_fname);
    memcpy(folder, here.dli_fname, length);
    folder[length] = '\0';
    return true;
}

static void find_modules(void)
{
    char own[PATH_BYTES];
    const char *named = secure_getenv("ITHACA_PLUGIN_PATH");
    if (named != NULL ? named[0] == '\0' : !find_own_folder(own))
        return;
    for (int i = 0; i < MODULES; i++) {
        found[i] = open_module(named ? named : own, named ? "" : "ithaca/", modules[i]);
        if (found[i] == NULL && named == NULL)
            found[i] = open_module(own, "", modules[i]);
    }
}

const ith_attn_kernel *ith_kernel_plugin_at(int index)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (index < 0 || pthread_once(&once, find_modules) != 0)
        return NULL;
    for (int i = 0; i < MODULES; i++)
        for (const ith_attn_kernel *const *kernel = found[i]; kernel != NULL && *kernel != NULL; kernel++)
            if (index-- == 0)
                return *kernel;
    return NULL;
}
