/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the processes of a run and shares out the cores of each host (launch_meeting.h). All ranks gather one record
 * of each process, so that they compare the same records and reach the same result without another exchange. */
#include "launch_meeting.h"

#include "../support/text_value.h"
#include "core_share.h"
#include "thread_limit.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Options whose values may differ between processes: resources and files of a process, and its output on the terminal.
 */
static const char *const own_options[] = {"ranks", "threads",       "input",     "output", "wisdom",
                                          "trace", "flight-record", "plan",      "quiet",  "verbose",
                                          "json",  "map",           "transport", NULL};

/* The record of a process. */
typedef struct process_record {
    char version[32], command[32];
    int64_t failed, rounds;            /* the process has an error to report; ith_launch_work.rounds */
    int64_t number, processes;         /* from the launcher; processes 0: unknown */
    int64_t pid, threads;              /* threads: the value of --threads; 0: not given */
    int64_t launcher_cores;            /* the number of cores that the parent of the process may use */
    uint64_t options[ITH_OPTIONS_MAX]; /* hashes of the values of all options */
    ith_core_set cores;                /* the cores that the process may use */
} process_record;

/* The cores and threads of a process after the cores were shared out. */
typedef struct process_place {
    int64_t threads, pinned, pid;
    ith_core_set cores;
} process_place;

static process_record make_record(const ith_launch *launch, const ith_launch_work *work, bool failed)
{
    const ith_options *options = work->options;
    process_record mine;
    memset(&mine, 0, sizeof mine);
    snprintf(mine.version, sizeof mine.version, "%s", ith_version());
    snprintf(mine.command, sizeof mine.command, "%s", work->command);
    mine.failed = failed, mine.rounds = work->rounds;
    mine.number = launch->launcher.process, mine.processes = launch->launcher.processes;
    mine.pid = getpid();
    mine.threads = launch->threads;
    ith_core_set parent;
    ith_cores_allowed(0, &mine.cores);
    ith_cores_allowed(getppid(), &parent);
    mine.launcher_cores = ith_cores_count(&parent);
    for (int i = 0; options && i < options->count; i++)
        mine.options[i] = ith_option_hash(options, i);
    return mine;
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

/* Whether an option has to have the same value in all processes. */
static bool is_compared(const ith_launch_work *work, const char *name)
{
    if (!name)
        return false;
    return work->compared ? ith_text_is_among(name, work->compared) : !ith_text_is_among(name, own_options);
}

/* The name of the first option that differs between two processes; NULL if none does. */
static const char *find_difference(const ith_launch_work *work, const process_record *a, const process_record *b)
{
    const ith_options *options = work->options;
    for (int i = 0; options && i < options->count; i++)
        if (a->options[i] != b->options[i] && is_compared(work, options->table[i].name))
            return options->table[i].name;
    return NULL;
}

/* The number of processes that have ranks in the group. */
static int count_processes(const ith_comm *comm)
{
    int count = 0;
    for (int rank = 0; rank < ith_comm_size(comm); rank++)
        count += ith_launch_is_first(comm, rank);
    return count;
}

/* Writes into `sentence` how the process of a rank differs from the process of rank 0; "" if it does not. */
static void describe_difference(const ith_launch_work *work, const ith_comm *comm, const process_record *all, int rank,
                                char *sentence, size_t bytes)
{
    ith_place place = ITH_PLACE_INIT;
    const bool command = strcmp(all[rank].command, all[0].command) != 0, failed = all[rank].failed || all[0].failed;
    const char *option = command || failed ? NULL : find_difference(work, &all[rank], &all[0]);
    ith_comm_place(comm, rank, &place);
    sentence[0] = '\0';
    if (strcmp(all[rank].version, all[0].version) != 0)
        snprintf(sentence, bytes, "rank %d on %s is ithaca %s, and rank 0 is ithaca %s: all need the same version",
                 rank, place.name, all[rank].version, all[0].version);
    else if (command)
        snprintf(sentence, bytes, "rank %d on %s runs '%s', and rank 0 runs '%s': all need the same command", rank,
                 place.name, all[rank].command, all[0].command);
    else if (option)
        snprintf(sentence, bytes, "--%s differs between rank %d on %s and rank 0: all need the same value", option,
                 rank, place.name);
    else if (!failed && all[rank].rounds != all[0].rounds)
        snprintf(sentence, bytes,
                 "--prompts or --count differs between rank %d on %s and rank 0: all need the same "
                 "videos",
                 rank, place.name);
}

/* Compares all processes; `sentence` becomes the first difference, or "". */
static void compare_all(const ith_launch *launch, const ith_launch_work *work, const ith_comm *comm,
                        const process_record *all, char *sentence, size_t bytes)
{
    int processes = count_processes(comm);
    sentence[0] = '\0';
    for (int rank = 1; rank < ith_comm_size(comm) && !sentence[0]; rank++)
        describe_difference(work, comm, all, rank, sentence, bytes);
    if (sentence[0])
        return;
    if (all[0].processes && all[0].processes != processes)
        snprintf(sentence, bytes,
                 "%s has started %lld processes, and the transport %s connects %d: ITHACA_MPI may name the wrong MPI",
                 launch->launcher.name, (long long)all[0].processes, launch->launcher.module, processes);
    else if (all[0].number)
        snprintf(sentence, bytes, "rank 0 is in process %lld: the transport %s must number process 0 first",
                 (long long)all[0].number, launch->launcher.module);
}

/* ---- Cores ------------------------------------------------------------------------------------------------------- */

/* Lists the cores of the processes on this rank's host. Returns their number; *own becomes the index of this rank's
 * process among them. */
static int list_masks(const ith_comm *comm, const process_record *all, ith_core_set *masks, int *own)
{
    int count = 0;
    ith_place here = ITH_PLACE_INIT, other = ITH_PLACE_INIT;
    ith_comm_place(comm, ith_comm_rank(comm), &here);
    for (int rank = 0; rank < ith_comm_size(comm); rank++) {
        ith_comm_place(comm, rank, &other);
        if (other.host != here.host || !ith_launch_is_first(comm, rank))
            continue;
        if (other.process == here.process)
            *own = count;
        masks[count++] = all[rank].cores;
    }
    return count;
}

/* The threads of one of `processes` processes without --threads: one for each core of its part. */
static int default_threads(const process_place *place, int processes)
{
    int cores = ith_cores_count(&place->cores);
    return place->pinned ? cores : cores > processes ? cores / processes : 1;
}

/* Gives this rank its part of the cores of its host. */
static process_place take_cores(const ith_comm *comm, const process_record *all, ith_core_set *masks)
{
    int own = 0, count = list_masks(comm, all, masks, &own), asked = (int)all[ith_comm_rank(comm)].threads;
    if (!asked)
        asked = ith_cli_limited_threads(count);
    const process_record *mine = &all[ith_comm_rank(comm)];
    process_place place;
    memset(&place, 0, sizeof place);
    place.pid = mine->pid;
    bool divided = ith_cores_divide(masks, count, own, &place.cores);
    bool whole = !memcmp(&place.cores, &mine->cores, sizeof place.cores);
    place.pinned = divided && (whole || ith_cores_pin(&place.cores));
    place.threads = asked ? asked : default_threads(&place, count);
    return place;
}

/* Divides the threads of this process among its ranks. */
static void take_threads(const ith_comm *comm, int threads)
{
    int first = ith_comm_rank(comm), last = ith_comm_rank(comm);
    int64_t begin, share;
    while (!ith_launch_is_first(comm, first))
        first--;
    while (last + 1 < ith_comm_size(comm) && !ith_launch_is_first(comm, last + 1))
        last++;
    ith_share(threads, last - first + 1, ith_comm_rank(comm) - first, &begin, &share);
    omp_set_num_threads(share > 1 ? (int)share : 1);
}

/* The cores that the processes on the host of rank `rank` may use together. */
static int count_used(const ith_comm *comm, const process_record *all, int rank)
{
    ith_place here = ITH_PLACE_INIT, other = ITH_PLACE_INIT;
    ith_core_set used = {0};
    ith_comm_place(comm, rank, &here);
    for (int i = 0; i < ith_comm_size(comm); i++)
        if (!ith_comm_place(comm, i, &other) && other.host == here.host)
            ith_cores_add_all(&used, &all[i].cores);
    return ith_cores_count(&used);
}

/* Warns if a launcher has bound a process to one core and leaves others of the host idle, as Open MPI does with up to
 * two processes of a host. */
static void warn_of_binding(const ith_comm *comm, const process_record *all)
{
    for (int rank = 0; rank < ith_comm_size(comm); rank++) {
        ith_place place = ITH_PLACE_INIT;
        const int used = count_used(comm, all, rank);
        if (ith_cores_count(&all[rank].cores) != 1 || all[rank].threads == 1 || used >= all[rank].launcher_cores)
            continue;
        ith_comm_place(comm, rank, &place);
        fprintf(stderr,
                "ithaca: the launcher has bound rank %d on %s to one core, and leaves %lld of %lld idle there: with "
                "Open MPI pass --bind-to none to mpirun, with Slurm --cpus-per-task to srun\n",
                rank, place.name, (long long)all[rank].launcher_cores - used, (long long)all[rank].launcher_cores);
        return;
    }
}

/* ---- Map --------------------------------------------------------------------------------------------------------- */

static void print_head(void)
{
    fprintf(stderr, "%-8s %-20s %8s %-11s %8s  %s\n", "process", "host", "pid", "ranks", "threads", "cores");
}

static void print_line(const ith_place *place, int first, int last, const process_place *process)
{
    char ranks[32], cores[256];
    snprintf(ranks, sizeof ranks, last > first ? "%d-%d" : "%d", first, last);
    fprintf(stderr, "%-8lld %-20s %8lld %-11s %8lld  %s%s\n", (long long)place->process, place->name,
            (long long)process->pid, ranks, (long long)process->threads,
            ith_cores_print(&process->cores, cores, sizeof cores), process->pinned ? "" : ", together with others");
}

static void print_map(const ith_comm *comm, const process_place *places)
{
    int ranks = ith_comm_size(comm);
    print_head();
    for (int first = 0, last = 0; first < ranks; first = ++last) {
        ith_place place = ITH_PLACE_INIT;
        while (last + 1 < ranks && !ith_launch_is_first(comm, last + 1))
            last++;
        ith_comm_place(comm, first, &place);
        print_line(&place, first, last, &places[first]);
    }
}

void ith_launch_map_here(const ith_launch *launch)
{
    ith_place place = ITH_PLACE_INIT;
    process_place own = {.pinned = true, .pid = getpid()};
    ith_comm_place(NULL, 0, &place);
    ith_cores_allowed(0, &own.cores);
    own.threads = ith_cli_threads(launch->threads);
    print_head();
    print_line(&place, 0, launch->ranks - 1, &own);
}

/* ---- Meeting ----------------------------------------------------------------------------------------------------- */

/* Shares out the cores, and shows all ranks the result. */
static ith_status share_cores(const ith_launch *launch, ith_comm *comm, const process_record *all,
                              ith_launch_threads *threads)
{
    int ranks = ith_comm_size(comm);
    ith_core_set *masks = calloc((size_t)ranks, sizeof *masks);
    process_place *places = calloc((size_t)ranks, sizeof *places);
    ith_status status = ITH_ERR_MEMORY;
    if (masks && places) {
        process_place mine = take_cores(comm, all, masks);
        take_threads(comm, (int)mine.threads);
        status = ith_comm_allgather(comm, &mine, sizeof mine, places);
    }
    for (int rank = 0; !status && rank < ranks; rank++)
        threads->all += ith_launch_is_first(comm, rank) ? (int)places[rank].threads : 0;
    if (!status)
        threads->here = (int)places[ith_comm_rank(comm)].threads;
    if (!status && ith_comm_rank(comm) == 0)
        warn_of_binding(comm, all);
    if (!status && launch->choices.map && ith_comm_rank(comm) == 0)
        print_map(comm, places);
    free(places);
    free(masks);
    return status;
}

ith_status ith_launch_meet(const ith_launch *launch, const ith_launch_work *work, bool failed, ith_comm *comm,
                           ith_launch_threads *threads, char *sentence, size_t bytes)
{
    process_record *all = calloc((size_t)ith_comm_size(comm), sizeof *all);
    const process_record mine = make_record(launch, work, failed);
    ith_status status = all ? ith_comm_allgather(comm, &mine, sizeof mine, all) : ITH_ERR_MEMORY;
    *threads = (ith_launch_threads){0};
    if (!status)
        compare_all(launch, work, comm, all, sentence, bytes);
    if (!status && !sentence[0])
        status = share_cores(launch, comm, all, threads);
    free(all);
    return status;
}
