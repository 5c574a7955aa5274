/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the options of a command as YAML 1.1, so that reading the text as --config gives the same values. */
#include "option.h"

#include "../support/text_value.h"

#include <stdlib.h>
#include <string.h>

#define COMMENT_COLUMN 40 /* where comments begin, if the value leaves room */

/* A line that is being made. Text beyond `room` is cut. */
typedef struct text_line {
    char *text;
    size_t length, room;
} text_line;

static void add(text_line *line, const char *text)
{
    size_t length = strlen(text);
    if (line->length + length < line->room) {
        memcpy(line->text + line->length, text, length + 1);
        line->length += length;
    }
}

/* Adds a text in double quotes. */
static void add_quoted(text_line *line, const char *text)
{
    char one[8];
    add(line, "\"");
    while (*text) {
        text += ith_text_escape(text, one);
        add(line, one);
    }
    add(line, "\"");
}

static void add_number(text_line *line, double value)
{
    char text[40];
    ith_text_of_number(value, text);
    add(line, text);
}

static void add_whole(text_line *line, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add(line, text);
}

/* Adds a list; nothing if it is empty. */
static void add_list(text_line *line, const ith_option *option, const ith_option_list *list)
{
    if (!list->count)
        return;
    add(line, "[");
    for (int i = 0; i < list->count; i++) {
        add(line, i ? ", " : "");
        if (option->type == ITH_OPTION_WORDS)
            add(line, option->word((int)list->values[i]));
        else
            add_whole(line, list->values[i]);
    }
    add(line, "]");
}

/* Adds an integer or a number, or a pair of numbers. Adds nothing if the value is out of range: settings hold such a
 * value to tell that the option was not given. */
static void add_in_range(text_line *line, const ith_option *option, const void *value)
{
    if (option->type == ITH_OPTION_WHOLE && ith_option_in_range(option, (double)*(const int64_t *)value))
        add_whole(line, *(const int64_t *)value);
    if (option->type == ITH_OPTION_INT && ith_option_in_range(option, *(const int *)value))
        add_whole(line, *(const int *)value);
    const double *numbers = value;
    const bool pair = option->type == ITH_OPTION_PAIR;
    if ((option->type != ITH_OPTION_NUMBER && !pair) || !ith_option_in_range(option, numbers[0]))
        return;
    add(line, pair ? "[" : "");
    add_number(line, numbers[0]);
    if (pair) {
        add(line, ", ");
        add_number(line, numbers[1]);
        add(line, "]");
    }
}

/* Adds the value of an option; nothing if it has none. */
static void add_value(text_line *line, const ith_option *option, const void *value)
{
    char seed[24];
    const char *text;
    switch (option->type) {
    case ITH_OPTION_FLAG: add(line, *(const bool *)value ? "true" : "false"); return;
    case ITH_OPTION_TEXT:
    case ITH_OPTION_NAMES:
    case ITH_OPTION_FILES:
        memcpy(&text, value, sizeof text);
        if (text)
            add_quoted(line, text);
        return;
    case ITH_OPTION_SEED:
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)*(const uint64_t *)value);
        add(line, seed);
        return;
    case ITH_OPTION_WORD: add(line, option->word(*(const int *)value)); return;
    case ITH_OPTION_WHOLES:
    case ITH_OPTION_WORDS: add_list(line, option, value); return;
    case ITH_OPTION_WHOLE:
    case ITH_OPTION_INT:
    case ITH_OPTION_NUMBER:
    case ITH_OPTION_PAIR: add_in_range(line, option, value); return;
    }
}

/* The longest text that a value can become. */
static size_t value_room(const ith_option *option, const void *value)
{
    const char *text = NULL;
    if (ith_option_is_text(option->type))
        memcpy(&text, value, sizeof text);
    return text ? 4 * strlen(text) + 3 : 1024;
}

/* The default of an option: the text in the parentheses at the end of its help. *length: 0 if there are none. */
static const char *named_default(const char *help, int *length)
{
    const char *end = help + strlen(help), *begin = end;
    *length = 0;
    if (end == help || end[-1] != ')')
        return end;
    for (int depth = 0; begin > help && (depth || begin == end);) {
        begin--;
        depth += (*begin == ')') - (*begin == '(');
    }
    *length = (int)(end - begin) - 2;
    return begin + 1;
}

/* Writes the source of an option's value. */
static void print_source(const ith_options *options, int index, FILE *stream)
{
    int length;
    const char *text;
    switch (options->source[index]) {
    case ITH_FROM_COMMAND: fputs("command line", stream); return;
    case ITH_FROM_CONFIG: fprintf(stream, "%s:%zu", options->config, options->line[index]); return;
    case ITH_FROM_MODEL: fprintf(stream, "ithaca.yaml of the model folder, line %zu", options->line[index]); return;
    case ITH_FROM_WISDOM: fputs("wisdom", stream); return;
    case ITH_FROM_CHECKPOINT: fputs("the model's own", stream); return;
    case ITH_FROM_RULE: fputs("chosen by the library", stream); return;
    case ITH_FROM_DEFAULT: break;
    }
    text = named_default(options->table[index].help, &length);
    fprintf(stream, length ? "default: %.*s" : "default", length, text);
}

/* Whether an option has a text that YAML cannot hold, because it is no UTF-8. */
static bool is_shown_otherwise(const ith_option *option, const void *value)
{
    const char *text = NULL;
    if (ith_option_is_text(option->type))
        memcpy(&text, value, sizeof text);
    return text && !ith_text_is_utf8(text);
}

static void print_option(const ith_options *options, int index, FILE *stream)
{
    const ith_option *option = &options->table[index];
    const void *value = (const char *)options->settings + option->offset;
    char none[1] = "";
    text_line line = {.room = value_room(option, value)};
    line.text = malloc(line.room);
    if (line.text) {
        line.text[0] = '\0';
        add_value(&line, option, value);
    }
    int width = fprintf(stream, "%s: %s", option->name, line.text ? line.text : none);
    fprintf(stream, "%*s# ", width < COMMENT_COLUMN ? COMMENT_COLUMN - width : 1, "");
    print_source(options, index, stream);
    fprintf(stream, "%s\n", is_shown_otherwise(option, value) ? "; '?' stands for bytes that are no UTF-8" : "");
    free(line.text);
}

void ith_options_print(const ith_options *options, FILE *stream)
{
    fprintf(stream, "# Options of %s.\n", options->command);
    for (int i = 0; i < options->count; i++)
        if (options->table[i].name)
            print_option(options, i, stream);
        else
            fprintf(stream, "\n# %s\n", options->table[i].help);
}
