/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca tune: measures this machine, and finds the fastest tiles and strategies. The results become wisdom, which
 * `ithaca attend`, `bench attention`, `bench generate` and `generate` read. */
#include "tune_state.h"

#include "../cli.h"
#include "../launch/interrupt.h"
#include "../launch/progress.h"
#include "../launch/thread_limit.h"
#include "../machine/machine_file.h"
#include "../option/complaint.h"
#include "../shared_option/attend_options.h"
#include "../shared_option/device_option.h"
#include "../support/video_tokens.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST 1e9
#define DEFAULT_PROBLEM "wan2.1-1.3b-480p"

#define AT(member) offsetof(ith_tune_settings, member)
static const ith_option rows[] = {
    {.help = "Or sizes:"},
    {"problem", "NAME", "The sizes and the length of a published model (" DEFAULT_PROBLEM ", if no size is given)",
     ITH_OPTION_TEXT, .offset = AT(problem)},
    {"seq", "N[,N..]", "Queries and keys", ITH_OPTION_WHOLES, .offset = AT(seq), .least = 1, .most = LARGEST},
    {"heads", "N", "Heads (12)", ITH_OPTION_WHOLE, .offset = AT(heads), .least = 1, .most = LARGEST},
    {"head-dim", "N", "Head size (128)", ITH_OPTION_WHOLE, .offset = AT(head_dim), .least = 1, .most = LARGEST},
    {"ffn-dim", "N", "Hidden width of the feed-forward network (4 times the width of a row)", ITH_OPTION_WHOLE,
     .offset = AT(ffn_dim), .least = 1, .most = LARGEST},
    {"dtype", "T[,T..]", "f32, bf16, f16 (bf16)", ITH_OPTION_WORDS, .offset = AT(dtype), .word = ith_attend_dtype_word},
    {"softmax", "S[,S..]", "online, fixed_m (online)", ITH_OPTION_WORDS, .offset = AT(softmax),
     .word = ith_attend_softmax_word},
    {"kernel", "NAME", "A kernel that 'ithaca info' lists (the kernel that a plan takes)", ITH_OPTION_TEXT,
     .offset = AT(kernel)},
    ITH_DEVICE_OPTION("attention", AT(device)),
    {"ranks", "N", "Ranks of this process whose strategies are compared (1: none)", ITH_OPTION_WHOLE,
     .offset = AT(ranks), .least = 1, .most = ITH_CLI_RANKS_MAX},
    {"threads", "N", "Threads (all cores)", ITH_OPTION_WHOLE, .offset = AT(threads), .least = 1,
     .most = ITH_CLI_THREADS_MAX},
    {.help = "How:"},
    {"budget", "SECONDS", "Time that the command may take (60)", ITH_OPTION_NUMBER, .offset = AT(budget), .least = 0.01,
     .most = 1e7},
    {"attention-only", NULL, "Try the best tiles in attention alone, not in a whole block", ITH_OPTION_FLAG,
     .offset = AT(alone)},
    {"again", NULL, "Repeat measurements that wisdom and the journal already have", ITH_OPTION_FLAG,
     .offset = AT(again)},
    {"wisdom", "FILE",
     "Where tiles and strategies are kept ($XDG_CACHE_HOME/ithaca/wisdom, which 'attend', 'bench attention', 'bench "
     "generate' and 'generate' read)",
     ITH_OPTION_TEXT, .offset = AT(wisdom)},
    {"machine", "FILE|none",
     "Where the description of this machine is kept ($XDG_CACHE_HOME/ithaca/machine.yaml, by which 'plan', 'bench' and "
     "'generate' predict)",
     ITH_OPTION_TEXT, .offset = AT(machine)},
    {"json", NULL, "Print a JSON object", ITH_OPTION_FLAG, .offset = AT(json)},
    {.help = "Several processes, which mpirun, mpiexec or srun has started, measure the links between them alone:"},
    {"transport", "auto|local|mpi", "How processes reach one another, as in 'ithaca attend'", ITH_OPTION_TEXT,
     .offset = AT(launch.transport)},
    {"timeout", "SECONDS", "End the run when a rank gives no sign of life for this long (60)", ITH_OPTION_NUMBER,
     .offset = AT(launch.timeout), .least = 0.1, .most = 1e6},
};
#undef AT

static const char doc[] =
    "Measure this machine, and find the tiles and strategies with which attention is fastest on it. The answers become "
    "wisdom, which later commands use where their options leave a choice open."
    "\v"
    "First the machine is described: rates of kernels, of products, of messages. Then tiles are looked for: calls of "
    "the kernel alone, from coarse steps to fine ones, and the best few in turn with the usual ones in a whole block "
    "of the transformer. With --ranks the plans that the description predicts to be fastest are executed in turn with "
    "the library's choice. A choice replaces the usual one only if it is faster by more than the noise.\n\n"
    "What is found is saved at once, and several processes may tune at the same time. A run that was stopped or "
    "killed goes on where it was: the journal beside the wisdom has the rates of single candidates. When the budget "
    "ends early, a sentence says so, and the exit status is 0. Tiles of keys change the last bits of results; a "
    "command with --wisdom none computes as if nothing had been tuned.";

/* ---- The problem ----------------------------------------------------------------------------------------------- */

/* Reads the sizes of a model. */
static int read_model(ith_tune *t)
{
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_model_info info = ITH_MODEL_INFO_INIT;
    options.prompt = "A prompt.", options.boundary = 0; /* no size depends on them */
    ith_status status = ith_pipeline_open_files(t->context, &t->settings->files, &pipeline);
    if (!status)
        status = ith_pipeline_info(pipeline, &info);
    ith_model_put_stand_ins(&info, &options);
    options.height = info.height, options.width = info.width;
    if (!status)
        status = ith_video_problem_read(pipeline, &options, &t->video);
    ith_pipeline_close(&pipeline);
    return status ? ith_cli_error("%s", ith_context_error(t->context)) : ITH_EXIT_DONE;
}

/* Sets t->video to the sizes of the model or the problem that is named; if neither is, and no option gives a size, to
 * the sizes of DEFAULT_PROBLEM. */
static int find_video(ith_tune *t, const ith_tune_settings *s, const char *command)
{
    const bool sized = s->seq.count || s->heads || s->head_dim || s->ffn_dim;
    const bool named = ith_model_is_named(&s->files);
    if (named && s->problem)
        return ith_cli_usage(command, "--problem excludes --model, --dit and --dit-high");
    int code = ith_model_check_named(&s->files, false, command);
    if (code)
        return code;
    t->video = (ith_video_problem)ITH_VIDEO_PROBLEM_INIT;
    t->has_video = named || s->problem || !sized;
    if (named)
        code = read_model(t);
    else if (t->has_video && ith_video_problem_named(t->context, s->problem ? s->problem : DEFAULT_PROBLEM, &t->video))
        code = ith_cli_usage(command, "--problem: %s", ith_context_error(t->context));
    return code;
}

/* Puts the sizes that options give over the sizes of the video. Without a video the other sizes have usual values. */
static void put_sizes(ith_tune *t, ith_tune_settings *s)
{
    ith_video_problem *v = &t->video;
    if (s->heads || !t->has_video)
        v->heads = s->heads ? s->heads : 12;
    if (s->head_dim || !t->has_video)
        v->head_dim = s->head_dim ? s->head_dim : 128;
    if (s->ffn_dim || !t->has_video)
        v->ffn_dim = s->ffn_dim ? s->ffn_dim : 4 * v->heads * v->head_dim;
    if (!s->seq.count)
        s->seq.values[s->seq.count++] = t->has_video ? ith_video_tokens(v) : 8192;
}

/* Finds the sizes for which this command measures. */
static int find_problem(ith_tune *t, ith_tune_settings *s, const char *command)
{
    const int code = find_video(t, s, command);
    if (code)
        return code;
    put_sizes(t, s);
    return s->seq.count * s->dtype.count * s->softmax.count > ITH_TUNE_CELLS
               ? ith_cli_usage(command, "--seq, --dtype and --softmax have more than %d combinations", ITH_TUNE_CELLS)
               : ITH_EXIT_DONE;
}

/* ---- The command ----------------------------------------------------------------------------------------------- */

/* Reads the wisdom of earlier runs. Replaces wisdom of another machine or version, and then sets *replaced to true. */
static int read_wisdom(ith_tune *t, bool *replaced)
{
    char why[PATH_MAX + 512];
    *replaced = false;
    if (access(t->wisdom, F_OK))
        return ITH_EXIT_DONE;
    ith_status status = ith_wisdom_load(t->context, t->wisdom);
    if (!status)
        return ITH_EXIT_DONE;
    snprintf(why, sizeof why, "%s", ith_context_error(t->context));
    if (status != ITH_ERR_FORMAT)
        return ith_cli_error("%s", why);
    status = ith_wisdom_save(t->context, t->wisdom);
    if (status == ITH_ERR_FORMAT) /* the file is no wisdom, and is kept */
        return ith_cli_error("%s: remove the file, or name another with --wisdom", why);
    if (status)
        return ith_cli_error("%s", ith_context_error(t->context));
    ith_error_print("warning: %s; it is replaced", why);
    *replaced = true;
    return ITH_EXIT_DONE;
}

static int open_files(ith_tune *t, const char *command)
{
    const ith_tune_settings *s = t->settings;
    bool replaced = false;
    int code = ith_tune_find_file("--wisdom", s->wisdom, "wisdom", t->wisdom);
    if (!code && !t->wisdom[0])
        code = ith_cli_usage(command, "--wisdom none leaves no file for the results");
    if (!code)
        code = ith_tune_find_machine(t);
    if (!code)
        code = read_wisdom(t, &replaced);
    return code ? code : ith_journal_open(t->context, t->wisdom, s->again || replaced, &t->journal);
}

/* Ends the line that ith_tune_show has begun. */
static void end_line(void)
{
    if (ith_terminal_draws())
        fputs("\r\033[K", stderr);
}

/* Prints the report, and a sentence if a signal or the budget has ended the work early. */
static int end(ith_tune *t, int code)
{
    end_line();
    if (code)
        return code;
    code = ith_interrupt_check();
    if (t->settings->json && ith_tune_print_json(t))
        return ITH_EXIT_FAILED;
    if (!t->settings->json)
        ith_tune_print_table(t);
    if (t->late && !code)
        fprintf(stderr,
                "ithaca: the budget of %g seconds has ended before everything was measured: the results are "
                "saved, and the same command goes on from here\n",
                t->settings->budget);
    return code;
}

static int run(ith_tune *t, ith_tune_settings *settings, const char *command)
{
    int code = find_problem(t, settings, command);
    if (!code)
        code = ith_cli_prepare_threads(settings->ranks, settings->threads, 0);
    t->journal.file = -1;
    if (!code)
        code = open_files(t, command);
    if (!code) {
        ith_interrupt_defer();
        code = ith_tune_machine(t);
        if (!code)
            code = ith_tune_tiles(t);
        if (!code && t->machine.level_count)
            code = ith_tune_strategies(t);
        code = end(t, code);
    }
    ith_journal_close(&t->journal);
    return code;
}

/* Checks that no option of the command line would have no effect. processes: whether a launcher has started this
 * process. */
static int check_effects(const ith_tune_settings *s, const ith_options *options, bool processes)
{
    if (s->alone && ith_option_source_of(options, "ffn-dim") == ITH_FROM_COMMAND)
        return ith_cli_usage(options->command,
                             "--attention-only excludes --ffn-dim: attention has no feed-forward network");
    if (!processes && ith_option_source_of(options, "timeout") == ITH_FROM_COMMAND)
        return ith_cli_usage(options->command,
                             "--timeout needs several processes, which mpirun, mpiexec or srun has started");
    return ITH_EXIT_DONE;
}

/* Checks the options; a softmax that is left open becomes online. processes: as in check_effects. */
static int check(ith_tune_settings *s, const ith_options *options, bool processes)
{
    int code = ith_options_check(options);
    if (!code)
        code = check_effects(s, options, processes);
    for (int i = 0; !code && i < s->dtype.count; i++)
        if (!s->dtype.values[i])
            code = ith_cli_usage(options->command, "--dtype: f32, bf16 and f16 can be tuned for");
    if (!code && s->device && strcmp(s->device, "cpu") != 0)
        code = ith_cli_usage(options->command,
                             "--device %s: tune measures processors; on a device kernels choose their own tiles, and "
                             "'ithaca bench attention --device %s' compares strategies",
                             s->device, s->device);
    for (int i = 0; i < s->softmax.count; i++)
        if (!s->softmax.values[i])
            s->softmax.values[i] = ITH_SOFTMAX_ONLINE;
    return code;
}

/* Lets the user read and write the folders and files that are made here, because later commands use them. */
static void open_to_user(void)
{
    const mode_t mask = umask(0);
    umask(mask & ~(mode_t)S_IRWXU);
}

int ith_cli_tune(int argc, char **argv)
{
    ith_tune_settings settings = {.files = ITH_MODEL_FILES_INIT,
                                  .dtype = {{ITH_BF16}, 1},
                                  .softmax = {{ITH_SOFTMAX_ONLINE}, 1},
                                  .ranks = 1,
                                  .budget = 60};
    static ith_tune tune;
    static ith_option table[ITH_OPTIONS_MAX] = {{.help = "A model whose sizes and length are tuned for:"}};
    int count = ith_model_add_options(table, 1, offsetof(ith_tune_settings, files));
    count = ith_options_append(table, count, rows, sizeof rows / sizeof *rows, 0);
    ith_options options = {.table = table, .count = count, .settings = &settings, .command = argv[0]};
    ith_options_parse(&options, argc, argv, doc, NULL);
    open_to_user();
    ith_launch launch;
    int code = ith_launch_begin(&launch, argv[0], &settings.launch, ITH_TALK_NORMAL, &tune.context);
    tune.settings = &settings, tune.start = ith_cli_seconds(), tune.until = tune.start + settings.budget;
    if (!code) {
        code = check(&settings, &options, launch.launcher.module);
        if (launch.launcher.module)
            code = ith_tune_links(&tune, &launch, code, &options);
        else if (!code)
            code = run(&tune, &settings, argv[0]);
    }
    ith_machine_file_free(&tune.machine);
    ith_context_destroy(&tune.context);
    ith_options_free(&options);
    return code;
}
