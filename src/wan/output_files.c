/* SPDX-License-Identifier: Apache-2.0 */
#include "output_files.h"

#include "../base/context.h"
#include "../base/output_place.h"
#include "../base/replace_file.h"

#include <string.h>

/* A file, and the option that names it. */
typedef struct run_file {
    const char *option, *path;
} run_file;

enum { OUTPUTS = 3, FILES = 5 };

static bool is_same(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return !ith_output_is_device(a) && !ith_output_real(a, real_a) && !ith_output_real(b, real_b) &&
           !strcmp(real_a, real_b);
}

/* Checks that the output `file` is none of the `count` files in `others`. */
static ith_status check_distinct(ith_context *context, const run_file *file, const run_file *others, int count)
{
    for (int i = 0; i < count; i++)
        if (others[i].path && is_same(file->path, others[i].path))
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s and %s are the same file, %s: name another one for %s",
                            file->option, others[i].option, file->path, file->option);
    return ITH_OK;
}

ith_status ith_output_files_check(ith_context *context, const ith_generate_options *options)
{
    const run_file files[FILES] = {{"checkpoint_file", options->checkpoint_file},
                                   {"latents_file", options->latents_file},
                                   {"dump_file", options->dump_file},
                                   {"noise_file", options->noise_file},
                                   {"resume_file", options->resume_file}};
    for (int i = 0; i < OUTPUTS; i++) {
        const int others = i ? FILES - i - 1 : FILES - 2; /* a saved run may replace the one that it resumes */
        if (!files[i].path)
            continue;
        ith_status status = check_distinct(context, &files[i], &files[i + 1], others);
        if (!status)
            status = ith_replace_check(context, files[i].path);
        if (status)
            return status;
    }
    return ITH_OK;
}
