/* SPDX-License-Identifier: Apache-2.0 */
/* Flight records (flight.h), and the file that ith_flight_save makes of them: JSON lines, one for the process, one for
 * each rank, one for each of its operations. Times in the file are seconds since 1970. */
#include "flight.h"

#include "../base/clock.h"
#include "../base/control.h"
#include "../base/host_name.h"
#include "../base/observer.h"
#include "../base/replace_file.h"
#include "../base/size.h"
#include "../base/spin_lock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPERATIONS 256 /* operations that a record keeps; a newer one replaces the oldest */

/* The flight record of one rank. */
struct ith_flight {
    ith_kept kept; /* the list of the family, sorted by rank */
    bool in_use;   /* a communicator writes the record */
    int rank, size;
    ith_place place;
    ith_activity activity;
    _Atomic double alive; /* the time of the last sign of life */
    atomic_flag writing;  /* protects the members below, which another thread may save while the rank writes them */
    ith_status status;
    char sentence[ITH_ERROR_BYTES];
    int64_t posted;                              /* the number of operations so far */
    ith_flight_operation operations[OPERATIONS]; /* operation n lies at n % OPERATIONS */
};

/* ---- Opening and closing --------------------------------------------------------------------------------------- */

/* Finds an element of the list that a new record replaces: any element if no record is in use, otherwise an unused one
 * of the same rank. Returns the address of the pointer to it; NULL if there is none. */
static ith_kept **find_unused(ith_kept **head, int rank)
{
    bool in_use = false;
    for (const ith_kept *kept = *head; kept; kept = kept->next)
        in_use |= ((const ith_flight *)kept)->in_use;
    for (ith_kept **at = head; *at; at = &(*at)->next) {
        const ith_flight *flight = (const ith_flight *)*at;
        if (!flight->in_use && (!in_use || flight->rank == rank))
            return at;
    }
    return NULL;
}

ith_flight *ith_flight_open(ith_context *context, int rank, int size)
{
    ith_flight *flight = ith_context_keep(context, sizeof *flight, "the flight record of a rank");
    if (!flight)
        return NULL;
    flight->in_use = true;
    flight->rank = rank, flight->size = size;
    flight->place = (ith_place)ITH_PLACE_INIT;
    atomic_flag_clear(&flight->writing);
    atomic_flag_clear(&flight->activity.writing);
    atomic_init(&flight->alive, ith_clock_seconds());
    ith_kept **head = ith_context_lock_flights(context), **at = NULL;
    while ((at = find_unused(head, rank)) != NULL) {
        ith_kept *old = *at;
        *at = old->next;
        ith_context_drop(context, old);
    }
    at = head;
    while (*at && ((const ith_flight *)*at)->rank <= rank)
        at = &(*at)->next;
    flight->kept.next = *at;
    *at = &flight->kept;
    ith_context_unlock_flights(context);
    ith_context_set_activity(context, &flight->activity);
    return flight;
}

void ith_flight_close(ith_flight *flight, ith_context *context)
{
    if (!flight)
        return;
    if (ith_context_activity(context) == &flight->activity)
        ith_context_set_activity(context, NULL);
    ith_context_lock_flights(context);
    flight->in_use = false;
    ith_context_unlock_flights(context);
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

void ith_flight_set_place(ith_flight *flight, const ith_place *place)
{
    ith_spin_lock(&flight->writing);
    flight->place = *place;
    ith_spin_unlock(&flight->writing);
}

int64_t ith_flight_post(ith_flight *flight, const ith_flight_operation *operation)
{
    double now = ith_clock_seconds();
    ith_spin_lock(&flight->writing);
    int64_t number = flight->status ? -1 : flight->posted++;
    if (number >= 0) {
        ith_flight_operation *slot = &flight->operations[number % OPERATIONS];
        *slot = *operation;
        slot->state = ITH_FLIGHT_POSTED;
        slot->posted = slot->ended = now;
    }
    ith_spin_unlock(&flight->writing);
    return number;
}

void ith_flight_end(ith_flight *flight, int64_t number, ith_flight_state state)
{
    double now = ith_clock_seconds();
    ith_spin_lock(&flight->writing);
    if (number >= 0 && number > flight->posted - 1 - OPERATIONS) { /* otherwise a newer operation has replaced it */
        flight->operations[number % OPERATIONS].state = state;
        flight->operations[number % OPERATIONS].ended = now;
    }
    ith_spin_unlock(&flight->writing);
}

void ith_flight_fail(ith_flight *flight, ith_status status, const char *sentence)
{
    ith_spin_lock(&flight->writing);
    if (!flight->status) {
        flight->status = status;
        snprintf(flight->sentence, sizeof flight->sentence, "%s", sentence);
    }
    ith_spin_unlock(&flight->writing);
}

void ith_flight_alive(ith_flight *flight)
{
    atomic_store_explicit(&flight->alive, ith_clock_seconds(), memory_order_relaxed);
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

/* The arguments of the functions that write the file. */
typedef struct flight_file {
    ith_context *context;
    FILE *file;
    double since_1970; /* seconds from 1970 to the zero of ith_clock_seconds */
} flight_file;

/* The seconds from 1970 to the zero of ith_clock_seconds. Reads the system's clock a few times between two readings of
 * the other clock, and takes the reading for which the two readings of the other clock are nearest to each other. */
static double seconds_from_1970(void)
{
    double fastest = INFINITY, seconds = 0;
    for (int i = 0; i < 5; i++) {
        struct timespec time;
        double before = ith_clock_seconds();
        clock_gettime(CLOCK_REALTIME, &time);
        double after = ith_clock_seconds();
        if (after - before >= fastest)
            continue;
        fastest = after - before;
        seconds = (double)time.tv_sec - (before + after) / 2 + 1e-9 * (double)time.tv_nsec;
    }
    return seconds;
}

/* Writes a key and a text. A byte that is no UTF-8, such as one of a file's name, becomes a question mark. */
static void write_text(const flight_file *f, const char *key, const char *text)
{
    fprintf(f->file, ",\"%s\":\"", key);
    for (size_t bytes; *text; text += bytes) {
        bytes = ith_utf8_bytes(text);
        if (!bytes)
            fputc('?', f->file);
        else if (*text == '"' || *text == '\\')
            fprintf(f->file, "\\%c", *text);
        else if (bytes == 1 && *text < 0x20)
            fprintf(f->file, "\\u%04x", (unsigned)*text);
        else
            fwrite(text, 1, bytes, f->file);
        bytes += !bytes;
    }
    fputc('"', f->file);
}

/* Writes a key and a time in seconds since 1970. It uses integers only, because printf's decimal point depends on the
 * locale. */
static void write_time(const flight_file *f, const char *key, double seconds)
{
    long long micros = llround((seconds + f->since_1970) * 1e6);
    fprintf(f->file, ",\"%s\":%lld.%06lld", key, micros / 1000000, micros % 1000000);
}

static void write_operation(const flight_file *f, int rank, const ith_flight_operation *o)
{
    static const char *const states[] = {"posted", "done", "failed"};
    fprintf(f->file, "{\"rank\":%d,\"group\":%lld,\"group_size\":%d,\"group_first\":%d,\"number\":%lld", rank,
            (long long)o->group, o->group_size, o->group_first, (long long)o->number);
    write_text(f, "name", o->name);
    write_text(f, "state", states[o->state]);
    fprintf(f->file, ",\"sends\":%lld,\"receives\":%lld,\"peer_count\":%d,\"peers\":[", (long long)o->bytes[0],
            (long long)o->bytes[1], o->peer_count);
    for (int i = 0; i < o->peer_count && i < ITH_FLIGHT_PEERS; i++)
        fprintf(f->file, "%s%d", i ? "," : "", o->peers[i]);
    fputc(']', f->file);
    write_time(f, "posted", o->posted);
    if (o->state != ITH_FLIGHT_POSTED)
        write_time(f, "ended", o->ended);
    fprintf(f->file, "}\n");
}

/* Writes a rank's line and the lines of its operations. The rank may go on meanwhile: each operation is copied before
 * it is written. */
static void write_rank(const flight_file *f, ith_flight *flight)
{
    char activity[ITH_ACTIVITY_BYTES], sentence[ITH_ERROR_BYTES];
    ith_activity_read(&flight->activity, activity);
    ith_spin_lock(&flight->writing);
    ith_place place = flight->place;
    ith_status status = flight->status;
    int64_t posted = flight->posted;
    memcpy(sentence, flight->sentence, sizeof sentence);
    ith_spin_unlock(&flight->writing);
    fprintf(f->file, "{\"rank\":%d,\"ranks\":%d", flight->rank, flight->size);
    write_text(f, "host", place.name);
    fprintf(f->file, ",\"process\":%lld,\"operations\":%lld", (long long)place.process, (long long)posted);
    write_text(f, "doing", activity);
    fprintf(f->file, ",\"part\":%lld,\"parts\":%lld", (long long)atomic_load(&flight->activity.part),
            (long long)atomic_load(&flight->activity.parts));
    write_time(f, "alive", atomic_load(&flight->alive));
    write_text(f, "status", ith_status_name(status));
    write_text(f, "failure", sentence);
    fprintf(f->file, "}\n");
    for (int64_t n = ith_max64(posted - OPERATIONS, 0); n < posted; n++) {
        ith_spin_lock(&flight->writing);
        ith_flight_operation operation = flight->operations[n % OPERATIONS];
        bool replaced = flight->posted > n + OPERATIONS;
        ith_spin_unlock(&flight->writing);
        if (!replaced)
            write_operation(f, flight->rank, &operation);
    }
}

static ith_status write_flights(FILE *file, void *user)
{
    flight_file *f = user;
    char host[ITH_PLACE_NAME];
    f->file = file;
    f->since_1970 = seconds_from_1970();
    ith_host_name(host, sizeof host);
    fprintf(file, "{\"library\":\"ithaca %s\"", ith_version());
    write_text(f, "host", host);
    fprintf(file, ",\"pid\":%lld", (long long)getpid());
    write_time(f, "saved", ith_clock_seconds());
    fprintf(file, "}\n");
    ith_kept **head = ith_context_lock_flights(f->context);
    for (ith_kept *kept = *head; kept; kept = kept->next)
        write_rank(f, (ith_flight *)kept);
    ith_context_unlock_flights(f->context);
    return ITH_OK;
}

ith_status ith_flight_save(ith_context *context, const char *path)
{
    if (!context)
        return ith_need(NULL, context, "context");
    if (!path)
        return ith_need(context, path, "path");
    flight_file f = {.context = context};
    return ith_replace_file(context, path, write_flights, &f);
}
