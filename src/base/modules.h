/* SPDX-License-Identifier: Apache-2.0 */
/* Shared modules (plugins), which are found at run time. They hold kernels and transports that need other libraries, on
 * which this library must not depend. A module of kind KIND and name NAME is the file ithaca_KIND_NAME.so. It exports
 * one symbol, a table that begins with ith_module_head.
 *
 * Modules lie in the folder that ITHACA_PLUGIN_PATH names; if it is set but empty, there are none. If it is not set,
 * they lie beside the library, as in a build folder, or in a folder ithaca/ there. The modules of a kind are searched
 * once, when one is first asked for, and stay loaded. A module that cannot be used stays in the list, with the reason.
 */
#ifndef ITH_BASE_MODULES_H
#define ITH_BASE_MODULES_H

#include <ithaca/ithaca.h>

/* The beginning of the table that a module exports. */
typedef struct ith_module_head {
    uint32_t abi;
    const char *name; /* equals NAME in the name of the file */
} ith_module_head;

/* A module that was found. */
typedef struct ith_module {
    char *path;
    const ith_module_head *table; /* NULL: the module is refused */
    char refusal[256];            /* the reason of the refusal, without the path; "" if the module is usable */
} ith_module;

/* A kind of modules, such as transports. Its owner sets name, symbol, abi and find_fault of a static object; the other
 * members are 0 at first. */
typedef struct ith_module_kind {
    const char *name, *symbol;
    uint32_t abi;
    /* Returns the reason why a table of this abi cannot be used, or NULL. NULL: every table can be used. */
    const char *(*find_fault)(const ith_module_head *table);
    bool searched;
    int count;
    ith_module *modules;
} ith_module_kind;

/* Module number `index` of a kind, from 0; NULL after the last. Folders follow one another in the order of the search,
 * files of a folder in the order of their names. Any thread may call this. */
const ith_module *ith_module_at(ith_module_kind *kind, int index);

/* The module NAME of a kind, which may be refused; NULL if there is none. Any thread may call this. */
const ith_module *ith_module_named(ith_module_kind *kind, const char *name);

/* Loads the file module->path, which is called ithaca_KIND_NAME.so, and sets module->table, or module->refusal if the
 * module cannot be used. The other members are 0 at first. */
void ith_module_open(const ith_module_kind *kind, ith_module *module);

/* The folder of the library or the program in which an address lies, for free(). NULL if it is not known. */
char *ith_module_find_folder(const void *address);

#endif
