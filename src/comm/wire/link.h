/* SPDX-License-Identifier: Apache-2.0 */
/* A link connects the processes of a group. wire.h makes a transport of it, for any number of ranks in each process.
 *
 * A link has two channels between each two processes:
 *   - Datagrams carry the data of exchanges. They may be slow, and need calls of this process to make progress.
 *   - Messages are short and carry control: signs of life, notices, failures. Any thread sends them. They never wait
 *     behind data. This channel also shows the death of a process. watch.h implements it over TCP.
 *
 * Promises of a link
 *   Order      Datagrams from one process arrive whole and in the order in which they were sent; so do messages.
 *              There is no order between the two channels, nor between different processes.
 *   Buffers    A datagram is written into a buffer of the link (`reserve`) and sent from there (`send`). So a link
 *              never sees the caller's memory, and may keep its buffers for as long as it likes after a failure. The
 *              number of buffers is fixed. At least two buffers are reserved for each receiving process, so that a
 *              process that takes nothing does not stop datagrams to the others. Only the creation of a link
 *              allocates memory.
 *   Progress   Datagrams move while both processes call any function. Most datagrams are short (ITH_LINK_SHORT).
 *   Blocking   Only `rest` and `close` block.
 *   Failure    After a failure the transport no longer calls reserve, send, settled and receive: another process may be
 *              dead, and a link over MPI then must not call MPI. The channel of messages works until `close`.
 *   Threads    The transport calls reserve, send, settled, receive, hear and close while it holds its lock, so one
 *              thread at a time. Any thread calls tell, rest and wake, with or without that lock.
 */
#ifndef ITH_COMM_LINK_H
#define ITH_COMM_LINK_H

#include "watch.h"

#include <ithaca/transport.h>

#define ITH_LINK_BYTES 131072 /* size of the longest datagram */
/* Size of the longest datagram to another host. With the header of an MPI it has at most 64 KiB. Open MPI sends a
 * message of this length over TCP at once. Before it sends the rest of a longer message, it asks the receiver, and the
 * question and its answer wait behind the data that are on their way in both directions. */
#define ITH_LINK_FAR_BYTES 65280
#define ITH_LINK_SHORT 4352 /* longest datagram of a small exchange; datagrams of large exchanges are longer */

/* A process of the group, and where it runs. Processes of one host follow one another, in the order of hosts. */
typedef struct ith_link_process {
    int64_t host; /* number of its host, from 0 */
    int64_t pid;
    int first_rank, ranks;     /* ranks: 1 or more; first_rank: the number of ranks of all processes before this one */
    char name[ITH_PLACE_NAME]; /* of the host */
} ith_link_process;

/* A link, as this process sees it: the processes, and the functions that the head of this file describes. */
typedef struct ith_link {
    void *self;                  /* the first argument of each function */
    const char *name;            /* of the transport, for people */
    int process, processes;      /* number of this process; number of all */
    const ith_link_process *all; /* [processes]; valid until `close` returns */

    /* Returns a free buffer of at least `bytes` (1 to ITH_LINK_BYTES) bytes for the next datagram to another process,
     * aligned to 64 bytes; NULL if none is free now. The buffer is filled and given to `send` before any other function
     * is called; or it is not used, and the next call of `reserve` may return it again. */
    void *(*reserve)(void *self, int process, int64_t bytes);
    /* Sends the first `bytes` bytes of the buffer that `reserve` returned last, to the process of that call. Errors
     * show in `receive`. */
    void (*send)(void *self, int process, int64_t bytes);
    /* The number of datagrams to the process, counted from its first, that arrive without further calls of this
     * process. Cheap: it is called in every wait, and may make progress. */
    int64_t (*settled)(void *self, int process);
    /* Takes the next datagram that has arrived: sets *process and *data and returns its bytes. The data is valid until
     * the next call of `receive`. Returns 0 if there is none; -1 if the link has failed, with the reason as a string in
     * *data. Fair among processes. */
    int64_t (*receive)(void *self, int *process, const void **data);

    /* As ith_watch_send: sends a message of 1 to ITH_WATCH_BYTES bytes. */
    bool (*tell)(void *self, int process, const void *data, size_t bytes, bool droppable);
    /* As ith_watch_receive: takes the next event. The data is valid until the next call of `hear`. ITH_WATCH_LOST
     * follows all messages of the process. Called very often, so it may look at the connections only every millisecond.
     */
    ith_watch_event (*hear)(void *self, int *process, const void **data, size_t *bytes);

    /* Sleeps until a datagram, an event or a free buffer may be there, `wake` is called, or `seconds` have passed. A
     * link that cannot see datagrams in its sleep returns after a short nap of at most a millisecond. It chooses the
     * length; naps grow while `receive` returns nothing. A `wake` since the last rest of this thread ends the rest at
     * once. */
    void (*rest)(void *self, double seconds);
    /* Ends a rest that is in progress, or the next one. Cheap. */
    void (*wake)(void *self);
    /* Frees the link. failed: the group has failed, so it makes no call that may wait for other processes. Otherwise it
     * may wait for them; every datagram that another process needs is settled by then. */
    void (*close)(void *self, bool failed);
} ith_link;

#endif
