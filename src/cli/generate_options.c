/* SPDX-License-Identifier: Apache-2.0 */
/* The options of ithaca generate, each declared once for the command line, --config and the model's ithaca.yaml. */
#include "config.h"
#include "generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 1e9 /* upper limit of options without a natural maximum */

ITH_OPTION_WORD_OF(solver)
ITH_OPTION_WORD_OF(sigmas)
ITH_OPTION_WORD_OF(cfg)
ITH_OPTION_WORD_OF(precision)

#define AT(member) offsetof(ith_generate_settings, member)
static const ith_option own_rows[] = {
    {.help = "What to make:"},
    {"model", "DIR", "Checkpoint folder in the diffusers layout", ITH_OPTION_TEXT, ITH_FROM_CONFIG, AT(model), 0, 0,
     NULL, 'm'},
    {"prompt", "TEXT", "What the video shows", ITH_OPTION_TEXT, ITH_FROM_CONFIG, AT(prompt), 0, 0, NULL, 'p'},
    {"negative", "TEXT", "What it should not (the model's own; \"\" for nothing)", ITH_OPTION_TEXT, ITH_FROM_MODEL,
     AT(negative), 0, 0, NULL, 0},
    {"output", "FILE", "Video to write: .mp4, .gif, or with '/' at its end a folder of PNGs (clip.mp4)",
     ITH_OPTION_TEXT, ITH_FROM_CONFIG, AT(output), 0, 0, NULL, 'o'},
    {"frames", "N", "Number of frames, one more than a multiple of 4", ITH_OPTION_WHOLE, ITH_FROM_MODEL, AT(frames), 1,
     LARGEST, NULL, 0},
    {"height", "N", "Pixels, a multiple of 16", ITH_OPTION_WHOLE, ITH_FROM_MODEL, AT(height), 1, LARGEST, NULL, 0},
    {"width", "N", "Pixels, a multiple of 16", ITH_OPTION_WHOLE, ITH_FROM_MODEL, AT(width), 1, LARGEST, NULL, 0},
    {"fps", "X", "Frames a second", ITH_OPTION_NUMBER, ITH_FROM_MODEL, AT(fps), 0.01, 1000, NULL, 0},
    {"crf", "N", "Quality of an mp4, 0 (best) to 51 (18)", ITH_OPTION_WHOLE, ITH_FROM_CONFIG, AT(crf), 0, 51, NULL, 0},
    {"seed", "N", "Which noise to start from (0)", ITH_OPTION_SEED, ITH_FROM_CONFIG, AT(seed), 0, 0, NULL, 0},
    {.help = "Sampling; what is not given is the model's own:"},
    {"steps", "N", "Denoising steps", ITH_OPTION_WHOLE, ITH_FROM_MODEL, AT(steps), 1, LARGEST, NULL, 0},
    {"shift", "X", "Shift of the noise levels", ITH_OPTION_NUMBER, ITH_FROM_MODEL, AT(shift), 1e-6, 1e6, NULL, 0},
    {"guidance", "G[,G2]", "Guidance at high and at low noise; 1 or less leaves out the negative branch",
     ITH_OPTION_PAIR, ITH_FROM_MODEL, AT(guidance), -1e6, 1e6, NULL, 0},
    {"boundary", "X", "Noise level, 0 to 1, below which the second expert takes over, for models with two",
     ITH_OPTION_NUMBER, ITH_FROM_MODEL, AT(boundary), 0, 1, NULL, 0},
    {"solver", "unipc|euler", "Sampler", ITH_OPTION_WORD, ITH_FROM_MODEL, AT(solver), 0, 0, solver_word, 0},
    {"sigmas", "official|diffusers",
     "Noise levels of the published code (official), or of diffusers with the model's scheduler", ITH_OPTION_WORD,
     ITH_FROM_MODEL, AT(sigmas), 0, 0, sigmas_word, 0},
    {"noise", "FILE", "Take the first noise from a .safetensors file: tensor noise [channels, frames, height, width]",
     ITH_OPTION_TEXT, ITH_FROM_CONFIG, AT(noise), 0, 0, NULL, 0},
    {.help = "How to compute:"},
    {"cfg", "batch|parallel|sequential",
     "Both guidance branches at once (batch), on two halves of the ranks, or one after the other in less memory",
     ITH_OPTION_WORD, ITH_FROM_CONFIG, AT(cfg), 0, 0, cfg_word, 0},
    {"precision", "auto|bf16|f32",
     "Of the operands of products and attention. auto: bf16 on processors with AMX and on AMD's with AVX512-BF16, f32 "
     "on all others",
     ITH_OPTION_WORD, ITH_FROM_MODEL, AT(precision), 0, 0, precision_word, 0},
    {"keep-packed", NULL,
     "Convert the weights of linear layers once and keep them in memory, instead of whenever they are used",
     ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(keep_packed), 0, 0, NULL, 0},
    {"shard-weights", NULL,
     "Let each host keep a part of the transformer's weights, and send the next layer's parts while one is "
     "computed; for hosts with slow disks or little memory, or without the model, which rank 0 then sends. Each "
     "host holds two layers in memory",
     ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(shard_weights), 0, 0, NULL, 0},
    {"force", NULL, "Go on although the machine seems to have less memory than the run will hold", ITH_OPTION_FLAG,
     ITH_FROM_CONFIG, AT(force), 0, 0, NULL, 0},
    {"dry-run", NULL,
     "Print the plan, the memory and the predicted time, and read no weights but the headers of their files. Measures "
     "this machine for about a second, unless 'ithaca tune' has",
     ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(dry_run), 0, 0, NULL, 0},
    {.help = "Intermediate results:"},
    {"from-latents", "FILE", "Decode latents that an earlier run saved, and do nothing else", ITH_OPTION_TEXT,
     ITH_FROM_CONFIG, AT(from_latents), 0, 0, NULL, 0},
    {"keep-latents", NULL, "Keep OUTPUT.latents.safetensors, which is saved before decoding, after success too",
     ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(keep_latents), 0, 0, NULL, 0},
    {"dump", "FILE", "Write noise, latents of every step, final and frames to a .safetensors file", ITH_OPTION_TEXT,
     ITH_FROM_CONFIG, AT(dump), 0, 0, NULL, 0},
    {.help = "Talk:"},
    {"json", NULL, "Print the summary as one JSON object", ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(json), 0, 0, NULL, 0},
    {"quiet", NULL, "No progress and no summary", ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(quiet), 0, 0, NULL, 'q'},
    {"verbose", NULL, "More about what is being done", ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(verbose), 0, 0, NULL, 'v'},
};
#undef AT

static const char doc[] =
    "Generate a video from a prompt with a Wan 2.1 or 2.2 text-to-video checkpoint."
    "\v"
    "A model folder may carry its own defaults in ithaca.yaml. The command line counts more than --config, --config "
    "more than the model folder. With --model, --print-config shows the model's own values too.\n"
    "\n"
    "The summary shows the predicted time beside the measured one. The prediction is made before the run, with the "
    "rates that 'ithaca tune' keeps of this machine, or with rates that are measured in a fiftieth of the predicted "
    "time (0.1 to 1 s). Over several processes it also needs the links between them: --dry-run measures them.\n"
    "\n"
    "Ctrl-C, SIGTERM and SIGHUP stop the run within a second and leave no half file. Latents are saved when denoising "
    "is done; they are kept then, and --from-latents goes on from them. The exit status is 1.";

/* Whether an option is about the run of a model: the folder of a model may set it, or its name is one of these. */
static bool is_of_run(const ith_option *option)
{
    static const char *const names[] = {"model", "prompt", "seed", "cfg", "keep-packed", "shard-weights", "force"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (option->name && (option->farthest == ITH_FROM_MODEL || !strcmp(option->name, names[i])))
            return true;
    return false;
}

int ith_generate_add_run_options(ith_option *table, int count, size_t offset)
{
    for (size_t i = 0; i < sizeof own_rows / sizeof *own_rows; i++)
        if (is_of_run(&own_rows[i]))
            count = ith_options_append(table, count, &own_rows[i], 1, offset);
    return ith_attend_add_options(table, count, offset + offsetof(ith_generate_settings, choices), false);
}

void ith_generate_parse(int argc, char **argv, ith_generate_settings *settings, ith_options *options)
{
    *settings = (ith_generate_settings)ITH_GENERATE_SETTINGS_INIT;
    static ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    *options = (ith_options){.table = table, .settings = settings, .command = argv[0], .prints_itself = true};
    options->count = ith_attend_add_options(table, sizeof own_rows / sizeof *own_rows,
                                            offsetof(ith_generate_settings, choices), false);
    ith_options_parse(options, argc, argv, doc, NULL);
}

int ith_generate_check(const ith_generate_settings *settings, const ith_options *options)
{
    const char *command = options->command;
    int code = ith_options_check(options);
    if (code)
        return code;
    if (!settings->model)
        return ith_cli_usage(command, "--model is needed");
    if (!settings->prompt && !settings->from_latents)
        return ith_cli_usage(command, "--prompt is needed");
    if (settings->from_latents && settings->dump)
        return ith_cli_usage(command, "--dump needs a run with denoising, which --from-latents leaves out");
    int seed = ith_option_find(options, "seed");
    if (settings->noise && options->source[seed] == ITH_FROM_COMMAND)
        return ith_cli_usage(command, "--seed and --noise exclude each other");
    if (settings->quiet && settings->verbose)
        return ith_cli_usage(command, "--quiet and --verbose exclude each other");
    return ITH_EXIT_DONE;
}

int ith_generate_parse_model(const ith_generate_settings *settings, ith_context *context, ith_options *options)
{
    char *path = NULL;
    if (asprintf(&path, "%s/ithaca.yaml", settings->model) < 0)
        return ith_cli_error("%s: there is no memory to read its defaults", settings->model);
    int code = ith_config_read_model(ith_model_file(context, path), options);
    free(path);
    return code;
}

void ith_generate_fill(ith_generation *g)
{
    static const char *const filled[] = {"negative", "frames",   "height", "width",  "steps", "shift",
                                         "guidance", "boundary", "solver", "sigmas", "fps"};
    static const char *const chosen[] = {"cfg", "precision"};
    ith_generate_settings *settings = &g->settings;
    const ith_generate_options *from = &g->options;
    settings->negative = from->negative;
    settings->frames = from->frames, settings->height = from->height, settings->width = from->width;
    settings->steps = from->steps, settings->shift = from->shift, settings->boundary = from->boundary;
    memcpy(settings->guidance, from->guidance, sizeof settings->guidance);
    settings->solver = from->solver, settings->sigmas = from->sigmas;
    settings->cfg = from->cfg, settings->precision = from->precision;
    settings->fps = settings->fps > 0 ? settings->fps : g->model.fps;
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        ith_option_source *source = &g->table->source[ith_option_find(g->table, chosen[i])];
        *source = *source ? *source : ITH_FROM_RULE;
    }
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        ith_option_source *source = &g->table->source[ith_option_find(g->table, filled[i])];
        *source = *source ? *source : ITH_FROM_CHECKPOINT;
    }
}

int ith_generate_translate(ith_generation *g, const char *command)
{
    const ith_generate_settings *settings = &g->settings;
    ith_generate_options *out = &g->options;
    *out = (ith_generate_options)ITH_GENERATE_OPTIONS_INIT;
    out->prompt = settings->prompt, out->negative = settings->negative;
    out->frames = settings->frames, out->height = settings->height, out->width = settings->width;
    out->steps = settings->steps, out->shift = settings->shift, out->boundary = settings->boundary;
    memcpy(out->guidance, settings->guidance, sizeof out->guidance);
    out->solver = settings->solver, out->sigmas = settings->sigmas;
    out->cfg = settings->cfg, out->precision = settings->precision;
    out->seed = settings->seed, out->noise_file = settings->noise;
    out->dump_file = settings->dump, out->from_latents = settings->from_latents;
    out->force = settings->force;
    out->keep_packed = settings->keep_packed;
    out->shard_weights = settings->shard_weights;
    out->threads = g->launch.threads;
    out->attention = &g->attention;
    return ith_attend_choose(g->context, command, &settings->choices, &g->attention);
}
