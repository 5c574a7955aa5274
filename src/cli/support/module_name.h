/* SPDX-License-Identifier: Apache-2.0 */
/* The names of modules in the names of their files. */
#ifndef ITH_CLI_MODULE_NAME_H
#define ITH_CLI_MODULE_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a path is a module of a kind, "transport" or "device": its file is called ithaca_KIND_NAME.so. Then writes
 * NAME. */
bool ith_cli_module_name(const char *path, const char *kind, char *name, size_t bytes);

#endif
