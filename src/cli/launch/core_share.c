/* SPDX-License-Identifier: Apache-2.0 */
/* Divides cores (core_share.h). Processes choose in the order of their numbers. A process first takes the free cores
 * that no later process may use. f is the number of free cores that it may use, and n the number of processes that have
 * not chosen yet and may use one of them, itself included. It then takes further cores until it has ceil(f / n). Equal
 * masks give equal shares, and every core is given away. */
#include "core_share.h"

#include <stdio.h>
#include <stdlib.h>

/* A core, and its place in the machine. */
typedef struct core {
    int package, physical; /* socket; physical core in it */
    int number;            /* in masks */
} core;

/* ---- Sets ------------------------------------------------------------------------------------------------------ */

bool ith_cores_have(const ith_core_set *set, int number)
{
    return CPU_ISSET_S((size_t)number, sizeof *set, set->parts);
}

int ith_cores_count(const ith_core_set *set)
{
    return CPU_COUNT_S(sizeof *set, set->parts);
}

void ith_cores_add(ith_core_set *set, int number)
{
    CPU_SET_S((size_t)number, sizeof *set, set->parts);
}

void ith_cores_add_all(ith_core_set *set, const ith_core_set *other)
{
    CPU_OR_S(sizeof *set, set->parts, set->parts, other->parts);
}

static ith_core_set common_to(const ith_core_set *a, const ith_core_set *b)
{
    ith_core_set both;
    CPU_AND_S(sizeof both, both.parts, a->parts, b->parts);
    return both;
}

/* The cores of a set that are not in another one. */
static ith_core_set without(const ith_core_set *set, const ith_core_set *other)
{
    const ith_core_set both = common_to(set, other);
    ith_core_set rest;
    CPU_XOR_S(sizeof rest, rest.parts, set->parts, both.parts);
    return rest;
}

bool ith_cores_allowed(pid_t process, ith_core_set *set)
{
    const bool known = !sched_getaffinity(process, sizeof *set, set->parts);
    if (!known)
        *set = (ith_core_set){0};
    return known;
}

/* ---- Order ----------------------------------------------------------------------------------------------------- */

/* A number that Linux tells about a core; 0 if it does not. */
static int topology(int number, const char *name)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", number, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

/* Orders cores by socket, then by physical core, for qsort. */
static int compare_cores(const void *a, const void *b)
{
    const core *x = a, *y = b;
    int order = x->package - y->package;
    order = order ? order : x->physical - y->physical;
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Lists the cores of all masks in the order in which they are given away. Sets *total to their number. NULL if there is
 * no memory. The caller frees the list. */
static core *list_cores(const ith_core_set *masks, int count, int *total)
{
    ith_core_set all = {0};
    for (int i = 0; i < count; i++)
        ith_cores_add_all(&all, &masks[i]);
    core *cores = calloc((size_t)ith_cores_count(&all) + 1, sizeof *cores);
    *total = 0;
    for (int number = 0; number < ITH_CORES_MOST && cores; number++)
        if (ith_cores_have(&all, number))
            cores[(*total)++] = (core){topology(number, "physical_package_id"), topology(number, "core_id"), number};
    if (cores)
        qsort(cores, (size_t)*total, sizeof *cores, compare_cores);
    return cores;
}

/* ---- Division -------------------------------------------------------------------------------------------------- */

/* The number of processes from `first` on whose masks have a core of `free`. */
static int count_rivals(const ith_core_set *masks, int count, int first, const ith_core_set *free)
{
    int rivals = 0;
    for (int i = first; i < count; i++) {
        const ith_core_set common = common_to(&masks[i], free);
        rivals += ith_cores_count(&common) > 0;
    }
    return rivals;
}

/* Gives a process cores of `from`, in the order of the list, until it has `count`. */
static void take_cores(const core *cores, int total, const ith_core_set *from, int count, ith_core_set *mine)
{
    int missing = count - ith_cores_count(mine);
    for (int i = 0; i < total && missing > 0; i++)
        if (ith_cores_have(from, cores[i].number) && !ith_cores_have(mine, cores[i].number)) {
            ith_cores_add(mine, cores[i].number);
            missing--;
        }
}

/* The cores of `free` that no process from `first` on may use. */
static ith_core_set find_uncontested(const ith_core_set *masks, int count, int first, const ith_core_set *free)
{
    ith_core_set result = *free;
    for (int i = first; i < count; i++)
        result = without(&result, &masks[i]);
    return result;
}

/* ith_cores_divide, with a list of all cores. */
static bool divide(const ith_core_set *masks, int count, const core *cores, int total, int own, ith_core_set *part)
{
    ith_core_set given = {0}; /* cores that earlier processes have */
    for (int i = 0; i < count; i++) {
        const ith_core_set left = without(&masks[i], &given);
        ith_core_set mine = {0};
        if (!ith_cores_count(&left))
            return false;
        const int rivals = count_rivals(masks, count, i, &left);
        const ith_core_set uncontested = find_uncontested(masks, count, i + 1, &left);
        take_cores(cores, total, &uncontested, total, &mine);
        take_cores(cores, total, &left, (ith_cores_count(&left) + rivals - 1) / rivals, &mine);
        ith_cores_add_all(&given, &mine);
        if (i == own)
            *part = mine;
    }
    return true;
}

bool ith_cores_divide(const ith_core_set *masks, int count, int own, ith_core_set *part)
{
    int total;
    core *cores = list_cores(masks, count, &total);
    const bool divided = cores && divide(masks, count, cores, total, own, part);
    if (!divided)
        *part = masks[own];
    free(cores);
    return divided;
}

bool ith_cores_pin(const ith_core_set *part)
{
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        return false;
    return !sched_setaffinity(0, sizeof *part, part->parts);
}

const char *ith_cores_print(const ith_core_set *mask, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (int first = 0; first < ITH_CORES_MOST && length < bytes; first++) {
        if (!ith_cores_have(mask, first))
            continue;
        int last = first;
        while (last + 1 < ITH_CORES_MOST && ith_cores_have(mask, last + 1))
            last++;
        length += (size_t)snprintf(text + length, bytes - length, "%s%d", length ? "," : "", first);
        if (last > first && length < bytes)
            length += (size_t)snprintf(text + length, bytes - length, "-%d", last);
        first = last;
    }
    return text;
}
