/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: a rank's view of a group of ranks, on any transport. The operations are described in ithaca/ithaca.h
 * (ith_comm), the contract with transports in ithaca/transport.h.
 *
 * A failure ends the group. Every later operation of the whole group and of all its sub-groups then returns this
 * failure at once, and the error sentence of the rank that failed first is in this rank's context. */
#ifndef ITH_COMM_COMM_H
#define ITH_COMM_COMM_H

#include "../base/context.h"
#include "../base/modules.h"

#include "flight.h"

#include <stdatomic.h>

#define ITH_COMM_RECORD_BYTES 1024 /* size of the largest record that a rank can show in ith_comm_begin_call */

#define ITH_COMM_LEAST_PIECE 16 /* the least number of values that one round of a reduction reduces */

#define ITH_MOST_RANKS (1 << 20) /* the most ranks of a group */

/* An operation that has been posted. */
struct ith_request {
    int64_t number;   /* the transport's number for the request */
    bool in_flight;   /* posted, but neither done nor failed yet */
    const char *what; /* name of the operation, for error sentences */
    int64_t exchange; /* number of exchanges that the rank has posted in this group before */
    int64_t record;   /* number of the operation in the flight record */
};

/* One rank's communicator: the transport's table and state, and memory for all operations. */
struct ith_comm {
    ith_transport transport;
    void *transport_state;
    /* This rank's context, which receives error sentences. Held until the communicator is freed. */
    ith_context *context;
    /* The communicator of all ranks, which each sub-group keeps in memory. NULL: this is that communicator. */
    ith_comm *whole;
    int64_t number; /* number of the sub-group (ith_subgroup.number); 0: the whole group */
    int rank, size;
    /* [size]: the world rank of each rank (its number among all ranks); NULL: the same as its rank in this group */
    int *members;
    int64_t groups;          /* used in the whole group: the largest number of a sub-group so far */
    int64_t in_flight;       /* number of requests in flight; in the whole group, including its sub-groups */
    double timeout_seconds;  /* time limit of a wait; 0: none */
    int64_t posted;          /* number of exchanges posted so far */
    ith_request *requests;   /* [transport.requests]; exchange n has request n % transport.requests */
    ith_transfer *transfers; /* [2][size]: sends and receives of the collective in progress */
    void *gathered;          /* [size][piece] f32: data of the reduction or agreement in progress */
    int64_t piece;           /* number of values that one round of a reduction reduces */
    char *said;              /* [ITH_COMM_RECORD_BYTES]: the error sentence of an agreement */
    void *record;            /* [ITH_COMM_RECORD_BYTES]: this rank's record in ith_comm_begin_call */
    /* the records of all ranks: [size] addresses if one_process, otherwise [size][ITH_COMM_RECORD_BYTES] */
    void *records;
    ith_flight *flight; /* this rank's record, which the whole group and its sub-groups write */
    int64_t *seen;      /* [size]: scratch memory of `post` for counting the peers of an operation */
    char *host;         /* [ITH_PLACE_NAME]: the name of this host, for transports without the function `place` */
    bool several_hosts; /* the ranks of the whole group run on several hosts, which error sentences name */
    bool one_process;   /* all ranks of the group are threads of one process and may use one another's memory */
    /* whether this rank may use other ranks' memory now: from ith_comm_begin_call to ith_comm_end_call */
    bool sharing;
    atomic_int holders; /* number of references (ith_comm_hold) */
    atomic_int use;     /* bits, which comm_life.c names: a call is in progress, the communicator was destroyed */
    /* how many plans were made and how many executions began, the same on every rank */
    int64_t plans, executions;
    /* NULL, or a function that returns true when the data of exchanges need no longer arrive. This rank calls it while
     * it waits. The transport calls it from any thread of the process (ith_operation.unwanted). */
    bool (*unwanted)(void *user);
    void *unwanted_user;
};

/* The communicator of all ranks, to which the group belongs or which it is. */
static inline ith_comm *ith_comm_whole(ith_comm *comm)
{
    return comm->whole ? comm->whole : comm;
}

/* The world rank of a rank of the group: its number among all ranks. */
static inline int ith_comm_world_rank(const ith_comm *comm, int rank)
{
    return comm->members ? comm->members[rank] : rank;
}

/* The bytes that a communicator of `size` ranks holds on a transport with `requests` requests, without the transport's
 * own memory. one_process: all its ranks are threads of one process. part: the communicator is of a sub-group. */
int64_t ith_comm_bytes(int64_t requests, int size, bool one_process, bool part);
/* The bytes that a split of `parent` ranks holds on each of them while it is made, besides the new communicator. */
int64_t ith_comm_split_bytes(int parent);

/* Makes comms[i], with contexts[i] and states[i], for each of `count` ranks of this process. numbers[i]: its rank in
 * the group of `size` ranks; NULL: i. On failure no communicator is left, all states are closed, and the error sentence
 * is in contexts[0]. */
ith_status ith_comm_create_all(ith_context *const *contexts, int count, const ith_transport *transport, void **states,
                               const int *numbers, int size, ith_comm **comms);

/* References keep a communicator in memory. Its creator has one, and each plan and each sub-group has one.
 * ith_comm_hold adds a reference. ith_comm_destroy removes the creator's, after the rank has left the group. When the
 * last one is removed, the transport's state is closed and the communicator is freed. */
ith_comm *ith_comm_hold(ith_comm *comm);
void ith_comm_release(ith_comm *comm);

/* Every call on a plan begins with ith_comm_enter and ends with ith_comm_exit. Only one thread at a time may be
 * between the two. Other threads, and calls after ith_comm_destroy, get ITH_ERR_ARGUMENT with an error sentence in
 * `context`. If the communicator is destroyed during a call, the group ends, and the rank leaves it at ith_comm_exit. A
 * call on a sub-group is a call on the whole group too. comm may be NULL. */
ith_status ith_comm_enter(ith_comm *comm, ith_context *context);
void ith_comm_exit(ith_comm *comm);
/* An operation (ithaca/transport.h) may be a part of a call on a plan, or a call of its own. ith_comm_enter_operation
 * returns whether it is a call of its own, and then begins the call. ith_comm_exit_operation ends the call if
 * `entered`, and returns status. */
bool ith_comm_enter_operation(ith_comm *comm);
ith_status ith_comm_exit_operation(ith_comm *comm, bool entered, ith_status status);
/* Whether this rank has left the group. Then only the transport's `close` may be called. Any thread may call this. */
bool ith_comm_has_left(const ith_comm *comm);
/* Ends the group with ITH_ERR_ARGUMENT, because the operation `what` was called wrongly. comm may be NULL. */
ith_status ith_comm_refuse(ith_comm *comm, const char *what, const char *reason);

/* Where a rank of the group runs. comm may be NULL. */
ith_place ith_comm_place_of(const ith_comm *comm, int rank);
/* Where ranks run, in blocks of consecutive ranks. An axis of U consecutive ranks shares memory if U divides
 * process_ranks, and stays on one host if U divides host_ranks. */
typedef struct ith_blocks {
    /* the largest n for which every n consecutive ranks, counted from the first, are threads of one process */
    int process_ranks;
    /* the largest n for which every n consecutive ranks run on one host; if hosts have different numbers of ranks
     * without a common divisor, the number of all ranks */
    int host_ranks;
} ith_blocks;
/* The blocks of ranks [first, first + count) of the group, as if they were a group. comm may be NULL. */
ith_blocks ith_comm_blocks(const ith_comm *comm, int first, int count);
/* Whether all ranks of the group are threads of one process and may use one another's memory, and whether they or the
 * ranks of the whole group run on several hosts. These functions ask for the place of each rank. The transport's state
 * of a sub-group need not exist yet. */
bool ith_comm_find_one_process(const ith_comm *comm);
bool ith_comm_find_several_hosts(const ith_comm *comm);
/* The failure that a status of a transport's function stands for; ITH_ERR_INTERNAL for a number that is none. */
ith_status ith_failure_of(ith_status status);

/* Writes the name of a rank of the group for error sentences to text, and returns text: "rank 3", or "rank 3 (host b)"
 * if the whole group runs on several hosts. The number is the world rank, which is the same in every group. */
#define ITH_RANK_NAME (ITH_PLACE_NAME + 32)
const char *ith_comm_name_rank(const ith_comm *comm, int rank, char text[ITH_RANK_NAME]);

/* Whether the group's transport takes memory of a device. comm may be NULL. */
static inline bool ith_comm_takes_device(const ith_comm *comm)
{
    return comm && comm->transport.device_memory;
}
/* The region of `bytes` contiguous bytes. */
static inline ith_region ith_region_of(const void *data, int64_t bytes)
{
    return (ith_region){.data = (void *)data, .count = {1, 1}, .bytes = bytes};
}
/* As ith_comm_post, for regions in the memory of a device, if stream is not NULL (ith_operation.stream): transfers of
 * this rank to itself are not among them. Only on transports with device_memory. */
ith_status ith_comm_post_device(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                const ith_transfer *receives, int64_t receive_count, void *stream, ith_request **out);

/* Whether the group has failed, or this rank has left it. Costs little. Any thread may call this. */
bool ith_comm_failed(const ith_comm *comm);
/* ith_comm_notify sends a number to the other ranks, and ith_comm_noticed returns the number that was sent last
 * (ith_transport.notify). On transports without notify the first has no effect and the second returns 0. Any thread may
 * call both. */
void ith_comm_notify(ith_comm *comm, int64_t number);
int64_t ith_comm_noticed(const ith_comm *comm);

/* Opens a call: every rank shows a record of at most ITH_COMM_RECORD_BYTES and then sees the records of all ranks, by
 * ith_comm_record, until it calls ith_comm_end_call. Where ranks share memory (ith_comm_shares_memory), a rank sees the
 * records in the memory of the other ranks, and may use the memory that the records point at, until then.
 *
 * Each successful ith_comm_begin_call is followed by one ith_comm_end_call, whatever has failed between them. *claim
 * becomes its maximum over all ranks. Once ith_comm_end_call has returned, or ith_comm_begin_call has failed, no other
 * rank uses this rank's memory, so it may be freed. For this reason both wait for late ranks, even after a failure. */
ith_status ith_comm_begin_call(ith_comm *comm, const void *record, int64_t bytes);
/* Says before the end of the call that this rank no longer uses the memory of other ranks, nor sees their records. */
void ith_comm_unshare(ith_comm *comm);
ith_status ith_comm_end_call(ith_comm *comm, float *claim);
bool ith_comm_shares_memory(const ith_comm *comm);
static inline const void *ith_comm_record(const ith_comm *comm, int rank)
{
    if (comm->one_process)
        return ((void *const *)comm->records)[rank];
    return (const char *)comm->records + (int64_t)rank * ITH_COMM_RECORD_BYTES;
}

/* Returns the same status on all ranks: ITH_OK, or the status and error sentence of the lowest rank that failed. mine:
 * the status of this rank. Ranks agree in this way before they act. comm may be NULL. */
ith_status ith_comm_agree(ith_comm *comm, ith_status mine);

/* The modules that contain transports. Each exports a table of type ith_transport_module. */
extern ith_module_kind ith_transport_modules;

#endif
