/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams over MPI (mpi_link.h). Receives from any process are posted in advance, in a ring: MPI fills the receives
 * of one sender in the order in which they were posted, so the ring is read in order. Each process has a ring of send
 * buffers. */
#include "mpi_link.h"

#include "../wire/link_control.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NS 50000      /* time without datagrams after which a rest sleeps */
#define LONGEST_NAP 500000 /* nanoseconds */
/* A call of MPI may fail because a process has died. The control connections have this time to show its death. */
#define GRACE_NS 500000000

enum {
    RECEIVES = 16, /* receives that are posted */
    /* The processes share SENDS_IN_ALL send buffers; each gets at least LEAST_SENDS and at most MOST_SENDS of them. */
    SENDS_IN_ALL = 512,
    LEAST_SENDS = 2,
    MOST_SENDS = 8,
    TAG = 1,
    LAST_CALLS = 64, /* calls in which MPI can send its last buffered messages, before a link is closed */
    AT_ONCE = 65536, /* bytes of the longest message, with its head, that Open MPI sends over TCP without asking */
    MOST_HEAD = 256  /* of a message of an MPI */
};
_Static_assert(ITH_LINK_FAR_BYTES % 64 == 0 && ITH_LINK_FAR_BYTES + MOST_HEAD <= AT_ONCE,
               "datagrams are aligned and sent at once");
/* The control message by which a process tells the others that it has closed its link. */
static const char closed_mark[] = "closed";

/* The datagrams to one process. Datagram n is in buffer n % depth. */
typedef struct outbox {
    int64_t begun, settled;
} outbox;

struct mpi_link {
    ith_link_control control; /* the first member, for ith_link_tell */
    mpi_link *next;           /* in the list of closed links */
    MPI_Comm comm;
    mpi_party party;
    char reason[256];  /* not empty: an MPI call failed */
    int64_t failed_ns; /* the time of that call */
    bool failed;       /* the group has failed */
    bool lost, left;   /* lost: a process has died or given up; left: one has said goodbye */
    int others_closed; /* number of other processes that have closed their links */
    int depth;         /* send buffers of each process */
    outbox *outboxes;  /* [processes] */
    MPI_Request *sends, receives[RECEIVES], barrier; /* sends: [processes][depth] */
    char *send_buffers, *receive_buffers;            /* [processes][depth] and [RECEIVES], each of ITH_LINK_BYTES */
    int head;                                        /* the receive that completes next */
    bool taken;                /* the receive before `head` has been handed out and is to be posted again */
    bool waiting;              /* for the barrier */
    _Atomic int64_t active_ns; /* the last time that a datagram arrived */
    atomic_uint wakes;
};

pthread_mutex_t ith_mpi_lock = PTHREAD_MUTEX_INITIALIZER;

static mpi_link *closed_links;
static int links_in_use;

/* Notes the first failure of a link, and its time. */
static void note_failure(mpi_link *l, const char *reason)
{
    if (l->reason[0])
        return;
    snprintf(l->reason, sizeof l->reason, "%s", reason);
    l->failed_ns = ith_watch_now_ns();
}

/* Notes the failure of an MPI call. Returns whether the call succeeded. */
static bool check(mpi_link *l, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "", reason[sizeof l->reason];
    int length = 0;
    if (code == MPI_SUCCESS)
        return true;
    MPI_Error_string(code, text, &length);
    snprintf(reason, sizeof reason, "%s: %.200s", call, text);
    note_failure(l, reason);
    return false;
}

/* ---- Datagrams ------------------------------------------------------------------------------------------------- */

static MPI_Request *send_at(const mpi_link *l, int process, int64_t n)
{
    return &l->sends[(int64_t)process * l->depth + n % l->depth];
}

static char *buffer_at(const mpi_link *l, int process, int64_t n)
{
    return l->send_buffers + ((int64_t)process * l->depth + n % l->depth) * ITH_LINK_BYTES;
}

/* Counts the sends to a process that are complete, in order. */
static void settle(mpi_link *l, int process)
{
    outbox *out = &l->outboxes[process];
    int done = 1;
    while (done && out->settled < out->begun && !l->reason[0]) {
        if (!check(l, MPI_Test(send_at(l, process, out->settled), &done, MPI_STATUS_IGNORE), "MPI_Test"))
            return;
        out->settled += done;
    }
}

static void *link_reserve(void *self, int process, int64_t bytes)
{
    mpi_link *l = self;
    const outbox *out = &l->outboxes[process];
    (void)bytes;
    pthread_mutex_lock(&ith_mpi_lock);
    if (out->begun - out->settled == l->depth)
        settle(l, process);
    pthread_mutex_unlock(&ith_mpi_lock);
    return out->begun - out->settled < l->depth && !l->reason[0] ? buffer_at(l, process, out->begun) : NULL;
}

/* Whether MPI may send to a process. MPICH 5 crashes in MPI_Isend to a process when UCX has noticed its death. */
static bool may_send(mpi_link *l, int process)
{
#ifndef OPEN_MPI
    char reason[sizeof l->reason];
    if (!l->reason[0] && ith_watch_has_closed(l->control.watch, process)) {
        snprintf(reason, sizeof reason, "process %d has closed its connections", process);
        note_failure(l, reason);
    }
#else
    (void)process;
#endif
    return !l->reason[0];
}

static void link_send(void *self, int process, int64_t bytes)
{
    mpi_link *l = self;
    outbox *out = &l->outboxes[process];
    if (!may_send(l, process))
        return;
    pthread_mutex_lock(&ith_mpi_lock);
    int code = MPI_Isend(buffer_at(l, process, out->begun), (int)bytes, MPI_BYTE, l->party.mpi_ranks[process], TAG,
                         l->comm, send_at(l, process, out->begun));
    if (check(l, code, "MPI_Isend"))
        out->begun++;
    pthread_mutex_unlock(&ith_mpi_lock);
}

static int64_t link_settled(void *self, int process)
{
    mpi_link *l = self;
    const outbox *out = &l->outboxes[process];
    if (out->settled < out->begun) {
        pthread_mutex_lock(&ith_mpi_lock);
        settle(l, process);
        pthread_mutex_unlock(&ith_mpi_lock);
    }
    return out->settled;
}

static bool post_receive(mpi_link *l, int index)
{
    return check(l,
                 MPI_Irecv(l->receive_buffers + (int64_t)index * ITH_LINK_BYTES, ITH_LINK_BYTES, MPI_BYTE,
                           MPI_ANY_SOURCE, TAG, l->comm, &l->receives[index]),
                 "MPI_Irecv");
}

/* Takes the next datagram. Returns its bytes, 0 if there is none, -1 if a call of MPI has failed. */
static int take_datagram(mpi_link *l, int *process, const void **data)
{
    MPI_Status status;
    int done = 0, bytes = 0;
    if (l->taken && !post_receive(l, (l->head + RECEIVES - 1) % RECEIVES))
        return -1;
    l->taken = false;
    if (l->reason[0] || !check(l, MPI_Test(&l->receives[l->head], &done, &status), "MPI_Test"))
        return -1;
    if (!done)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    *process = l->party.numbers[status.MPI_SOURCE];
    *data = l->receive_buffers + (int64_t)l->head * ITH_LINK_BYTES;
    l->head = (l->head + 1) % RECEIVES;
    l->taken = true;
    return bytes;
}

static int64_t link_receive(void *self, int *process, const void **data)
{
    mpi_link *l = self;
    pthread_mutex_lock(&ith_mpi_lock);
    int bytes = take_datagram(l, process, data);
    pthread_mutex_unlock(&ith_mpi_lock);
    if (bytes > 0)
        atomic_store(&l->active_ns, ith_watch_now_ns());
    *data = bytes < 0 ? l->reason : *data;
    return bytes < 0 && ith_watch_now_ns() - l->failed_ns < GRACE_NS ? 0 : bytes;
}

/* ---- Control messages ------------------------------------------------------------------------------------------ */

/* Takes the next event that is not for the link itself. */
static ith_watch_event take_event(mpi_link *l, int *process, const void **data, size_t *bytes)
{
    for (;;) {
        ith_watch_event event = ith_watch_receive(l->control.watch, process, data, bytes);
        l->lost |= event == ITH_WATCH_LOST || event == ITH_WATCH_FAILED;
        l->left |= event == ITH_WATCH_BYE;
        if (event != ITH_WATCH_MESSAGE || *bytes != sizeof closed_mark || memcmp(*data, closed_mark, *bytes) != 0)
            return event;
        l->others_closed++;
    }
}

static ith_watch_event link_hear(void *self, int *process, const void **data, size_t *bytes)
{
    mpi_link *l = self;
    if (!ith_link_may_look(&l->control))
        return ITH_WATCH_NOTHING;
    return ith_link_looked(&l->control, take_event(l, process, data, bytes));
}

/* Naps grow with the time since the last datagram. */
static void link_rest(void *self, double seconds)
{
    static _Thread_local unsigned seen;
    mpi_link *l = self;
    int64_t quiet = ith_watch_now_ns() - atomic_load(&l->active_ns), nap = quiet / 4;
    unsigned wakes = atomic_load(&l->wakes);
    if (wakes != seen) {
        seen = wakes;
    } else if (quiet < SPIN_NS) {
        sched_yield();
        return;
    } else {
        nap = nap < LONGEST_NAP ? nap : LONGEST_NAP;
        ith_watch_rest(l->control.watch, seconds < (double)nap * 1e-9 ? seconds : (double)nap * 1e-9);
    }
    ith_link_look_soon(&l->control);
}

static void link_wake(void *self)
{
    mpi_link *l = self;
    atomic_fetch_add(&l->wakes, 1);
    ith_watch_wake(l->control.watch);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

void ith_mpi_party_free(mpi_party *party)
{
    free(party->mpi_ranks);
    free(party->numbers);
    free(party->all);
    *party = (mpi_party){.process = 0};
}

static void link_close(void *self, bool failed)
{
    mpi_link *l = self;
    pthread_mutex_lock(&ith_mpi_lock);
    l->failed = failed;
    for (int i = 0, there; i < LAST_CALLS && !failed && !l->reason[0]; i++)
        check(l, MPI_Iprobe(MPI_ANY_SOURCE, TAG, l->comm, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
    for (int i = 0; i < l->party.processes; i++)
        ith_watch_send(l->control.watch, i, closed_mark, sizeof closed_mark, false);
    l->next = closed_links;
    closed_links = l;
    links_in_use--;
    pthread_mutex_unlock(&ith_mpi_lock);
}

/* Frees a link whose communicator MPI has no more use for. */
static void free_link(mpi_link *l)
{
    ith_watch_close(l->control.watch, true);
    ith_mpi_party_free(&l->party);
    free(l->receive_buffers);
    free(l->send_buffers);
    free(l->outboxes);
    free(l->sends);
    free(l);
}

/* One step of the end of a closed link: takes the datagrams that still arrive. When all its own datagrams have been
 * sent, and all processes have closed their links, it enters a barrier with them. Returns whether the barrier is done.
 * A process that has died or is stopped has not closed its link. MPICH 5 crashes in a barrier with a dead process, so
 * after a failure this function makes no call of MPI before it knows that all processes are there. */
static bool finish_link(mpi_link *l)
{
    const bool all_closed = l->others_closed == l->party.processes - 1;
    int process = 0, done = 0;
    const void *data = NULL;
    bool settled = true;
    if (l->failed && !all_closed)
        return false;
    while (take_datagram(l, &process, &data) > 0)
        ;
    for (int i = 0; i < l->party.processes; i++) {
        settle(l, i);
        settled &= l->outboxes[i].settled == l->outboxes[i].begun;
    }
    if (l->reason[0] || !settled || !all_closed)
        return false;
    if (!l->waiting)
        l->waiting = check(l, MPI_Ibarrier(l->comm, &l->barrier), "MPI_Ibarrier");
    return l->waiting && check(l, MPI_Test(&l->barrier, &done, MPI_STATUS_IGNORE), "MPI_Test") && done;
}

/* Looks at the control connections of a closed link. Returns false if a process has died, or has given up: a process
 * that says goodbye before this process has entered the barrier cannot have passed the barrier. */
static bool hear_closed(mpi_link *l)
{
    int process = 0;
    const void *data = NULL;
    size_t bytes = 0;
    while (take_event(l, &process, &data, &bytes) != ITH_WATCH_NOTHING)
        ;
    return !l->lost && !l->reason[0] && (l->waiting || !l->left);
}

/* One step of the end of all closed links. Returns false if a link cannot end. Sets *finished to whether all have ended
 * and *bye to true if a process has passed the barrier of a link. */
static bool finish_closed(bool *finished, bool *bye)
{
    *finished = true;
    for (mpi_link *l = closed_links; l; l = l->next) {
        if (!hear_closed(l))
            return false;
        *bye |= l->left;
        *finished &= finish_link(l);
    }
    return true;
}

/* Whether a process of a closed link has sent no pulse for `seconds`. */
static bool one_is_silent(double seconds)
{
    for (const mpi_link *l = closed_links; l; l = l->next)
        for (int i = 0; i < l->party.processes; i++)
            if (ith_watch_silence(l->control.watch, i) > seconds)
                return true;
    return false;
}

bool ith_mpi_free_closed(double seconds, double silent_seconds)
{
    int64_t end = seconds < 0 ? INT64_MAX : ith_watch_now_ns() + (int64_t)(seconds * 1e9), nap = 10000;
    bool finished = false, bye = false, byes = false;
    for (;;) {
        if (!finish_closed(&finished, &bye))
            return false;
        if (finished)
            break;
        if (bye && !byes)
            end = ith_watch_now_ns() + 1000000000;
        byes = bye;
        if (ith_watch_now_ns() > end || (seconds < 0 && one_is_silent(silent_seconds)))
            return false;
        pthread_mutex_unlock(&ith_mpi_lock);
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        pthread_mutex_lock(&ith_mpi_lock);
        nap = nap < 2000000 ? nap * 2 : nap;
    }
    while (closed_links) {
        mpi_link *l = closed_links;
        closed_links = l->next;
        for (int i = 0; i < RECEIVES; i++)
            if (l->receives[i] != MPI_REQUEST_NULL) {
                MPI_Cancel(&l->receives[i]);
                MPI_Wait(&l->receives[i], MPI_STATUS_IGNORE);
            }
        MPI_Comm_free(&l->comm);
        free_link(l);
    }
    return true;
}

void ith_mpi_forget_closed(void)
{
    for (mpi_link *l = closed_links; l; l = l->next) {
        ith_watch_close(l->control.watch, true);
        l->control.watch = NULL;
    }
    closed_links = NULL;
}

int ith_mpi_links_in_use(void)
{
    return links_in_use;
}

bool ith_mpi_closed_failed(void)
{
    bool failed = false;
    for (const mpi_link *l = closed_links; l; l = l->next)
        failed |= l->failed;
    return failed;
}

/* ---- The beginning --------------------------------------------------------------------------------------------- */

mpi_link *ith_mpi_link_create(MPI_Comm comm, ith_watch *watch, const mpi_party *party)
{
    mpi_link *l = calloc(1, sizeof *l);
    size_t processes = (size_t)party->processes;
    int depth = SENDS_IN_ALL / party->processes;
    if (!l)
        return NULL;
    l->depth = depth > MOST_SENDS ? MOST_SENDS : depth < LEAST_SENDS ? LEAST_SENDS : depth;
    l->party = *party;
    l->comm = comm;
    l->control.watch = watch;
    l->outboxes = calloc(processes, sizeof *l->outboxes);
    l->sends = calloc(processes * (size_t)l->depth, sizeof *l->sends);
    /* memory that is never written costs nothing */
    l->send_buffers = aligned_alloc(4096, processes * (size_t)l->depth * ITH_LINK_BYTES);
    l->receive_buffers = aligned_alloc(4096, (size_t)RECEIVES * ITH_LINK_BYTES);
    if (!l->outboxes || !l->sends || !l->send_buffers || !l->receive_buffers) {
        l->party = (mpi_party){.process = 0};
        l->control.watch = NULL;
        free_link(l);
        return NULL;
    }
    for (int i = 0; i < RECEIVES; i++)
        post_receive(l, i); /* an error shows when the transport receives */
    links_in_use++;
    return l;
}

ith_link ith_mpi_link_table(mpi_link *l)
{
    return (ith_link){.self = l,
                      .name = MODULE_NAME,
                      .process = l->party.process,
                      .processes = l->party.processes,
                      .all = l->party.all,
                      .reserve = link_reserve,
                      .send = link_send,
                      .settled = link_settled,
                      .receive = link_receive,
                      .tell = ith_link_tell,
                      .hear = link_hear,
                      .rest = link_rest,
                      .wake = link_wake,
                      .close = link_close};
}
