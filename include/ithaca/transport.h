/* SPDX-License-Identifier: Apache-2.0 */
/* Transports: how the ranks of a group reach one another.
 *
 * A transport is a table of functions over a state of your own. ith_comm_create makes a communicator of the two, which
 * plans and pipelines then use as they use threads (ith_run_ranks). The library builds everything else from the table:
 * reductions, gathers, broadcasts, barriers, sub-groups, time limits, agreement between ranks.
 *
 *     static const ith_transport table = {
 *         .struct_size = sizeof table, .name = "wires", .requests = 16,
 *         .exchange = wires_exchange, .wait = wires_wait, .failure = wires_failure,  // required
 *         .split = wires_split, .abort = wires_abort, .close = wires_close,
 *         .leave = wires_leave, .alive = wires_alive, .silence = wires_silence,      // optional, as are all others
 *     };
 *
 *     ith_comm *comm = NULL;
 *     wires *state = wires_connect(rank, ranks);                                 // yours: sockets, a queue pair, MPI
 *     ith_status status = ith_comm_create(context, &table, state, rank, ranks, &comm);
 *     if (status)
 *         wires_close(state);                                                    // it is yours until then
 *     else
 *         status = ith_plan_create(context, &problem, NULL, comm, &plan);
 *     ...
 *     ith_comm_destroy(&comm);                                                   // leaves, and closes the state
 *
 * examples/ has a whole transport: processes that are connected by Unix sockets.
 *
 * What a transport promises
 *   Groups     A state is one rank's end of one group. ith_comm_create gets the state of the whole group; `split` makes
 *              states of sub-groups from it. Each function takes the state of the group that it works on, in which
 *              ranks are numbered from 0 to size - 1.
 *   Order      The ranks of a group post the same exchanges in the same order: exchange n of one rank (its n-th call of
 *              `exchange` with this state) belongs to exchange n of every other. Ranks need not post at the same time,
 *              and groups are independent of one another. Requests may be waited for in any order.
 *   Matching   Within an exchange the i-th region that rank a sends to rank b is the i-th that b receives from a. The
 *              two hold equally many bytes, 0 included, and may be laid out differently. Tags are equal on all ranks.
 *              A transport compares the tag, the number of regions and their bytes before it writes anything, and ends
 *              the group with ITH_ERR_ARGUMENT where they differ. It may see a missing counterpart as late as the next
 *              message of that rank, or not before the time limit.
 *   Progress   An exchange moves as soon as both ends have posted it, while both ranks make calls of any kind on any of
 *              their states (a wait of 0 seconds is one); a transport with threads of its own needs no calls. A wait
 *              never depends on the other rank's waiting for the same exchange. A request that is done on one rank
 *              needs nothing more of it: what it sent arrives even if that rank leaves.
 *   Memory     Lists of transfers and the memory of their regions belong to the transport from `exchange` until the
 *              request is done. Posting, waiting and moving allocate nothing: a state has memory for `requests`
 *              requests when it is made.
 *   Failure    A failure ends the group, with the whole group and all its sub-groups, on all ranks: `exchange`, `wait`,
 *              `share` and `split` return the first failure's status from then on, and at once. Reasons are `abort` on
 *              some rank, a rank that has left or died while another waits for it, and a mismatch. When a function has
 *              returned the failure, or `abort` or `leave` has returned, the transport neither reads nor writes the
 *              memory that this rank posted, in any of its groups. If several ranks fail at once, each may return its
 *              own failure.
 *   Threads    One thread at a time calls exchange, wait, split, share, unshare, drain, leave and close of a rank's
 *              states. Any thread may call alive, abort, notify, noticed and failure at the same time. Ranks may be
 *              threads of one process.
 *   The end    `leave` is called once, with the state of the whole group, when the rank has no request in flight (or
 *              the group has failed). Afterwards only `close` is called, for every state once, sub-groups first.
 */
#ifndef ITHACA_TRANSPORT_H
#define ITHACA_TRANSPORT_H

#include <ithaca/ithaca.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Regions and transfers ------------------------------------------------------------------------------------- */

/* A strided piece of memory: count[0] x count[1] runs of `bytes` bytes each. Run (i, j) begins at data + i * stride[0]
 * + j * stride[1], with strides in bytes. The bytes of a region are the bytes of its runs, j fastest. data may be
 * NULL if there are none. */
typedef struct ith_region {
    void *data;
    int64_t count[2], stride[2], bytes;
} ith_region;

/* A region that is sent to, or received from, the rank `peer` of the group. */
typedef struct ith_transfer {
    int peer;
    ith_region region;
} ith_transfer;

/* The bytes of all runs; -1 if the region is NULL, a count or size is negative, or the product does not fit. */
ITH_API int64_t ith_region_bytes(const ith_region *region);
/* For writing and reading region by region: the longest stretch of memory that begins at byte `offset` of the region.
 * Sets *data and returns its length; 0 at and after the end, for a negative offset, and for NULL. */
ITH_API int64_t ith_region_stretch(const ith_region *region, int64_t offset, void **data);
/* Copies the bytes of `source` to `target`. Does nothing if their numbers of bytes differ, or for NULL. */
ITH_API void ith_region_copy(const ith_region *target, const ith_region *source);

/* ---- The table ------------------------------------------------------------------------------------------------- */

/* What is posted at once: all that a rank sends and receives in one operation. The struct is valid during the call of
 * `exchange`, the lists and the memory of regions until the request is done. */
typedef struct ith_operation {
    size_t struct_size;
    int64_t request;  /* the number of the request for `wait`: n % requests for the n-th exchange; not in flight */
    int64_t tag;      /* names the operation: the same on all ranks of the group, or else they are in different ones */
    const char *what; /* the same for a sentence: "an exchange", "a barrier"; static storage */
    const ith_transfer *sends; /* Transfers with this rank itself have been made before: skip them in both lists */
    int64_t send_count;
    const ith_transfer *receives;
    int64_t receive_count;
    /* If not NULL, a transport may ask, while the request is in flight, whether the data is still wanted. Once this
     * returns true the request may be completed without moving what has not moved yet. Cheap; any thread. */
    bool (*unwanted)(void *user);
    void *unwanted_user;
} ith_operation;
#define ITH_OPERATION_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_operation), 0, 0, NULL, NULL, 0, NULL, 0, NULL, NULL                                                \
    }

/* A sub-group that `split` is to make. */
typedef struct ith_subgroup {
    size_t struct_size;
    int64_t number;     /* 1 or more; two sub-groups that have a rank in common have different numbers */
    int rank, size;     /* this rank's number in the sub-group, and how many ranks it has */
    const int *members; /* [size]: the number of each rank in the whole group; valid during the call */
} ith_subgroup;
#define ITH_SUBGROUP_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(ith_subgroup), 0, 0, 0, NULL                                                                            \
    }

#define ITH_TRANSPORT_LEAST_REQUESTS 16

typedef struct ith_transport {
    size_t struct_size;
    const char *name; /* for people; lives as long as the communicators */
    int64_t requests; /* that may be in flight at once on each state: 16 (ITH_TRANSPORT_LEAST_REQUESTS) to 4096 */

    /* ---- Required */

    /* Posts an exchange and returns at once. */
    ith_status (*exchange)(void *state, const ith_operation *operation);
    /* Returns when the request is done, the group has failed, or `seconds` have passed (0: at once, for ever is never
     * asked for), whichever comes first; also earlier, with *done false. When *done is true the number is free for
     * another request. */
    ith_status (*wait)(void *state, int64_t request, double seconds, bool *done);
    /* The failure that has ended the group, on the rank that asks: ITH_OK, or the status that all functions return, and
     * *sentence, for a person, valid until close. Cheap, never blocks, any thread. */
    ith_status (*failure)(void *state, const char **sentence);
    /* Makes this rank's state of a sub-group; `state` belongs to the whole group. All members call it, with the same
     * number and members; it does not wait for them. ITH_ERR_MEMORY or another error of this rank alone does not end
     * the group: the library tells the others, who close what they have made. */
    ith_status (*split)(void *state, const ith_subgroup *subgroup, void **out);
    /* Ends the group, unless it has ended, with a status and a sentence for every rank. The other ranks' waits return
     * it within a tenth of a second. Any thread; it may not wait for other ranks. */
    void (*abort)(void *state, ith_status status, const char *sentence);
    /* Frees the state, after `leave`. */
    void (*close)(void *state);

    /* ---- Optional: NULL, or all that is said here */

    /* The rank takes part in nothing any more; called once, with the state of the whole group. Ranks that wait for it,
     * now or later, fail with ITH_ERR_ABORTED and a sentence that names it. NULL: close does what is needed. */
    void (*leave)(void *state);
    /* Gives the other ranks a sign of life. Called every few milliseconds by threads that compute; cheap, never blocks.
     * Any thread. A transport that sends messages sends one every 50 ms at most, and moves here what can be moved.
     * Posting an exchange is a sign of life too. NULL: a rank that computes seems dead. */
    void (*alive)(void *state);
    /* Which of the ranks that the request waits for has been silent for longest. Returns the seconds since its last
     * sign of life and sets *rank; 0 and -1 if all have posted, and the rest is under way. The library ends the group
     * with ITH_ERR_TIMEOUT when this, and the wait, has lasted for ith_comm_set_timeout's seconds. NULL: the seconds
     * since the wait began count, and no rank is named. */
    double (*silence)(void *state, int64_t request, int *rank);
    /* Brings a number to all ranks of the group, where `noticed` then returns it: the latest that was brought, 0 before
     * the first. Numbers of ranks that bring different ones at the same time may arrive in any order. This is how
     * ith_plan_cancel reaches ranks that compute. Cheap, never blocks, any thread. Both or none; none: the other ranks
     * learn of it at the end of the execution. */
    void (*notify)(void *state, int64_t number);
    int64_t (*noticed)(void *state);
    /* All three if addresses of one rank's memory are valid on the others (ranks are threads of one process), otherwise
     * none. From a successful `share` until its `unshare` a rank reads and writes memory of the other ranks of the
     * group, which they have shown it. `share` fails if the group has failed. Neither waits. `drain` is called on a
     * rank that does not share, after the group has failed: it returns when no other rank of the group shares any more,
     * however long one takes to come to its unshare. */
    ith_status (*share)(void *state);
    void (*unshare)(void *state);
    void (*drain)(void *state);
} ith_transport;
#define ITH_TRANSPORT_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_transport), NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,  \
            NULL                                                                                                       \
    }

/* ---- Communicators --------------------------------------------------------------------------------------------- */

/* Makes a communicator of this rank's state of a group of `size` ranks (1 to 1,048,576). Not collective: the other
 * ranks may make theirs later. The table is copied. On success the state belongs to the communicator, which leaves and
 * closes it when it is destroyed and no plan holds it any more; on failure it stays yours. ITH_ERR_ARGUMENT for a table
 * that lacks a required function or has half of a pair, for a number of requests out of range, and for a rank that is
 * not from 0 to size - 1; the sentence names it. */
ITH_API ith_status ith_comm_create(ith_context *context, const ith_transport *transport, void *state, int rank,
                                   int size, ith_comm **out);

/* What the library builds on the table, for callers who want it too. All are collective. comm may be NULL: one rank, to
 * which the same rules apply. A wrong argument (ITH_ERR_ARGUMENT) ends the group, since the other ranks would wait for
 * an operation that never comes. At most ITH_TRANSPORT_LEAST_REQUESTS may be in flight on a communicator, the oldest
 * and the newest included. */

typedef struct ith_request ith_request; /* owned by its communicator */

/* Posts an exchange, which may send to this rank itself. On failure *out is NULL. */
ITH_API ith_status ith_comm_post(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                 const ith_transfer *receives, int64_t receive_count, ith_request **out);
/* Moves what can be moved and returns at once. If the request is done or has failed, it is gone and *request is NULL.
 * *done is true if it is done. A NULL in *request counts as not done. */
ITH_API ith_status ith_comm_test(ith_comm *comm, ith_request **request, bool *done);
/* Returns when the request is done or has failed; it is gone in both cases. Accepts NULL, and a NULL in *request. */
ITH_API ith_status ith_comm_wait(ith_comm *comm, ith_request **request);
/* Posted and waited for. */
ITH_API ith_status ith_comm_exchange(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                     const ith_transfer *receives, int64_t receive_count);

typedef enum ith_reduce { ITH_REDUCE_SUM = 0, ITH_REDUCE_MAX } ith_reduce;
/* values[i] becomes the sum or maximum over all ranks, in rank order: the same bits on every rank. A NaN of any rank
 * stays one. */
ITH_API ith_status ith_comm_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation);
/* all [size][bytes]: `mine` of every rank, in rank order. */
ITH_API ith_status ith_comm_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all);
/* `data` of rank `root` becomes everybody's. */
ITH_API ith_status ith_comm_broadcast(ith_comm *comm, void *data, int64_t bytes, int root);
/* Returns when every rank has called it. */
ITH_API ith_status ith_comm_barrier(ith_comm *comm);
/* Ranks with the same colour form a sub-group, ordered by key, then by rank, with this communicator's time limit. It
 * ends when this rank destroys the communicator of the whole group. NULL gives NULL. */
ITH_API ith_status ith_comm_split(ith_comm *comm, int colour, int key, ith_comm **out);

#ifdef __cplusplus
}
#endif
#endif
