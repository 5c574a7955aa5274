/* SPDX-License-Identifier: Apache-2.0 */
/* Shared modules (plugins), found at run time: kernels and transports that stand on libraries which this one must not
 * need. A module of kind KIND and name NAME is the file ithaca_KIND_NAME.so. It exports one symbol, a table that begins
 * with ith_module_head.
 *
 * Modules lie in the folder that ITHACA_PLUGIN_PATH names (set but empty: nowhere). Where it is not set: in ithaca/
 * beside the library, then beside the library itself, as in a build folder. The modules of a kind are looked for once,
 * when the kind is first asked for, and stay loaded. A module that cannot be used is kept with the reason. */
#ifndef ITH_BASE_MODULES_H
#define ITH_BASE_MODULES_H

#include <ithaca/ithaca.h>

typedef struct ith_module_head {
    uint32_t abi;
    const char *name; /* NAME of the file */
} ith_module_head;

typedef struct ith_module {
    char *path;
    const ith_module_head *table; /* NULL: not taken */
    char refusal[256];            /* why; "" if it was taken */
} ith_module;

/* A kind of module. Its owner sets the first three fields of a static object; the rest is 0 at first. */
typedef struct ith_module_kind {
    const char *name, *symbol;
    uint32_t abi;
    bool searched;
    int count;
    ith_module *modules;
} ith_module_kind;

/* The modules of a kind, in the order of their file names: index 0, 1, ... until NULL. Any thread. */
const ith_module *ith_module_at(ith_module_kind *kind, int index);

#endif
