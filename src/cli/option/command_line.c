/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line with argp, and then the file that --config names. */
#include "../cli.h"
#include "../file/output_name.h"
#include "../support/text_value.h"
#include "complaint.h"
#include "config.h"
#include "help_argp.h"
#include "launcher_kind.h"
#include "misspelled.h"
#include "option.h"
#include "parsing_streams.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* argp's keys of options without a letter: beyond all characters */
#define FIRST_KEY 0x100
enum { KEY_CONFIG = FIRST_KEY + ITH_OPTIONS_MAX, KEY_PRINT, KEY_HELP = 'h' };

/* The options that every command has. */
static const struct argp_option common_rows[] = {
    {.doc = "Options in files:"},
    {"config", KEY_CONFIG, "FILE", 0, "Read options from a YAML file: 'NAME: VALUE'. The command line counts more", 0},
    {"print-config", KEY_PRINT, NULL, 0,
     "Print the options that are in force as YAML, each with its source, and do nothing else", 0},
    {NULL, KEY_HELP, NULL, OPTION_HIDDEN, NULL, 0}, /* -h, as in many other programs */
};
enum { COMMON_ROWS = sizeof common_rows / sizeof *common_rows };

/* The index of the option with argp's key; -1 if there is none. */
static int find_key(const ith_options *options, int key)
{
    if (key >= FIRST_KEY)
        return key - FIRST_KEY < options->count ? key - FIRST_KEY : -1;
    for (int i = 0; i < options->count; i++)
        if (options->table[i].letter && options->table[i].letter == key)
            return i;
    return -1;
}

/* Sets the option of a command's table that has argp's key. */
static error_t set_option(ith_options *options, int key, const char *argument, const struct argp_state *state)
{
    char why[256];
    int index = find_key(options, key);
    if (index < 0)
        return ARGP_ERR_UNKNOWN;
    if (!ith_option_set(options, index, argument ? argument : "true", ITH_FROM_COMMAND, why, sizeof why))
        argp_error(state, "--%s: %s", options->table[index].name, why);
    return 0;
}

/* Says why a word that follows no option is not taken, and how it may have been meant. */
static void refuse_argument(const ith_options *options, const struct argp_state *state, const char *word)
{
    struct stat info;
    if (ith_option_find(options, "model") >= 0 && !stat(word, &info) && S_ISDIR(info.st_mode))
        argp_error(state, "'%s' is not an option; a model's folder is named by --model", word);
    else
        argp_error(state, "'%s' is not an option; text with spaces needs quotes", word);
}

/* Sets an option or takes an argument. argp calls this for each of them. */
static error_t parse(int key, char *argument, struct argp_state *state)
{
    ith_options *options = state->input;
    switch (key) {
    case KEY_CONFIG:
        if (!*argument)
            argp_error(state, "--config: an empty text names no file");
        if (options->config)
            argp_error(state, "--config is given twice, and one file is read: put the options of %s into %s",
                       options->config, argument);
        options->config = argument;
        return 0;
    case KEY_PRINT: options->print = true; return 0;
    case KEY_HELP: argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP); exit(ITH_EXIT_DONE);
    case ARGP_KEY_ARG: break;
    default: return set_option(options, key, argument, state);
    }
    if (!options->take_argument)
        refuse_argument(options, state, argument);
    else if (options->take_argument(options->settings, argument))
        argp_error(state, "there is no memory for the arguments");
    return 0;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* Fills in argp's rows for the options of the table and the common ones. */
static void make_rows(const ith_options *options, struct argp_option *rows)
{
    int group = 0;
    for (int i = 0; i < options->count; i++) {
        const ith_option *option = &options->table[i];
        group += !option->name; /* a heading begins a new group of options in --help */
        rows[i] = (struct argp_option){.name = option->name,
                                       .key = option->letter ? option->letter
                                              : option->name ? FIRST_KEY + i
                                                             : 0,
                                       .arg = option->argument,
                                       .doc = option->help,
                                       .group = group};
    }
    for (int i = 0; i < COMMON_ROWS; i++) {
        rows[options->count + i] = common_rows[i];
        rows[options->count + i].group = group + 1;
    }
}

/* ---- Misspelled options ------------------------------------------------------------------------------------------ */

/* Looks for options that do not exist. A process alone ends with a usage error if the first one is spelled like one
 * that does; all other errors are left to argp. One of several processes notes the first error, and takes these words
 * from the command line, so that argp reads the others: they may say how the processes reach one another. */
static void refuse_unknown(ith_options *options, const struct argp_option *rows, int *argc, char **argv)
{
    char sentence[sizeof options->failure];
    const bool several = ith_launcher_has_several();
    const char *word;
    ith_option_names names;
    ith_option_names_list(rows, options->count + COMMON_ROWS, &names);
    while ((word = ith_option_names_unknown(&names, *argc, argv))) {
        const bool near = ith_option_names_explain(&names, word, sentence, sizeof sentence);
        if (!several && near)
            exit(ith_cli_usage(options->command, "%s", sentence));
        if (!several)
            return;
        if (!options->misused)
            snprintf(options->failure, sizeof options->failure, "%s", sentence);
        options->misused = true;
        int at = 1;
        while (argv[at] != word)
            at++;
        memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv); /* with the NULL behind the last one */
        --*argc;
    }
}

/* ---- The whole line ---------------------------------------------------------------------------------------------- */

/* Reads the file of --config. Its error is kept for ith_options_check, because the processes of a run print an error
 * only when they have agreed on it. */
static void read_config(ith_options *options)
{
    if (!options->config || options->failure[0])
        return;
    ith_error_hold(true);
    if (ith_config_read(options->config, options))
        snprintf(options->failure, sizeof options->failure, "%s", ith_error_held());
    ith_error_release();
    ith_options_override(options);
}

/* Takes the first error that argp has printed, unless there is a failure already. */
static void take_error(ith_options *options)
{
    char sentence[sizeof options->failure];
    ith_parsing_give_back(sentence, sizeof sentence);
    if (!sentence[0] || options->failure[0])
        return;
    snprintf(options->failure, sizeof options->failure, "%s", sentence);
    options->misused = true;
}

void ith_options_parse(ith_options *options, int argc, char **argv, const char *doc, const char *arguments_doc)
{
    struct argp_option rows[ITH_OPTIONS_MAX + COMMON_ROWS + 1] = {{0}};
    make_rows(options, rows);
    const struct argp parser = {
        .options = rows, .parser = parse, .args_doc = arguments_doc, .doc = doc, .children = ith_help_children};
    refuse_unknown(options, rows, &argc, argv);
    /* One of several processes goes on after an error. Where errors cannot be kept, argp ends it. */
    const bool goes_on = ith_parsing_begin(options->command) && ith_launcher_has_several();
    const unsigned flags = goes_on ? ARGP_NO_HELP | ARGP_NO_EXIT : ARGP_NO_HELP;
    if (argp_parse(&parser, argc, argv, flags, NULL, options) == ENOMEM && !options->failure[0])
        snprintf(options->failure, sizeof options->failure, "there is no memory for the command line");
    take_error(options);
    read_config(options);
    ith_error_explain(options);
    if (!options->prints_itself && ith_options_printed(options)) /* the processes need not agree on an error */
        exit(options->failure[0] ? ith_options_check(options) : ITH_EXIT_DONE);
    ith_parsing_end();
}

void ith_options_free(ith_options *options)
{
    ith_error_explain(NULL);
    for (int i = 0; i < options->count; i++)
        free(options->text[i]);
}

bool ith_options_printed(const ith_options *options)
{
    if (options->print && !options->failure[0] && ith_launcher_process() == 0)
        ith_options_print(options, stdout);
    return options->print;
}

/* Checks the files that options of several commands name: an output is neither another output nor a file that is read.
 * A command with further outputs checks them itself. */
static int check_files(const ith_options *options)
{
    enum { OUTPUTS = 4, ALL = 7 };
    static const char *const names[ALL] = {"--svg",     "--trace",   "--flight-record", "--wisdom",
                                           "--compare", "--machine", "--config"};
    static const char *const may_be_none[] = {"--wisdom", "--machine", NULL};
    const char *paths[ALL] = {NULL};
    for (int i = 0; i < ALL - 1; i++) {
        const int index = ith_option_find(options, names[i] + 2);
        const char *path = index < 0 ? NULL : options->text[index];
        paths[i] = path && !strcmp(path, "none") && ith_text_is_among(names[i], may_be_none) ? NULL : path;
    }
    paths[ALL - 1] = options->config;
    return ith_cli_check_distinct(paths, names, ALL, OUTPUTS);
}

/* Checks that no side is given beside --area. A file of --config may have all three, as --print-config writes them. */
static int check_area(const ith_options *options)
{
    const bool height = ith_option_source_of(options, "height") != ITH_FROM_DEFAULT;
    const bool width = ith_option_source_of(options, "width") != ITH_FROM_DEFAULT;
    if (ith_option_source_of(options, "area") != ITH_FROM_COMMAND || !(height || width))
        return ITH_EXIT_DONE;
    const char *given = height && width ? "--height and --width" : height ? "--height" : "--width";
    return ith_cli_usage(options->command,
                         "--area chooses a height and a width, and %s %s given: leave %s or --area out", given,
                         height && width ? "are" : "is", height && width ? "both" : given);
}

int ith_options_check(const ith_options *options)
{
    if (options->misused)
        return ith_cli_usage(options->command, "%s", options->failure);
    if (options->failure[0])
        return ith_cli_error("%s", options->failure);
    int code = check_area(options);
    return code ? code : check_files(options);
}
