/* SPDX-License-Identifier: Apache-2.0 */
/* Options. A table declares each option once; its value is read from the command line, from a --config file, and from
 * the ithaca.yaml of a model folder. The sources take precedence in this order. */
#ifndef ITH_CLI_OPTION_H
#define ITH_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ith_option_type {
    ITH_OPTION_FLAG,   /* bool */
    ITH_OPTION_TEXT,   /* const char *, NULL if not given */
    ITH_OPTION_WHOLE,  /* int64_t */
    ITH_OPTION_INT,    /* int */
    ITH_OPTION_SEED,   /* uint64_t */
    ITH_OPTION_NUMBER, /* double */
    ITH_OPTION_PAIR,   /* double[2]: "a,b", or one for both */
    ITH_OPTION_WORD,   /* int, or an enum */
    ITH_OPTION_WHOLES, /* ith_option_list: "a,b,c" */
    ITH_OPTION_WORDS   /* ith_option_list: words separated by commas, as numbers like WORD */
} ith_option_type;

#define ITH_OPTION_LIST_MAX 16

typedef struct ith_option_list {
    int64_t values[ITH_OPTION_LIST_MAX];
    int count;
} ith_option_list;

/* The source of a value; a greater one takes precedence. In `farthest`: the least source that may set the option. */
typedef enum ith_option_source {
    ITH_FROM_NOWHERE = 0,
    ITH_FROM_MODEL,
    ITH_FROM_CONFIG,
    ITH_FROM_COMMAND
} ith_option_source;

typedef struct ith_option {
    const char *name;     /* NULL: the row is a heading, and `help` its text */
    const char *argument; /* the name of its value in --help; NULL for flags */
    const char *help;
    ith_option_type type;
    ith_option_source farthest;
    size_t offset;                  /* of its value in the command's settings */
    double least, most;             /* of WHOLE, INT, WHOLES, NUMBER and PAIR */
    const char *(*word)(int value); /* of WORD and WORDS: the name of 0, 1, ...; "unknown" after the last */
    char letter;                    /* the short option; 0: none */
} ith_option;

#define ITH_OPTIONS_MAX 64

/* `word` of an enum of the library: ITH_OPTION_WORD_OF(solver) defines solver_word by ith_solver_name. */
#define ITH_OPTION_WORD_OF(noun)                                                                                       \
    static const char *noun##_word(int value)                                                                          \
    {                                                                                                                  \
        return ith_##noun##_name((ith_##noun)value);                                                                   \
    }

typedef struct ith_options {
    const ith_option *table;
    int count;
    void *settings;
    const char *command;                          /* "ithaca generate", for messages */
    ith_option_source source[ITH_OPTIONS_MAX];    /* of each value */
    char *text[ITH_OPTIONS_MAX];                  /* copies, to which TEXT values point */
    int (*take_argument)(void *settings, char *); /* takes an argument that is no option; NULL: none is accepted */
} ith_options;

/* Sets an option from text, unless a source of higher precedence has set it. Returns false with the reason in `why` if
 * the text is no value of the option. */
bool ith_option_set(ith_options *options, int index, const char *text, ith_option_source source, char *why,
                    size_t why_bytes);
/* The index of the option `name`; -1 if there is none. */
int ith_option_find(const ith_options *options, const char *name);
bool ith_option_given(const ith_options *options, const char *name);
void ith_options_free(ith_options *options);

/* Reads the command line. Usage errors end the process with status 2, --help and --version with 0. */
void ith_options_parse(ith_options *options, int argc, char **argv, const char *doc, const char *arguments_doc);

#endif
