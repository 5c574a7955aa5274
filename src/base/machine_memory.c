/* SPDX-License-Identifier: Apache-2.0 */
/* Reads free memory from /proc and /sys of Linux: proc(5), and Documentation/admin-guide/cgroup-v1 and
 * cgroup-v2.rst. */
#include "machine_memory.h"

#include "size.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A folder of control groups, and the names of its files. */
typedef struct group_version {
    int version;                                 /* of Linux control groups: 1 or 2 */
    const char *mount, *limit, *use, *cached[2]; /* cached: names of lines in memory.stat */
} group_version;

static const group_version versions[] = {
    {2, "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {2, "/sys/fs/cgroup/unified", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {1,
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

static FILE *open_below(const char *root, const char *folder, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return length > 0 && length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* Reads the number behind `key` at the beginning of a line, or the first number of the file if key is "". */
static bool read_number(const char *root, const char *folder, const char *name, const char *key, int64_t *out)
{
    char line[256];
    bool found = false;
    size_t length = strlen(key);
    FILE *file = open_below(root, folder, name);
    while (file && !found && fgets(line, sizeof line, file))
        found = !strncmp(line, key, length) && (!length || strchr(" \t", line[length])) &&
                sscanf(line + length, "%" SCNd64, out) == 1 && *out >= 0;
    if (file)
        fclose(file);
    return found;
}

/* Lowers the free memory to free_bytes, if that is less, with `source` as the reason. */
static void take_smaller(ith_machine_memory *memory, int64_t free_bytes, const char *source)
{
    if (free_bytes >= memory->free_bytes)
        return;
    memory->free_bytes = ith_max64(free_bytes, 0);
    memory->source = source;
}

static void read_system(const char *root, ith_machine_memory *memory)
{
    int64_t kilobytes = 0, limit = 0, pages = 0;
    if (read_number(root, "/proc", "meminfo", "MemAvailable:", &kilobytes) && kilobytes < INT64_MAX / 1024)
        take_smaller(memory, kilobytes * 1024, "are free in this machine");
    if (read_number(root, "/proc/self", "limits", "Max address space", &limit) &&
        read_number(root, "/proc/self", "statm", "", &pages))
        take_smaller(memory, limit - pages * sysconf(_SC_PAGESIZE),
                     "are left of the process's address space (ulimit -v)");
}

/* Lowers the free memory to the room in one control group: its limit - its use + its file cache, which the system can
 * drop. */
static void read_group(const char *root, const char *folder, const group_version *version, ith_machine_memory *memory)
{
    int64_t limit = 0, use = 0, cached = 0;
    if (!read_number(root, folder, version->limit, "", &limit) || !read_number(root, folder, version->use, "", &use))
        return;
    for (int i = 0; i < 2; i++)
        if (read_number(root, folder, "memory.stat", version->cached[i], &cached))
            use -= cached;
    take_smaller(memory, limit - ith_max64(use, 0), "are left to the process's control group");
}

/* Reads the limits of a control group and of its ancestors. In a container the path may name folders of the host that
 * are not visible; missing folders are skipped. */
static void read_groups(const char *root, const char *path, const group_version *version, ith_machine_memory *memory)
{
    char folder[PATH_MAX];
    size_t mount = strlen(version->mount);
    if (snprintf(folder, sizeof folder, "%s%s", version->mount, path) >= (int)sizeof folder)
        return;
    while (strlen(folder) >= mount) {
        read_group(root, folder, version, memory);
        *strrchr(folder, '/') = '\0';
    }
}

/* Reads the limits of all control groups of this process. A line of /proc/self/cgroup is number:controllers:path;
 * version 2 has number 0 and no controllers. */
static void read_all_groups(const char *root, ith_machine_memory *memory)
{
    char line[PATH_MAX + 256];
    FILE *file = open_below(root, "/proc/self", "cgroup");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = *path++ = '\0';
        /* a path outside of the visible hierarchy, or the root of the hierarchy */
        if (strstr(path, "..") || !strcmp(path, "/"))
            *path = '\0';
        const int version = !strcmp(line, "0") && !*controllers ? 2 : 1;
        if (version == 1 && !strstr(controllers, "memory"))
            continue;
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
            if (versions[i].version == version)
                read_groups(root, path, &versions[i], memory);
    }
    if (file)
        fclose(file);
}

ith_machine_memory ith_machine_memory_read(const char *root)
{
    ith_machine_memory memory = {INT64_MAX, "are known of"};
    read_system(root, &memory);
    read_all_groups(root, &memory);
    return memory;
}
