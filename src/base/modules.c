/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, checks and loads the modules of modules.h. */
#include "modules.h"

#include "open_file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets *name to the beginning of NAME in a file name ithaca_KIND_NAME.so and returns its length; 0 if the file name has
 * another form. */
static int module_name(const ith_module_kind *kind, const char *file, const char **name)
{
    static const char first[] = "ithaca_", last[] = ".so";
    size_t kind_length = strlen(kind->name), length = strlen(file);
    size_t before = sizeof first - 1 + kind_length + 1, after = sizeof last - 1;
    if (length <= before + after || strncmp(file, first, sizeof first - 1) || file[before - 1] != '_' ||
        strncmp(file + sizeof first - 1, kind->name, kind_length) || strcmp(file + length - after, last))
        return 0;
    *name = file + before;
    return (int)(length - before - after);
}

/* Loads the file of a module. Returns NULL with the reason in module->refusal. Other kinds of files are refused before
 * dlopen, which would wait for the writer of a pipe. A path at the beginning of dlopen's sentence is cut off, because
 * callers name the path themselves. */
static void *load(ith_module *module)
{
    struct stat info;
    const size_t path_length = strlen(module->path);
    if (stat(module->path, &info)) {
        snprintf(module->refusal, sizeof module->refusal, "%s", strerror(errno));
        return NULL;
    }
    if (!S_ISREG(info.st_mode)) {
        snprintf(module->refusal, sizeof module->refusal, "it is %s, not a file", ith_file_kind(&info));
        return NULL;
    }
    void *handle = dlopen(module->path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        return handle;
    const char *said = dlerror();
    const bool path_first = !strncmp(said, module->path, path_length) && !strncmp(said + path_length, ": ", 2);
    snprintf(module->refusal, sizeof module->refusal, "%s", path_first ? said + path_length + 2 : said);
    return NULL;
}

void ith_module_open(const ith_module_kind *kind, ith_module *module)
{
    const char *name = NULL;
    int length = module_name(kind, strrchr(module->path, '/') + 1, &name);
    void *handle = load(module);
    if (!handle)
        return;
    const ith_module_head *table = dlsym(handle, kind->symbol);
    const char *fault;
    if (!table)
        snprintf(module->refusal, sizeof module->refusal, "it exports no %s", kind->symbol);
    else if (table->abi != kind->abi)
        snprintf(module->refusal, sizeof module->refusal, "it was built for ABI %u; this library takes ABI %u",
                 table->abi, kind->abi);
    else if (kind->find_fault && (fault = kind->find_fault(table)))
        snprintf(module->refusal, sizeof module->refusal, "%s", fault);
    else if (!table->name || strlen(table->name) != (size_t)length || strncmp(table->name, name, (size_t)length))
        snprintf(module->refusal, sizeof module->refusal, "its file says %.*s, its table %s", length, name,
                 table->name ? table->name : "nothing");
    else
        module->table = table;
    if (!module->table)
        dlclose(handle);
}

/* Whether a module of this file name was found in a folder that was searched earlier and so takes precedence. */
static bool is_hidden(const ith_module_kind *kind, const char *file)
{
    for (int i = 0; i < kind->count; i++)
        if (!strcmp(strrchr(kind->modules[i].path, '/') + 1, file))
            return true;
    return false;
}

/* The name of a file in a folder, for free(); NULL: there is no memory. Names are in memory and not on the stack, which
 * may be small. */
static char *join(const char *folder, const char *file)
{
    const size_t bytes = strlen(folder) + strlen(file) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", folder, file);
    return path;
}

/* Adds a module file to the list of its kind, either loaded or with the reason why it is refused. */
static void add_module(ith_module_kind *kind, const char *folder, const char *file)
{
    const char *name = NULL;
    if (!module_name(kind, file, &name) || is_hidden(kind, file))
        return;
    ith_module *grown = realloc(kind->modules, (size_t)(kind->count + 1) * sizeof *grown);
    if (grown)
        kind->modules = grown;
    char *path = grown ? join(folder, file) : NULL;
    if (!path)
        return;
    ith_module *module = &grown[kind->count++];
    *module = (ith_module){.path = path};
    ith_module_open(kind, module);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_folder(ith_module_kind *kind, const char *folder)
{
    struct dirent **files = NULL;
    int count = scandir(folder, &files, NULL, by_name);
    for (int i = 0; i < count; i++) {
        add_module(kind, folder, files[i]->d_name);
        free(files[i]);
    }
    free(files);
}

char *ith_module_find_folder(const void *address)
{
    Dl_info owner;
    if (!dladdr(address, &owner) || !owner.dli_fname)
        return NULL;
    const char *end = strrchr(owner.dli_fname, '/');
    return end ? strndup(owner.dli_fname, (size_t)(end - owner.dli_fname)) : NULL;
}

/* Searches the folders that modules.h names, in the order of precedence. */
static void search(ith_module_kind *kind)
{
    static const char here = 0;
    const char *named = secure_getenv("ITHACA_PLUGIN_PATH");
    if (named && named[0])
        add_folder(kind, named);
    char *own = named ? NULL : ith_module_find_folder(&here), *beside = own ? join(own, "ithaca") : NULL;
    if (beside)
        add_folder(kind, beside);
    if (own)
        add_folder(kind, own);
    free(beside);
    free(own);
}

const ith_module *ith_module_at(ith_module_kind *kind, int index)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!kind->searched)
        search(kind);
    kind->searched = true;
    pthread_mutex_unlock(&lock);
    return index >= 0 && index < kind->count ? &kind->modules[index] : NULL;
}

const ith_module *ith_module_named(ith_module_kind *kind, const char *name)
{
    const ith_module *module;
    for (int i = 0; (module = ith_module_at(kind, i)) != NULL; i++) {
        const char *found = NULL;
        int length = module_name(kind, strrchr(module->path, '/') + 1, &found);
        if (strlen(name) == (size_t)length && !strncmp(found, name, (size_t)length))
            return module;
    }
    return NULL;
}
