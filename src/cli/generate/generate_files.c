/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the names of a run's files before the long computation, so that nothing is replaced by mistake
 * (generate_files.h). */
#include "generate_files.h"

#include "../../media/output.h"
#include "../file/output_name.h"
#include "../support/text_value.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATENTS_NAMES 100 /* most names that are tried for the latents; the last one replaces an existing file */

/* A file, and the option that names it. */
typedef struct named_file {
    const char *option, *path;
} named_file;

/* The files of a run that its own options name: first the outputs, then the inputs. */
enum { OUTPUTS = 9, INPUTS = 6, OWN = OUTPUTS + INPUTS };

static void list_own(const ith_generation *g, named_file files[OWN])
{
    const ith_generate_settings *s = &g->settings;
    const int svg = ith_option_find(g->table, "svg"); /* bench generate has this option */
    const named_file all[OWN] = {{"--output", s->output},
                                 {"--dump", s->dump},
                                 {"--trace", s->choices.launch.trace},
                                 {"--wisdom", ith_attend_wisdom_file(&s->choices)},
                                 {"--flight-record", s->choices.launch.flight_record},
                                 {"the latents", g->latents_path},
                                 {s->checkpoint ? "--checkpoint" : "--resume", g->options.checkpoint_file},
                                 {"--preview", s->preview},
                                 {"--svg", svg < 0 ? NULL : g->table->text[svg]},
                                 {"--image", s->image},
                                 {"--last-image", s->last_image},
                                 {"--noise", s->noise},
                                 {"--from-latents", s->from_latents},
                                 {"--prompts", s->prompts},
                                 {"--config", g->table->config}};
    memcpy(files, all, sizeof all);
}

/* Compares the files of the run, of the model and of its LoRAs with one another. */
static int check_different(const ith_generation *g, const named_file own[OWN])
{
    int64_t loras = 0;
    ith_lora_file *files = ith_lora_read_lists(&g->settings.loras, &loras);
    const size_t most = OWN + ITH_MODEL_SINGLE_FILES + (size_t)loras;
    const char **paths = calloc(most, sizeof *paths), **options = calloc(most, sizeof *options);
    int count = 0, code;
    if (files && paths && options) {
        for (int i = 0; i < OWN; i++, count++)
            options[count] = own[i].option, paths[count] = own[i].path;
        for (int i = 0; i < ITH_MODEL_SINGLE_FILES; i++, count++)
            options[count] = ith_model_single_file(&g->settings.files, i, &paths[count]);
        for (int64_t i = 0; i < loras; i++, count++)
            options[count] = "a LoRA", paths[count] = files[i].file;
        code = ith_cli_check_distinct(paths, options, count, OUTPUTS);
    } else {
        code = ith_cli_error("there is no memory for names");
    }
    free(files), free(paths), free(options);
    return code;
}

/* Refuses an output that would replace a file of the model's folder. The other outputs cannot: videos and PNGs are no
 * files of a model, and a saved run, latents and wisdom replace only files of their own kind. */
static int check_folders(const ith_generation *g, const named_file own[OWN])
{
    const ith_model_files *files = &g->settings.files;
    static const char *const replace_all[] = {"--dump", "--trace", "--flight-record", "--svg", NULL};
    const named_file folders[] = {{"--model", files->folder}, {"--tokenizer", files->tokenizer}};
    for (int i = 0; i < OUTPUTS; i++)
        for (int j = 0; j < 2 && ith_text_is_among(own[i].option, replace_all); j++)
            if (ith_cli_is_inside(own[i].path, folders[j].path))
                return ith_cli_error("%s '%s' is there already, in the folder of %s: name another file", own[i].option,
                                     own[i].path, folders[j].option);
    return ITH_EXIT_DONE;
}

/* Refuses an output with the name of a frame in the folder of frames that --output names. */
static int check_frames(const named_file own[OWN])
{
    const char *folder = own[0].path;
    if (!folder || !ith_output_is_folder(folder))
        return ITH_EXIT_DONE;
    for (int i = 1; i < OUTPUTS; i++) {
        const char *slash = own[i].path ? strrchr(own[i].path, '/') : NULL, *name = slash ? slash + 1 : own[i].path;
        if (name && !fnmatch("frame_*.png", name, 0) && ith_cli_is_in_folder(own[i].path, folder))
            return ith_cli_error("%s '%s' has the name of a frame in the folder of --output: name another file",
                                 own[i].option, own[i].path);
    }
    return ITH_EXIT_DONE;
}

int ith_generate_check_distinct(const ith_generation *g)
{
    named_file own[OWN];
    list_own(g, own);
    int code = check_different(g, own);
    if (!code)
        code = check_folders(g, own);
    return code ? code : check_frames(own);
}

/* The name for the latents number `number`, which the caller frees. NULL: there is no memory. A name that is too long
 * for the file system has only the start of the output's name. */
static char *latents_name(const ith_generation *g, int number)
{
    size_t length = strlen(g->settings.output);
    char suffix[40], count[16] = "", shorter[PATH_MAX], *output = strdup(g->settings.output), *name = NULL;
    if (!output)
        return NULL;
    while (length > 1 && output[length - 1] == '/')
        output[--length] = '\0';
    if (number > 1)
        snprintf(count, sizeof count, "-%d", number);
    snprintf(suffix, sizeof suffix, ".latents%s.safetensors", count);
    if (asprintf(&name, "%s%s", output, suffix) < 0)
        name = NULL;
    if (name && access(name, F_OK) && errno == ENAMETOOLONG && !ith_output_beside(output, "", suffix, shorter)) {
        free(name);
        name = strdup(shorter);
    }
    free(output);
    return name;
}

/* Whether a name for the latents has no file that the run would replace against the user's will. */
static bool is_free(const ith_generation *g, const char *name, int number)
{
    return g->settings.keep_latents || number == LATENTS_NAMES || access(name, F_OK);
}

int ith_generate_name_latents(ith_generation *g)
{
    if (g->settings.from_latents)
        return ith_generate_check_distinct(g);
    for (int number = 1; !g->latents_path; number++) {
        g->latents_path = latents_name(g, number);
        if (!g->latents_path)
            return ith_cli_error("there is no memory for a name");
        if (!is_free(g, g->latents_path, number)) {
            free(g->latents_path);
            g->latents_path = NULL;
        }
    }
    int code = ith_cli_check_output(g->latents_path);
    return code ? code : ith_generate_check_distinct(g);
}

const char *ith_generate_take_latents(ith_generation *g)
{
    for (int number = 1; g->latents_path && number <= LATENTS_NAMES; number++) {
        char *name = latents_name(g, number);
        const bool taken = name && ith_name_lock_take(name, &g->latents_lock);
        if (taken && is_free(g, name, number)) {
            free(g->latents_path);
            g->latents_path = name;
            break;
        }
        if (taken)
            ith_name_lock_release(&g->latents_lock);
        free(name);
    }
    return g->latents_path;
}
