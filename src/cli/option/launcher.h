/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the program that started this process (mpirun, mpiexec, srun) from its environment, and chooses the
 * transport by which the processes of a run reach one another. */
#ifndef ITH_CLI_LAUNCHER_H
#define ITH_CLI_LAUNCHER_H

#include "option.h"

#include <stdbool.h>

/* The values of the options about processes. */
typedef struct ith_launch_choices {
    const char *transport; /* NULL: auto */
    double timeout;        /* seconds; 0: the default */
    bool map;
    const char *trace, *flight_record; /* files; NULL: not asked for */
} ith_launch_choices;

/* Appends the options about processes to a table that has `count` rows, and returns the new count. offset: the position
 * of an ith_launch_choices in the command's settings. */
int ith_launch_add_options(ith_option *table, int count, size_t offset);

/* The processes of a run, as this process sees them before they are connected. */
typedef struct ith_launcher {
    const char *name;   /* the launcher, for messages */
    const char *module; /* the transport that connects the processes; NULL: this process is the whole run */
    const char *where;  /* the argument of ith_run_ranks_connected for that transport; NULL: it needs none */
    int process;        /* the number that the launcher gave this process */
    int processes;      /* the number of processes; 0: unknown */
} ith_launcher;

/* Finds the launcher and chooses the transport. transport: the value of --transport; NULL: auto. Processes that were
 * started together never become separate runs, unless `transport` is "local": an error is printed if the transport
 * that the launcher needs cannot be used. Returns an exit status. */
int ith_launcher_find(const char *command, const char *transport, ith_launcher *out);

/* Whether this process is the whole run: no launcher has started others with it, or --transport makes it a run of its
 * own. */
bool ith_launcher_is_alone(const char *transport);
#endif
