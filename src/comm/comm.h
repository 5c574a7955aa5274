/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's contract: what a transport must do. Public half: ith_comm in ithaca/ithaca.h.
 *
 * Operations are posted and then tested or waited for; a posted buffer is left alone until its request is done.
 * Requests come from a fixed pool of the communicator: posting allocates nothing. The oldest request in flight and the
 * newest may be at most ITH_COMM_REQUESTS operations apart.
 * Operations on one communicator are posted in the same order by every rank. What both ends have posted gets done
 * whatever they do afterwards: a wait never depends on a peer's waiting for the same operation.
 * A wait ends in one of three ways: done, timed out (ITH_ERR_TIMEOUT), or aborted by some rank, with that rank's status
 * and, in this rank's context, its sentence. After the last two the communicator is dead, with all that it was split
 * from or into: everything that is posted or waited for later fails in the same way at once. A rank that has seen a
 * failure may free whatever it had posted; what it shares, only after its unshare. Wrong arguments, blocks that do not
 * fit their counterpart, operations that differ between ranks, and a rank that leaves while another waits for it, or
 * while it shares, are failures of all ranks.
 */
#ifndef ITH_COMM_COMM_H
#define ITH_COMM_COMM_H

#include "../base/context.h"

#include <stdatomic.h>

#define ITH_COMM_REQUESTS 16
#define ITH_COMM_RECORD_BYTES 1024 /* the most that ith_comm_begin_call brings */

/* count[0] x count[1] runs of `bytes` bytes; run (i, j) starts at data + i * stride[0] + j * stride[1] (in bytes). */
typedef struct ith_region {
    void *data;
    int64_t count[2], stride[2], bytes;
} ith_region;

/* One block on its way to or from a peer (itself included). Within an exchange the i-th block that a sends to b is the
 * i-th that b receives from a; the two must hold equally many bytes in all, but may be laid out differently. */
typedef struct ith_transfer {
    int peer;
    ith_region region;
} ith_transfer;

typedef enum ith_reduce { ITH_REDUCE_SUM, ITH_REDUCE_MAX } ith_reduce;

typedef struct ith_request ith_request; /* owned by its communicator */
typedef struct ith_comm_ops ith_comm_ops;

struct ith_comm {
    const ith_comm_ops *ops;
    ith_context *context; /* of this rank: takes its error sentences. Held until the communicator is freed */
    int rank, size;
    double timeout_seconds;    /* 0: none */
    int64_t exchanged_bytes;   /* posted so far by `exchange` from this rank to others */
    atomic_int holders, state; /* see ith_comm_hold, ith_comm_enter */
    int64_t plans, executions; /* that all ranks have begun together: the same on every rank */
    void *records;             /* [size][ITH_COMM_RECORD_BYTES]: what ith_comm_begin_call brings */
    const atomic_bool *over;   /* the group has ended */
    /* What a rank wants to end, for the other ranks to see while they compute; one for all ranks that share memory. Its
     * meaning is the plan's. */
    _Atomic int64_t *stop;
    /* If not NULL: while it is true, what this rank would carry of an exchange may stay where it is. */
    const atomic_bool *discard;
};

struct ith_comm_ops {
    const char *name;
    /* All-to-all, neighbour shift and everything between. The transfer arrays are read until the request is done. */
    ith_status (*exchange)(ith_comm *comm, const ith_transfer *sends, int send_count, const ith_transfer *receives,
                           int receive_count, ith_request **out);
    /* values[i] over all ranks, in rank order, the same bits on every rank. */
    ith_status (*allreduce)(ith_comm *comm, float *values, int64_t count, ith_reduce operation, ith_request **out);
    /* all[r * bytes] = mine of rank r. */
    ith_status (*allgather)(ith_comm *comm, const void *mine, int64_t bytes, void *all, ith_request **out);
    ith_status (*broadcast)(ith_comm *comm, void *data, int64_t bytes, int root, ith_request **out);
    ith_status (*barrier)(ith_comm *comm, ith_request **out);
    /* Never blocks. *done is true once, and the request is then gone. */
    ith_status (*test)(ith_comm *comm, ith_request **request, bool *done);
    /* Until done, at most comm->timeout_seconds. The request is gone whatever happens. */
    ith_status (*wait)(ith_comm *comm, ith_request **request);
    /* Ranks that lie in one process look at one another's memory; both NULL where they cannot.
     * share: collective, waits until all ranks have come. cards + r * bytes becomes what rank r brought as `mine`; from
     * then on, until this rank's unshare, it may read and write what the cards point at, as the ranks have agreed.
     * Other operations may be posted and waited for meanwhile, and other groups share; a group shares once at a time.
     * unshare: collective, once after each share that succeeded, also after another operation has failed. From its call
     * on this rank looks at nothing; it returns when no rank looks at this rank's memory any more, also when it fails
     * (late ones end the group with ITH_ERR_TIMEOUT, and are waited for all the same): only then may that memory be
     * freed. A share that fails needs no unshare, and nobody looks at this rank's memory when it returns. The values
     * become the largest of all ranks, as in an all-reduce. */
    ith_status (*share)(ith_comm *comm, const void *mine, int64_t bytes, void *cards);
    ith_status (*unshare)(ith_comm *comm, float *values, int64_t count);
    void (*abort)(ith_comm *comm, ith_status status, const char *sentence);
    /* Ranks with the same colour form a new group, ordered by key, then by rank, with this one's time limit.
     * Collective, and waits. */
    ith_status (*split)(ith_comm *comm, int colour, int key, ith_comm **out);
    /* From now on the communicator does not count when others ask whether the rank is still there: it belongs to a plan
     * on another. */
    void (*depend)(ith_comm *comm);
    /* A sign of life. Any thread; never blocks. */
    void (*alive)(ith_comm *comm);
    /* The rank leaves the group and calls nothing but `release` any more, which frees the communicator. */
    void (*leave)(ith_comm *comm);
    void (*release)(ith_comm *comm);
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

/* Every rank shows a card (at most ITH_COMM_RECORD_BYTES), and all see them: card r at ith_comm_record(comm, r). Where
 * ranks share memory they may look at what the cards point at until they part. ith_comm_end_call is called once after each
 * meeting that succeeded, whatever has failed since; *claim becomes the largest of all ranks. */
ith_status ith_comm_begin_call(ith_comm *comm, const void *card, int64_t bytes);
ith_status ith_comm_end_call(ith_comm *comm, float *claim);
static inline void *ith_comm_record(const ith_comm *comm, int rank)
{
    return (char *)comm->records + (int64_t)rank * ITH_COMM_RECORD_BYTES;
}

/* See ith_comm_ops. */
ith_status ith_comm_post(ith_comm *comm, const ith_transfer *sends, int send_count, const ith_transfer *receives,
                         int receive_count, ith_request **out);
ith_status ith_comm_test(ith_comm *comm, ith_request **request, bool *done);
ith_status ith_comm_wait(ith_comm *comm, ith_request **request);

/* Whether ranks may look at one another's memory between ith_comm_begin_call and ith_comm_end_call. */
bool ith_comm_shares_memory(const ith_comm *comm);

/* Posted and waited for in one call; comm may be NULL (one rank) in all of these. */
ith_status ith_comm_exchange(ith_comm *comm, const ith_transfer *sends, int send_count,
                                         const ith_transfer *receives, int receive_count);
ith_status ith_comm_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation);
ith_status ith_comm_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all);
ith_status ith_comm_broadcast(ith_comm *comm, void *data, int64_t bytes, int root);
ith_status ith_comm_barrier(ith_comm *comm);
ith_status ith_comm_split(ith_comm *comm, int colour, int key, ith_comm **out);

/* Every rank brings its own status and all get the same: ITH_OK, or that of the lowest rank that failed, with its
 * sentence. Ranks agree before they act. */
ith_status ith_comm_agree(ith_comm *comm, ith_status mine);

#endif
