/* SPDX-License-Identifier: Apache-2.0 */
/* The options of ithaca generate, each declared once for the command line, --config and the model's ithaca.yaml. */
#include "../../media/output.h"
#include "../option/config.h"
#include "../shared_option/device_option.h"
#include "../support/text_value.h"
#include "generate.h"

#include <stdlib.h>
#include <string.h>

const char *const ith_generate_compared[] = {"dry-run", "shard-weights", NULL};
const char *const ith_generate_of_output[] = {"fps", "crf", NULL};

#define LARGEST 1e9 /* upper limit of options without a natural maximum */

ITH_OPTION_WORD_OF(fit)
ITH_OPTION_WORD_OF(solver)
ITH_OPTION_WORD_OF(sigmas)
ITH_OPTION_WORD_OF(cfg)
ITH_OPTION_WORD_OF(precision)

#define AT(member) offsetof(ith_generate_settings, member)
static const ith_option own_rows[] = {
    {.help = "What to make:"},
    {"prompt", "TEXT", "What the video shows", ITH_OPTION_TEXT, .offset = AT(prompt), .letter = 'p'},
    {"negative", "TEXT", "What the video should not show (the model's own text; \"\" for none)", ITH_OPTION_TEXT,
     .offset = AT(negative), .of_model = true},
    {"output", "FILE",
     "Video to write: .mp4, .gif, with '/' at its end a folder of PNGs, or a .png of one frame (clip.mp4)",
     ITH_OPTION_TEXT, .offset = AT(output), .letter = 'o'},
    {"frames", "N", "Number of frames, one more than a multiple of 4", ITH_OPTION_WHOLE, .offset = AT(frames),
     .least = 1, .most = LARGEST, .of_model = true},
    {"height", "N", "Pixels, a multiple of 16", ITH_OPTION_WHOLE, .offset = AT(height), .least = 1, .most = LARGEST,
     .of_model = true},
    {"width", "N", "Pixels, a multiple of 16", ITH_OPTION_WHOLE, .offset = AT(width), .least = 1, .most = LARGEST,
     .of_model = true},
    {"image", "FILE",
     "First frame, for models that make videos from images (I2V, FLF2V, TI2V): PNG, JPEG or WebP. Without --height and "
     "--width, the video has its shape",
     ITH_OPTION_TEXT, .offset = AT(image)},
    {"last-image", "FILE", "Last frame, for I2V models of Wan 2.2 and FLF2V models", ITH_OPTION_TEXT,
     .offset = AT(last_image)},
    {"area", "N",
     "Most pixels of a frame that has the image's shape, such as 399360, which is 832 x 480 (the model's own)",
     ITH_OPTION_WHOLE, .offset = AT(area), .least = 1, .most = LARGEST, .of_model = true},
    {"fit", "cover|stretch",
     "How an image of another shape than the video's is fitted: cut on both sides (cover), or stretched",
     ITH_OPTION_WORD, .offset = AT(fit), .word = fit_word, .of_model = true},
    {"fps", "X", "Frames a second", ITH_OPTION_NUMBER, .offset = AT(fps), .least = 0.01, .most = 1000,
     .of_model = true},
    {"crf", "N", "Quality of an mp4, 0 (best) to 51 (18)", ITH_OPTION_WHOLE, .offset = AT(crf), .least = 0, .most = 51},
    {"seed", "N", "Seed of the noise (0)", ITH_OPTION_SEED, .offset = AT(seed)},
    {.help = "Sampling; an option that is not given has the model's own value:"},
    {"steps", "N", "Denoising steps", ITH_OPTION_WHOLE, .offset = AT(steps), .least = 1, .most = 10000,
     .of_model = true},
    {"shift", "X", "Shift of the noise levels", ITH_OPTION_NUMBER, .offset = AT(shift), .least = 1e-3, .most = 1e3,
     .of_model = true},
    {"guidance", "G[,G2]", "Guidance at high and at low noise; 1 or less leaves out the negative branch",
     ITH_OPTION_PAIR, .offset = AT(guidance), .least = -100, .most = 100, .of_model = true},
    {"boundary", "X", "Noise level, 0 to 1, below which the second expert takes over, for models with two",
     ITH_OPTION_NUMBER, .offset = AT(boundary), .least = 0, .most = 1, .of_model = true},
    {"solver", "unipc|euler|dpm++", "Sampler", ITH_OPTION_WORD, .offset = AT(solver), .word = solver_word,
     .of_model = true},
    {"sigmas", "official|diffusers",
     "Noise levels of the published code (official), or of diffusers with the model's scheduler", ITH_OPTION_WORD,
     .offset = AT(sigmas), .word = sigmas_word, .of_model = true},
    {"noise", "FILE", "Take the initial noise from a .safetensors file: tensor noise [channels, frames, height, width]",
     ITH_OPTION_TEXT, .offset = AT(noise)},
    {.help = "How to compute:"},
    {"cfg", "batch|parallel|sequential",
     "Both guidance branches at once (batch), on two halves of the ranks (parallel), or one after the other "
     "(sequential) in less memory",
     ITH_OPTION_WORD, .offset = AT(cfg), .word = cfg_word},
    {"precision", "auto|bf16|f32",
     "Number type of the operands of products and attention. auto: bf16 on a GPU, on processors with AMX and on AMD's "
     "with AVX512-BF16, f32 on all others",
     ITH_OPTION_WORD, .offset = AT(precision), .word = precision_word, .of_model = true},
    ITH_DEVICE_OPTION("the transformer and the decoder", AT(device)),
    {"device-memory", "MB",
     "Take at most this much memory of the GPU. Layers of the transformer for which it has no room wait in pinned "
     "memory of this machine, and each pass copies them (all that is free)",
     ITH_OPTION_WHOLE, .offset = AT(device_memory), .least = 1, .most = LARGEST},
    {"keep-packed", NULL, "Convert the weights of linear layers once and keep them in memory, instead of at every use",
     ITH_OPTION_FLAG, .offset = AT(keep_packed)},
    {"shard-weights", NULL,
     "Let each host keep a part of the transformer's weights, and send the next layer's parts while one is "
     "computed; for hosts with slow disks or little memory, or without the model, which rank 0 then sends. Each "
     "host holds two layers in memory",
     ITH_OPTION_FLAG, .offset = AT(shard_weights)},
    {"force", NULL, "Go on although the machine seems to have less memory than the run will hold", ITH_OPTION_FLAG,
     .offset = AT(force)},
    {"dry-run", NULL,
     "Print the plan, the memory and the predicted time, and read no weights but the headers of their files. Measures "
     "this machine for about a second, unless 'ithaca tune' has",
     ITH_OPTION_FLAG, .offset = AT(dry_run)},
    {.help = "Several videos, and long runs:"},
    {"prompts", "FILE",
     "Make a video of each line of a file, of a pipe, or of standard input (-): a prompt, or a JSON object of options "
     "for one video, such as {\"prompt\": \"a cat\", \"seed\": 3}. Outputs get numbers: clip-001.mp4",
     ITH_OPTION_TEXT, .offset = AT(prompts)},
    {"count", "N", "Make N videos of each prompt, with the seeds that follow --seed (1)", ITH_OPTION_WHOLE,
     .offset = AT(count), .least = 1, .most = 10000},
    {"checkpoint", "FILE",
     "Save the run in this file after every step, so that --resume goes on from it. It is removed when the video is "
     "complete",
     ITH_OPTION_TEXT, .offset = AT(checkpoint)},
    {"checkpoint-every", "N", "Save it after every N steps only, and when the run is stopped (1)", ITH_OPTION_WHOLE,
     .offset = AT(checkpoint_every), .least = 1, .most = LARGEST},
    {"resume", "FILE",
     "Go on with a run that --checkpoint has saved, and save it there again. Prompt, size, sampling and precision come "
     "from the file; an option that is given must be the same. With --prompts or --count: leave out videos that exist",
     ITH_OPTION_TEXT, .offset = AT(resume)},
    {"preview", "FILE.png",
     "Write a small picture of the video that the solver predicts: the first, the middle and the last latent "
     "frame side by side. With --prompts or --count each video replaces it",
     ITH_OPTION_TEXT, .offset = AT(preview)},
    {"preview-every", "N", "Write it after every N steps (1)", ITH_OPTION_WHOLE, .offset = AT(preview_every),
     .least = 1, .most = LARGEST},
    {.help = "Intermediate results:"},
    {"from-latents", "FILE", "Decode latents that an earlier run saved, and do nothing else", ITH_OPTION_TEXT,
     .offset = AT(from_latents)},
    {"keep-latents", NULL, "Keep OUTPUT.latents.safetensors, which is saved before decoding, after success too",
     ITH_OPTION_FLAG, .offset = AT(keep_latents)},
    {"dump", "FILE", "Write noise, latents of every step, final and frames to a .safetensors file", ITH_OPTION_TEXT,
     .offset = AT(dump)},
    {.help = "Messages:"},
    {"json", NULL, "Print the summary as one JSON object", ITH_OPTION_FLAG, .offset = AT(json)},
    {"quiet", NULL, "No progress and no summary", ITH_OPTION_FLAG, .offset = AT(quiet), .letter = 'q'},
    {"verbose", NULL, "Print more messages", ITH_OPTION_FLAG, .offset = AT(verbose), .letter = 'v'},
};
#undef AT

static const char doc[] =
    "Generate a video from a prompt, and from images where the model takes them, with Wan 2.1 or 2.2."
    "\v"
    "A model folder may carry its own defaults in ithaca.yaml. The command line counts more than --config, --config "
    "more than the model folder. With a model, --print-config shows the model's own values too.\n\n"
    "The summary shows the predicted time beside the measured one. The prediction is made before the run, with the "
    "rates that 'ithaca tune' keeps of this machine, or with rates that are measured in a fiftieth of the predicted "
    "time (0.1 to 1 s; about 2 s if the run takes a minute or more). Over several processes it also needs the links "
    "between them: --dry-run measures them. The times of several videos (--prompts, --count) are predicted by "
    "--dry-run only.\n\n"
    "Ctrl-C, SIGTERM and SIGHUP stop the run within a second and leave no half file. With --checkpoint the run is "
    "saved, and --resume goes on from its last complete step. Latents are saved when denoising is done; they are "
    "kept then, and --from-latents goes on from them. The exit status is 1.";

/* Whether an option is about the run of a model: the folder of a model may set it, or its name is one of these. */
static bool is_of_run(const ith_option *option)
{
    static const char *const names[] = {"prompt",        "image", "last-image", "seed",          "cfg", "keep-packed",
                                        "shard-weights", "force", "device",     "device-memory", NULL};
    return option->name && (option->of_model || ith_text_is_among(option->name, names));
}

int ith_generate_add_run_options(ith_option *table, int count, size_t offset)
{
    count = ith_model_add_options(table, count, offset + offsetof(ith_generate_settings, files));
    count = ith_lora_add_options(table, count, offset + offsetof(ith_generate_settings, loras));
    for (size_t i = 0; i < sizeof own_rows / sizeof *own_rows; i++)
        if (is_of_run(&own_rows[i]))
            count = ith_options_append(table, count, &own_rows[i], 1, offset);
    return ith_attend_add_options(table, count, offset + offsetof(ith_generate_settings, choices), false);
}

void ith_generate_open_options(ith_generate_settings *settings, ith_options *options)
{
    *settings = (ith_generate_settings)ITH_GENERATE_SETTINGS_INIT;
    static ith_option table[ITH_OPTIONS_MAX] = {{.help = "The model:"}};
    int count = ith_model_add_options(table, 1, offsetof(ith_generate_settings, files));
    count = ith_lora_add_options(table, count, offsetof(ith_generate_settings, loras));
    count = ith_options_append(table, count, own_rows, sizeof own_rows / sizeof *own_rows, 0);
    *options = (ith_options){.table = table, .settings = settings, .prints_itself = true};
    options->count = ith_attend_add_options(table, count, offsetof(ith_generate_settings, choices), false);
}

void ith_generate_parse(int argc, char **argv, ith_generate_settings *settings, ith_options *options)
{
    ith_generate_open_options(settings, options);
    options->command = argv[0];
    ith_options_parse(options, argc, argv, doc, NULL);
}

/* Checks the options of a command that makes several videos, beyond check_effects. */
static int check_batch(const ith_generate_settings *s, const char *command)
{
    const char *what = s->prompts ? "--prompts" : "--count";
    if (s->prompts && s->prompt)
        return ith_cli_usage(command, "--prompt and --prompts exclude each other");
    if (!s->prompts && !s->prompt && s->resume)
        return ith_cli_usage(command, "--count goes on with videos of --prompt or --prompts: name it, or leave out "
                                      "--count to go on with one video");
    if (!s->prompts && !s->prompt && !s->from_latents)
        return ith_cli_usage(command, "--prompt is needed, or --prompts");
    if (s->from_latents || s->dump)
        return ith_cli_usage(command, "%s and --%s exclude each other", what, s->dump ? "dump" : "from-latents");
    if (s->count > 1 && s->noise)
        return ith_cli_usage(command, "--count makes noise from several seeds, and --noise is one noise");
    if (s->checkpoint && s->resume && strcmp(s->checkpoint, s->resume) != 0)
        return ith_cli_usage(command, "--checkpoint and --resume must have the same name with %s", what);
    return ITH_EXIT_DONE;
}

/* Refuses the first option of a list that has a value of this source, or of one that counts more. */
static int refuse_denoising(const ith_options *options, const char *const *names, int count, ith_option_source least)
{
    for (int i = 0; i < count; i++)
        if (ith_option_source_of(options, names[i]) >= least)
            return ith_cli_usage(options->command, "--%s is about denoising, which --from-latents leaves out",
                                 names[i]);
    return ITH_EXIT_DONE;
}

/* Refuses options that contradict --from-latents. A --config that an earlier run has used may still describe the
 * video. */
static int check_decoding(const ith_options *options)
{
    static const char *const files[] = {"checkpoint", "resume", "preview", "dump"};
    static const char *const run[] = {"prompt",       "negative",    "frames",     "height", "width", "area",
                                      "image",        "fit",         "last-image", "seed",   "steps", "shift",
                                      "solver",       "guidance",    "sigmas",     "noise",  "cfg",   "boundary",
                                      "keep-latents", "keep-packed", "effort"};
    ith_option choices[ITH_OPTIONS_MAX];
    const int count = ith_attend_add_choices(choices, 0, 0);
    int code = refuse_denoising(options, files, sizeof files / sizeof *files, ITH_FROM_CONFIG);
    if (!code)
        code = refuse_denoising(options, run, sizeof run / sizeof *run, ITH_FROM_COMMAND);
    for (int i = 0; i < count && !code; i++)
        if (choices[i].name)
            code = refuse_denoising(options, &choices[i].name, 1, ITH_FROM_COMMAND);
    return code;
}

const char *ith_generate_why_unused(const char *option, const char *output)
{
    const bool pngs = ith_output_is_folder(output) || ith_text_ends_in(output, ".png");
    if (!strcmp(option, "fps") && pngs)
        return "is the speed of an mp4 or a GIF";
    if (!strcmp(option, "crf") && (pngs || ith_text_ends_in(output, ".gif")))
        return "is the quality of an mp4";
    return NULL;
}

/* Refuses options of the command line that the file of --output cannot use. A --config may have served another one. */
static int check_output_uses(const ith_generate_settings *s, const ith_options *options)
{
    for (const char *const *name = ith_generate_of_output; *name; name++) {
        const char *why = ith_generate_why_unused(*name, s->output);
        if (why && ith_option_source_of(options, *name) == ITH_FROM_COMMAND)
            return ith_cli_usage(options->command, "--%s %s, and '%s' is none", *name, why, s->output);
    }
    return ITH_EXIT_DONE;
}

/* Refuses options of the command line about an image, if there is none. A line of --prompts may have one. */
static int check_image(const ith_generate_settings *s, const ith_options *options)
{
    static const char *const names[] = {"fit", "area"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!s->prompts && !s->image && !s->last_image && ith_option_source_of(options, names[i]) == ITH_FROM_COMMAND)
            return ith_cli_usage(options->command, "--%s needs --image", names[i]);
    return ITH_EXIT_DONE;
}

/* Refuses options that would have no effect, and options that contradict one another. It serves commands for one video
 * and for several. */
static int check_effects(const ith_generate_settings *s, const ith_options *options)
{
    const char *command = options->command;
    const bool on_cpu = s->device && !strcmp(s->device, "cpu");
    if (s->device_memory &&
        (!s->device || (on_cpu && ith_option_source_of(options, "device-memory") == ITH_FROM_COMMAND)))
        return ith_cli_usage(command, "--device-memory needs --device");
    if (ith_option_source_of(options, "checkpoint-every") && !s->checkpoint && !s->resume)
        return ith_cli_usage(command, "--checkpoint-every needs --checkpoint or --resume");
    if (ith_option_source_of(options, "preview-every") && !s->preview)
        return ith_cli_usage(command, "--preview-every needs --preview");
    if (s->noise && ith_option_source_of(options, "seed") == ITH_FROM_COMMAND)
        return ith_cli_usage(command, "--seed and --noise exclude each other");
    if (s->quiet && s->verbose)
        return ith_cli_usage(command, "--quiet and --verbose exclude each other");
    const int code = check_image(s, options);
    return code ? code : check_output_uses(s, options);
}

int ith_generate_check(const ith_generate_settings *settings, const ith_options *options)
{
    const char *command = options->command;
    int code = ith_options_check(options);
    if (code)
        return code;
    code = ith_model_check_named(&settings->files, true, command);
    if (code)
        return code;
    if (ith_generate_is_batch(settings)) {
        code = check_batch(settings, command);
        return code ? code : check_effects(settings, options);
    }
    if (!settings->prompt && !settings->from_latents && !settings->resume)
        return ith_cli_usage(command, "--prompt is needed");
    code = settings->from_latents ? check_decoding(options) : ITH_EXIT_DONE;
    if (code)
        return code;
    if (settings->resume && settings->dump)
        return ith_cli_usage(command, "--dump needs all steps of a run, and --resume leaves some out");
    return check_effects(settings, options);
}

int ith_generate_parse_model(const ith_generate_settings *settings, ith_context *context, ith_options *options)
{
    char *path = NULL;
    if (!settings->files.folder)
        return ITH_EXIT_DONE;
    if (asprintf(&path, "%s/ithaca.yaml", settings->files.folder) < 0)
        return ith_cli_error("%s: there is no memory to read its defaults", settings->files.folder);
    int code = ith_config_read_model(ith_model_file(context, path), options);
    free(path);
    return code;
}

/* Leaves open the options of a run that is resumed if the model's folder alone sets them: the saved run has them. */
static void leave_to_saved(ith_generation *g)
{
#define AT(member) offsetof(ith_generate_options, member), sizeof g->options.member
    static const struct {
        const char *name;
        size_t at, bytes;
    } saved[] = {{"negative", AT(negative)}, {"frames", AT(frames)},      {"height", AT(height)},
                 {"width", AT(width)},       {"steps", AT(steps)},        {"shift", AT(shift)},
                 {"guidance", AT(guidance)}, {"boundary", AT(boundary)},  {"solver", AT(solver)},
                 {"sigmas", AT(sigmas)},     {"precision", AT(precision)}};
#undef AT
    const ith_generate_options open = ITH_GENERATE_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++)
        if (ith_option_source_of(g->table, saved[i].name) == ITH_FROM_MODEL)
            memcpy((char *)&g->options + saved[i].at, (const char *)&open + saved[i].at, saved[i].bytes);
}

void ith_generate_fill(ith_generation *g)
{
    static const char *const filled[] = {"negative", "frames",   "height", "width",  "steps", "shift",
                                         "guidance", "boundary", "solver", "sigmas", "fps"};
    static const char *const chosen[] = {"cfg", "precision", "fit"};
    ith_generate_settings *settings = &g->settings;
    const ith_generate_options *from = &g->options;
    settings->negative = from->negative;
    settings->frames = from->frames, settings->height = from->height, settings->width = from->width;
    settings->steps = from->steps, settings->shift = from->shift, settings->boundary = from->boundary;
    memcpy(settings->guidance, from->guidance, sizeof settings->guidance);
    settings->solver = from->solver, settings->sigmas = from->sigmas;
    settings->fit = (ith_fit)from->fit;
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
    out->area = settings->area, out->fit = settings->fit;
    out->steps = settings->steps, out->shift = settings->shift, out->boundary = settings->boundary;
    memcpy(out->guidance, settings->guidance, sizeof out->guidance);
    out->solver = settings->solver, out->sigmas = settings->sigmas;
    out->cfg = settings->cfg, out->precision = settings->precision;
    out->seed = settings->seed, out->noise_file = settings->noise;
    out->dump_file = settings->dump, out->from_latents = settings->from_latents;
    out->force = settings->force;
    out->device_memory = settings->device_memory * 1000000;
    out->keep_packed = settings->keep_packed;
    out->shard_weights = settings->shard_weights;
    out->threads = g->launch.threads;
    out->attention = &g->attention;
    out->checkpoint_file = settings->checkpoint ? settings->checkpoint : settings->resume;
    out->checkpoint_every = settings->checkpoint_every;
    out->resume_file = settings->resume;
    ith_generate_set_preview(g);
    if (settings->resume)
        leave_to_saved(g);
    return ith_attend_choose(g->context, command, &settings->choices, &g->attention);
}
