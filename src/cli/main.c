/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca: the program. Finds the subcommand, runs it, and checks that its output was written. */
#include "cli.h"
#include "launch/interrupt.h"
#include "option/help_argp.h"
#include "option/misspelled.h"
#include "option/parsing_streams.h"
#include "support/nearest.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)1 << 20)

/* The subcommands, in the order in which messages list them. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"generate", ith_cli_generate}, {"attend", ith_cli_attend}, {"verify", ith_cli_verify},     {"plan", ith_cli_plan},
    {"bench", ith_cli_bench},       {"info", ith_cli_info},     {"tokenize", ith_cli_tokenize}, {"tune", ith_cli_tune},
};

static const char doc[] = "Generate video with Wan 2.1 and 2.2; exact attention over several ranks."
                          "\v"
                          "Commands:\n"
                          "  generate   a prompt becomes a video\n"
                          "  attend     attention on tensors from a .safetensors file\n"
                          "  verify     every strategy against a float64 softmax\n"
                          "  plan       every plan of a video or an attention, with its predicted time\n"
                          "  tune       measure this machine, and find the fastest tiles and strategies\n"
                          "  bench      how fast attention, a block, the decoder or a whole run is\n"
                          "  info       the machine, the kernels, a model\n"
                          "  tokenize   the ids that a model's tokenizer gives\n"
                          "\n"
                          "'ithaca COMMAND --help' explains each. The exit status is 0 on success, 1 on failure and 2 "
                          "for wrong usage. SIGINT (Ctrl-C), SIGTERM and SIGHUP end a command cleanly, without half "
                          "files, with exit status 1; a second signal of the same kind ends it at once.\n"
                          "\n"
                          "The environment variable ITHACA_CPU limits the instruction sets that are used: a list of "
                          "baseline, avx2, avx512, avx512_bf16, avx512_fp16, amx_bf16 and neon, separated by commas or "
                          "spaces. Each name also allows the sets that it needs.";

/* The subcommand on the command line. */
typedef struct call {
    int command; /* index into commands */
    int first;   /* index of the command's first argument in argv */
} call;

/* Prints that there is no such subcommand, and the most similar name, or all names if none is similar. */
static void complain_command(const struct argp_state *state, const char *name)
{
    enum { COUNT = sizeof commands / sizeof *commands };
    const char *names[COUNT];
    char all[128] = "";
    for (int i = 0; i < COUNT; i++) {
        names[i] = commands[i].name;
        const size_t length = strlen(all);
        snprintf(all + length, sizeof all - length, "%s%s", !i ? "" : i == COUNT - 1 ? " and " : ", ", names[i]);
    }
    const char *nearest = ith_nearest(name, names, COUNT);
    argp_error(state, "there is no command '%s'; %s %s", name, nearest ? "the nearest is" : "there are",
               nearest ? nearest : all);
}

/* Finds the subcommand. argp calls this for the first argument, which names it. */
static error_t parse(int key, char *argument, struct argp_state *state)
{
    call *chosen = state->input;
    if (key == 'h')
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "a command is needed");
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argument, commands[i].name)) {
            chosen->command = (int)i;
            chosen->first = state->next;
            state->next = state->argc; /* ends argp's work: the subcommand parses the other arguments */
            return 0;
        }
    complain_command(state, argument);
    return EINVAL;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "ithaca %s\n", ith_version());
}

static bool output_closed; /* whether close_output has run */

/* Flushes standard output, because a full disk or a closed pipe shows only then, and returns the exit status. For a
 * closed pipe no error is printed, since its reader has left. */
static int close_output(int code)
{
    output_closed = true;
    int error = ferror(stdout) ? errno : 0;
    if (fflush(stdout))
        error = errno;
    if (!error && !ferror(stdout))
        return code;
    if (error != EPIPE)
        ith_cli_error("standard output: %s", strerror(error ? error : EIO));
    return code ? code : ITH_EXIT_FAILED;
}

/* Checks standard output when the process exits: argp itself ends the process after --help and --version. */
static void close_output_at_exit(void)
{
    if (!output_closed && close_output(ITH_EXIT_DONE))
        _exit(ITH_EXIT_FAILED);
}

/* Opens /dev/null in place of each standard stream that is closed. Otherwise a file opened later could get the number
 * of standard error and receive messages. /dev/null is opened for reading, so writing to such a stream still fails. */
static void occupy_standard_streams(void)
{
    int file;
    do
        file = open("/dev/null", O_RDONLY);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

/* Gives threads of this process that are made without a size of their stack at least STACK_BYTES. The system takes the
 * size of the main thread's stack, which `ulimit -s` may have made too small for threads of FFmpeg and OpenMP. */
static void widen_stacks(void)
{
    pthread_attr_t usual;
    size_t bytes;
    if (pthread_getattr_default_np(&usual))
        return;
    if (!pthread_attr_getstacksize(&usual, &bytes) && bytes < STACK_BYTES &&
        !pthread_attr_setstacksize(&usual, STACK_BYTES))
        pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&usual);
}

/* Ends the process if an option before the command does not exist and is spelled like one that does. */
static void refuse_unknown(const struct argp_option *rows, int argc, char **argv)
{
    ith_option_names names;
    char sentence[256];
    int words = argc > 0;
    while (words < argc && argv[words][0] == '-')
        words++;
    ith_option_names_list(rows, 1, &names);
    const char *word = ith_option_names_unknown(&names, words, argv);
    if (word && ith_option_names_explain(&names, word, sentence, sizeof sentence))
        exit(ith_cli_usage("ithaca", "%s", sentence));
}

/* Finds the subcommand, or ends the process with a usage error. Returns argp's error. */
static int read_command(int argc, char **argv, call *chosen)
{
    static const struct argp_option rows[] = {{NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0}, {0}};
    const struct argp top = {.options = rows,
                             .parser = parse,
                             .args_doc = "COMMAND [ARGUMENT...]",
                             .doc = doc,
                             .children = ith_help_children};
    char unused[1];
    refuse_unknown(rows, argc, argv);
    ith_parsing_begin("ithaca");
    const int error = argp_parse(&top, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, chosen);
    ith_parsing_give_back(unused, sizeof unused);
    ith_parsing_end();
    return error;
}

int main(int argc, char **argv)
{
    static char program[] = "ithaca";
    char name[64];
    call chosen = {0};
    occupy_standard_streams();
    widen_stacks();
    atexit(close_output_at_exit);
    /* A closed pipe or a file beyond its size limit becomes an error of the write call; it must not kill a long run. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* MPICH's launcher sends this to the others when a process has died. They live on to report it. */
    signal(SIGUSR1, SIG_IGN);
    argp_program_version_hook = print_version;
    argp_err_exit_status = ITH_EXIT_USAGE;
    if (argc > 0)
        argv[0] = program;
    const int error = read_command(argc, argv, &chosen);
    if (error == ENOMEM)
        return ith_cli_error("there is no memory for the command line");
    if (error || argc < 2)
        return ITH_EXIT_USAGE;
    snprintf(name, sizeof name, "ithaca %s", commands[chosen.command].name);
    argv[chosen.first - 1] = name;
    ith_interrupt_watch();
    return close_output(commands[chosen.command].run(argc - chosen.first + 1, argv + chosen.first - 1));
}
