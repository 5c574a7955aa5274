/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/golden_run.h"

#include "support/engine/engine_ranks.h"
#include "support/temporary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double golden_number(const ith_tensor_file *file, const char *key)
{
    const char *text = ith_tensor_file_metadata(file, key);
    assert_non_null(text);
    return strtod(text, NULL);
}

/* Reads a JSON string without escapes from the metadata, and copies it without its quotes. */
static void golden_text(const ith_tensor_file *file, const char *key, char *out, size_t out_bytes)
{
    const char *text = ith_tensor_file_metadata(file, key);
    assert_non_null(text);
    assert_null(strchr(text, '\\'));
    snprintf(out, out_bytes, "%.*s", (int)strlen(text) - 2, text + 1);
}

void golden_run_open(ith_context *ctx, const char *path, golden_run *run)
{
    char word[32];
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    assert_int_equal(ith_tensor_file_open(ctx, path, &run->file), ITH_OK);
    golden_text(run->file, "prompt", run->prompt, sizeof run->prompt);
    golden_text(run->file, "negative", run->negative, sizeof run->negative);
    golden_text(run->file, "solver", word, sizeof word);
    options.solver = !strcmp(word, "euler")   ? ITH_SOLVER_EULER
                     : !strcmp(word, "dpmpp") ? ITH_SOLVER_DPMPP
                                              : ITH_SOLVER_UNIPC;
    golden_text(run->file, "grid", word, sizeof word);
    options.sigmas = strcmp(word, "official") ? ITH_SIGMAS_DIFFUSERS : ITH_SIGMAS_OFFICIAL;
    options.steps = (int64_t)golden_number(run->file, "steps");
    options.frames = (int64_t)golden_number(run->file, "frames");
    options.height = (int64_t)golden_number(run->file, "height");
    options.width = (int64_t)golden_number(run->file, "width");
    options.shift = golden_number(run->file, "shift");
    const bool one = ith_tensor_file_metadata(run->file, "guidance") != NULL; /* the model has one expert */
    options.guidance[0] = golden_number(run->file, one ? "guidance" : "guidance_high");
    options.guidance[1] = golden_number(run->file, one ? "guidance" : "guidance_low");
    options.boundary = one ? NAN : golden_number(run->file, "boundary");
    options.precision = ITH_PRECISION_F32;
    options.noise_file = path;
    options.prompt = run->prompt;
    options.negative = run->negative;
    run->options = options;
}

ith_tensor_file *golden_generate(ith_context *ctx, ith_pipeline *pipeline, int ranks, const ith_generate_options *asked,
                                 ith_generate_report *report)
{
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "dump.safetensors");
    ith_generate_options options = *asked;
    options.dump_file = path;
    ith_status status = engine_generate(ctx, pipeline, ranks, &options, report);
    if (status)
        fail_msg("%s: %s", ith_status_name(status), ith_context_error(ctx));
    ith_tensor_file *dump = NULL;
    assert_int_equal(ith_tensor_file_open(ctx, path, &dump), ITH_OK);
    temporary_remove(folder);
    return dump;
}
