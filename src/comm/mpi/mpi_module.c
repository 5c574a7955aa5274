/* SPDX-License-Identifier: Apache-2.0 */
/* The module: connects the processes that a launcher of MPI has started, each with one rank or more.
 *
 * Two gathers over MPI come first. In the first, processes compare versions: its records have the same size in all
 * versions. In the second they show their hosts and the addresses of their control connections. Processes are then
 * numbered host by host, in the order of the lowest MPI rank of each host, and make the control connections. A third
 * gather tells whether all of them have succeeded. */
#include "mpi_link.h"
#include "mpi_start.h"

#include "../wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GATHER_SECONDS 60.0 /* for all processes to come */
#define WATCH_SECONDS 30.0  /* for all control connections */

enum { SENTENCE_BYTES = 1024 };

#define QUOTE(x) #x
#define DOTTED(major, minor, patch) QUOTE(major) "." QUOTE(minor) "." QUOTE(patch)
#define MODULE_VERSION DOTTED(ITH_VERSION_MAJOR, ITH_VERSION_MINOR, ITH_VERSION_PATCH)

/* The first record, of the same size in all versions. */
typedef struct version_record {
    char module[48], library[48], host[64];
    char unused[96];
} version_record;
_Static_assert(sizeof(version_record) == 256, "processes of other versions take records of 256 bytes");

typedef struct host_record {
    int ranks;
    ith_watch_address address;
} host_record;

/* The status of a process in the meeting, and its sentence. */
typedef struct result_record {
    ith_status status;
    char sentence[SENTENCE_BYTES];
} result_record;

/* The state of one call of connect_processes. */
typedef struct meeting_place {
    MPI_Comm comm;
    int mpi_rank, size;
    ith_watch *watch;
    host_record *hosts;           /* [size]: of each MPI rank */
    ith_watch_address *addresses; /* [size]: of each process */
    result_record *results;       /* [size]: of each MPI rank */
    mpi_party party;
    char *sentence;
    size_t bytes;
} meeting_place;

/* Waits for an operation of MPI that was begun with the result `code`, at most GATHER_SECONDS. */
static ith_status await_request(const meeting_place *m, int code, MPI_Request *request)
{
    double end = ith_watch_now() + GATHER_SECONDS;
    int done = 0;
    while (code == MPI_SUCCESS && (code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done) {
        if (ith_watch_now() > end) {
            ith_mpi_give_up();
            snprintf(m->sentence, m->bytes,
                     "not all %d processes of the launcher have called for this transport within %.0f s", m->size,
                     GATHER_SECONDS);
            return ITH_ERR_TIMEOUT;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    if (code == MPI_SUCCESS)
        return ITH_OK;
    ith_mpi_give_up();
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_string(code, text, &(int){0});
    snprintf(m->sentence, m->bytes, "MPI failed while the processes met: %.200s", text);
    return ITH_ERR_IO;
}

/* all [size]: `mine` of each MPI rank. */
static ith_status gather(const meeting_place *m, const void *mine, size_t bytes, void *all)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, m->comm, &request);
    return await_request(m, code, &request);
}

/* ---- Versions -------------------------------------------------------------------------------------------------- */

static ith_status compare_versions(const meeting_place *m)
{
    version_record mine = {.module = MODULE_VERSION};
    snprintf(mine.library, sizeof mine.library, "%s", ith_version());
    snprintf(mine.host, sizeof mine.host, "%s", m->watch ? m->hosts[m->mpi_rank].address.name : "");
    version_record *all = calloc((size_t)m->size, sizeof *all);
    ith_status status = all ? gather(m, &mine, sizeof mine, all) : ITH_ERR_MEMORY;
    for (int i = 0; i < m->size && !status; i++) {
        const version_record *first = &all[0], *one = &all[i];
        if (!memcmp(first->module, one->module, sizeof mine.module) &&
            !memcmp(first->library, one->library, sizeof mine.library))
            continue;
        snprintf(m->sentence, m->bytes,
                 "process 0 on %.63s has libithaca %.47s and a transport of %.47s, process %d on %.63s has libithaca "
                 "%.47s and a transport of %.47s: all processes need the same version",
                 first->host, first->library, first->module, i, one->host, one->library, one->module);
        status = ITH_ERR_UNSUPPORTED;
    }
    free(all);
    return status;
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

/* Fills in process number `number`, the MPI rank `from`, of the host `host`. */
static void place_process(meeting_place *m, int number, int from, int64_t host)
{
    const host_record *record = &m->hosts[from];
    ith_link_process *to = &m->party.all[number];
    const ith_link_process *before = number ? to - 1 : NULL;
    *to = (ith_link_process){.host = host,
                             .pid = record->address.pid,
                             .first_rank = before ? before->first_rank + before->ranks : 0,
                             .ranks = record->ranks};
    snprintf(to->name, sizeof to->name, "%.*s", ITH_WATCH_NAME - 1, record->address.name);
    m->addresses[number] = record->address;
    m->party.mpi_ranks[number] = from;
    m->party.numbers[from] = number;
}

/* Numbers the processes host by host. */
static void number_processes(meeting_place *m)
{
    int number = 0;
    int64_t host = 0;
    for (int i = 0; i < m->size; i++)
        m->party.numbers[i] = -1;
    for (int first = 0; first < m->size; first++) {
        if (m->party.numbers[first] >= 0)
            continue;
        for (int i = first; i < m->size; i++)
            if (m->party.numbers[i] < 0 && ith_watch_same_host(&m->hosts[first].address, &m->hosts[i].address))
                place_process(m, number++, i, host);
        host++;
    }
    m->party.process = m->party.numbers[m->mpi_rank];
    m->party.processes = m->size;
}

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

/* Tells every process whether all of them have succeeded. The first MPI rank that failed gives the status and the
 * sentence. */
static ith_status agree(meeting_place *m, ith_status status)
{
    result_record mine = {.status = status};
    if (status)
        snprintf(mine.sentence, sizeof mine.sentence, "%s", m->sentence);
    ith_status gathered = gather(m, &mine, sizeof mine, m->results);
    if (gathered)
        return gathered;
    for (int i = 0; i < m->size; i++)
        if (m->results[i].status) {
            snprintf(m->sentence, m->bytes, "process %d on %.63s: %.*s", m->party.numbers[i],
                     m->party.all[m->party.numbers[i]].name, SENTENCE_BYTES - 128, m->results[i].sentence);
            return m->results[i].status;
        }
    return ITH_OK;
}

/* Meets the other processes on m->comm. */
static ith_status meet(meeting_place *m, int ranks)
{
    ith_status status = compare_versions(m);
    host_record mine = m->hosts[m->mpi_rank];
    mine.ranks = ranks;
    /* All processes are here, so they have closed the links of earlier groups. */
    if (!status && !ith_mpi_free_closed(GATHER_SECONDS)) {
        ith_mpi_give_up();
        snprintf(
            m->sentence, m->bytes,
            "a process of an earlier group does not answer, so MPI cannot be used again: start the processes anew");
        status = ITH_ERR_UNSUPPORTED;
    }
    if (!status)
        status = gather(m, &mine, sizeof mine, m->hosts);
    if (status)
        return status;
    number_processes(m);
    if (!ith_watch_connect(m->watch, m->addresses, m->party.process, m->size, WATCH_SECONDS, m->sentence, m->bytes))
        status = ITH_ERR_TIMEOUT;
    return agree(m, status);
}

static void free_meeting(meeting_place *m)
{
    free(m->hosts);
    free(m->addresses);
    free(m->results);
    ith_mpi_party_free(&m->party);
    ith_watch_close(m->watch, true);
}

/* Makes a communicator of the link's own, and the memory of the meeting. */
static ith_status begin_meeting(meeting_place *m)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_size(MPI_COMM_WORLD, &m->size);
    MPI_Comm_rank(MPI_COMM_WORLD, &m->mpi_rank);
    size_t size = (size_t)m->size;
    m->hosts = calloc(size, sizeof *m->hosts);
    m->addresses = calloc(size, sizeof *m->addresses);
    m->results = calloc(size, sizeof *m->results);
    m->party.mpi_ranks = calloc(size, sizeof *m->party.mpi_ranks);
    m->party.numbers = calloc(size, sizeof *m->party.numbers);
    m->party.all = calloc(size, sizeof *m->party.all);
    if (!m->hosts || !m->addresses || !m->results || !m->party.mpi_ranks || !m->party.numbers || !m->party.all) {
        snprintf(m->sentence, m->bytes, "no memory for %d processes", m->size);
        return ITH_ERR_MEMORY;
    }
    m->watch = ith_watch_listen(&m->hosts[m->mpi_rank].address, m->sentence, m->bytes);
    if (!m->watch)
        return ITH_ERR_IO;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &m->comm, &request);
    ith_status status = await_request(m, code, &request);
    if (!status)
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return status;
}

/* Makes a link of the processes that have met, and the states of this process's ranks. */
static ith_status open_link(meeting_place *m, void **states, int *numbers, int *size)
{
    mpi_link *link = ith_mpi_link_create(m->comm, m->watch, &m->party);
    if (!link) {
        snprintf(m->sentence, m->bytes, "no memory for the buffers of %d processes", m->size);
        return ITH_ERR_MEMORY;
    }
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

static ith_status connect_processes(const char *where, int ranks, void **states, int *numbers, int *size,
                                    char *sentence, size_t bytes)
{
    meeting_place m = {.comm = MPI_COMM_NULL, .sentence = sentence, .bytes = bytes};
    if (where) {
        snprintf(sentence, bytes,
                 "where is \"%.100s\", but over MPI the launcher knows where the processes meet: where has to be NULL",
                 where);
        return ITH_ERR_ARGUMENT;
    }
    pthread_mutex_lock(&ith_mpi_lock);
    ith_status status = ith_mpi_start(sentence, bytes);
    if (!status)
        status = begin_meeting(&m);
    if (!status)
        status = meet(&m, ranks);
    if (!status)
        status = open_link(&m, states, numbers, size);
    pthread_mutex_unlock(&ith_mpi_lock);
    free_meeting(&m);
    return status;
}

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {.abi = ITH_TRANSPORT_MODULE_ABI,
                                                         .name = MODULE_NAME,
                                                         .transport = &ith_wire_transport,
                                                         .connect = connect_processes};
