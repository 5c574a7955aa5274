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

#include <ithaca/transport.h>

#include <stdatomic.h>

#define ITH_COMM_RECORD_BYTES 1024 /* the most that ith_comm_begin_call shows */

#define ITH_COMM_LEFT 2 /* of ith_comm.use: destroyed; calls under way are the last */

struct ith_request {
    int64_t number; /* for the transport */
    bool in_flight;
    const char *what; /* the operation, for sentences */
};

struct ith_comm {
    ith_transport transport;
    void *transport_state;
    ith_context *context; /* of this rank: takes its error sentences. Held until the communicator is freed */
    ith_comm *whole;      /* of the whole group, held by those of its sub-groups; NULL: this one */
    int rank, size;
    int *members;            /* [size]: ranks in the whole group; NULL: this is it */
    int64_t groups;          /* of the whole group: the largest number of a sub-group so far */
    int64_t under_way;       /* requests in flight; in the whole group's communicator those of sub-groups too */
    double timeout_seconds;  /* 0: none */
    int64_t posted;          /* exchanges so far */
    ith_request *requests;   /* [transport.requests]; exchange n has request n % transport.requests */
    ith_transfer *transfers; /* [2][size]: of the collective under way */
    float *gathered;         /* [size][ITH_COMM_RECORD_BYTES]: of the reduction under way */
    void *records;           /* [size][ITH_COMM_RECORD_BYTES]: shown by ith_comm_begin_call */
    bool sharing;            /* between ith_comm_begin_call and ith_comm_end_call, on a transport that shares memory */
    atomic_int holders, use; /* see ith_comm_hold, ith_comm_enter */
    int64_t plans, executions; /* that all ranks have begun together: the same on every rank */
    /* If not NULL: asked while this rank waits, and true once the data under way need not arrive. */
    bool (*unwanted)(void *user);
    void *unwanted_user;
};

/* The caller's hold is given back by ith_comm_destroy, at which the rank leaves the group; plans have their own. The
 * last to give back its hold frees the communicator. */
ith_comm *ith_comm_hold(ith_comm *comm);
void ith_comm_release(ith_comm *comm);

/* Around a call that is collective over comm, which only one thread may be in: ITH_ERR_ARGUMENT with a sentence in
 * `context` if another is, or if the communicator was destroyed. A communicator that is destroyed meanwhile ends the
 * group, and is left when the call ends. comm may be NULL. */
ith_status ith_comm_enter(ith_comm *comm, ith_context *context);
void ith_comm_exit(ith_comm *comm);

/* Whether the group has failed. Cheap; any thread. */
bool ith_comm_failed(const ith_comm *comm);
/* Brings a number to the other ranks, if the transport can; the latest that was brought. Any thread. */
void ith_comm_notify(ith_comm *comm, int64_t number);
int64_t ith_comm_noticed(const ith_comm *comm);

/* Every rank shows a record of at most ITH_COMM_RECORD_BYTES, and all see them: that of rank r is at
 * ith_comm_record(comm, r). Where ranks share memory (ith_comm_shares_memory) a rank may then read and write what the
 * records point at, until it calls ith_comm_end_call. That is called once after each ith_comm_begin_call that
 * succeeded, whatever has failed since; *claim becomes the largest of all ranks. When it returns, or a
 * ith_comm_begin_call has failed, no other rank looks at this rank's memory any more: only then may it be freed. It
 * therefore waits for ranks that are late, also after a failure. */
ith_status ith_comm_begin_call(ith_comm *comm, const void *record, int64_t bytes);
ith_status ith_comm_end_call(ith_comm *comm, float *claim);
bool ith_comm_shares_memory(const ith_comm *comm);
static inline void *ith_comm_record(const ith_comm *comm, int rank)
{
    return (char *)comm->records + (int64_t)rank * ITH_COMM_RECORD_BYTES;
}

/* Every rank brings its own status and all get the same: ITH_OK, or that of the lowest rank that failed, with its
 * sentence. Ranks agree before they act. comm may be NULL. */
ith_status ith_comm_agree(ith_comm *comm, ith_status mine);

#endif
