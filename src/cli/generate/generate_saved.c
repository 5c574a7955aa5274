/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --checkpoint and --resume: checks before the run, and their removal or a message about them after it. */
#include "generate.h"

#include "../file/output_name.h"

#include <ithaca/files.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the number of steps that the saved run has done. The library checks the file as a whole. */
static int read_steps(ith_generation *g)
{
    ith_tensor_file *file = NULL;
    if (ith_tensor_file_open(g->context, g->settings.resume, &file))
        return ith_cli_error("%s", ith_context_error(g->context));
    const char *steps = ith_tensor_file_metadata(file, "step");
    g->resumed_steps = steps ? strtoll(steps, NULL, 10) : 0;
    ith_tensor_file_close(&file);
    return ITH_EXIT_DONE;
}

static bool is_regular(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISREG(info.st_mode);
}

int ith_generate_check_saved(ith_generation *g)
{
    const char *path = g->settings.checkpoint, *resume = g->settings.resume;
    int code = resume ? read_steps(g) : ITH_EXIT_DONE;
    if (code || !g->options.checkpoint_file)
        return code;
    if (path && is_regular(path) && (!resume || strcmp(path, resume)))
        return ith_cli_error("'%s' is there already, and may be a run that --resume can go on with: remove it, or name "
                             "another file",
                             path);
    return ith_cli_check_output(g->options.checkpoint_file);
}

int ith_generate_check_seed(const ith_generation *g)
{
    const bool given = ith_option_source_of(g->table, "seed") != ITH_FROM_DEFAULT;
    if (!g->settings.resume || !given || g->settings.seed == g->options.seed)
        return ITH_EXIT_DONE;
    return ith_cli_error("seed is %llu, and %llu in the saved run %s: leave it out, or begin another run",
                         (unsigned long long)g->settings.seed, (unsigned long long)g->options.seed, g->settings.resume);
}

void ith_generate_forget_saved(const ith_generation *g)
{
    const char *path = g->options.checkpoint_file;
    char file[PATH_MAX]; /* behind symbolic links, which stay */
    if (path && g->report.saved_step >= 0 && is_regular(path) && realpath(path, file))
        unlink(file);
}
