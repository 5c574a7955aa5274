/* SPDX-License-Identifier: Apache-2.0 */
/* Processes find one another through files (file_meeting.h).
 *
 * Process N writes PATH.N: its addresses, with a random cookie, and the cookies of the other processes as it has read
 * them. A file in which a process finds its own cookie is of this run, because the cookie is new. A process has met all
 * others when each of their files has its cookie; its own file then has all of theirs. It writes a file under another
 * name and renames it, so that nobody reads half of it. Control connections are made last: when they are there, all
 * processes have read all files, and each removes its own. */
#include "file_meeting.h"

#include "../../base/version.h"
#include "../wire/link_number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3174656d61637469u

enum { PATH_BYTES = 4096, MOST_PROCESSES = 4096, COOKIE = ITH_WATCH_COOKIE };

/* The beginning of a file. The cookies that the process has read follow: [processes][COOKIE], zeros if there is none.
 */
typedef struct file_record {
    uint64_t magic;
    int32_t process, processes;
    char module[48], library[48]; /* versions */
    ith_link_guest guest;         /* with the address for control connections, whose cookie is the process's */
    ith_watch_address data;       /* for datagrams */
} file_record;

/* The meeting of the processes: the files as they were read, and the lists for connecting. */
typedef struct file_meeting {
    const char *path;
    int number, processes; /* in the order of the launcher */
    double seconds;
    file_record *records;         /* [processes]: of this process, and of the others as they were last read */
    char *mine;                   /* the contents of this process's file: its record, then cookies */
    char *theirs;                 /* the contents of another file */
    size_t file_bytes;            /* of each file */
    bool *met;                    /* [processes]: its file has this process's cookie */
    ith_link_guest *guests;       /* [processes] */
    ith_watch_address *addresses; /* [processes]: in the order of the link */
    int *numbers;                 /* [processes]: in the link, of each process */
    tcp_party party;
    char *sentence;
    size_t bytes;
} file_meeting;

/* ---- The number of this process ---------------------------------------------------------------------------------- */

/* A number from the environment; -1 if the variable is not set, or is none. */
static int read_number(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && value >= 0 && value <= MOST_PROCESSES ? (int)value : -1;
}

static ith_status find_number(file_meeting *m)
{
    static const char *const names[][2] = {{"ITHACA_PROCESS", "ITHACA_PROCESSES"},
                                           {"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!getenv(names[i][0]) && !getenv(names[i][1]))
            continue;
        m->number = read_number(names[i][0]);
        m->processes = read_number(names[i][1]);
        if (m->number >= 0 && m->number < m->processes)
            return ITH_OK;
        const char *number = getenv(names[i][0]), *processes = getenv(names[i][1]);
        snprintf(m->sentence, m->bytes,
                 "%s is \"%.20s\" and %s is \"%.20s\": they are the number of this process, from 0, and the number of "
                 "processes, at most %d",
                 names[i][0], number ? number : "", names[i][1], processes ? processes : "", MOST_PROCESSES);
        return ITH_ERR_ARGUMENT;
    }
    snprintf(m->sentence, m->bytes,
             "the number of this process is unknown: set ITHACA_PROCESS, from 0, and ITHACA_PROCESSES, the number of "
             "processes "
             "(RANK and WORLD_SIZE of torchrun, and the variables of MPI and Slurm, serve too)");
    return ITH_ERR_ARGUMENT;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static void name_file(const file_meeting *m, int process, char text[PATH_BYTES])
{
    snprintf(text, PATH_BYTES, "%s.%d", m->path, process);
}

/* Writes this process's file. */
static ith_status write_file(const file_meeting *m)
{
    char path[PATH_BYTES], draft[PATH_BYTES + 32];
    name_file(m, m->number, path);
    snprintf(draft, sizeof draft, "%s.%lld", path, (long long)getpid());
    FILE *file = fopen(draft, "wbe");
    bool written = file && fwrite(m->mine, m->file_bytes, 1, file) == 1;
    if (file && fclose(file))
        written = false;
    if (written && !rename(draft, path))
        return ITH_OK;
    snprintf(m->sentence, m->bytes, "%.200s cannot be written: %s", path, strerror(errno));
    unlink(draft);
    return ITH_ERR_IO;
}

static char *cookies_of(char *file)
{
    return file + sizeof(file_record);
}

/* Reads the file of another process. Returns whether it has the form of a file of this group. */
static bool read_file(const file_meeting *m, int process)
{
    char path[PATH_BYTES], more;
    file_record head;
    name_file(m, process, path);
    FILE *file = fopen(path, "rbe");
    bool whole = file && fread(m->theirs, m->file_bytes, 1, file) == 1 && fread(&more, 1, 1, file) == 0;
    if (file)
        fclose(file);
    if (!whole)
        return false;
    memcpy(&head, m->theirs, sizeof head);
    return head.magic == MAGIC && head.process == process && head.processes == m->processes && head.guest.ranks > 0 &&
           head.guest.ranks <= MOST_PROCESSES;
}

/* Ends the texts of an address, which another process has written. */
static void end_texts(ith_watch_address *address)
{
    address->name[sizeof address->name - 1] = '\0';
    address->boot[sizeof address->boot - 1] = '\0';
}

/* Reads the files of all processes that have not met this one. Returns how many have not. *changed: there are cookies
 * that this process has not written yet. */
static int read_files(file_meeting *m, bool *changed)
{
    int missing = 0;
    for (int i = 0; i < m->processes; i++) {
        char *seen = cookies_of(m->mine) + (size_t)i * COOKIE;
        if (m->met[i])
            continue;
        missing++;
        if (!read_file(m, i))
            continue;
        memcpy(&m->records[i], m->theirs, sizeof *m->records);
        end_texts(&m->records[i].guest.address);
        end_texts(&m->records[i].data);
        const uint8_t *cookie = m->records[i].guest.address.cookie;
        *changed |= memcmp(seen, cookie, COOKIE) != 0;
        memcpy(seen, cookie, COOKIE);
        m->met[i] = !memcmp(cookies_of(m->theirs) + (size_t)m->number * COOKIE,
                            m->records[m->number].guest.address.cookie, COOKIE);
        missing -= m->met[i];
    }
    return missing;
}

/* Names a process that has not come. */
static ith_status explain(const file_meeting *m)
{
    char path[PATH_BYTES];
    int missing = 0;
    while (m->met[missing])
        missing++;
    name_file(m, missing, path);
    const char *reason = !access(path, F_OK) ? "its file is of another run, or it has not read the file of this process"
                                             : "there is no file of it";
    snprintf(m->sentence, m->bytes, "process %d of %d did not come to %.200s within %.3g s: %s", missing, m->processes,
             path, m->seconds, reason);
    return ITH_ERR_TIMEOUT;
}

/* Writes and reads files until all processes have met. */
static ith_status meet_all(file_meeting *m, double end)
{
    long nap = 1000000;
    ith_status status = write_file(m);
    while (!status) {
        bool changed = false;
        int missing = read_files(m, &changed);
        if (changed)
            status = write_file(m);
        if (status || !missing)
            return status;
        if (ith_watch_now() > end)
            return explain(m);
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        nap = nap < 20000000 ? nap * 2 : nap;
    }
    return status;
}

/* ---- Connections ------------------------------------------------------------------------------------------------- */

static ith_status compare_versions(const file_meeting *m)
{
    for (int i = 1; i < m->processes; i++) {
        const file_record *first = &m->records[0], *one = &m->records[i];
        if (!memcmp(first->module, one->module, sizeof one->module) &&
            !memcmp(first->library, one->library, sizeof one->library))
            continue;
        snprintf(m->sentence, m->bytes,
                 "process 0 has libithaca %.47s and a transport of %.47s, process %d has libithaca %.47s and a "
                 "transport of %.47s: all processes need the same version",
                 first->library, first->module, i, one->library, one->module);
        return ITH_ERR_UNSUPPORTED;
    }
    return ITH_OK;
}

/* Connects a watch of every process; data: the watch for datagrams, otherwise the watch for messages. */
static ith_status connect_watch(file_meeting *m, bool data, double end)
{
    for (int i = 0; i < m->processes; i++)
        m->addresses[m->numbers[i]] = data ? m->records[i].data : m->records[i].guest.address;
    const double left = end - ith_watch_now();
    const ith_watch_patience patience = {.seconds = left > 1 ? left : 1};
    return ith_watch_connect(data ? m->party.data : m->party.control, m->addresses, m->party.process, m->processes,
                             &patience, m->sentence, m->bytes);
}

/* Opens the ports of this process and writes its record. */
static ith_status open_ports(file_meeting *m, int ranks)
{
    file_record *mine = &m->records[m->number];
    *mine = (file_record){.magic = MAGIC, .process = m->number, .processes = m->processes, .guest = {.ranks = ranks}};
    snprintf(mine->module, sizeof mine->module, "%s", ITH_VERSION_TEXT);
    snprintf(mine->library, sizeof mine->library, "%s", ith_version());
    m->party.data = ith_watch_listen(&mine->data, m->sentence, m->bytes);
    m->party.control = m->party.data ? ith_watch_listen(&mine->guest.address, m->sentence, m->bytes) : NULL;
    mine->data.number = mine->guest.address.number = m->number;
    memcpy(m->mine, mine, sizeof *mine);
    m->met[m->number] = true;
    return m->party.control ? ITH_OK : ITH_ERR_IO;
}

static ith_status run_meeting(file_meeting *m, int ranks)
{
    const double end = ith_watch_now() + m->seconds;
    ith_status status = open_ports(m, ranks);
    if (!status)
        status = meet_all(m, end);
    if (!status)
        status = compare_versions(m);
    if (status)
        return status;
    for (int i = 0; i < m->processes; i++)
        m->guests[i] = m->records[i].guest;
    ith_link_number(m->guests, m->processes, m->party.all, m->numbers);
    m->party.process = m->numbers[m->number];
    status = connect_watch(m, true, end);
    return status ? status : connect_watch(m, false, end);
}

static bool allocate(file_meeting *m)
{
    const size_t processes = (size_t)m->processes;
    m->file_bytes = sizeof(file_record) + processes * COOKIE;
    m->records = calloc(processes, sizeof *m->records);
    m->mine = calloc(1, m->file_bytes);
    m->theirs = calloc(1, m->file_bytes);
    m->met = calloc(processes, sizeof *m->met);
    m->guests = calloc(processes, sizeof *m->guests);
    m->addresses = calloc(processes, sizeof *m->addresses);
    m->numbers = calloc(processes, sizeof *m->numbers);
    m->party.all = calloc(processes, sizeof *m->party.all);
    m->party.processes = m->processes;
    return m->records && m->mine && m->theirs && m->met && m->guests && m->addresses && m->numbers && m->party.all;
}

static void free_meeting(file_meeting *m)
{
    free(m->records);
    free(m->mine);
    free(m->theirs);
    free(m->met);
    free(m->guests);
    free(m->addresses);
    free(m->numbers);
}

ith_status ith_file_meet(const char *path, int ranks, double seconds, tcp_party *out, char *sentence, size_t bytes)
{
    file_meeting m = {.path = path, .seconds = seconds, .sentence = sentence, .bytes = bytes};
    char own[PATH_BYTES];
    if (strlen(path) < 1 || strlen(path) > PATH_BYTES - 32) {
        snprintf(sentence, bytes, "the path of the meeting is empty or too long");
        return ITH_ERR_ARGUMENT;
    }
    ith_status status = find_number(&m);
    if (status)
        return status;
    bool allocated = allocate(&m);
    if (!allocated)
        snprintf(sentence, bytes, "no memory for %d processes", m.processes);
    status = allocated ? run_meeting(&m, ranks) : ITH_ERR_MEMORY;
    name_file(&m, m.number, own);
    unlink(own);
    free_meeting(&m);
    if (!status) {
        *out = m.party;
        return ITH_OK;
    }
    ith_tcp_party_close(&m.party);
    return status;
}
