/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command's ranks, in this process alone or in every process that a launcher has started.
 *
 * One process:       prepare -> ranks as threads compute -> finish
 * Several processes: connect -> compare the processes and share out cores -> each process prepares -> all agree
 *                    -> ranks compute -> all agree -> the process of rank 0 finishes
 *
 * Errors on which all processes agree are printed once, by the process of rank 0, and all exit with the same status. If
 * the group of ranks fails, every process prints one line that names its lowest rank and its host. */
#ifndef ITH_CLI_LAUNCH_H
#define ITH_CLI_LAUNCH_H

#include "../cli.h"
#include "../option/launcher.h"

#include <ithaca/transport.h>

/* This process among all processes of the run. */
typedef struct ith_launch {
    ith_launcher launcher;
    ith_launch_choices choices;
    int ranks;       /* ranks of this process */
    int threads;     /* threads of this process; 0: as many as OpenMP uses by default. Known when `prepare` is called */
    int all_ranks;   /* ranks of all processes; known when `prepare` is called */
    int all_threads; /* threads of all processes; known when `compute` is called */
    /* the ranks of each process and of each host, for ith_plan_predict; 0 if their numbers differ, or in one process;
     * known when `prepare` is called */
    int process_ranks, host_ranks;
    bool leads;       /* this process has rank 0: it prints, and writes files */
    bool interrupted; /* a signal to this process or to another one ended the run; known when `finish` is called */
} ith_launch;

/* The parts of a command. `user` is passed to each of them. */
typedef struct ith_launch_work {
    const char *command; /* "ithaca attend", for messages */
    /* NULL, or the command's options. Options that change the result must have the same values in all processes. */
    const ith_options *options;
    /* NULL, or the names of the options that are compared, with NULL at the end: the command compares the others. */
    const char *const *compared;
    bool orderly; /* a signal never ends the process at once; the parts notice it (ith_interrupt_came) */
    int rounds;   /* how many times the command prepares and computes; 0: once */
    /* NULL, or called by every rank of a run over several processes before they prepare. */
    ith_rank_fn share;
    /* Called in each process by one thread. Prints errors and returns an exit status. */
    int (*prepare)(void *user);
    /* Called by every rank. If it fails on one rank, either the group of ranks fails as well, or every rank returns,
     * with the same status or with ITH_OK. */
    ith_rank_fn compute;
    /* NULL, or called in each process by one thread after `compute` has failed on all ranks and the sentence about it
     * is printed. Returns whether the next round begins all the same; the answer in the process of rank 0 counts.
     * `finish` then gets ITH_EXIT_DONE, unless a later round fails. Not called if a group of ranks of several
     * processes has ended, because no round can follow. */
    bool (*goes_on)(void *user);
    /* NULL, or returns the sentence about a failure of `compute` in this process. If there is no such function, or it
     * returns NULL, the sentence in the context of the rank counts. */
    const char *(*explain)(void *user);
    /* Called at the end in the process of rank 0, if all processes were prepared. code: ITH_EXIT_FAILED if computing
     * failed; the sentence about it is printed by then. Returns an exit status. */
    int (*finish)(void *user, int code);
    void *user;
} ith_launch_work;

/* Finds the launcher, and makes the context of this process, which the caller destroys. To be called before anything
 * that may fail in one process alone: if there are several processes, errors are held from now on (complaint.h). Prints
 * errors and returns an exit status. */
int ith_launch_begin(ith_launch *launch, const char *command, const ith_launch_choices *choices, ith_cli_talk talk,
                     ith_context **context);
/* Sets the ranks and threads of this process, each from its option; ranks 0: 1. */
void ith_launch_set_ranks(ith_launch *launch, int64_t ranks, int64_t threads);
/* Runs the command. code: the exit status of the caller's own preparations; if it is not ITH_EXIT_DONE, nothing runs in
 * any process. Returns an exit status. */
int ith_launch_run(ith_launch *launch, ith_context *context, int code, const ith_launch_work *work);

/* Calls part(user) on this rank alone while other ranks may wait for it: gives signs of life meanwhile. */
void ith_launch_alone(ith_comm *comm, void (*part)(void *user), void *user);
/* Returns `status`, the result of work of this rank alone. If it is a failure, ends the group with it: the other ranks
 * would wait in an operation without this one, and could not name the reason. comm may be NULL. */
ith_status ith_launch_fail(ith_comm *comm, ith_status status);
/* Executes a plan. A signal cancels the execution on all ranks. */
ith_status ith_launch_execute(ith_comm *comm, ith_plan *plan, const ith_attn_tensors *tensors);
/* Whether a rank is the lowest one of its process. */
static inline bool ith_launch_is_first(const ith_comm *comm, int rank)
{
    ith_place before = ITH_PLACE_INIT, here = ITH_PLACE_INIT;
    return rank == 0 || (!ith_comm_place(comm, rank - 1, &before) && !ith_comm_place(comm, rank, &here) &&
                         before.process != here.process);
}

/* Whether all ranks of the run are threads of this process. */
static inline bool ith_launch_is_alone(const ith_launch *launch)
{
    return launch->all_ranks == launch->ranks;
}
/* Tells a plan where the ranks run. */
static inline void ith_launch_place(const ith_launch *launch, ith_attn_options *options)
{
    options->process_ranks = launch->process_ranks, options->host_ranks = launch->host_ranks;
}

#endif
