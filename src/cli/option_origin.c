/* SPDX-License-Identifier: Apache-2.0 */
/* Options in sentences of the library: the files and lines that have set them, and their names on the command line. */
#include "option.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The length of an option's name at the beginning of a text, in which '_' stands for '-' as well; 0: another text. */
static size_t match(const char *text, const char *name)
{
    size_t i = 0;
    while (name[i] && (text[i] == name[i] || (name[i] == '-' && text[i] == '_')))
        i++;
    return name[i] ? 0 : i;
}

/* Whether a sentence is about an option: it has "--NAME", or it says "NAME is" at its beginning or after a colon. */
static bool is_about(const char *sentence, const char *name)
{
    for (const char *at = sentence; *at; at++) {
        const bool option = at - sentence >= 2 && at[-1] == '-' && at[-2] == '-';
        const bool subject = at == sentence || (at - sentence >= 2 && at[-1] == ' ' && at[-2] == ':');
        const size_t length = option || subject ? match(at, name) : 0;
        const unsigned char next = (unsigned char)at[length];
        if (length && option && !isalnum(next) && next != '-')
            return true;
        if (length && subject && !strncmp(at + length, " is ", 4))
            return true;
    }
    return false;
}

/* Whether a word of advice begins at a place of a sentence: behind "with ", a comma or a semicolon. */
static bool begins_advice(const char *sentence, const char *at)
{
    static const char *const before[] = {" with ", ", ", "; "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const size_t length = strlen(before[i]);
        if ((size_t)(at - sentence) >= length && !strncmp(at - length, before[i], length))
            return true;
    }
    return false;
}

/* The option whose name stands at a place of a sentence as a whole word; NULL if there is none. */
static const ith_option *option_at(const ith_options *options, const char *at)
{
    for (int i = 0; i < options->count; i++) {
        const size_t length = options->table[i].name ? match(at, options->table[i].name) : 0;
        if (length && (!at[length] || strchr(" ,;", at[length])))
            return &options->table[i];
    }
    return NULL;
}

void ith_options_spell(const ith_options *options, const char *sentence, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (const char *at = sentence; *at && length + 1 < bytes;) {
        const ith_option *option = begins_advice(sentence, at) ? option_at(options, at) : NULL;
        if (!option) {
            text[length++] = *at++;
            text[length] = '\0';
            continue;
        }
        at += strlen(option->name);
        const bool off = option->type == ITH_OPTION_FLAG && !strncmp(at, " off", 4);
        at += off ? 4 : 0;
        length += (size_t)snprintf(text + length, bytes - length, "%s--%s", off ? "no " : "", option->name);
    }
}

/* Whether a saved run is resumed: it has the values that the model's folder would set. */
static bool resumes(const ith_options *options)
{
    const int index = ith_option_find(options, "resume");
    return index >= 0 && options->text[index];
}

void ith_options_origins(const ith_options *options, const char *sentence, char *text, size_t bytes)
{
    size_t length = 0;
    const ith_option_source least = resumes(options) ? ITH_FROM_CONFIG : ITH_FROM_MODEL;
    text[0] = '\0';
    for (int i = 0; i < options->count && length < bytes; i++) {
        const char *name = options->table[i].name, *lead = length ? ", " : " (";
        const ith_option_source source = options->source[i];
        if (!name || source < least || source > ITH_FROM_CONFIG || !is_about(sentence, name))
            continue;
        length += (size_t)(source == ITH_FROM_CONFIG ? snprintf(text + length, bytes - length, "%s%s:%zu sets %s", lead,
                                                                options->config, options->line[i], name)
                                                     : snprintf(text + length, bytes - length,
                                                                "%sithaca.yaml of the model folder, line %zu, sets %s",
                                                                lead, options->line[i], name));
    }
    if (length && length + 1 < bytes)
        strcpy(text + length, ")");
}
