/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the limits of control groups from /proc and /sys of Linux (control_groups.h). */
#include "control_groups.h"

#include "plain_text.h"
#include "size.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Paths of groups are shorter than this: a group whose path is longer sets no limit here. A thread may have a stack of
 * 32 KB only (ithaca.h), and several paths lie on it at the same time. */
enum { PATH_BYTES = 2048 };

FILE *ith_open_below(const char *root, const char *folder, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return length > 0 && length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* Visits a group and its ancestors, up to the folder where their hierarchy is mounted. */
static void visit_path(const char *mount, const char *path, int version, ith_control_group_fn take, void *user)
{
    char folder[PATH_BYTES];
    if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder)
        return;
    while (strlen(folder) >= strlen(mount)) {
        take(user, folder, version);
        *strrchr(folder, '/') = '\0';
    }
}

/* Whether the path of a group lies outside of the hierarchy that the process sees: "/.." or "/../other". */
static bool is_out_of_sight(const char *path)
{
    return !strncmp(path, "/..", 3) && (!path[3] || path[3] == '/');
}

/* A line of /proc/self/cgroup is number:controllers:path; version 2 has number 0. */
void ith_control_groups_visit(const char *root, const char *controller, ith_control_group_fn take, void *user)
{
    char line[PATH_BYTES + 256], mount[64];
    FILE *file = ith_open_below(root, "/proc/self", "cgroup");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = *path++ = '\0';
        if (is_out_of_sight(path))
            *path = '\0';
        if (!strcmp(line, "0")) {
            visit_path("/sys/fs/cgroup", path, 2, take, user);
            visit_path("/sys/fs/cgroup/unified", path, 2, take, user);
        } else if (ith_is_listed(controllers, ',', controller)) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
            visit_path(mount, path, 1, take, user);
        }
    }
    if (file)
        fclose(file);
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* The least limit of the control groups that were visited. root: the folder that holds proc and sys. */
typedef struct limit_search {
    const char *root;
    int64_t least;
} limit_search;

/* Reads the first `count` numbers of a file of a group. Returns whether they are there and above 0. */
static bool read_numbers(const char *root, const char *folder, const char *name, int count, int64_t *out)
{
    FILE *file = ith_open_below(root, folder, name);
    bool found = file != NULL;
    for (int i = 0; i < count && found; i++)
        found = fscanf(file, "%" SCNd64, &out[i]) == 1 && out[i] > 0;
    if (file)
        fclose(file);
    return found;
}

static void take_quota(void *user, const char *folder, int version)
{
    limit_search *search = user;
    int64_t numbers[2]; /* microseconds: quota, period */
    const bool found = version == 2 ? read_numbers(search->root, folder, "cpu.max", 2, numbers)
                                    : read_numbers(search->root, folder, "cpu.cfs_quota_us", 1, &numbers[0]) &&
                                          read_numbers(search->root, folder, "cpu.cfs_period_us", 1, &numbers[1]);
    if (found)
        search->least = ith_min64(search->least, (numbers[0] - 1) / numbers[1] + 1);
}

int64_t ith_processor_quota(const char *root)
{
    limit_search search = {root, INT64_MAX};
    ith_control_groups_visit(root, "cpu", take_quota, &search);
    return search.least;
}

static void take_tasks(void *user, const char *folder, int version)
{
    (void)version; /* both call the file pids.max */
    limit_search *search = user;
    int64_t tasks;
    if (read_numbers(search->root, folder, "pids.max", 1, &tasks))
        search->least = ith_min64(search->least, tasks);
}

int64_t ith_task_limit(const char *root)
{
    limit_search search = {root, INT64_MAX};
    ith_control_groups_visit(root, "pids", take_tasks, &search);
    return search.least;
}
