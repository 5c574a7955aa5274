/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of Linux that this process is in, and their limits: Documentation/admin-guide/cgroup-v1 and
 * cgroup-v2.rst. */
#ifndef ITH_BASE_CONTROL_GROUPS_H
#define ITH_BASE_CONTROL_GROUPS_H

#include <stdint.h>
#include <stdio.h>

/* Receives the folder of one control group, below the root that the caller named, and its version, 1 or 2. */
typedef void (*ith_control_group_fn)(void *user, const char *folder, int version);

/* Calls `take` for the control groups of this process under a controller ("memory", "cpu", "pids") and for their
 * ancestors. In a container a name may be of a folder of the host that is not visible, so a folder may be missing.
 * root: the folder that holds proc and sys, "" for the root of the file system. */
void ith_control_groups_visit(const char *root, const char *controller, ith_control_group_fn take, void *user);

/* Opens the file `name` of a folder below `root` for reading; NULL if it cannot be opened. */
FILE *ith_open_below(const char *root, const char *folder, const char *name);

/* The number of processors whose time the control groups leave to this process, rounded up: the smallest quota for each
 * period (cpu.max, cpu.cfs_quota_us). INT64_MAX if there is none. root: as above. */
int64_t ith_processor_quota(const char *root);

/* The number of threads, of all processes together, that the control groups allow: the smallest pids.max. INT64_MAX if
 * there is no limit. root: as above. */
int64_t ith_task_limit(const char *root);

#endif
