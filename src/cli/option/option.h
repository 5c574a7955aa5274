/* SPDX-License-Identifier: Apache-2.0 */
/* Options of commands. A table declares each option once. Its value is read from the command line, from a --config
 * file, and from the ithaca.yaml of a model folder; an earlier source in this list overrides a later one. Every command
 * has --config and --print-config, which no table declares. */
#ifndef ITH_CLI_OPTION_H
#define ITH_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The types of options: how a value is written, and how it is stored. */
typedef enum ith_option_type {
    ITH_OPTION_FLAG,   /* a flag, stored as bool */
    ITH_OPTION_TEXT,   /* text, stored as const char *; NULL if not given */
    ITH_OPTION_NAMES,  /* names "a,b,c", stored as the text of the list, const char *; NULL if not given */
    ITH_OPTION_FILES,  /* as NAMES; given several times on the command line, the option has all of the names */
    ITH_OPTION_WHOLE,  /* an integer, stored as int64_t */
    ITH_OPTION_INT,    /* an integer, stored as int */
    ITH_OPTION_SEED,   /* an integer from 0 to 2^64 - 1, stored as uint64_t */
    ITH_OPTION_NUMBER, /* a number, stored as double */
    ITH_OPTION_PAIR,   /* numbers "a,b", or "a" for both, stored as double[2] */
    ITH_OPTION_WORD,   /* one of the option's words, stored as its number in an int or enum */
    ITH_OPTION_WHOLES, /* integers "a,b,c", stored as ith_option_list */
    ITH_OPTION_WORDS   /* words "a,b,c", stored as ith_option_list of their numbers */
} ith_option_type;

#define ITH_OPTION_LIST_MAX 16 /* maximal number of items in a list */

/* The items of a list. */
typedef struct ith_option_list {
    int64_t values[ITH_OPTION_LIST_MAX];
    int count;
} ith_option_list;

/* The source of an option's value. A source with a greater number overrides the others. */
typedef enum ith_option_source {
    ITH_FROM_DEFAULT = 0,
    ITH_FROM_RULE,       /* chosen by a rule of the library for the problem */
    ITH_FROM_CHECKPOINT, /* the configuration of the model, or of its published code */
    ITH_FROM_WISDOM,     /* measured earlier */
    ITH_FROM_MODEL,      /* ithaca.yaml in the model folder */
    ITH_FROM_CONFIG,     /* the file of --config */
    ITH_FROM_COMMAND     /* the command line */
} ith_option_source;

/* A row of a command's table of options. */
typedef struct ith_option {
    const char *name;     /* NULL: the row is a heading, and `help` its text */
    const char *argument; /* name of the value in --help; NULL: the option takes no value */
    const char *help;     /* for --help; a default that has a name stands in parentheses at the end */
    ith_option_type type;
    size_t offset;      /* position of the value in the command's struct of settings */
    double least, most; /* range of a WHOLE, INT, WHOLES, NUMBER or PAIR */
    /* for WORD and WORDS: returns the word for a number from 0 on; "unknown" behind the last word */
    const char *(*word)(int value);
    char letter;   /* the short option; 0: none */
    bool of_model; /* the ithaca.yaml of a model's folder may set the option */
} ith_option;

#define ITH_OPTIONS_MAX 120 /* maximal number of rows in a table */

/* Defines ith_option.word for an enum of the library: ITH_OPTION_WORD_OF(solver) defines the function solver_word,
 * which calls ith_solver_name. */
#define ITH_OPTION_WORD_OF(noun)                                                                                       \
    static const char *noun##_word(int value)                                                                          \
    {                                                                                                                  \
        return ith_##noun##_name((ith_##noun)value);                                                                   \
    }

/* A command's table of options, and where their values came from. */
typedef struct ith_options {
    const ith_option *table;
    int count;
    void *settings;                               /* the command's struct that receives the values */
    const char *command;                          /* "ithaca generate", for messages */
    ith_option_source source[ITH_OPTIONS_MAX];    /* the source that has set each option */
    size_t line[ITH_OPTIONS_MAX];                 /* the line of the file that has set it */
    char *text[ITH_OPTIONS_MAX];                  /* copies of texts, which ith_options_free frees */
    int (*take_argument)(void *settings, char *); /* stores an argument that is no option; NULL: none is accepted */
    const char *config;                           /* the value of --config; NULL if not given */
    bool print;                                   /* --print-config was given */
    bool prints_itself;                           /* the command calls ith_options_print, after it has read more */
    char failure[512]; /* why the command line or the file of --config could not be read; "" if they could */
    bool misused;      /* `failure` is about the command line: the exit status is 2 */
} ith_options;

/* Whether a number is in the range of a WHOLE, INT, WHOLES, NUMBER or PAIR. */
static inline bool ith_option_in_range(const ith_option *option, double value)
{
    return value >= option->least && value <= option->most;
}
/* Whether the value of a type is stored as a text. */
bool ith_option_is_text(ith_option_type type);
/* Sets an option from text, unless a source of higher precedence has set it. Returns false with the reason in `why` if
 * the text is no value of the option. */
bool ith_option_set(ith_options *options, int index, const char *text, ith_option_source source, char *why,
                    size_t why_bytes);
/* Takes back flags and texts that the file of --config has set, if the command line has set an option that excludes
 * them, such as --fold for no-fold. */
void ith_options_override(ith_options *options);
/* Appends `rows` to a table that has `count` rows, and returns the new count. offset: the position in the command's
 * settings of the struct in which the rows place their values. */
int ith_options_append(ith_option *table, int count, const ith_option *rows, size_t row_count, size_t offset);
/* The index of the option `name`; -1 if there is none. */
int ith_option_find(const ith_options *options, const char *name);
/* The source of the value of the option `name`; ITH_FROM_DEFAULT if there is no such option. */
ith_option_source ith_option_source_of(const ith_options *options, const char *name);
/* Writes into `why` that there is no option `name`, and the option that is spelled most like it (nearest.h). */
void ith_option_unknown(const ith_options *options, const char *name, char *why, size_t why_bytes);
/* A hash of an option's value: equal values have equal hashes. */
uint64_t ith_option_hash(const ith_options *options, int index);
void ith_options_free(ith_options *options);

/* Reads the command line with argp, then the file of --config. --help, --version and --print-config end the process
 * with status 0. A usage error ends a process that is alone with status 2. Processes that were started together have to
 * agree on a usage error: it is kept, and ith_options_check prints it; if it cannot be kept, it ends the process. Of
 * these processes the first one prints. If the file cannot be read, ith_options_check says so, too. doc and
 * arguments_doc: argp's texts for --help. */
void ith_options_parse(ith_options *options, int argc, char **argv, const char *doc, const char *arguments_doc);
/* To be called before the values are used, and after ith_launch_begin if the command has it: prints the error of the
 * command line, of the file of --config, or of a file that would be written twice or replace one that is read, and
 * returns an exit status. */
int ith_options_check(const ith_options *options);

/* For a command that prints itself: prints the options if --print-config was given and the file of --config could be
 * read; of processes that were started together, the first one prints. Returns whether --print-config was given. */
bool ith_options_printed(const ith_options *options);
/* Writes all options as YAML that --config reads, each with a comment that names its source. An option without a value
 * is null, which leaves it open. */
void ith_options_print(const ith_options *options, FILE *stream);
/* Writes to text: " (FILE:LINE sets NAME, ..)" for the options that a sentence is about and that a file has set; "" if
 * there is none. */
void ith_options_origins(const ith_options *options, const char *sentence, char *text, size_t bytes);
/* Writes to text: a sentence of the library with options named as on the command line: "dit_low is missing" becomes
 * "--dit-low is missing", "image is needed" becomes "--image is needed", and "would do with keep_packed off, frames 21"
 * becomes "would do with no --keep-packed, --frames 21". Keys of files stay: a word before a colon, and the first one
 * behind "line 4: ". */
void ith_options_spell(const ith_options *options, const char *sentence, char *text, size_t bytes);

#endif
