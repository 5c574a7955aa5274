/* SPDX-License-Identifier: Apache-2.0 */
/* Reads options from a YAML file, which maps names of options to values. */
#ifndef ITH_CLI_CONFIG_H
#define ITH_CLI_CONFIG_H

#include "option.h"

/* Reads a --config file. Prints errors with file and line, and returns an exit status. */
int ith_config_read(const char *path, ith_options *options);
/* Reads a model's ithaca.yaml, if it exists. It may set options about running the model (ith_option.of_model), but no
 * names of files. */
int ith_config_read_model(const char *path, ith_options *options);

#endif
