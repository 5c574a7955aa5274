/* SPDX-License-Identifier: Apache-2.0 */
/* Machine descriptions in YAML files. machines/README.md explains the format. */
#ifndef ITH_CLI_MACHINE_FILE_H
#define ITH_CLI_MACHINE_FILE_H

#include <ithaca/tune.h>

#include <stdbool.h>

/* Reads a description into *machine, which passes ith_machine_check and owns its lists. Prints errors with file and
 * line, and returns an exit status. On failure *machine needs no ith_machine_file_free. */
int ith_machine_file_read(ith_context *context, const char *path, ith_machine *machine);
/* Frees the lists of a machine that was read. */
void ith_machine_file_free(ith_machine *machine);
/* Whether a description has a rate of attention for a type and head size. */
bool ith_machine_has_attention(const ith_machine *machine, ith_dtype dtype, int64_t head_dim);
/* Copies `count` rows of `bytes` bytes, for a list that a machine will own. Returns NULL if there is no memory. */
void *ith_machine_file_copy_rows(const void *rows, int64_t count, size_t bytes);
/* Checks that no list of a machine is NULL, because a copy failed: otherwise frees the others, prints the error, and
 * returns an exit status. */
int ith_machine_file_check_rows(ith_machine *machine);
/* Puts `count` rows, which were allocated by malloc and now belong to the machine, in place of its products. */
void ith_machine_file_take_products(ith_machine *machine, ith_machine_product *rows, int64_t count);
/* Writes a description beside `path` and renames it. comment: lines for the head of the file, each with '#' before it
 * there; NULL for none. Prints errors and returns an exit status. */
int ith_machine_file_write(const char *path, const ith_machine *machine, const char *comment);

/* Finds and reads the description that --machine names: a file if the name has a '/' or ends with ".yaml"; "local", the
 * file in the user's cache that describes this machine; otherwise NAME.yaml in the folder of machines. If the user's
 * cache has no description, this machine is measured in about a second. wanted: the attention that is measured then, or
 * NULL. Prints errors and returns an exit status. *machine is freed by ith_machine_file_free. */
int ith_machine_find(ith_context *context, const char *name, const ith_machine_case *wanted, ith_machine *machine);
/* Reads the description of this machine in the user's cache. Returns false if there is none; prints an error if there
 * is one that cannot be read. */
bool ith_machine_recall(ith_context *context, ith_machine *machine);

#endif
