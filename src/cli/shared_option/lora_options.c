/* SPDX-License-Identifier: Apache-2.0 */
/* The options that name LoRA files (lora_options.h). */
#include "lora_options.h"

#include "../support/text_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(ith_lora_lists, member)
static const ith_option rows[] = {
    {"lora", "FILE[:STRENGTH][,..]",
     "LoRA of the transformer; of both experts, or of the expert in its file name. STRENGTH is 1 if not given",
     ITH_OPTION_FILES, .offset = AT(by_name)},
    {"lora-high", "FILE[:STRENGTH][,..]", "LoRA of the high-noise expert", ITH_OPTION_FILES, .offset = AT(high)},
    {"lora-low", "FILE[:STRENGTH][,..]", "LoRA of the low-noise expert", ITH_OPTION_FILES, .offset = AT(low)},
};
#undef AT

enum { LISTS = sizeof rows / sizeof *rows };

int ith_lora_add_options(ith_option *table, int count, size_t offset)
{
    return ith_options_append(table, count, rows, LISTS, offset);
}

void ith_lora_print_options(const ith_lora_lists *lists, FILE *to)
{
    const char *const values[LISTS] = {lists->by_name, lists->high, lists->low};
    for (int i = 0; i < LISTS; i++)
        if (values[i])
            ith_text_print_option(to, rows[i].name, values[i]);
}

/* The number of files in a list. */
static int64_t count_files(const char *list)
{
    int64_t count = list != NULL;
    for (; list && *list; list++)
        count += *list == ',';
    return count;
}

/* Reads a strength. Takes "nan" and "inf", too: the library refuses them in words that name the file. */
static bool read_strength(const char *text, double *strength)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    if (ith_text_number(text, strength))
        return true;
    if (end == text || *end || isfinite(number))
        return false;
    *strength = number;
    return true;
}

/* Cuts a list into files, which point into it, and returns their number. */
static int64_t cut(char *list, ith_lora_expert expert, ith_lora_file *files)
{
    int64_t count = 0;
    for (char *item = list, *next; item; item = next) {
        ith_lora_file *file = &files[count++];
        char *comma = strchr(item, ','), *colon;
        if (comma)
            *comma = '\0';
        next = comma ? comma + 1 : NULL;
        *file = (ith_lora_file)ITH_LORA_FILE_INIT;
        file->file = item, file->expert = expert;
        colon = strrchr(item, ':');
        if (colon && read_strength(colon + 1, &file->strength))
            *colon = '\0';
    }
    return count;
}

ith_lora_file *ith_lora_read_lists(const ith_lora_lists *lists, int64_t *count)
{
    static const ith_lora_expert experts[LISTS] = {ITH_LORA_BY_NAME, ITH_LORA_HIGH, ITH_LORA_LOW};
    const char *const given[LISTS] = {lists->by_name, lists->high, lists->low};
    size_t most = 0, bytes = 1;
    for (int i = 0; i < LISTS; i++)
        most += (size_t)count_files(given[i]), bytes += given[i] ? strlen(given[i]) + 1 : 0;
    ith_lora_file *files = malloc(most * sizeof *files + bytes);
    char *text = files ? (char *)(files + most) : NULL; /* the names lie behind the structs */
    *count = 0;
    for (int i = 0; i < LISTS && files; i++)
        if (given[i]) {
            strcpy(text, given[i]);
            *count += cut(text, experts[i], files + *count);
            text += strlen(given[i]) + 1;
        }
    return files;
}

/* Whether a text is digits alone. */
static bool is_digits(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

/* The text of a file's strength if it is a whole number and if `next` follows the file in the same list; otherwise
 * NULL. It lies between the names of the two files, because `cut` has cut one text into both. */
static const char *whole_strength(const ith_lora_file *file, const ith_lora_file *next)
{
    const char *text = file->file + strlen(file->file) + 1;
    return file->expert == next->expert && text != next->file && is_digits(text + (*text == '-')) ? text : NULL;
}

/* Writes advice about item i of the lists, which names no file: the user may have misspelled a strength. Returns
 * whether there is advice. */
static bool explain(const ith_lora_file *files, int64_t i, char *advice, size_t bytes)
{
    const char *name = files[i].file, *colon = strrchr(name, ':');
    const int length = colon ? (int)(colon - name) : 0;
    char *path = colon ? strndup(name, (size_t)length) : NULL;
    const bool is_strength = path && !access(path, F_OK);
    const char *whole = i && is_digits(name) ? whole_strength(&files[i - 1], &files[i]) : NULL;
    free(path);
    if (is_strength)
        snprintf(advice, bytes, "; the strength '%s' is no number: FILE:STRENGTH is such as %.*s:0.8", colon + 1,
                 length, name);
    else if (whole)
        snprintf(advice, bytes,
                 "; a comma begins another file, and a strength has a point: FILE:STRENGTH is such as %s:%s.%s",
                 files[i - 1].file, whole, name);
    return *advice;
}

void ith_lora_advise(const ith_lora_lists *lists, const char *failure, char *advice, size_t bytes)
{
    int64_t count;
    ith_lora_file *files = ith_lora_read_lists(lists, &count);
    *advice = '\0';
    for (int64_t i = 0; i < count; i++)
        if (strstr(failure, files[i].file) && access(files[i].file, F_OK) && explain(files, i, advice, bytes))
            break;
    free(files);
}

ith_status ith_lora_open_model(ith_context *context, const ith_model_files *files, const ith_lora_lists *lists,
                               ith_pipeline **out)
{
    ith_model_files all = *files;
    ith_lora_file *loras = ith_lora_read_lists(lists, &all.lora_count);
    *out = NULL;
    all.loras = loras;
    const ith_status status = loras ? ith_pipeline_open_files(context, &all, out) : ITH_ERR_MEMORY;
    free(loras);
    return status;
}
