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

/* ---- Names on the command line ---------------------------------------------------------------------------------- */

/* Members of the library whose options have another name. */
static const struct {
    const char *member, *option;
} others[] = {
    {"noise_file", "noise"}, {"dump_file", "dump"}, {"checkpoint_file", "checkpoint"}, {"resume_file", "resume"}};

/* The option that a word of a sentence names; NULL: none. */
static const ith_option *option_of(const ith_options *options, const char *word, size_t bytes)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].member) == bytes && !strncmp(word, others[i].member, bytes))
            word = others[i].option, bytes = strlen(word);
    for (int i = 0; i < options->count; i++) {
        const char *name = options->table[i].name;
        if (name && strlen(name) == bytes && match(word, name))
            return &options->table[i];
    }
    return NULL;
}

/* Whether a word of any sentence of the library is the name of a member: it has a '_', or it is no English word. */
static bool is_name(const char *word, size_t bytes)
{
    return memchr(word, '_', bytes) || (bytes == 3 && (!strncmp(word, "dit", 3) || !strncmp(word, "vae", 3)));
}

/* Whether a word is the subject of "NAME is needed", at the beginning of a sentence or of its second half. */
static bool is_needed(const char *sentence, const char *at, size_t bytes)
{
    static const char half[] = ", and ";
    const size_t before = (size_t)(at - sentence), length = strlen(half);
    return !strncmp(at + bytes, " is needed", strlen(" is needed")) &&
           (!before || (before > length && !strncmp(at - length, half, length)));
}

/* Whether a text ends with one of the beginnings of an advice, such as "3.1 GB would do with ". */
static bool begins_advice(const char *text, size_t length)
{
    static const char *const before[] = {" with ", ": ", ", ", "; "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const size_t bytes = strlen(before[i]);
        if (length >= bytes && !strncmp(text + length - bytes, before[i], bytes))
            return true;
    }
    return false;
}

/* Whether a word is the first one behind the name of a line, as in "wisdom, line 4: block_q is 0": a key of a file. */
static bool is_key(const char *sentence, const char *at)
{
    const char *line = strstr(sentence, ", line ");
    return line && line < at && at - strcspn(line, ":") == line + 2;
}

void ith_options_spell(const ith_options *options, const char *sentence, char *text, size_t bytes)
{
    const bool advises = strstr(sentence, "; force tries it all the same");
    size_t length = 0;
    for (const char *at = sentence; *at && length + 1 < bytes;) {
        const size_t word = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        const bool alone = word && (at == sentence || strchr(" (", at[-1])) && (!at[word] || strchr(" ,;.)", at[word]));
        const bool names =
            alone && !is_key(sentence, at) &&
            (is_name(at, word) || is_needed(sentence, at, word) || (advises && begins_advice(text, length)));
        const ith_option *option = names ? option_of(options, at, word) : NULL;
        if (!option) {
            const size_t copied = word ? word : 1;
            length += (size_t)snprintf(text + length, bytes - length, "%.*s", (int)copied, at);
            at += copied;
            continue;
        }
        at += word;
        const bool off = option->type == ITH_OPTION_FLAG && !strncmp(at, " off", 4);
        at += off ? 4 : 0;
        length += (size_t)snprintf(text + length, bytes - length, "%s--%s", off ? "no " : "", option->name);
    }
    text[length < bytes ? length : bytes - 1] = '\0';
}

/* ---- Files and lines -------------------------------------------------------------------------------------------- */

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
