/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: a rank's end of a group, on any transport. Public half: ith_comm in ithaca/ithaca.h and
 * ithaca/transport.h, which has the contract with the transport and the operations.
 *
 * A failure ends the group: every later operation of this group, of the whole group and of all its sub-groups returns
 * it at once, with the sentence of the rank that failed first in this rank's context.
 */
#ifndef ITH_COMM_COMM_H
#define ITH_COMM_COMM_H

#include "../base/context.h"
#include "../base/modules.h"

#include <ithaca/transport.h>

#include <stdatomic.h>

#define ITH_COMM_RECORD_BYTES 1024 /* the most that ith_comm_begin_call shows */

#define ITH_COMM_LEFT 2 /* a bit of ith_comm.use: the communicator is destroyed, and a call in progress is its last */

struct ith_request {
    int64_t number;   /* the transport's number of it */
    bool in_flight;   /* posted, and neither done nor failed */
    const char *what; /* the name of its operation, for sentences */
};

struct ith_comm {
    ith_transport transport;
    void *transport_state;
    ith_context *context; /* of this rank: takes its error sentences. Held until the communicator is freed */
    ith_comm *whole;      /* the communicator of the whole group, which a sub-group's holds; NULL: this is it */
    int rank, size;
    int *members;            /* [size]: world ranks; NULL: the same as the ranks of this group */
    int64_t groups;          /* in the whole group's communicator: the largest number of a sub-group so far */
    int64_t in_flight;       /* requests; in the whole group's communicator the requests of sub-groups too */
    double timeout_seconds;  /* 0: none */
    int64_t posted;          /* exchanges so far */
    ith_request *requests;   /* [transport.requests]; exchange n has request n % transport.requests */
    ith_transfer *transfers; /* [2][size]: of the collective in progress */
    void *gathered;          /* [size][ITH_COMM_RECORD_BYTES]: of the reduction or agreement in progress */
    void *records;           /* [size][ITH_COMM_RECORD_BYTES]: shown by ith_comm_begin_call */
    bool sharing;            /* between ith_comm_begin_call and ith_comm_end_call, on a transport that shares memory */
    atomic_int holders, use; /* see ith_comm_hold, ith_comm_enter */
    int64_t plans, executions; /* numbers of plans and executions so far: the same on every rank */
    /* If not NULL: called while this rank waits; true once the data of exchanges need not arrive. */
    bool (*unwanted)(void *user);
    void *unwanted_user;
};

/* Holds keep a communicator in memory. Its creator has one, which ith_comm_destroy releases after the rank has left the
 * group. Plans and sub-groups have one each. The last release closes the transport's state and frees the communicator.
 */
ith_comm *ith_comm_hold(ith_comm *comm);
void ith_comm_release(ith_comm *comm);

/* Every collective call begins with ith_comm_enter and ends with ith_comm_exit. Only one thread at a time may be
 * between the two: the others get ITH_ERR_ARGUMENT with a sentence in `context`, and so do all after ith_comm_destroy.
 * If the communicator is destroyed during a call, the group ends, and the rank leaves it at ith_comm_exit. comm may be
 * NULL. */
ith_status ith_comm_enter(ith_comm *comm, ith_context *context);
void ith_comm_exit(ith_comm *comm);

/* Whether the group has failed. Cheap; any thread. */
bool ith_comm_failed(const ith_comm *comm);
/* The number that ranks notify one another of (ith_transport.notify). Without effect, and 0, on transports without it.
 * Any thread. */
void ith_comm_notify(ith_comm *comm, int64_t number);
int64_t ith_comm_noticed(const ith_comm *comm);

/* Opens a call: every rank shows a record of at most ITH_COMM_RECORD_BYTES and sees the records of all,
 * ith_comm_record(comm, rank). Where ranks share memory (ith_comm_shares_memory), a rank may use the memory that the
 * records point at until it calls ith_comm_end_call.
 * Each successful ith_comm_begin_call is followed by one ith_comm_end_call, whatever has failed between them; *claim
 * becomes the maximum over all ranks. Once ith_comm_end_call has returned, or ith_comm_begin_call has failed, no other
 * rank uses this rank's memory, which may be freed. To this end both wait for late ranks, even after a failure. */
ith_status ith_comm_begin_call(ith_comm *comm, const void *record, int64_t bytes);
ith_status ith_comm_end_call(ith_comm *comm, float *claim);
bool ith_comm_shares_memory(const ith_comm *comm);
static inline void *ith_comm_record(const ith_comm *comm, int rank)
{
    return (char *)comm->records + (int64_t)rank * ITH_COMM_RECORD_BYTES;
}

/* Every rank brings a status, and all ranks get the same one: ITH_OK, or the status and sentence of the lowest rank
 * that failed. Ranks agree before they act. comm may be NULL. */
ith_status ith_comm_agree(ith_comm *comm, ith_status mine);

/* Modules with transports: their tables are ith_transport_module. */
extern ith_module_kind ith_transport_modules;

#endif
