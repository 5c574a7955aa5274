/* SPDX-License-Identifier: Apache-2.0 */
/* The options that name LoRA files (lora_options.h). */
#include "lora_options.h"

#include "../support/text_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(ith_lora_lists, member)
static const ith_option rows[] = {
    {"lora", "FILE[:STRENGTH][,..]",
     "LoRA of the transformer; of both experts, or of the expert in its file name. STRENGTH is 1 if not given",
     ITH_OPTION_FILES, .offset = AT(by_name)},
    {"lora-high", "FILE[:STRENGTH][,..]", "LoRA of the high-noise expert", ITH_OPTION_FILES, .offset = AT(high)},
    {"lora-low", "FILE[:STRENGTH][,..]", "LoRA of the low-noise expert", ITH_OPTION_FILES, .offset = AT(low)},
};
#undef AT

int ith_lora_add_options(ith_option *table, int count, size_t offset)
{
    return ith_options_append(table, count, rows, sizeof rows / sizeof *rows, offset);
}

void ith_lora_print_options(const ith_lora_lists *lists, FILE *to)
{
    const char *const values[] = {lists->by_name, lists->high, lists->low};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
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

char **ith_lora_names(const ith_lora_lists *lists, int64_t *count)
{
    const char *const given[] = {lists->by_name, lists->high, lists->low};
    size_t most = 1, bytes = 0;
    for (int i = 0; i < 3; i++)
        most += (size_t)count_files(given[i]), bytes += given[i] ? strlen(given[i]) + 1 : 0;
    char **names = malloc(most * sizeof *names + bytes), *text = (char *)(names ? names + most : NULL);
    ith_lora_file *files = malloc(most * sizeof *files);
    *count = 0;
    for (int i = 0; i < 3 && names && files; i++)
        if (given[i]) {
            strcpy(text, given[i]);
            *count += cut(text, ITH_LORA_BY_NAME, files + *count);
            text += strlen(given[i]) + 1;
        }
    for (int64_t i = 0; i < *count; i++)
        names[i] = (char *)files[i].file;
    const bool lacks = !names || !files;
    free(files);
    if (lacks)
        free(names);
    return lacks ? NULL : names;
}

ith_status ith_lora_open_model(ith_context *context, const ith_model_files *files, const ith_lora_lists *lists,
                               ith_pipeline **out)
{
    const char *const given[] = {lists->by_name, lists->high, lists->low};
    static const ith_lora_expert experts[] = {ITH_LORA_BY_NAME, ITH_LORA_HIGH, ITH_LORA_LOW};
    ith_model_files all = *files;
    char *copies[3] = {NULL};
    ith_status status = ITH_OK;
    const int64_t most = count_files(given[0]) + count_files(given[1]) + count_files(given[2]);
    ith_lora_file *loras = malloc((size_t)(most + 1) * sizeof *loras);
    *out = NULL;
    for (int i = 0; i < 3 && loras; i++)
        if (given[i] && (copies[i] = strdup(given[i])))
            all.lora_count += cut(copies[i], experts[i], loras + all.lora_count);
        else if (given[i])
            status = ITH_ERR_MEMORY;
    all.loras = loras;
    if (!loras)
        status = ITH_ERR_MEMORY;
    if (!status)
        status = ith_pipeline_open_files(context, &all, out);
    for (int i = 0; i < 3; i++)
        free(copies[i]);
    free(loras);
    return status;
}
