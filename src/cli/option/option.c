/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the values of options strictly (a number must be complete and in range), and keeps track of their sources. */
#include "option.h"

#include "../../media/utf8.h"
#include "../support/nearest.h"
#include "../support/text_value.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 80, QUOTED_BYTES = SHOWN_BYTES + sizeof "'...'" }; /* of a text in a message */

/* The option's word for number `value`; NULL if there are fewer words. */
static const char *word_at(const ith_option *option, int value)
{
    const char *word = option->word(value);
    return strcmp(word, "unknown") ? word : NULL;
}

/* Finds the number of a word of the option. Returns false if the option has no such word. */
static bool parse_word(const ith_option *option, const char *text, int *value)
{
    *value = 0;
    while (word_at(option, *value) && strcmp(text, word_at(option, *value)))
        ++*value;
    return word_at(option, *value);
}

/* Parses one item of a list: an integer in range, or the number of a word. */
static bool parse_item(const ith_option *option, const char *text, int64_t *value)
{
    int word;
    if (option->type == ITH_OPTION_WHOLES)
        return ith_text_whole(text, value) && ith_option_in_range(option, (double)*value);
    if (!parse_word(option, text, &word))
        return false;
    *value = word;
    return true;
}

/* Parses a comma-separated list into *list, which stays unchanged on failure. */
static bool set_list(const ith_option *option, const char *text, ith_option_list *list)
{
    ith_option_list found = {.count = 0};
    for (const char *item = text; item;) {
        char one[64];
        const char *comma = strchr(item, ',');
        size_t length = comma ? (size_t)(comma - item) : strlen(item);
        if (length >= sizeof one || found.count == ITH_OPTION_LIST_MAX)
            return false;
        memcpy(one, item, length);
        one[length] = '\0';
        if (!parse_item(option, one, &found.values[found.count++]))
            return false;
        item = comma ? comma + 1 : NULL;
    }
    *list = found;
    return true;
}

/* Parses a number, or a pair of numbers, and checks its range. The value stays unchanged on failure. */
static bool set_number(const ith_option *option, const char *text, void *value)
{
    int64_t whole;
    double number[2];
    if (option->type == ITH_OPTION_WHOLE || option->type == ITH_OPTION_INT) {
        if (!ith_text_whole(text, &whole) || !ith_option_in_range(option, (double)whole))
            return false;
        if (option->type == ITH_OPTION_WHOLE)
            *(int64_t *)value = whole;
        else
            *(int *)value = (int)whole;
        return true;
    }
    bool pair = option->type == ITH_OPTION_PAIR;
    number[1] = option->least;
    if (!(pair ? ith_text_pair(text, number) : ith_text_number(text, number)))
        return false;
    if (!ith_option_in_range(option, number[0]) || !ith_option_in_range(option, number[1]))
        return false;
    memcpy(value, number, (pair ? 2 : 1) * sizeof *number);
    return true;
}

/* Writes into `why` that the text, in quotes, is none of the option's words. */
static void explain_words(const ith_option *option, const char *quoted, char *why, size_t bytes)
{
    const char *begin = option->type == ITH_OPTION_WORDS ? "not a list with commas and no spaces of" : "none of";
    int length = snprintf(why, bytes, "%s is %s", quoted, begin);
    for (int i = 0; word_at(option, i) && length >= 0 && (size_t)length < bytes; i++)
        length += snprintf(why + length, bytes - (size_t)length, "%s %s", i ? "," : "", word_at(option, i));
}

/* The reason why a text is refused because it is empty; NULL if it is not. */
static const char *lack_of_name(const ith_option *option, const char *text)
{
    if (*text || !ith_option_is_text(option->type) || !option->argument)
        return NULL;
    if (strstr(option->argument, "FILE"))
        return "an empty text names no file";
    return strcmp(option->argument, "DIR") ? NULL : "an empty text names no folder";
}

/* Writes a text in quotes, without the end of a long one. */
static void quote(const char *text, char quoted[QUOTED_BYTES])
{
    const size_t shown = ith_utf8_cut(text, SHOWN_BYTES);
    snprintf(quoted, QUOTED_BYTES, "'%.*s%s'", (int)shown, text, text[shown] ? "..." : "");
}

/* Writes into `why` the reason that text is not a valid value of the option. */
static void explain(const ith_option *option, const char *text, char *why, size_t bytes)
{
    const char *lacks = lack_of_name(option, text);
    char quoted[QUOTED_BYTES];
    quote(text, quoted);
    switch (option->type) {
    case ITH_OPTION_FLAG: snprintf(why, bytes, "%s is neither true nor false", quoted); return;
    case ITH_OPTION_TEXT:
    case ITH_OPTION_NAMES:
    case ITH_OPTION_FILES: snprintf(why, bytes, "%s", lacks ? lacks : "there is no memory for its text"); return;
    case ITH_OPTION_SEED:
        snprintf(why, bytes, "%s is not a whole number from 0 to %llu", quoted, (unsigned long long)UINT64_MAX);
        return;
    case ITH_OPTION_WHOLE:
    case ITH_OPTION_INT:
        snprintf(why, bytes, "%s is not a whole number from %.0f to %.0f", quoted, option->least, option->most);
        return;
    case ITH_OPTION_NUMBER:
        snprintf(why, bytes, "%s is not a number from %.10g to %.10g", quoted, option->least, option->most);
        return;
    case ITH_OPTION_PAIR:
        snprintf(why, bytes, "%s is not a number, or two with a comma and no space, from %.10g to %.10g", quoted,
                 option->least, option->most);
        return;
    case ITH_OPTION_WHOLES:
        snprintf(why, bytes, "%s is not a list with commas and no spaces of at most %d whole numbers from %.0f to %.0f",
                 quoted, ITH_OPTION_LIST_MAX, option->least, option->most);
        return;
    case ITH_OPTION_WORD:
    case ITH_OPTION_WORDS: explain_words(option, quoted, why, bytes); return;
    }
}

/* A copy of the text of an option; behind the earlier text, after a comma, if both stand on the command line. NULL:
 * there is no memory. */
static char *joined(const ith_options *options, int index, const char *text, ith_option_source source)
{
    const char *earlier = options->text[index];
    if (!earlier || source != ITH_FROM_COMMAND || options->source[index] != ITH_FROM_COMMAND)
        return strdup(text);
    const size_t bytes = strlen(earlier) + strlen(text) + 2;
    char *both = malloc(bytes);
    if (both)
        snprintf(both, bytes, "%s,%s", earlier, text);
    return both;
}

bool ith_option_is_text(ith_option_type type)
{
    return type == ITH_OPTION_TEXT || type == ITH_OPTION_NAMES || type == ITH_OPTION_FILES;
}

bool ith_option_set(ith_options *options, int index, const char *text, ith_option_source source, char *why,
                    size_t why_bytes)
{
    const ith_option *option = &options->table[index];
    void *value = (char *)options->settings + option->offset;
    ith_option_list unused; /* receives a value that another source overrides; large enough for every type of value */
    if (source < options->source[index])
        value = &unused;
    bool good = false;
    char *copy = NULL;
    if (lack_of_name(option, text)) {
        explain(option, text, why, why_bytes);
        return false;
    }
    switch (option->type) {
    case ITH_OPTION_FLAG: good = ith_text_flag(text, value); break;
    case ITH_OPTION_SEED: good = ith_text_seed(text, value); break;
    case ITH_OPTION_WORD: good = parse_word(option, text, value); break;
    case ITH_OPTION_WHOLES:
    case ITH_OPTION_WORDS: good = set_list(option, text, value); break;
    case ITH_OPTION_WHOLE:
    case ITH_OPTION_INT:
    case ITH_OPTION_NUMBER:
    case ITH_OPTION_PAIR: good = set_number(option, text, value); break;
    case ITH_OPTION_TEXT:
    case ITH_OPTION_NAMES: good = value == (void *)&unused || (copy = strdup(text)); break;
    case ITH_OPTION_FILES: good = value == (void *)&unused || (copy = joined(options, index, text, source)); break;
    }
    if (!good)
        explain(option, text, why, why_bytes);
    if (!good || value == (void *)&unused)
        return good;
    if (copy) {
        free(options->text[index]);
        options->text[index] = copy;
        *(const char **)value = copy;
    }
    options->source[index] = source;
    return true;
}

/* Takes back the value of a flag or of a text, because an option of this source overrides it. */
static void take_back(ith_options *options, int index, ith_option_source source)
{
    const ith_option *option = &options->table[index];
    void *value = (char *)options->settings + option->offset;
    if (option->type == ITH_OPTION_FLAG)
        *(bool *)value = false;
    else if (ith_option_is_text(option->type))
        *(const char **)value = NULL;
    else
        return;
    free(options->text[index]);
    options->text[index] = NULL;
    options->source[index] = source;
}

void ith_options_override(ith_options *options)
{
    static const char *const pairs[][2] = {
        {"fold", "no-fold"}, {"quiet", "verbose"}, {"json", "csv"}, {"prompt", "prompts"}, {"seed", "noise"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const int a = ith_option_find(options, pairs[i][0]), b = ith_option_find(options, pairs[i][1]);
        const ith_option_source of_a = a < 0 || b < 0 ? ITH_FROM_DEFAULT : options->source[a];
        const ith_option_source of_b = a < 0 || b < 0 ? ITH_FROM_DEFAULT : options->source[b];
        if (of_a == ITH_FROM_COMMAND && of_b == ITH_FROM_CONFIG)
            take_back(options, b, of_a);
        if (of_b == ITH_FROM_COMMAND && of_a == ITH_FROM_CONFIG)
            take_back(options, a, of_b);
    }
}

int ith_options_append(ith_option *table, int count, const ith_option *rows, size_t row_count, size_t offset)
{
    for (size_t i = 0; i < row_count; i++) {
        table[count] = rows[i];
        table[count++].offset += offset;
    }
    return count;
}

int ith_option_find(const ith_options *options, const char *name)
{
    for (int i = 0; i < options->count; i++)
        if (options->table[i].name && !strcmp(options->table[i].name, name))
            return i;
    return -1;
}

ith_option_source ith_option_source_of(const ith_options *options, const char *name)
{
    const int index = ith_option_find(options, name);
    return index < 0 ? ITH_FROM_DEFAULT : options->source[index];
}

void ith_option_unknown(const ith_options *options, const char *name, char *why, size_t why_bytes)
{
    const char *names[ITH_OPTIONS_MAX];
    for (int i = 0; i < options->count; i++)
        names[i] = options->table[i].name;
    const char *nearest = ith_nearest(name, names, options->count);
    snprintf(why, why_bytes, "there is no such option%s%s", nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

/* The number of bytes of an option's value in the settings. */
static size_t value_bytes(ith_option_type type)
{
    switch (type) {
    case ITH_OPTION_FLAG: return sizeof(bool);
    case ITH_OPTION_INT:
    case ITH_OPTION_WORD: return sizeof(int);
    case ITH_OPTION_PAIR: return 2 * sizeof(double);
    case ITH_OPTION_WHOLES:
    case ITH_OPTION_WORDS: return offsetof(ith_option_list, count) + sizeof(int); /* without its padding */
    case ITH_OPTION_TEXT:
    case ITH_OPTION_NAMES:
    case ITH_OPTION_FILES:
    case ITH_OPTION_WHOLE:
    case ITH_OPTION_SEED:
    case ITH_OPTION_NUMBER: break;
    }
    return 8; /* a pointer or a number of 64 bits */
}

/* FNV-1a (Fowler, Noll, Vo). */
uint64_t ith_option_hash(const ith_options *options, int index)
{
    const ith_option *option = &options->table[index];
    const unsigned char *bytes = (const unsigned char *)options->settings + option->offset;
    size_t count = option->name ? value_bytes(option->type) : 0;
    uint64_t hash = 0xcbf29ce484222325u;
    if (count && ith_option_is_text(option->type)) {
        memcpy(&bytes, (const char *)options->settings + option->offset, sizeof bytes);
        count = bytes ? strlen((const char *)bytes) + 1 : 0;
    }
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}
