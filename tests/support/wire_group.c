/* SPDX-License-Identifier: Apache-2.0 */
#include "support/wire_group.h"

#include "comm/wire/wire.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHDOG_SECONDS 300 /* of each process */

typedef struct rank_thread {
    pthread_t thread;
    const wire_task *task;
    ith_context *context;
    ith_comm *comm;
    bool failed;
} rank_thread;

static void give_up(const char *reason)
{
    fprintf(stderr, "no group: %s\n", reason);
    _exit(3);
}

static void *rank_main(void *argument)
{
    rank_thread *self = argument;
    omp_set_num_threads(1);
    ith_status status = self->task->fn(self->context, self->comm, self->task->user);
    self->failed = status != ITH_OK;
    if (status)
        ith_comm_abort(self->comm, status);
    ith_comm_destroy(&self->comm);
    return NULL;
}

/* Makes the link of a process, rough if the task asks for it. */
static ith_link *make_link(const wire_task *t, const link_scene *scene, int process)
{
    ith_link *link = socket_link_new(scene, process);
    roughness how = t->how ? *t->how : (roughness){0};
    how.seed += (unsigned)process;
    if (link && t->how)
        link = rough_link_new(link, &how);
    if (!link)
        give_up("out of memory for a link");
    return link;
}

/* Makes the communicators of a process's ranks. */
static ith_status open_process(const wire_task *t, const link_scene *scene, int process, ith_context *const *contexts,
                               ith_comm **comms)
{
    ith_link *link = make_link(t, scene, process);
    void *states[WIRE_GROUP_RANKS];
    int numbers[WIRE_GROUP_RANKS], size = 0;
    char sentence[256] = "";
    ith_status status = ith_wire_open(link, states, numbers, &size, sentence, sizeof sentence);
    if (status)
        give_up(sentence);
    for (int i = 0; i < scene->all[process].ranks && !status; i++)
        status = ith_comm_create(contexts[i], &ith_wire_transport, states[i], numbers[i], size, &comms[i]);
    return status;
}

int wire_group_each = 1;

ith_status wire_group_create(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    const wire_task task = {.ranks = ranks, .each = wire_group_each};
    link_scene scene;
    ith_status status = ITH_OK;
    if (!link_scene_make(&scene, ranks, task.each))
        give_up("no more sockets");
    for (int p = 0; p < scene.processes && !status; p++)
        status = open_process(&task, &scene, p, contexts + scene.all[p].first_rank, comms + scene.all[p].first_rank);
    return status;
}

/* Makes the ranks of a process. Returns their number. */
static int join(const wire_task *t, const link_scene *scene, int process, rank_thread *all)
{
    ith_context *contexts[WIRE_GROUP_RANKS] = {NULL};
    ith_comm *comms[WIRE_GROUP_RANKS];
    int ranks = scene->all[process].ranks;
    for (int i = 0; i < ranks; i++)
        if (ith_context_create(NULL, &contexts[i]))
            give_up("no context");
    if (open_process(t, scene, process, contexts, comms))
        give_up("no communicator");
    for (int i = 0; i < ranks; i++)
        all[i] = (rank_thread){.task = t, .context = contexts[i], .comm = comms[i]};
    return ranks;
}

static void begin(rank_thread *all, int ranks)
{
    for (int i = 0; i < ranks; i++)
        if (pthread_create(&all[i].thread, NULL, rank_main, &all[i]))
            give_up("no more threads");
}

/* Waits for the ranks of a process. Returns how many failed. */
static int end(rank_thread *all, int ranks)
{
    int failed = 0;
    for (int i = 0; i < ranks; i++) {
        ith_memory_use use = ITH_MEMORY_USE_INIT;
        pthread_join(all[i].thread, NULL);
        failed += all[i].failed || ith_context_memory(all[i].context, &use) || use.current_bytes;
        ith_context_destroy(&all[i].context);
    }
    return failed;
}

int wire_run_threads(const wire_task *task)
{
    rank_thread all[LINK_PROCESSES][WIRE_GROUP_RANKS];
    link_scene scene;
    int ranks[LINK_PROCESSES], failed = 0;
    if (!link_scene_make(&scene, task->ranks, task->each))
        give_up("no more sockets");
    for (int p = 0; p < scene.processes; p++)
        ranks[p] = join(task, &scene, p, all[p]);
    for (int p = 0; p < scene.processes; p++)
        begin(all[p], ranks[p]);
    for (int p = 0; p < scene.processes; p++)
        failed += end(all[p], ranks[p]);
    return failed;
}

/* Runs the ranks of one process. Returns the exit status of the process. */
static int be_process(const wire_task *task, const link_scene *scene, int process)
{
    rank_thread all[WIRE_GROUP_RANKS];
    alarm(WATCHDOG_SECONDS);
    link_scene_keep(scene, process);
    int ranks = join(task, scene, process, all);
    begin(all, ranks);
    return end(all, ranks) > 0;
}

int wire_start(const wire_task *task, pid_t *pids)
{
    link_scene scene;
    if (!link_scene_make(&scene, task->ranks, task->each))
        give_up("no more sockets");
    for (int p = 0; p < scene.processes; p++) {
        pids[p] = fork();
        if (pids[p] < 0)
            give_up("no more processes");
        if (pids[p] == 0)
            _exit(be_process(task, &scene, p));
    }
    link_scene_keep(&scene, -1);
    return scene.processes;
}

int wire_finish(const pid_t *pids, int processes, int dead)
{
    int failed = 0;
    for (int p = 0; p < processes; p++) {
        int status = 0;
        waitpid(pids[p], &status, 0);
        if (WIFSIGNALED(status) && p != dead)
            fprintf(stderr, "process %d of %d died of signal %d\n", p, processes, WTERMSIG(status));
        failed += p != dead && status != 0;
    }
    return failed;
}
