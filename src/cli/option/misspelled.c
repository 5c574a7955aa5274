/* SPDX-License-Identifier: Apache-2.0 */
/* Finds words that look like options and are none (misspelled.h). */
#include "misspelled.h"

#include "../../media/utf8.h"
#include "../support/nearest.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 3 }; /* letters of an abbreviation that counts with one dash, too */

void ith_option_names_list(const struct argp_option *rows, int count, ith_option_names *names)
{
    static const struct option own[] = {
        {"help", no_argument, NULL, 1}, {"usage", no_argument, NULL, 1}, {"version", no_argument, NULL, 1}};
    *names = (ith_option_names){.letters = ""};
    struct option *table = names->table + sizeof own / sizeof *own;
    char *letters = names->letters;
    memcpy(names->table, own, sizeof own);
    for (int i = 0; i < count; i++) {
        const int argument = rows[i].arg ? required_argument : no_argument;
        if (rows[i].name)
            *table++ = (struct option){rows[i].name, argument, NULL, 1};
        if (rows[i].key > 0 && rows[i].key <= UCHAR_MAX) {
            *letters++ = (char)rows[i].key;
            if (argument)
                *letters++ = ':';
        }
    }
    strcpy(letters, "?V");
}

/* The first option whose name begins with these letters; NULL if there is none. */
static const struct option *begun(const ith_option_names *names, const char *letters, size_t count)
{
    const struct option *option = names->table;
    while (option->name && strncmp(option->name, letters, count) != 0)
        option++;
    return option->name ? option : NULL;
}

/* Whether there is an option of this name. */
static bool is_name(const ith_option_names *names, const char *letters, size_t count)
{
    for (const struct option *option = names->table; option->name; option++)
        if (strlen(option->name) == count && !strncmp(option->name, letters, count))
            return true;
    return false;
}

/* Whether a word with one dash was meant as the name of an option: it is such a name, or the beginning of one, or its
 * first letter stands for no option. */
static bool lacks_a_dash(const ith_option_names *names, const char *word)
{
    const size_t length = strcspn(word + 1, "=");
    if (length < 2)
        return false;
    return is_name(names, word + 1, length) || (length >= SHORTEST && begun(names, word + 1, length)) ||
           word[1] == ':' || !strchr(names->letters, word[1]);
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
static const char *find_single_dash(const ith_option_names *names, int argc, char **argv)
{
    const bool first_ends = getenv("POSIXLY_CORRECT"); /* getopt takes no options behind the first argument */
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        const char *word = argv[i];
        const bool argument = word[0] != '-' || !word[1];
        if (argument && first_ends)
            break;
        if (argument)
            continue;
        if (word[1] == '-') {
            const struct option *option = begun(names, word + 2, strcspn(word + 2, "="));
            i += option && option->has_arg && !strchr(word, '='); /* the next word is its argument */
        } else if (lacks_a_dash(names, word)) {
            return word;
        } else {
            i += takes_next(names->letters, word);
        }
    }
    return NULL;
}

const char *ith_option_names_unknown(const ith_option_names *names, int argc, char **argv)
{
    const char *found = find_single_dash(names, argc, argv);
    if (found)
        return found;
    char **copy = calloc((size_t)argc + 1, sizeof *copy); /* getopt changes the order of the words */
    if (!copy)
        return NULL;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    optind = opterr = 0;
    for (int key = 0; !found && key != -1;) {
        key = getopt_long(argc, copy, names->letters, names->table, NULL);
        if (key == '?' && !optopt && !strncmp(copy[optind - 1], "--", 2))
            found = copy[optind - 1];
    }
    free(copy);
    return found;
}

/* The option that a name with this number of dashes may stand for; NULL if there is none. */
static const char *nearest_option(const ith_option_names *names, const char *name, int dashes)
{
    const char *all[ITH_OPTION_NAMES_MAX];
    const struct option *option = dashes == 1 ? begun(names, name, strlen(name)) : NULL;
    for (int i = 0; i < ITH_OPTION_NAMES_MAX; i++)
        all[i] = names->table[i].name;
    return option ? option->name : ith_nearest(name, all, ITH_OPTION_NAMES_MAX);
}

bool ith_option_names_explain(const ith_option_names *names, const char *word, char *sentence, size_t bytes)
{
    const int dashes = word[1] == '-' ? 2 : 1;
    char name[64];
    const size_t whole = strcspn(word + dashes, "="), most = ith_utf8_cut(word + dashes, sizeof name - 1);
    snprintf(name, sizeof name, "%.*s", (int)(whole < most ? whole : most), word + dashes);
    const bool ambiguous = dashes == 2 && begun(names, name, strlen(name)); /* getopt takes any other beginning */
    const char *nearest = ambiguous ? NULL : nearest_option(names, name, dashes);
    if (nearest)
        snprintf(sentence, bytes, "unrecognized option '%.*s%s'; the nearest is '--%s'", dashes, word, name, nearest);
    else
        snprintf(sentence, bytes, ambiguous ? "option '%.*s%s' is ambiguous" : "unrecognized option '%.*s%s'", dashes,
                 word, name);
    return nearest;
}
