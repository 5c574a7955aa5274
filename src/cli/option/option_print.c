/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the options of a command as YAML 1.1, so that reading the text as --config gives the same values. */
#include "option.h"

#include "../support/text_value.h"

#include <stdlib.h>
#include <string.h>

#define COMMENT_COLUMN 40 /* where comments begin, if the value leaves room */

/* Prints a list; nothing if it is empty. */
static void print_list(FILE *stream, const ith_option *option, const ith_option_list *list)
{
    for (int i = 0; i < list->count; i++) {
        fputs(i ? ", " : "[", stream);
        if (option->type == ITH_OPTION_WORDS)
            fputs(option->word((int)list->values[i]), stream);
        else
            fprintf(stream, "%lld", (long long)list->values[i]);
    }
    fputs(list->count ? "]" : "", stream);
}

/* Prints a pair of numbers. */
static void print_pair(FILE *stream, const double numbers[2])
{
    fputc('[', stream);
    ith_text_print_number(stream, numbers[0]);
    fputs(", ", stream);
    ith_text_print_number(stream, numbers[1]);
    fputc(']', stream);
}

/* Whether a number is out of its range: settings hold such a value to tell that the option was not given. */
static bool is_open(const ith_option *option, const void *value)
{
    switch (option->type) {
    case ITH_OPTION_WHOLE: return !ith_option_in_range(option, (double)*(const int64_t *)value);
    case ITH_OPTION_INT: return !ith_option_in_range(option, *(const int *)value);
    case ITH_OPTION_NUMBER:
    case ITH_OPTION_PAIR: return !ith_option_in_range(option, *(const double *)value);
    default: return false;
    }
}

/* The text of an option whose value is a text; NULL if it has none. */
static const char *text_of(const ith_option *option, const void *value)
{
    return ith_option_is_text(option->type) ? *(const char *const *)value : NULL;
}

/* Prints the value of an option; nothing if it has none. */
static void print_value(FILE *stream, const ith_option *option, const void *value)
{
    if (is_open(option, value))
        return;
    switch (option->type) {
    case ITH_OPTION_FLAG: fputs(*(const bool *)value ? "true" : "false", stream); return;
    case ITH_OPTION_TEXT:
    case ITH_OPTION_NAMES:
    case ITH_OPTION_FILES:
        if (text_of(option, value))
            ith_text_print_quoted(stream, text_of(option, value));
        return;
    case ITH_OPTION_SEED: fprintf(stream, "%llu", (unsigned long long)*(const uint64_t *)value); return;
    case ITH_OPTION_WORD: fputs(option->word(*(const int *)value), stream); return;
    case ITH_OPTION_WHOLES:
    case ITH_OPTION_WORDS: print_list(stream, option, value); return;
    case ITH_OPTION_WHOLE: fprintf(stream, "%lld", (long long)*(const int64_t *)value); return;
    case ITH_OPTION_INT: fprintf(stream, "%d", *(const int *)value); return;
    case ITH_OPTION_NUMBER: ith_text_print_number(stream, *(const double *)value); return;
    case ITH_OPTION_PAIR: print_pair(stream, value); return;
    }
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

static void print_option(const ith_options *options, int index, FILE *stream)
{
    const ith_option *option = &options->table[index];
    const void *value = (const char *)options->settings + option->offset;
    const char *text = text_of(option, value);
    char *printed = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&printed, &bytes);
    if (memory) {
        print_value(memory, option, value);
        fclose(memory);
    }
    int width = fprintf(stream, "%s: %s", option->name, printed ? printed : "");
    fprintf(stream, "%*s# ", width < COMMENT_COLUMN ? COMMENT_COLUMN - width : 1, "");
    print_source(options, index, stream);
    fprintf(stream, "%s\n", text && !ith_text_is_utf8(text) ? "; '?' stands for bytes that are no UTF-8" : "");
    free(printed);
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
