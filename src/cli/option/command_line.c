/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line with argp, and then the file that --config names. */
#include "../cli.h"
#include "../file/output_name.h"
#include "../support/nearest.h"
#include "../support/text_value.h"
#include "complaint.h"
#include "config.h"
#include "help_argp.h"
#include "launcher_kind.h"
#include "option.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- Processes of a run ------------------------------------------------------------------------------------------ */

/* The standard streams of one of several processes, while argp reads its command line. */
typedef struct kept_streams {
    int saved[2]; /* copies of standard output and standard error; -1: the stream is as it was */
    int errors;   /* a file in memory in the place of standard error; -1: there is none */
} kept_streams;

static bool parsing; /* whether argp may end the process */

static void wait_if_parsing(void)
{
    if (parsing)
        ith_launcher_let_first_print();
}

/* Keeps the errors of this process in a file. Of the processes, the first one alone may print its help. */
static kept_streams keep_streams(void)
{
    kept_streams streams = {.errors = memfd_create("errors", MFD_CLOEXEC)};
    const int nowhere = ith_launcher_process() ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    const int places[2] = {nowhere, streams.errors};
    for (int i = 0; i < 2; i++) {
        streams.saved[i] = places[i] < 0 ? -1 : fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 0);
        if (streams.saved[i] >= 0)
            dup2(places[i], STDOUT_FILENO + i);
    }
    if (nowhere >= 0)
        close(nowhere);
    return streams;
}

/* Gives the standard streams back. The first error in the file becomes options->failure, without the command at its
 * beginning, unless there is a failure already. */
static void give_back_streams(const kept_streams *streams, ith_options *options)
{
    char line[sizeof options->failure];
    const size_t head = strlen(options->command) + strlen(": ");
    const ssize_t bytes = streams->errors < 0 ? 0 : pread(streams->errors, line, sizeof line - 1, 0);
    for (int i = 0; i < 2; i++)
        if (streams->saved[i] >= 0) {
            dup2(streams->saved[i], STDOUT_FILENO + i);
            close(streams->saved[i]);
        }
    if (streams->errors >= 0)
        close(streams->errors);
    if (bytes <= 0 || options->failure[0])
        return;
    line[bytes] = '\0';
    line[strcspn(line, "\n")] = '\0';
    snprintf(options->failure, sizeof options->failure, "%s", strlen(line) > head ? line + head : line);
    options->misused = true;
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

enum { ROWS = ITH_OPTIONS_MAX + COMMON_ROWS, OWN_ROWS = 3 };

/* Makes getopt's table of the options in argp's rows and of argp's own ones, and their short options. */
static void make_getopt(const struct argp_option *rows, int count, struct option *table, char *letters)
{
    static const struct option own[OWN_ROWS] = {
        {"help", no_argument, NULL, 1}, {"usage", no_argument, NULL, 1}, {"version", no_argument, NULL, 1}};
    memcpy(table, own, sizeof own);
    table += OWN_ROWS;
    for (int i = 0; i < count; i++) {
        const int argument = rows[i].arg ? required_argument : no_argument;
        if (rows[i].name)
            *table++ = (struct option){rows[i].name, argument, NULL, 1};
        if (rows[i].key > 0 && rows[i].key < FIRST_KEY) {
            *letters++ = (char)rows[i].key;
            if (argument)
                *letters++ = ':';
        }
    }
    strcpy(letters, "?V");
}

/* Whether a name is the beginning of an option's: getopt then says that it is ambiguous. */
static bool begins_one(const struct option *table, const char *name)
{
    while (table->name && strncmp(name, table->name, strlen(name)) != 0)
        table++;
    return table->name;
}

/* The option that a word with two dashes names, or whose name it begins; NULL if there is none. */
static const struct option *long_option(const struct option *table, const char *word)
{
    const size_t length = strcspn(word + 2, "=");
    while (table->name && strncmp(table->name, word + 2, length) != 0)
        table++;
    return table->name ? table : NULL;
}

/* Whether a word with one dash was meant as the name of an option: it is such a name, or its first letter stands for no
 * option. */
static bool lacks_a_dash(const struct option *table, const char *letters, const char *word)
{
    const size_t length = strcspn(word + 1, "=");
    if (length < 2)
        return false;
    for (; table->name; table++)
        if (strlen(table->name) == length && !strncmp(table->name, word + 1, length))
            return true;
    return word[1] == ':' || !strchr(letters, word[1]);
}

/* Whether the next word is the argument of a word of letters: its last letter takes an argument, and none before. */
static bool takes_next(const char *letters, const char *word)
{
    for (word++; *word; word++) {
        const char *letter = strchr(letters, *word);
        if (letter && letter[1] == ':')
            return !word[1];
    }
    return false;
}

/* The first word of the command line that lacks a dash; NULL if there is none. */
static const char *find_single_dash(const struct option *table, const char *letters, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        const char *word = argv[i];
        if (word[0] != '-' || !word[1])
            continue;
        if (word[1] == '-') {
            const struct option *option = long_option(table, word);
            i += option && option->has_arg && !strchr(word, '='); /* the next word is its argument */
        } else if (lacks_a_dash(table, letters, word)) {
            return word;
        } else {
            i += takes_next(letters, word);
        }
    }
    return NULL;
}

/* The first word of the command line that stands for an option which does not exist; NULL if there is none, or if there
 * is no memory to look for it. */
static const char *find_unknown(const struct option *table, const char *letters, int argc, char **argv)
{
    const char *found = find_single_dash(table, letters, argc, argv);
    if (found)
        return found;
    char **copy = calloc((size_t)argc + 1, sizeof *copy); /* getopt changes the order of the words */
    if (!copy)
        return NULL;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    optind = opterr = 0;
    for (int key = 0; !found && key != -1;) {
        key = getopt_long(argc, copy, letters, table, NULL);
        if (key == '?' && !optopt && !strncmp(copy[optind - 1], "--", 2))
            found = copy[optind - 1];
    }
    free(copy);
    return found;
}

/* Writes a sentence about a word that stands for no option, or for several. Returns whether it names the nearest
 * option. */
static bool explain_unknown(const struct option *table, const char *word, char *sentence, size_t bytes)
{
    const char *names[OWN_ROWS + ROWS];
    const int dashes = word[1] == '-' ? 2 : 1;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    for (int i = 0; i < OWN_ROWS + ROWS; i++)
        names[i] = table[i].name;
    const bool ambiguous = dashes == 2 && begins_one(table, name);
    const char *nearest = ambiguous ? NULL : ith_nearest(name, names, OWN_ROWS + ROWS);
    if (nearest)
        snprintf(sentence, bytes, "unrecognized option '%.*s%s'; the nearest is '--%s'", dashes, word, name, nearest);
    else
        snprintf(sentence, bytes, ambiguous ? "option '%.*s%s' is ambiguous" : "unrecognized option '%.*s%s'", dashes,
                 word, name);
    return nearest;
}

/* Looks for options that do not exist. A process alone ends with a usage error if the first one is spelled like one
 * that does; all other errors are left to argp. One of several processes notes the first error, and takes these words
 * from the command line, so that argp reads the others: they may say how the processes reach one another. */
static void refuse_unknown(ith_options *options, const struct argp_option *rows, int count, int *argc, char **argv)
{
    struct option table[OWN_ROWS + ROWS + 1] = {{0}};
    char letters[2 * ROWS + 3], sentence[sizeof options->failure];
    const bool several = ith_launcher_has_several();
    const char *word;
    make_getopt(rows, count, table, letters);
    while ((word = find_unknown(table, letters, *argc, argv))) {
        const bool near = explain_unknown(table, word, sentence, sizeof sentence);
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

void ith_options_parse(ith_options *options, int argc, char **argv, const char *doc, const char *arguments_doc)
{
    struct argp_option rows[ROWS + 1] = {{0}};
    make_rows(options, rows);
    const struct argp parser = {
        .options = rows, .parser = parse, .args_doc = arguments_doc, .doc = doc, .children = ith_help_children};
    const bool several = ith_launcher_has_several();
    kept_streams streams = {{-1, -1}, -1};
    refuse_unknown(options, rows, options->count + COMMON_ROWS, &argc, argv);
    if (several) {
        streams = keep_streams();
        atexit(wait_if_parsing);
    }
    parsing = true;
    /* where errors cannot be kept, argp prints them and ends the process */
    const unsigned flags = streams.saved[1] < 0 ? ARGP_NO_HELP : ARGP_NO_HELP | ARGP_NO_EXIT;
    if (argp_parse(&parser, argc, argv, flags, NULL, options) == ENOMEM && !options->failure[0])
        snprintf(options->failure, sizeof options->failure, "there is no memory for the command line");
    if (several)
        give_back_streams(&streams, options);
    read_config(options);
    ith_error_explain(options);
    if (!options->prints_itself && ith_options_printed(options)) /* the processes need not agree on an error */
        exit(options->failure[0] ? ith_options_check(options) : ITH_EXIT_DONE);
    parsing = false;
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
