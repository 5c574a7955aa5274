/* SPDX-License-Identifier: Apache-2.0 */
/* A golden denoising run: what it was asked for (its file's metadata) as options of the engine, and a generate call
 * whose dump is read back. */
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

/* Runs it on so many ranks and opens the dump. */
ith_tensor_file *golden_generate(ith_context *ctx, ith_pipeline *pipeline, int ranks, const ith_generate_options *asked,
                                 ith_generate_report *report);

#endif
