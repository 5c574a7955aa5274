/* SPDX-License-Identifier: Apache-2.0 */
/* A golden denoising run. Its file's metadata, the settings with which the reference ran, become options of the engine.
 * The engine then runs with them, and its dump file is opened for comparisons. */
#ifndef ITH_TESTS_GOLDEN_RUN_H
#define ITH_TESTS_GOLDEN_RUN_H

#include <ithaca/files.h>
#include <ithaca/wan.h>

typedef struct golden_run {
    ith_tensor_file *file;
    char prompt[256], negative[256];
    ith_generate_options options;
} golden_run;

void golden_run_open(ith_context *ctx, const char *path, golden_run *run);

/* Runs the engine with the options `asked` on `ranks` ranks, and opens its dump file. */
ith_tensor_file *golden_generate(ith_context *ctx, ith_pipeline *pipeline, int ranks, const ith_generate_options *asked,
                                 ith_generate_report *report);

#endif
