/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command's ranks in one process or in several (launch.h). */
#include "launch.h"

#include "../option/complaint.h"
#include "interrupt.h"
#include "launch_meeting.h"
#include "launch_records.h"
#include "thread_limit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_SECONDS 60 /* the default of --timeout over several processes */
#define LIFE_SECONDS 0.05  /* time between two signs of life */
#define SIGNAL_SECONDS 0.1 /* a launcher's signal has come to all processes after this time */
#define SENTENCE_BYTES 1024

/* The result of a part of the run, as all ranks see it. */
typedef struct verdict {
    int64_t code;   /* an exit status; ITH_EXIT_DONE on success */
    int64_t signal; /* the signal that has come to the process; 0: none */
    char sentence[SENTENCE_BYTES];
} verdict;

/* The run in this process. The lowest rank of the process writes the members behind `work`. */
typedef struct launch_run {
    ith_launch *launch;
    ith_context *context;
    const ith_launch_work *work;
    int code;      /* exit status of the preparations in this process; its sentence is held */
    bool computed; /* all processes were prepared, and `compute` was called */
    bool recorded; /* ith_records_begin was called */
    bool went_on;  /* a round has failed, and the next one began all the same */
    int rank;      /* the lowest rank of this process; -1 before the processes are connected */
    char host[ITH_PLACE_NAME];
    verdict agreed;       /* the result on which all processes agree */
    pthread_mutex_t lock; /* taken by each rank after the lowest one has written memory that all of them read */
} launch_run;

/* ---- Work of one rank -------------------------------------------------------------------------------------------- */

/* A thread that gives signs of life for a rank. */
typedef struct keeper {
    ith_comm *comm;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool leave;
} keeper;

static void *keep_alive(void *user)
{
    keeper *k = user;
    pthread_mutex_lock(&k->lock);
    while (!k->leave) {
        struct timespec end;
        ith_comm_alive(k->comm);
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += (long)(LIFE_SECONDS * 1e9);
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&k->moved, &k->lock, &end);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void ith_launch_alone(ith_comm *comm, void (*part)(void *user), void *user)
{
    keeper k = {comm, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    pthread_t thread;
    bool kept = comm && ith_comm_size(comm) > 1 && !pthread_create(&thread, NULL, keep_alive, &k);
    part(user);
    if (!kept)
        return;
    pthread_mutex_lock(&k.lock);
    k.leave = true;
    pthread_cond_signal(&k.moved);
    pthread_mutex_unlock(&k.lock);
    pthread_join(thread, NULL);
}

ith_status ith_launch_fail(ith_comm *comm, ith_status status)
{
    if (status)
        ith_comm_abort(comm, status);
    return status;
}

static void cancel_plan(void *plan)
{
    ith_plan_cancel(plan);
}

ith_status ith_launch_execute(ith_comm *comm, ith_plan *plan, const ith_attn_tensors *tensors)
{
    bool first = ith_launch_is_first(comm, ith_comm_rank(comm));
    if (first)
        ith_interrupt_target(cancel_plan, plan);
    ith_status status = ith_plan_execute(plan, tensors);
    if (first)
        ith_interrupt_target(NULL, NULL);
    return status;
}

/* ---- Agreement --------------------------------------------------------------------------------------------------- */

/* Chooses among the verdicts of all ranks: the lowest rank to which a signal has come, otherwise the lowest one that
 * failed. Returns -1 if all is well. */
static int choose(const verdict *all, int ranks)
{
    int failed = -1;
    for (int i = ranks - 1; i >= 0; i--)
        if (all[i].code && (failed < 0 || all[i].signal || !all[failed].signal))
            failed = i;
    return failed;
}

/* Whether every process has this verdict. Ranks that are not the lowest of their process may have none. */
static bool is_everywhere(const ith_comm *comm, const verdict *all, const verdict *one)
{
    for (int i = 0; i < ith_comm_size(comm); i++)
        if ((all[i].code || ith_launch_is_first(comm, i)) && strcmp(all[i].sentence, one->sentence) != 0)
            return false;
    return true;
}

/* Names the host of the first rank that a sentence names, unless it runs in the process of rank 0 or the host is named
 * already. */
static void name_host(const ith_comm *comm, char *sentence, size_t bytes)
{
    ith_place place = ITH_PLACE_INIT;
    const char *at = strstr(sentence, "rank ");
    size_t length = strlen(sentence);
    int rank = 0;
    if (!at || sscanf(at, "rank %d", &rank) != 1 || ith_comm_place(comm, rank, &place) || !place.process ||
        !place.name[0] || strstr(sentence, place.name))
        return;
    snprintf(sentence + length, bytes - length, " (rank %d runs on %s)", rank, place.name);
}

/* Makes all ranks agree on one verdict. `mine` becomes the verdict of the lowest rank that failed; its sentence begins
 * with this rank and its host, unless all processes have the same sentence. Returns a failure of the group. */
static ith_status agree(ith_comm *comm, verdict *mine)
{
    int ranks = ith_comm_size(comm);
    verdict *all = calloc((size_t)ranks, sizeof *all);
    if (!all)
        return ITH_ERR_MEMORY;
    ith_status status = ith_comm_allgather(comm, mine, sizeof *mine, all);
    int failed = status ? -1 : choose(all, ranks);
    if (failed >= 0) {
        ith_place place = ITH_PLACE_INIT;
        ith_comm_place(comm, failed, &place);
        *mine = all[failed];
        if (!is_everywhere(comm, all, &all[failed]))
            snprintf(mine->sentence, sizeof mine->sentence, "rank %d on %s: %.900s", failed, place.name,
                     all[failed].sentence);
        name_host(comm, mine->sentence, sizeof mine->sentence);
    }
    free(all);
    return status;
}

/* Makes memory that the lowest rank of this process has written visible to its other ranks. */
static void see_writes(launch_run *run)
{
    pthread_mutex_lock(&run->lock);
    pthread_mutex_unlock(&run->lock);
}

/* ---- Ranks of several processes ---------------------------------------------------------------------------------- */

/* Prepares the command in this process (ith_launch_alone). user: the launch_run. */
static void prepare(void *user)
{
    launch_run *run = user;
    if (run->work->orderly)
        ith_interrupt_defer();
    if (!run->code && !run->recorded)
        run->code = ith_records_begin(run->launch, run->context);
    run->recorded = true;
    if (!run->code)
        run->code = run->work->prepare(run->work->user);
    if (!run->code && run->work->orderly)
        run->code = ith_interrupt_check();
    see_writes(run);
}

/* Prepares the command in every process, by its lowest rank. */
static ith_status prepare_together(launch_run *run, ith_comm *comm, verdict *v)
{
    *v = (verdict){0};
    if (ith_launch_is_first(comm, ith_comm_rank(comm))) {
        ith_launch_alone(comm, prepare, run);
        v->code = run->code;
        snprintf(v->sentence, sizeof v->sentence, "%s", ith_error_held());
    }
    ith_status status = agree(comm, v);
    see_writes(run);
    return status;
}

/* The sentence about a failure of `compute` on the rank with this context. */
static const char *sentence_of_failure(const launch_run *run, const ith_context *context)
{
    const char *sentence = run->work->explain ? run->work->explain(run->work->user) : NULL;
    return sentence ? sentence : ith_context_error(context);
}

/* Fills in the verdict of this rank about its computation. */
static void judge(const launch_run *run, ith_context *context, ith_status status, verdict *v)
{
    *v = (verdict){.code = status ? ITH_EXIT_FAILED : ITH_EXIT_DONE};
    if (!status)
        return;
    snprintf(v->sentence, sizeof v->sentence, "%.1000s", sentence_of_failure(run, context));
    /* A plan that a signal has cancelled says only that it was cancelled, so the signal takes the place of its
     * sentence. The sentence of an orderly command stays: it names the step at which the command has stopped. */
    if (!run->work->orderly && ith_interrupt_came()) {
        v->signal = ith_interrupt_came();
        ith_interrupt_describe(v->sentence, sizeof v->sentence);
    }
}

static ith_status compute_together(launch_run *run, ith_context *context, ith_comm *comm, verdict *v)
{
    if (ith_launch_is_first(comm, ith_comm_rank(comm))) {
        ith_interrupt_defer();
        run->computed = true;
    }
    judge(run, context, run->work->compute(context, comm, run->work->user), v);
    return agree(comm, v);
}

/* Collective, after a round that has failed on all ranks, while their group goes on: prints the sentence, and sets v to
 * a success if the next round begins all the same. */
static ith_status go_on(launch_run *run, ith_comm *comm, verdict *v)
{
    const int rank = ith_comm_rank(comm);
    int64_t goes = 0;
    if (!run->work->goes_on)
        return ITH_OK;
    if (rank == 0)
        ith_error_print("%s", v->sentence);
    if (ith_launch_is_first(comm, rank))
        goes = run->work->goes_on(run->work->user);
    const ith_status status = ith_comm_broadcast(comm, &goes, (int64_t)sizeof goes, 0);
    v->sentence[0] = '\0'; /* it is printed */
    if (goes)
        v->code = ITH_EXIT_DONE;
    if (ith_launch_is_first(comm, rank))
        run->went_on |= goes;
    see_writes(run);
    return status;
}

/* The number of ranks in each process, or on each host; 0 if their numbers differ. */
static int count_alike(const ith_comm *comm, bool hosts)
{
    int ranks = ith_comm_size(comm), length = 0, same = 0;
    for (int rank = 0; rank < ranks; rank++) {
        ith_place here = ITH_PLACE_INIT, next = ITH_PLACE_INIT;
        length++;
        ith_comm_place(comm, rank, &here);
        bool last = rank + 1 == ranks || ith_comm_place(comm, rank + 1, &next) ||
                    (hosts ? here.host != next.host : here.process != next.process);
        if (!last)
            continue;
        if (same && same != length)
            return 0;
        same = length;
        length = 0;
    }
    return same;
}

/* Compares the processes, and gives each rank its threads. */
static ith_status meet(launch_run *run, ith_comm *comm, verdict *v)
{
    ith_launch_threads threads;
    ith_status status = ith_launch_meet(run->launch, run->work, run->code != ITH_EXIT_DONE, comm, &threads, v->sentence,
                                        sizeof v->sentence);
    v->code = v->sentence[0] ? ITH_EXIT_FAILED : ITH_EXIT_DONE;
    if (ith_launch_is_first(comm, ith_comm_rank(comm))) {
        run->launch->threads = threads.here, run->launch->all_threads = threads.all;
        run->launch->all_ranks = ith_comm_size(comm);
        run->launch->leads = ith_comm_rank(comm) == 0;
        run->launch->process_ranks = count_alike(comm, false), run->launch->host_ranks = count_alike(comm, true);
    }
    return status;
}

static int count_rounds(const launch_run *run)
{
    return run->work->rounds ? run->work->rounds : 1;
}

/* Runs on each rank of a run over several processes. A failure on which all agree is no failure of the group, which
 * ends in order. */
static ith_status connected_rank(ith_context *context, ith_comm *comm, void *user)
{
    launch_run *run = user;
    verdict v = {0};
    bool first = ith_launch_is_first(comm, ith_comm_rank(comm));
    ith_place place = ITH_PLACE_INIT;
    ith_comm_place(comm, ith_comm_rank(comm), &place);
    ith_comm_set_timeout(comm, run->launch->choices.timeout > 0 ? run->launch->choices.timeout : TIMEOUT_SECONDS);
    if (first) {
        run->rank = ith_comm_rank(comm);
        snprintf(run->host, sizeof run->host, "%s", place.name);
    }
    ith_status status = meet(run, comm, &v);
    if (!status && !v.code && run->work->share)
        status = run->work->share(context, comm, run->work->user);
    for (int round = 0; round < count_rounds(run) && !status && !v.code; round++) {
        status = prepare_together(run, comm, &v);
        if (!status && !v.code && round == 0)
            status = ith_records_align(run->launch, comm);
        if (!status && !v.code)
            status = compute_together(run, context, comm, &v);
        else
            break;
        if (!status && v.code)
            status = go_on(run, comm, &v);
    }
    if (!status && !v.code)
        status = ith_records_gather(run->launch, comm);
    if (first)
        run->agreed = v;
    return status;
}

/* Prints why the group has failed, as this process sees it. If a signal has come, only the process of rank 0 says so.
 * Before the ranks compute, a signal ends each process at once, but it may come to another process a little earlier
 * than to this one: this process therefore waits a moment, in which its own signal ends it without a word. */
static int explain_failure(const launch_run *run, ith_status status)
{
    const char *sentence = sentence_of_failure(run, run->context);
    const struct timespec pause = {.tv_nsec = (long)(SIGNAL_SECONDS * 1e9)};
    if (!run->computed)
        nanosleep(&pause, NULL);
    if (status == ITH_ERR_INTERRUPTED && run->launch->leads)
        ith_error_print("%s", sentence);
    else if (status == ITH_ERR_INTERRUPTED)
        return ITH_EXIT_FAILED;
    else if (run->rank < 0)
        ith_error_print("process %d: %s", run->launch->launcher.process, sentence);
    else
        ith_error_print("rank %d on %s: %s", run->rank, run->host, sentence);
    return ITH_EXIT_FAILED;
}

static int run_connected(launch_run *run)
{
    const ith_launcher *launcher = &run->launch->launcher;
    char own[SENTENCE_BYTES] = ""; /* an error of this process before the processes are connected */
    if (run->code)
        snprintf(own, sizeof own, "%s", ith_error_held());
    ith_context_set_connect_timeout(run->context, run->launch->choices.timeout);
    ith_status status = ith_run_ranks_connected(run->context, launcher->module, launcher->where, run->launch->ranks,
                                                run->launch->threads, connected_rank, run);
    ith_error_release();
    run->launch->interrupted = status == ITH_ERR_INTERRUPTED || run->agreed.signal;
    if (status && run->rank < 0 && own[0])
        ith_error_print("process %d: %s", launcher->process, own);
    int code = status ? explain_failure(run, status) : (int)run->agreed.code;
    if (!status && run->launch->leads && code == ITH_EXIT_USAGE)
        ith_cli_usage(run->work->command, "%s", run->agreed.sentence);
    else if (!status && run->launch->leads && code && run->agreed.sentence[0])
        ith_error_print("%s", run->agreed.sentence);
    const bool failed = code != ITH_EXIT_DONE;
    if (run->computed && run->launch->leads)
        code = run->work->finish(run->work->user, code);
    else if (!code && run->went_on)
        code = ITH_EXIT_FAILED;                       /* as the process of rank 0 */
    if (run->rank < 0 || (!status && !run->computed)) /* no ranks, or an error before they began */
        return code;
    int saved = ith_records_end(run->launch, run->context, run->rank, failed);
    return code ? code : saved;
}

/* ---- Ranks of one process ---------------------------------------------------------------------------------------- */

/* Runs on each rank of a run in this process alone. */
static ith_status local_rank(ith_context *context, ith_comm *comm, void *user)
{
    launch_run *run = user;
    if (run->launch->choices.timeout > 0)
        ith_comm_set_timeout(comm, run->launch->choices.timeout);
    return run->work->compute(context, comm, run->work->user);
}

static int run_here(launch_run *run)
{
    ith_launch *launch = run->launch;
    const ith_launch_work *work = run->work;
    launch->all_ranks = launch->ranks, launch->all_threads = launch->threads, launch->leads = true;
    if (launch->choices.map)
        ith_launch_map_here(launch);
    int code = ith_records_begin(launch, run->context);
    for (int round = 0; round < count_rounds(run) && !code; round++) {
        if (work->orderly)
            ith_interrupt_defer();
        code = work->prepare(work->user);
        if (!code && work->orderly)
            code = ith_interrupt_check();
        if (code && run->computed && work->goes_on)
            break;
        if (code)
            return code;
        run->computed = true;
        ith_status status = ith_run_ranks(run->context, launch->ranks, launch->threads, local_rank, run);
        launch->interrupted = status == ITH_ERR_INTERRUPTED;
        if (status)
            code = ith_cli_error("%s", sentence_of_failure(run, run->context));
        if (code && work->goes_on && work->goes_on(work->user))
            code = ITH_EXIT_DONE;
    }
    ith_interrupt_defer(); /* from here on a signal does not end the process, so files are written whole */
    if (!run->computed)
        return code;
    const bool failed = code != ITH_EXIT_DONE;
    code = work->finish(work->user, code);
    int saved = ith_records_end(launch, run->context, 0, failed);
    return code ? code : saved;
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

int ith_launch_begin(ith_launch *launch, const char *command, const ith_launch_choices *choices, ith_cli_talk talk,
                     ith_context **context)
{
    *launch = (ith_launch){.choices = *choices, .ranks = 1};
    int code = ith_launcher_find(command, choices->transport, &launch->launcher);
    if (code)
        return code;
    const bool joins = launch->launcher.module;
    if (joins)
        ith_error_hold(launch->launcher.process == 0);
    code = ith_cli_context(talk, context);
    if (code && joins) /* the other processes see that this one ends */
        ith_error_print("process %d: %s", launch->launcher.process, ith_error_held());
    return code;
}

void ith_launch_set_ranks(ith_launch *launch, int64_t ranks, int64_t threads)
{
    launch->ranks = ranks ? (int)ranks : 1;
    launch->threads = threads || launch->launcher.module ? (int)threads : ith_cli_limited_threads(1);
}

int ith_launch_run(ith_launch *launch, ith_context *context, int code, const ith_launch_work *work)
{
    launch_run run = {.launch = launch,
                      .context = context,
                      .work = work,
                      .code = code,
                      .rank = -1,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    if (launch->launcher.module)
        return run_connected(&run);
    return code ? code : run_here(&run);
}
