/* SPDX-License-Identifier: Apache-2.0 */
/* The state of control connections, for the files of watch.h. */
#ifndef ITH_COMM_WATCH_STATE_H
#define ITH_COMM_WATCH_STATE_H

#include "watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

/* The sizes of buffers. */
enum {
    WATCH_QUEUE = 16384, /* bytes of the messages that wait for room in a connection */
    WATCH_INPUT = 4096,  /* bytes that one read takes: several messages */
    WATCH_READY = 16     /* connections with input that the system names at once */
};

/* Kinds of messages on a connection. CONNECTED and FAILED belong to ith_watch_connect: the process has all its
 * connections, or has given up, with a watch_failure. AWAITS shows that a process which is still being connected runs,
 * and is the number of a process for which it waits (int32_t; -1: unknown). PULSE has no bytes, and shows that the
 * process runs. */
enum {
    WATCH_MESSAGE = 0x4d31,
    WATCH_BYE = 0x4d32,
    WATCH_CONNECTED = 0x4d33,
    WATCH_FAILED = 0x4d34,
    WATCH_PULSE = 0x4d35,
    WATCH_AWAITS = 0x4d36
};

/* The head of each message on a connection. */
typedef struct watch_head {
    uint16_t kind, bytes; /* bytes: of the message behind the head */
} watch_head;

/* Why a process has given up. */
typedef struct watch_failure {
    int32_t blamed;                                   /* the process that is to blame; -1: unknown */
    char sentence[ITH_WATCH_BYTES - sizeof(int32_t)]; /* ends with a zero, where the message ends too */
} watch_failure;
_Static_assert(sizeof(watch_failure) == ITH_WATCH_BYTES, "a failure is longer than a message may be");

/* The connection to one other process. */
typedef struct watch_peer {
    int socket;           /* -1: there is no connection; always -1 for this process itself */
    atomic_bool ended;    /* the process has ended, or its connection */
    atomic_bool deaf;     /* a message could not be sent: no more are sent */
    pthread_mutex_t lock; /* protects the queue */
    size_t queued;        /* bytes in the queue */
    char queue[WATCH_QUEUE];
    /* The input belongs to the thread that receives. Unread bytes: begin to end. */
    size_t begin, end;
    char input[WATCH_INPUT];
    int64_t read_ns;    /* the last time at which bytes were read */
    const char *reason; /* NULL, or the reason why nothing more can be read */
} watch_peer;

/* The thread that sends the pulses of this process. The lock protects `ended`. */
typedef struct watch_pulse {
    bool started, ended;
    double seconds; /* between two pulses */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
} watch_pulse;

/* The control connections of this process. */
struct ith_watch {
    ith_watch_address mine;
    int process, processes;
    int listener, epoll, wake; /* descriptors; -1: none. wake: an eventfd, readable after ith_watch_wake */
    watch_peer *peers;         /* [processes] */
    atomic_int queues;         /* number of queues that are not empty */
    watch_pulse pulse;
    /* The events that epoll named last, and the peer whose input is being read. */
    struct epoll_event ready[WATCH_READY];
    int ready_count, ready_next;
    watch_peer *current;
    _Alignas(16) char message[ITH_WATCH_BYTES];
};

/* Sends a message of a kind, or queues it, or drops it if that is allowed. Returns false if the queue is too full. */
bool ith_watch_put(ith_watch *w, watch_peer *peer, uint16_t kind, const void *data, size_t bytes, bool droppable);
/* Sends the messages of a queue as far as the connection has room. The lock of the peer is held. */
void ith_watch_flush_queue(ith_watch *w, watch_peer *peer);
/* The same for all queues, of which no lock is held. */
void ith_watch_flush(ith_watch *w);
/* Ends the thread of the pulses, if there is one. */
void ith_watch_end_pulse(ith_watch *w);

#endif
