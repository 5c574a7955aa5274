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
    size_t number;         /* in masks */
} core;

bool ith_cores_allowed(cpu_set_t *mask)
{
    CPU_ZERO(mask);
    return !sched_getaffinity(0, sizeof *mask, mask);
}

/* A number that Linux tells about a core; 0 if it does not. */
static int topology(size_t number, const char *name)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/%s", number, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

/* Orders cores by socket, then by physical core, for qsort. */
static int compare(const void *a, const void *b)
{
    const core *x = a, *y = b;
    int order = x->package - y->package;
    order = order ? order : x->physical - y->physical;
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Lists the cores of all masks in the order in which they are given away. Returns their number. */
static int list_cores(const cpu_set_t *masks, int count, core *cores)
{
    int found = 0;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < count; i++)
        CPU_OR(&all, &all, &masks[i]);
    for (size_t number = 0; number < CPU_SETSIZE; number++)
        if (CPU_ISSET(number, &all))
            cores[found++] = (core){topology(number, "physical_package_id"), topology(number, "core_id"), number};
    qsort(cores, (size_t)found, sizeof *cores, compare);
    return found;
}

/* The number of processes from `first` on whose masks have a core of `free`. */
static int count_rivals(const cpu_set_t *masks, int count, int first, const cpu_set_t *free)
{
    int rivals = 0;
    for (int i = first; i < count; i++) {
        cpu_set_t common;
        CPU_AND(&common, &masks[i], free);
        rivals += CPU_COUNT(&common) > 0;
    }
    return rivals;
}

/* Gives a process cores of `from`, in the order of the list, until it has `count`. */
static void take(const core *cores, int total, const cpu_set_t *from, int count, cpu_set_t *mine)
{
    for (int i = 0; i < total && CPU_COUNT(mine) < count; i++)
        if (CPU_ISSET(cores[i].number, from))
            CPU_SET(cores[i].number, mine);
}

/* The cores of `free` that no process from `first` on may use. */
static cpu_set_t find_uncontested(const cpu_set_t *masks, int count, int first, const cpu_set_t *free)
{
    cpu_set_t result = *free, common;
    for (int i = first; i < count; i++) {
        CPU_AND(&common, &result, &masks[i]);
        CPU_XOR(&result, &result, &common);
    }
    return result;
}

bool ith_cores_divide(const cpu_set_t *masks, int count, int own, cpu_set_t *part)
{
    core cores[CPU_SETSIZE];
    int total = list_cores(masks, count, cores);
    cpu_set_t given; /* cores that earlier processes have */
    CPU_ZERO(&given);
    *part = masks[own];
    for (int i = 0; i < count; i++) {
        cpu_set_t free, mine;
        CPU_ZERO(&mine);
        CPU_AND(&free, &masks[i], &given);
        CPU_XOR(&free, &masks[i], &free);
        if (!CPU_COUNT(&free)) {
            *part = masks[own];
            return false;
        }
        int rivals = count_rivals(masks, count, i, &free);
        cpu_set_t uncontested = find_uncontested(masks, count, i + 1, &free);
        take(cores, total, &uncontested, total, &mine);
        take(cores, total, &free, (CPU_COUNT(&free) + rivals - 1) / rivals, &mine);
        CPU_OR(&given, &given, &mine);
        if (i == own)
            *part = mine;
    }
    return true;
}

bool ith_cores_pin(const cpu_set_t *part)
{
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        return false;
    return !sched_setaffinity(0, sizeof *part, part);
}

const char *ith_cores_print(const cpu_set_t *mask, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t first = 0; first < CPU_SETSIZE && length < bytes; first++) {
        if (!CPU_ISSET(first, mask))
            continue;
        size_t last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, mask))
            last++;
        length += (size_t)snprintf(text + length, bytes - length, "%s%zu", length ? "," : "", first);
        if (last > first && length < bytes)
            length += (size_t)snprintf(text + length, bytes - length, "-%zu", last);
        first = last;
    }
    return text;
}
