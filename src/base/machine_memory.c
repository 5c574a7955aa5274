/* SPDX-License-Identifier: Apache-2.0 */
/* Reads free memory from /proc and /sys of Linux: proc(5), and control groups. */
#include "machine_memory.h"

#include "control_groups.h"
#include "size.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The names of a control group's files. */
typedef struct group_files {
    const char *limit, *use, *cached[2]; /* cached: names of lines in memory.stat */
} group_files;

static const group_files files_of[] = {
    [1] = {"memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}},
    [2] = {"memory.max", "memory.current", {"inactive_file", "active_file"}},
};

/* The memory that is left, and the folder that holds proc and sys. */
typedef struct memory_search {
    const char *root;
    ith_machine_memory memory;
} memory_search;

/* Reads the number behind `key` at the beginning of a line, or the first number of the file if key is "". */
static bool read_number(const char *root, const char *folder, const char *name, const char *key, int64_t *out)
{
    char line[256];
    bool found = false;
    size_t length = strlen(key);
    FILE *file = ith_open_below(root, folder, name);
    while (file && !found && fgets(line, sizeof line, file))
        found = !strncmp(line, key, length) && sscanf(line + length, "%" SCNd64, out) == 1 && *out >= 0;
    if (file)
        fclose(file);
    return found;
}

/* Lowers a limit to `bytes`, if that is less, with `source` as the reason. */
static void take_smaller(ith_memory_limit *limit, int64_t bytes, const char *source)
{
    if (bytes < limit->bytes)
        *limit = (ith_memory_limit){ith_max64(bytes, 0), source};
}

/* Lowers both limits to `bytes`, for a limit that the processes of the machine share. */
static void take_shared(ith_machine_memory *memory, int64_t bytes, const char *source)
{
    take_smaller(&memory->free, bytes, source);
    take_smaller(&memory->shared, bytes, source);
}

static void read_system(const char *root, ith_machine_memory *memory)
{
    int64_t kilobytes = 0, limit = 0, pages = 0;
    if (read_number(root, "/proc", "meminfo", "MemAvailable:", &kilobytes) && kilobytes < INT64_MAX / 1024)
        take_shared(memory, kilobytes * 1024, "are free in this machine");
    if (read_number(root, "/proc/self", "limits", "Max address space", &limit) &&
        read_number(root, "/proc/self", "statm", "", &pages))
        take_smaller(&memory->free, limit - pages * sysconf(_SC_PAGESIZE),
                     "are left of the process's address space (ulimit -v)");
}

/* An ith_control_group_fn. Lowers the free memory to the room in one control group: its limit - its use + its file
 * cache, which the system can drop. */
static void read_group(void *user, const char *folder, int version)
{
    memory_search *search = user;
    const group_files *files = &files_of[version];
    int64_t limit = 0, use = 0, cached = 0;
    if (!read_number(search->root, folder, files->limit, "", &limit) ||
        !read_number(search->root, folder, files->use, "", &use))
        return;
    for (int i = 0; i < 2; i++)
        if (read_number(search->root, folder, "memory.stat", files->cached[i], &cached))
            use -= cached;
    take_shared(&search->memory, limit - ith_max64(use, 0), "are left to the process's control group");
}

ith_machine_memory ith_machine_memory_read(const char *root)
{
    const ith_memory_limit none = {INT64_MAX, "are known of"};
    memory_search search = {root, {none, none}};
    read_system(root, &search.memory);
    ith_control_groups_visit(root, "memory", read_group, &search);
    return search.memory;
}
