/* SPDX-License-Identifier: Apache-2.0 */
/* Finds machine descriptions by name: MACHINE.yaml in the folder of machines, which lies beside the program in a build
 * folder, and in share/ithaca/machines where the program is installed. */
#include "../cli.h"
#include "../file/cache_file.h"
#include "../option/complaint.h"
#include "../support/text_value.h"
#include "machine_file.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folders of machines, from the folder of the program. */
static const char *const folders[] = {"machines", ITHACA_MACHINES};

#define SUFFIX ".yaml"

/* Writes the path of folder number `index`, which exists, into `path`. Returns false if there is no such folder. */
static bool folder_path(int index, char path[PATH_MAX])
{
    char program[PATH_MAX], joined[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return false;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    int written = snprintf(joined, sizeof joined, "%s/%s", program, folders[index]);
    return written < (int)sizeof joined && realpath(joined, path);
}

/* Compares two names for qsort. */
static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether a file of a folder of machines is one of them: `--machine NAME` opens NAME.yaml, in small letters. */
static bool has_suffix(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix && !strcmp(suffix, SUFFIX);
}

/* Writes the names of the machines in a folder, sorted, behind the text in `list`. */
static void list_folder(const char *path, char *list, size_t bytes)
{
    char *names[64];
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && count < 64; entry = readdir(folder))
        if (has_suffix(entry->d_name) && (names[count] = strdup(entry->d_name)))
            count++;
    if (folder)
        closedir(folder);
    qsort(names, (size_t)count, sizeof *names, compare);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        int name_length = (int)(strlen(names[i]) - strlen(SUFFIX));
        snprintf(list + used, bytes - used, "%s%.*s", used ? ", " : "", name_length, names[i]);
        free(names[i]);
    }
}

/* Complains that no machine has this name, and lists the machines that have descriptions. */
static int complain(const char *name)
{
    char list[1024] = "", path[PATH_MAX];
    for (int i = 0; i < 2 && !list[0]; i++)
        if (folder_path(i, path))
            list_folder(path, list, sizeof list);
    if (!list[0])
        return ith_cli_error("--machine: there is no machine '%s', and no folder of machines", name);
    return ith_cli_error("--machine: there is no machine '%s'; there are %s, and files whose names have a '/' or end "
                         "with " SUFFIX,
                         name, list);
}

/* Measures this machine, and copies its description into *machine, as if a file had been read. */
static int measure(ith_context *context, const ith_machine_case *wanted, ith_machine *machine)
{
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    ith_machine *measured = NULL;
    options.cases = wanted, options.case_count = wanted ? 1 : 0;
    if (ith_error_leads())
        ith_error_print("this machine has no description yet: measuring it takes about a second");
    if (ith_machine_measure(context, &options, NULL, &measured))
        return ith_cli_error("%s", ith_context_error(context));
    *machine = *measured;
    machine->levels = ith_machine_file_copy_rows(measured->levels, measured->level_count, sizeof *measured->levels);
    machine->attention =
        ith_machine_file_copy_rows(measured->attention, measured->attention_count, sizeof *measured->attention);
    machine->products =
        ith_machine_file_copy_rows(measured->products, measured->product_count, sizeof *measured->products);
    ith_machine_free(&measured);
    return ith_machine_file_check_rows(machine);
}

bool ith_machine_recall(ith_context *context, ith_machine *machine)
{
    char path[PATH_MAX];
    return ith_cache_path("machine" SUFFIX, path) && !access(path, R_OK) &&
           !ith_machine_file_read(context, path, machine);
}

int ith_machine_find(ith_context *context, const char *name, const ith_machine_case *wanted, ith_machine *machine)
{
    char path[PATH_MAX], file[PATH_MAX + 80];
    if (strchr(name, '/') || ith_text_ends_in(name, SUFFIX))
        return ith_machine_file_read(context, name, machine);
    if (!strcmp(name, "local")) {
        bool kept = ith_cache_path("machine" SUFFIX, path) && !access(path, F_OK);
        return kept ? ith_machine_file_read(context, path, machine) : measure(context, wanted, machine);
    }
    for (int i = 0; i < 2; i++) {
        if (!folder_path(i, path))
            continue;
        snprintf(file, sizeof file, "%s/%.60s" SUFFIX, path, name);
        if (!access(file, F_OK))
            return ith_machine_file_read(context, file, machine);
    }
    return complain(name);
}
