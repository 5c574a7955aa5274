/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections between the processes of a group: one TCP connection between each two processes. They carry short
 * messages from any thread, and they show the death of a process within milliseconds, because the system closes the
 * connections of a process that dies.
 *
 *     ith_watch_address mine, *all;
 *     ith_watch *watch = ith_watch_listen(&mine, sentence, bytes);
 *     ... all [processes]: `mine` of every process, gathered by other means ...
 *     if (ith_watch_connect(watch, all, process, processes, &(ith_watch_patience){30}, sentence, bytes)) ...
 *     ith_watch_send(watch, 2, "hello", 6, true);
 *     while ((event = ith_watch_receive(watch, &from, &data, &size)) != ITH_WATCH_NOTHING) ...
 *     ith_watch_close(watch, false);
 */
#ifndef ITH_COMM_WATCH_H
#define ITH_COMM_WATCH_H

#include <ithaca/ithaca.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ITH_WATCH_BYTES 1024 /* size of the longest message */
#define ITH_WATCH_NAME 64
#define ITH_WATCH_INTERFACES 16
#define ITH_WATCH_COOKIE 16

typedef struct ith_watch ith_watch;

/* An address of an interface: 4 or 16 bytes in network order. */
typedef struct ith_watch_interface {
    uint8_t ipv6, bytes[16];
} ith_watch_interface;

/* The host of a process and the ways to reach the process. Plain data: processes exchange it as bytes. */
typedef struct ith_watch_address {
    char name[ITH_WATCH_NAME]; /* of the host */
    char boot[40];             /* identifies the boot of the host's system; "": unknown */
    uint64_t network, uts;     /* inodes of the process's namespaces; 0: unknown */
    int64_t pid;
    int64_t number;                   /* of the process, for sentences; 0 until the caller sets it */
    uint8_t cookie[ITH_WATCH_COOKIE]; /* random: connections that do not know it are refused */
    uint16_t port, interfaces;        /* port: in host order */
    ith_watch_interface interface[ITH_WATCH_INTERFACES];
} ith_watch_address;

/* Whether two processes count as processes of one host: the same boot, the same network and UTS namespaces, the same
 * name. So containers with separate networks count as separate hosts. */
bool ith_watch_same_host(const ith_watch_address *a, const ith_watch_address *b);

typedef enum ith_watch_life { ITH_WATCH_RUNS, ITH_WATCH_STOPPED, ITH_WATCH_ENDED } ith_watch_life;

/* The state of the process of this host with a pid: stopped by a signal (SIGSTOP), ended, or none of these as far as is
 * known. */
ith_watch_life ith_watch_find_life(int64_t pid);

/* Opens the port at which this process waits for others, and fills in its address. Returns NULL on failure, with a
 * sentence. */
ith_watch *ith_watch_listen(ith_watch_address *mine, char *sentence, size_t bytes);
/* How long ith_watch_connect waits. look: NULL, or called every 20 ms at least; it ends the attempt by returning false
 * with a sentence. */
typedef struct ith_watch_patience {
    double seconds;
    bool (*look)(void *user, char *sentence, size_t bytes);
    void *user;
} ith_watch_patience;

/* Connects this process, number `process`, with all others, and closes the port. Collective: returns ITH_OK when all
 * processes have all their connections. Otherwise the sentence names the process that died, failed (ITH_ERR_ABORTED) or
 * did not answer in time (ITH_ERR_TIMEOUT) by `number` of its address, and its host. All processes that give up have
 * the sentence of the first one. So a process that gives up returns only when the others have that sentence, or when
 * both its limit and a second have passed. The caller then closes the watch. */
ith_status ith_watch_connect(ith_watch *watch, const ith_watch_address *all, int process, int processes,
                             const ith_watch_patience *patience, char *sentence, size_t bytes);
/* Starts a thread that sends a sign on every connection, several times in `seconds`, until the watch is closed. The
 * signs show the other processes that this process runs, whatever its other threads do. A process that is stopped, a
 * host that hangs and a link that is cut are silent. To be called once, on a watch that is connected. Returns false if
 * the thread could not be started. */
bool ith_watch_begin_pulse(ith_watch *watch, double seconds);
/* The seconds since ith_watch_receive last read something from a process; 0 if the process has ended or is this one.
 * With pulses this is the time for which the process is silent, if ith_watch_receive has just returned
 * ITH_WATCH_NOTHING. */
double ith_watch_silence(const ith_watch *watch, int process);
/* Says goodbye to the other processes, so that they do not take this process for dead, and frees the watch. Messages
 * that have been sent arrive unless the network has failed. hasty: waits at most 0.1 s for the other processes to say
 * goodbye, otherwise 1 s; and 0.5 s more for their systems to take all messages. Accepts NULL. */
void ith_watch_close(ith_watch *watch, bool hasty);

/* Sends a message of 1 to ITH_WATCH_BYTES bytes to another process. It arrives whole and in order. Never blocks. Any
 * thread. If earlier messages still wait for room in the connection, a droppable message is dropped, and others are
 * queued. Returns false if the message was neither sent nor queued. A message to a process that has ended, or to this
 * process, is dropped, and the result is true. */
bool ith_watch_send(ith_watch *watch, int process, const void *data, size_t bytes, bool droppable);

/* Whether a process has closed its connection, or has died. ith_watch_receive may return this event later, after
 * messages. Any thread. */
bool ith_watch_has_closed(const ith_watch *watch, int process);

/* The events of a watch. The comments say what ith_watch_receive sets. */
typedef enum ith_watch_event {
    ITH_WATCH_NOTHING = 0,
    ITH_WATCH_MESSAGE, /* *data, *bytes: the message, valid until the next call */
    ITH_WATCH_BYE,     /* the process has closed its watch; nothing more comes from it */
    ITH_WATCH_LOST,    /* the process died, or the connection failed, *data: the reason, a string */
    /* The process gave up while it was being connected; *data: the sentence of its ith_watch_connect, a string. Nothing
     * more comes from it. */
    ITH_WATCH_FAILED,
    /* The process is not connected yet, though this one is; *data: the number of a process for which it waits, an
     * int32_t, -1 if that is unknown. */
    ITH_WATCH_AWAITS
} ith_watch_event;

/* Takes the next event, and sets *process to the process that it comes from. Also sends messages that wait in queues.
 * Never blocks. One thread at a time. */
ith_watch_event ith_watch_receive(ith_watch *watch, int *process, const void **data, size_t *bytes);
/* Sleeps until an event may have arrived, ith_watch_wake is called, or `seconds` have passed. Any thread. */
void ith_watch_rest(ith_watch *watch, double seconds);
/* Wakes the threads of this process that rest. Any thread, and signal handlers. */
void ith_watch_wake(ith_watch *watch);

/* The time of a monotonic clock in seconds and in nanoseconds. It begins anywhere. */
double ith_watch_now(void);
int64_t ith_watch_now_ns(void);

#endif
