/* SPDX-License-Identifier: Apache-2.0 */
/* The options that name LoRA files, and the opening of a model with them. */
#ifndef ITH_CLI_LORA_OPTIONS_H
#define ITH_CLI_LORA_OPTIONS_H

#include "../option/option.h"

#include <ithaca/wan.h>

#include <stdio.h>

/* Lists "FILE[:STRENGTH],..."; NULL: none. */
typedef struct ith_lora_lists {
    const char *by_name, *high, *low;
} ith_lora_lists;

/* Appends the options to a table that has `count` rows, and returns the new count. offset: the position of an
 * ith_lora_lists in the command's settings. */
int ith_lora_add_options(ith_option *table, int count, size_t offset);
/* Prints the options that name these files, quoted for a shell, each after a space. */
void ith_lora_print_options(const ith_lora_lists *lists, FILE *to);
/* All LoRA files of the lists. The text behind the last colon of a name is its strength if it is a number. The files
 * and their names are one allocation, which the caller frees. *count: the number of files. NULL: there is no memory. */
ith_lora_file *ith_lora_read_lists(const ith_lora_lists *lists, int64_t *count);
/* Opens a model with LoRA files (ith_pipeline_open_files). */
ith_status ith_lora_open_model(ith_context *context, const ith_model_files *files, const ith_lora_lists *lists,
                               ith_pipeline **out);

/* After a failure of ith_lora_open_model whose message names a LoRA file that does not exist: writes the meaning that
 * the user may have had in mind. The text behind the name's colon may be a strength that is no number, or the name may
 * be the second half of a strength with a decimal comma. Writes "" if neither is the case. */
void ith_lora_advise(const ith_lora_lists *lists, const char *failure, char *advice, size_t bytes);

#endif
