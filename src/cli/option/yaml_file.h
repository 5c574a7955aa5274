/* SPDX-License-Identifier: Apache-2.0 */
/* Reads YAML 1.1 files with libyaml, within limits of size and depth, and prints errors with file and line. */
#ifndef ITH_CLI_YAML_FILE_H
#define ITH_CLI_YAML_FILE_H

#include <stdbool.h>
#include <yaml.h>

/* A YAML file while it is read. */
typedef struct ith_yaml_file {
    const char *path;
    yaml_document_t document; /* holds a document while `take` runs */
} ith_yaml_file;

/* Reads the first document of the file file->path and calls take(user). may_lack: a file that does not exist is no
 * error, and nothing is called. Prints errors and returns an exit status, from `take` if it was called. */
int ith_yaml_read(ith_yaml_file *file, bool may_lack, int (*take)(void *user), void *user);

/* Prints the error "FILE:LINE: NAME: WHY" and returns ITH_EXIT_FAILED. */
int ith_yaml_complain(const ith_yaml_file *file, const yaml_node_t *node, const char *name, const char *why);
/* The text of a scalar node; NULL for any other node. */
const char *ith_yaml_scalar(const yaml_node_t *node);
/* Whether a node is text without NUL characters, at which C would cut the value. */
bool ith_yaml_is_text(const yaml_node_t *node);
/* Whether a value is null: nothing, ~, null, Null or NULL, as in YAML 1.2. */
bool ith_yaml_is_null(const yaml_node_t *node);

#endif
