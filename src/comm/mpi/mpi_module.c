/* SPDX-License-Identifier: Apache-2.0 */
/* The module: connects the processes that a launcher of MPI has started, each with one rank or more.
 *
 * Two gathers over MPI come first. In the first, processes compare versions: its records have the same size in all
 * versions. In the second they show their hosts and the addresses of their control connections. Processes are then
 * numbered host by host, in the order of the lowest MPI rank of each host, and make the control connections, over which
 * they agree that all are connected.
 *
 * Every wait has a limit, and looks at the processes of this host (mpi_presence.h). Gathers consist of messages from
 * process to process, so that each process knows which one is missing. After a failure MPI may still write into the
 * memory of the gathers, so this memory is never freed. */
#include "mpi_link.h"
#include "mpi_start.h"

#include "../../base/host_name.h"
#include "../../base/version.h"
#include "../wire/link_number.h"
#include "../wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A call of MPI may fail because a process has died. The sockets of mpi_presence.h have this time to show its death. */
#define GRACE_SECONDS 0.5

enum { TAG = 2 };

/* The first record, of the same size in all versions. */
typedef struct version_record {
    char module[48], library[48], host[64];
    char unused[96];
} version_record;
_Static_assert(sizeof(version_record) == 256, "processes of other versions take records of 256 bytes");

/* The state of one call of connect_processes. */
typedef struct meeting_place {
    MPI_Comm comm;
    int mpi_rank, size;
    double seconds; /* the limit of each wait */
    mpi_presence *presence;
    ith_watch *watch;
    version_record *versions;     /* [size]: of each MPI rank */
    ith_link_guest *guests;       /* [size]: of each MPI rank */
    ith_watch_address *addresses; /* [size]: of each process */
    MPI_Request *requests;        /* [2][size]: receives and sends of a gather */
    MPI_Status *statuses;         /* [2][size]: of the requests */
    bool *heard;                  /* [size]: whether the record of each MPI rank has arrived */
    int peer;                     /* the MPI rank of the last message that was begun; -1: none */
    bool abandoned;               /* MPI may still use the memory of the gathers */
    mpi_party party;
    char *sentence;
    size_t bytes;
} meeting_place;

/* Gives up MPI in this process, because calls of MPI cannot be taken back. Returns `status`. */
static ith_status abandon(meeting_place *m, ith_status status)
{
    ith_mpi_give_up();
    m->abandoned = true;
    return status;
}

/* Ends a wait whose time is over, and names the processes that it waited for. gathers: it was the wait of a gather. */
static ith_status explain(meeting_place *m, bool gathers)
{
    char blame[256];
    size_t length = 0;
    int silent = -1;
    for (int i = m->size - 1; i >= 0 && gathers; i--) {
        int done = 0;
        m->heard[i] = i == m->mpi_rank || (MPI_Test(&m->requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done);
        silent = m->heard[i] ? silent : i;
    }
    ith_mpi_presence_explain(m->presence, gathers ? m->heard : NULL, blame, sizeof blame);
    length = (size_t)snprintf(m->sentence, m->bytes, "the processes were not connected within %.3g s: %s", m->seconds,
                              blame);
    if (silent >= 0 && m->versions[silent].host[0] && length < m->bytes)
        snprintf(m->sentence + length, m->bytes - length, " (process %d runs on host %.63s)", silent,
                 m->versions[silent].host);
    return abandon(m, ITH_ERR_TIMEOUT);
}

/* Explains a call of MPI that has failed. If a process has died, its death may show a little later, so this function
 * waits for it. */
static ith_status fail(meeting_place *m, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "", who[64] = "", blame[256];
    for (double end = ith_watch_now() + GRACE_SECONDS; ith_watch_now() < end;) {
        if (!ith_mpi_presence_look(m->presence, m->sentence, m->bytes))
            return abandon(m, ITH_ERR_ABORTED);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    MPI_Error_string(code, text, &(int){0});
    text[strcspn(text, "\n")] = 0;
    if (strstr(text, ", error stack"))
        *strstr(text, ", error stack") = 0;
    if (m->peer >= 0)
        snprintf(who, sizeof who, " with process %d", m->peer);
    ith_mpi_presence_explain(m->presence, NULL, blame, sizeof blame);
    snprintf(m->sentence, m->bytes, "MPI failed while the processes were being connected%s (%.100s): %s", who, text,
             blame);
    return abandon(m, ITH_ERR_IO);
}

/* Writes the sentence of a failure of this process alone, which names this process to the others. */
static ith_status fail_alone(meeting_place *m, ith_status status, const char *reason)
{
    char host[ITH_WATCH_NAME];
    ith_host_name(host, sizeof host);
    snprintf(m->sentence, m->bytes, "process %d on %s: %s", m->mpi_rank, host, reason);
    return status;
}

/* Waits for a moment for an event that must happen before the time `end`, and looks at the processes of this host. */
static ith_status wait_a_little(meeting_place *m, double end, bool gathers)
{
    if (!ith_mpi_presence_look(m->presence, m->sentence, m->bytes))
        return abandon(m, ITH_ERR_ABORTED);
    if (ith_watch_now() > end)
        return explain(m, gathers);
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return ITH_OK;
}

/* ---- The communicator ------------------------------------------------------------------------------------------ */

/* A call of MPI_Comm_dup. Its memory stays if the call does not return. */
typedef struct copying {
    MPI_Comm comm;
    int code;
    atomic_bool done;
} copying;

static void *copy_world(void *user)
{
    copying *c = user;
    MPI_Errhandler before; /* the application's, which may end the process */
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    c->code = MPI_Comm_dup(MPI_COMM_WORLD, &c->comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
    atomic_store(&c->done, true);
    return NULL;
}

/* Makes a communicator of the link's own, where ith_mpi_start has made none. MPICH 5 may connect the processes in this
 * call. If one of them dies, no call of MPI returns on the others, not even MPI_Test. So a separate thread makes the
 * call. */
static ith_status make_comm(meeting_place *m)
{
    const double end = ith_watch_now() + m->seconds;
    ith_status status = ITH_OK;
    pthread_t thread;
    copying *c = calloc(1, sizeof *c);
    if (!c || pthread_create(&thread, NULL, copy_world, c)) {
        free(c);
        return fail_alone(m, ITH_ERR_MEMORY, "no thread could be started to make a communicator");
    }
    pthread_detach(thread);
    while (!status && !atomic_load(&c->done))
        status = wait_a_little(m, end, false);
    if (status)
        return status;
    const int code = c->code;
    m->comm = c->comm;
    free(c);
    return code == MPI_SUCCESS ? ITH_OK : fail(m, code);
}

/* ---- Gathers --------------------------------------------------------------------------------------------------- */

/* Waits for the requests of a gather, which were begun with the result `code`. */
static ith_status await_requests(meeting_place *m, int code)
{
    const double end = ith_watch_now() + m->seconds;
    ith_status status = ITH_OK;
    int done = 0;
    while (code == MPI_SUCCESS && !status) {
        code = MPI_Testall(2 * m->size, m->requests, &done, m->statuses);
        if (code == MPI_SUCCESS && done)
            return ITH_OK;
        if (code == MPI_SUCCESS)
            status = wait_a_little(m, end, true);
    }
    return status ? status : fail(m, code);
}

/* Gathers the records of all MPI ranks in all [size][bytes], in which this process has filled in its own. */
static ith_status gather(meeting_place *m, void *all, size_t bytes)
{
    char *mine = (char *)all + (size_t)m->mpi_rank * bytes;
    int code = MPI_SUCCESS;
    for (int i = 0; i < 2 * m->size; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < m->size && code == MPI_SUCCESS; i++) {
        if (i == m->mpi_rank)
            continue;
        m->peer = i;
        code = MPI_Irecv((char *)all + (size_t)i * bytes, (int)bytes, MPI_BYTE, i, TAG, m->comm, &m->requests[i]);
        if (code == MPI_SUCCESS)
            code = MPI_Isend(mine, (int)bytes, MPI_BYTE, i, TAG, m->comm, &m->requests[m->size + i]);
    }
    m->peer = code == MPI_SUCCESS ? -1 : m->peer;
    return await_requests(m, code);
}

/* ---- Versions -------------------------------------------------------------------------------------------------- */

static ith_status compare_versions(meeting_place *m)
{
    version_record *mine = &m->versions[m->mpi_rank];
    snprintf(mine->module, sizeof mine->module, "%s", ITH_VERSION_TEXT);
    snprintf(mine->library, sizeof mine->library, "%s", ith_version());
    snprintf(mine->host, sizeof mine->host, "%s", m->guests[m->mpi_rank].address.name);
    ith_status status = gather(m, m->versions, sizeof *m->versions);
    for (int i = 0; i < m->size && !status; i++) {
        const version_record *first = &m->versions[0], *one = &m->versions[i];
        if (!memcmp(first->module, one->module, sizeof one->module) &&
            !memcmp(first->library, one->library, sizeof one->library))
            continue;
        snprintf(m->sentence, m->bytes,
                 "process 0 on %.63s has libithaca %.47s and a transport of %.47s, process %d on %.63s has libithaca "
                 "%.47s and a transport of %.47s: all processes need the same version",
                 first->host, first->library, first->module, i, one->host, one->library, one->module);
        status = ITH_ERR_UNSUPPORTED;
    }
    return status;
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

/* Numbers the processes host by host. */
static void number_processes(meeting_place *m)
{
    ith_link_number(m->guests, m->size, m->party.all, m->party.numbers);
    for (int i = 0; i < m->size; i++) {
        m->addresses[m->party.numbers[i]] = m->guests[i].address;
        m->party.mpi_ranks[m->party.numbers[i]] = i;
    }
    m->party.process = m->party.numbers[m->mpi_rank];
    m->party.processes = m->size;
}

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

static bool look(void *user, char *sentence, size_t bytes)
{
    return ith_mpi_presence_look(user, sentence, bytes);
}

/* Makes the control connections. */
static ith_status connect_watch(meeting_place *m)
{
    const ith_watch_patience patience = {m->seconds, look, m->presence};
    ith_status status =
        ith_watch_connect(m->watch, m->addresses, m->party.process, m->size, &patience, m->sentence, m->bytes);
    if (status)
        return abandon(m, status);
    if (ith_watch_begin_pulse(m->watch, m->seconds))
        return ITH_OK;
    return fail_alone(m, ITH_ERR_MEMORY, "no thread could be started for its signs of life");
}

/* Gathers the addresses of the other processes on m->comm and connects this process with them. */
static ith_status meet(meeting_place *m, int ranks)
{
    ith_status status = compare_versions(m);
    /* All processes are here, so they have closed the links of earlier groups. */
    if (!status && !ith_mpi_free_closed(m->seconds, m->seconds)) {
        snprintf(
            m->sentence, m->bytes,
            "a process of an earlier group does not answer, so MPI cannot be used again: start the processes anew");
        status = abandon(m, ITH_ERR_UNSUPPORTED);
    }
    m->guests[m->mpi_rank].ranks = ranks;
    if (!status)
        status = gather(m, m->guests, sizeof *m->guests);
    if (status)
        return status;
    number_processes(m);
    return connect_watch(m);
}

static void free_meeting(meeting_place *m)
{
    if (!m->abandoned) {
        free(m->versions);
        free(m->guests);
        free(m->requests);
        free(m->statuses);
    }
    free(m->heard);
    free(m->addresses);
    ith_mpi_party_free(&m->party);
    ith_watch_close(m->watch, true);
}

static bool allocate(meeting_place *m)
{
    size_t size = (size_t)m->size;
    m->versions = calloc(size, sizeof *m->versions);
    m->guests = calloc(size, sizeof *m->guests);
    m->requests = calloc(2 * size, sizeof(MPI_Request));
    m->statuses = calloc(2 * size, sizeof *m->statuses);
    m->heard = calloc(size, sizeof *m->heard);
    m->addresses = calloc(size, sizeof *m->addresses);
    m->party.mpi_ranks = calloc(size, sizeof *m->party.mpi_ranks);
    m->party.numbers = calloc(size, sizeof *m->party.numbers);
    m->party.all = calloc(size, sizeof *m->party.all);
    return m->versions && m->guests && m->requests && m->statuses && m->heard && m->addresses && m->party.mpi_ranks &&
           m->party.numbers && m->party.all;
}

/* Makes a communicator of the link's own, and the memory of the meeting. */
static ith_status begin_meeting(meeting_place *m)
{
    MPI_Comm_size(MPI_COMM_WORLD, &m->size);
    MPI_Comm_rank(MPI_COMM_WORLD, &m->mpi_rank);
    if (!allocate(m))
        return fail_alone(m, ITH_ERR_MEMORY, "there is no memory to meet the other processes");
    char reason[256];
    ith_watch_address *mine = &m->guests[m->mpi_rank].address;
    m->watch = ith_watch_listen(mine, reason, sizeof reason);
    if (!m->watch)
        return fail_alone(m, ITH_ERR_IO, reason);
    mine->number = m->mpi_rank;
    ith_status status = ITH_OK;
    m->comm = ith_mpi_take_comm();
    if (m->comm == MPI_COMM_NULL)
        status = make_comm(m);
    if (!status)
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return status;
}

/* Makes a link of the processes that have met, and the states of this process's ranks. */
static ith_status open_link(meeting_place *m, void **states, int *numbers, int *size)
{
    mpi_link *link = ith_mpi_link_create(m->comm, m->watch, &m->party);
    if (!link)
        return fail_alone(m, ITH_ERR_MEMORY, "there is no memory for the buffers of messages");
    m->watch = NULL;
    m->party = (mpi_party){.process = 0};
    ith_link table = ith_mpi_link_table(link);
    pthread_mutex_unlock(&ith_mpi_lock);
    ith_status status = ith_wire_open(&table, states, numbers, size, m->sentence, m->bytes);
    if (status)
        table.close(link, true);
    pthread_mutex_lock(&ith_mpi_lock);
    return status;
}

static ith_status connect_processes(const char *where, int ranks, double seconds, void **states, int *numbers,
                                    int *size, char *sentence, size_t bytes)
{
    meeting_place m = {.comm = MPI_COMM_NULL, .peer = -1, .seconds = seconds, .sentence = sentence, .bytes = bytes};
    if (where) {
        snprintf(sentence, bytes,
                 "where is \"%.100s\", but over MPI the launcher knows where the processes meet: where has to be NULL",
                 where);
        return ITH_ERR_ARGUMENT;
    }
    pthread_mutex_lock(&ith_mpi_lock);
    m.presence = ith_mpi_presence_begin(seconds);
    ith_status status = ith_mpi_start(m.presence, seconds, sentence, bytes);
    if (!status)
        status = begin_meeting(&m);
    if (!status)
        status = meet(&m, ranks);
    if (!status)
        status = open_link(&m, states, numbers, size);
    const bool refused = status && (!ith_mpi_has_given_up() || ith_mpi_presence_refused(m.presence));
    if (refused)
        ith_mpi_shorten_end();
    ith_mpi_presence_end(m.presence, status ? sentence : NULL, refused);
    pthread_mutex_unlock(&ith_mpi_lock);
    free_meeting(&m);
    return status;
}

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {.abi = ITH_TRANSPORT_MODULE_ABI,
                                                         .name = MODULE_NAME,
                                                         .transport = &ith_wire_transport,
                                                         .connect = connect_processes};
