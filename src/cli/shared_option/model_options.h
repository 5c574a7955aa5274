/* SPDX-License-Identifier: Apache-2.0 */
/* The options that name the files of a model, for every command that opens one. */
#ifndef ITH_CLI_MODEL_OPTIONS_H
#define ITH_CLI_MODEL_OPTIONS_H

#include "../option/option.h"

#include <ithaca/wan.h>

#include <stdio.h>

/* Appends the options to a table that has `count` rows, and returns the new count. offset: the position of an
 * ith_model_files in the command's settings. */
int ith_model_add_options(ith_option *table, int count, size_t offset);
/* Whether a model is named. */
bool ith_model_is_named(const ith_model_files *files);
/* The sentence for a command without a model. */
#define ITH_MODEL_NEEDED "--model is needed, or --dit, or --dit-high and --dit-low"
/* Checks that a model is named if it is `needed`, or if one of its other files is named. Returns an exit status. */
int ith_model_check_named(const ith_model_files *files, bool needed, const char *command);
#define ITH_MODEL_SINGLE_FILES 7 /* number of single files that options can name */
/* Returns the option that names single file i, such as "--dit". *path becomes the file's path; NULL if it is not
 * named. */
const char *ith_model_single_file(const ith_model_files *files, int i, const char **path);
/* Sets the images of a run to pictures of one pixel: as many as the model needs, or one if it needs none but takes one.
 * Such a run is predicted, and never made. */
void ith_model_put_stand_ins(const ith_model_info *model, ith_generate_options *options);
/* Prints the options that name these files, quoted for a shell, each after a space. */
void ith_model_print_options(const ith_model_files *files, FILE *to);

#endif
