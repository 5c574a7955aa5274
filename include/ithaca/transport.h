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
 * Promises of a transport
 *   Groups     A state is one rank's end of one group. ith_comm_create gets the state of the whole group; `split`
 *              makes states of sub-groups from it. Every function takes the state of the group that it works on, in
 *              which ranks are numbered from 0 to size - 1.
 *   Order      All ranks of a group post the same exchanges in the same order: the n-th call of `exchange` with a
 *              state belongs to the n-th call on every other rank. Ranks need not post at the same time, and groups
 *              are independent of one another. Requests may be waited for in any order.
 *   Matching   Within an exchange the i-th region that rank a sends to rank b is the i-th region that b receives from
 *              a. The two hold the same number of bytes, 0 included, and may have different layouts. A transport
 *              compares tags, numbers of regions and their bytes before it writes, and ends the group with
 *              ITH_ERR_ARGUMENT where they differ. A counterpart that is missing may remain unseen until the next
 *              message of that rank, or until the time limit.
 *   Progress   Once both ends have posted an exchange, its data moves while both ranks call any of these functions
 *              with any of their states: a wait of 0 seconds suffices, and so does `alive`. A transport that has its
 *              own threads needs no calls. A wait never requires that another rank waits for the same exchange. A
 *              request that is done needs nothing more from this rank: the data arrives even if the rank leaves.
 *   Memory     The lists of transfers and the memory of their regions are the transport's from `exchange` until the
 *              request is done. Nothing is allocated between the creation of a state and its end: a state has memory
 *              for all its requests.
 *   Failure    A failure on any rank ends the whole group and all its sub-groups, on all ranks: `exchange`, `wait`,
 *              `share` and `split` then return its status at once, and every request is gone. Failures are an
 *              `abort`, a mismatch, and a rank that has left or died while another rank waits for it. If `exchange`,
 *              `wait` or `share` returns a failure that has not ended the group, the library calls `abort`. When a
 *              function has returned the failure, or `abort` or `leave` has returned, the transport neither reads nor
 *              writes the memory that this rank posted, in any of its groups. Ranks that fail at the same time may
 *              return different failures.
 *   Sentences  The sentence of a failure names ranks by their numbers in the whole group, with their hosts if there
 *              are several. It names the operation, with the number of the exchange and the number of the group (0: the
 *              whole group). For example: "rank 1 (host a) left while rank 0 (host b) waits for it in a barrier
 *              (exchange 17 of group 2)".
 *   Threads    Ranks may be threads of one process. One thread at a time calls exchange, wait, silence, split, share,
 *              unshare, drain, leave and close with the states of a rank. Any thread may call failure, abort, alive,
 *              notify, noticed and place at the same time.
 *
 * Promises of the library
 *   Peers are ranks of the group, regions have no negative or overflowing sizes, and transfers of a rank to itself
 *   have been copied. A request is posted only while its number is free, and waited for only while it is in flight,
 *   for less than a second at a time. `leave` is called once, with the state of the whole group, when no request is in
 *   flight or the group has failed. After `leave` the library calls only `close`: once for each state, and for the
 *   state of the whole group last.
 *   A rank posts on a sub-group only after all its members have made their states of it.
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
/* Finds the contiguous stretch of memory that begins at byte `offset` of the region, to send or fill it piece by piece:
 * sets *data and returns the length. Returns 0 at and after the end, for a negative offset, and for NULL. */
ITH_API int64_t ith_region_stretch(const ith_region *region, int64_t offset, void **data);
/* Copies the bytes of `source` to `target`. Does nothing if their numbers of bytes differ, or for NULL. */
ITH_API void ith_region_copy(const ith_region *target, const ith_region *source);

/* ---- The table ------------------------------------------------------------------------------------------------- */

/* All that a rank sends and receives in one exchange. The struct is valid during the call of `exchange`; the lists and
 * the memory of the regions are valid until the request is done. */
typedef struct ith_operation {
    size_t struct_size;
    int64_t request;  /* the number of the request, for `wait`: n % requests for exchange n, counted from 0 */
    int64_t tag;      /* the kind of operation: if it differs between ranks, they are in different operations */
    const char *what; /* its name for sentences, such as "an exchange" or "a barrier"; static storage */
    /* Both lists may have transfers with this rank itself, which the library has copied: skip them. */
    const ith_transfer *sends;
    int64_t send_count;
    const ith_transfer *receives;
    int64_t receive_count;
    /* NULL, or tells the transport whether to move data while the request is in flight: once it returns true, the rest
     * of this rank's data may stay where it is, and the request may be done at once. Cheap. Any thread. */
    bool (*unwanted)(void *user);
    void *unwanted_user;
    /* NULL: the regions lie in memory of the host. Otherwise, only with ith_transport.device_memory, a stream of a
     * device, such as a cudaStream_t: every region is one run of memory of this device. Sends are read, and receives
     * are written, after the work that the stream has now, and work that is enqueued to the stream later follows the
     * exchange. The request is done when the exchange has ended on the device. */
    void *stream;
} ith_operation;
#define ITH_OPERATION_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_operation), 0, 0, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL                                          \
    }

/* A sub-group that `split` is to make. */
typedef struct ith_subgroup {
    size_t struct_size;
    int64_t number;     /* 1 or more; two sub-groups that have a rank in common have different numbers */
    int rank, size;     /* this rank's number in the sub-group, and the number of its ranks */
    const int *members; /* [size]: numbers of its ranks in the whole group; valid during the call */
} ith_subgroup;
#define ITH_SUBGROUP_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(ith_subgroup), 0, 0, 0, NULL                                                                            \
    }

#define ITH_PLACE_NAME 64

/* Where a rank runs. Hosts and processes are numbered from 0, in the order of their lowest ranks in the whole group. */
typedef struct ith_place {
    size_t struct_size;
    int64_t process;           /* ranks of one process share memory */
    int64_t host;              /* ranks of one host share its cores, its memory and its network */
    int64_t pid;               /* the number of the process on its host; 0: unknown */
    char name[ITH_PLACE_NAME]; /* the name of the host, with a zero at its end; "": unknown */
} ith_place;
#define ITH_PLACE_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(ith_place), 0, 0, 0,                                                                                    \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

#define ITH_TRANSPORT_LEAST_REQUESTS 16

typedef struct ith_transport {
    size_t struct_size;
    const char *name; /* for people; lives as long as the communicators */
    int64_t requests; /* requests that a state has: ITH_TRANSPORT_LEAST_REQUESTS to 4096 */

    /* ---- Required */

    /* Posts an exchange and returns at once. */
    ith_status (*exchange)(void *state, const ith_operation *operation);
    /* Returns when the request is done, the group has failed, or `seconds` have passed (0: at once), whichever comes
     * first. It may return earlier. Sets *done to true if the request is done, so that its number is free; otherwise
     * to false. */
    ith_status (*wait)(void *state, int64_t request, double seconds, bool *done);
    /* The failure that ended the group, as this rank knows it: the status that all functions return, and a sentence for
     * a person, valid until close. ITH_OK if the group has not failed; *sentence is then not read. Cheap, never
     * blocks. Any thread. */
    ith_status (*failure)(void *state, const char **sentence);
    /* Makes this rank's state of a sub-group; `state` is the state of the whole group. All members call it with the
     * same number and members; it does not wait for them. An error of this rank alone, such as ITH_ERR_MEMORY, does not
     * end the group: the other members then close their states. */
    ith_status (*split)(void *state, const ith_subgroup *subgroup, void **out);
    /* Ends the group with a status and a sentence for every rank, unless it has ended. The sentence is valid during the
     * call. Waits of the other ranks return the status within a tenth of a second. Does not wait for other ranks. Any
     * thread, until `leave`. */
    void (*abort)(void *state, ith_status status, const char *sentence);
    /* Frees the state, after `leave`. */
    void (*close)(void *state);

    /* ---- Optional: may be NULL */

    /* The rank leaves the group. Ranks that wait for it, now or later, fail with ITH_ERR_ABORTED and a sentence that
     * names it. NULL: `close` does this. */
    void (*leave)(void *state);
    /* Gives the other ranks a sign of life; `exchange` does so too. `wait` does not, so that ranks that wait for one
     * another for ever end by the time limit. Called every few milliseconds while a rank computes. Cheap, never blocks.
     * Any thread. A transport that sends messages sends at most one in 50 ms, and moves data here. NULL: a rank that
     * computes for longer than the time limit is taken for dead. */
    void (*alive)(void *state);
    /* Among the ranks that have not posted their part of the request, finds the one whose last sign of life is oldest:
     * sets *rank and returns the seconds since then. If all have posted, *rank is -1 and the result 0. The library ends
     * the group with ITH_ERR_TIMEOUT when both this and the wait have lasted for the seconds of ith_comm_set_timeout.
     * NULL: only the wait counts, and the sentence names no rank. */
    double (*silence)(void *state, int64_t request, int *rank);
    /* Sends a number to all ranks of the group. `noticed` returns the number that arrived last, on the sender its own;
     * 0 before the first. The numbers of several senders may arrive in any order. Cheap, never block. Any thread.
     * A cancelled plan stops the other ranks by it. Both or none; NULL: they stop at the end of the execution. */
    void (*notify)(void *state, int64_t number);
    int64_t (*noticed)(void *state);
    /* All three if ranks may be threads of one process, where the addresses of one rank's memory are valid on another;
     * otherwise none. From a successful `share` until the next `unshare` a rank reads and writes memory that other
     * ranks of the group, in its own process, have shown it. `share` fails if the group has failed. Neither waits.
     * `drain` is called after the group has failed, on a rank that does not share: it returns when no other rank of the
     * group in this process shares, and waits for that as long as it takes. */
    ith_status (*share)(void *state);
    void (*unshare)(void *state);
    void (*drain)(void *state);
    /* Tells where a rank of the group runs: fills in the members of *place behind struct_size. The same on every rank,
     * from the creation of a state to its end. The library cuts a name that fills its array. Cheap, never blocks. Any
     * thread. NULL: with `share`, all ranks are threads of one process; without, each rank is a separate process, all
     * on one host. */
    void (*place)(void *state, int rank, ith_place *place);
    /* 1: `exchange` takes operations with a stream, whose regions lie in memory of a device; all ranks of a group have
     * the same value. 0: exchanges of a device's memory pass through memory of the host. */
    int64_t device_memory;
} ith_transport;
#define ITH_TRANSPORT_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_transport), NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,  \
            NULL, NULL, 0                                                                                              \
    }

/* ---- Communicators --------------------------------------------------------------------------------------------- */

/* Makes a communicator of this rank's state of a group of `size` ranks (1 to 1,048,576). Not collective: the other
 * ranks may make theirs later. The table is copied. On success the state belongs to the communicator, which leaves and
 * closes it when it is destroyed and no plan holds it any more; on failure it stays yours. ITH_ERR_ARGUMENT for a table
 * that lacks a required function or has half of a pair, for a number of requests out of range, and for a rank that is
 * not from 0 to size - 1; the sentence names the fault. */
ITH_API ith_status ith_comm_create(ith_context *context, const ith_transport *transport, void *state, int rank,
                                   int size, ith_comm **out);

/* Operations that the library builds from the table, for callers too. All are collective. A comm of NULL is a group of
 * one rank. A wrong argument (ITH_ERR_ARGUMENT) ends the group, since the other ranks would wait for an operation that
 * never comes. A request may be in flight until ITH_TRANSPORT_LEAST_REQUESTS - 1 later operations have been posted on
 * its communicator. */

typedef struct ith_request ith_request; /* owned by its communicator */

/* Posts an exchange, which may send to this rank itself. Both lists and the memory of their regions must outlive the
 * request: the caller neither changes nor frees them until the request is gone. On failure *out is NULL. */
ITH_API ith_status ith_comm_post(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                 const ith_transfer *receives, int64_t receive_count, ith_request **out);
/* Moves data and returns at once. If the request is done or has failed, it is gone and *request becomes NULL. *done:
 * whether the request is done. If *request was NULL before, as after ith_comm_post on a comm of NULL, *done becomes
 * true, and the result is ITH_OK. */
ITH_API ith_status ith_comm_test(ith_comm *comm, ith_request **request, bool *done);
/* Returns when the request is done or has failed; it is gone in both cases. Accepts NULL, and a NULL in *request. */
ITH_API ith_status ith_comm_wait(ith_comm *comm, ith_request **request);
/* Posts an exchange and waits for it. */
ITH_API ith_status ith_comm_exchange(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                     const ith_transfer *receives, int64_t receive_count);

typedef enum ith_reduce { ITH_REDUCE_SUM = 0, ITH_REDUCE_MAX } ith_reduce;
/* values[i] of `count` numbers becomes the sum, in rank order, or the maximum over all ranks: the same bits on every
 * rank. The result is NaN if a rank's value is NaN. */
ITH_API ith_status ith_comm_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation);
/* Fills all [size][bytes] with `mine` [bytes] of every rank, in rank order. */
ITH_API ith_status ith_comm_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all);
/* The `bytes` bytes at data become the data of rank `root` on every rank. */
ITH_API ith_status ith_comm_broadcast(ith_comm *comm, void *data, int64_t bytes, int root);
/* Returns when every rank has called it. */
ITH_API ith_status ith_comm_barrier(ith_comm *comm);
/* Ranks with the same colour form a sub-group, ordered by key, then by rank, with this communicator's time limit. The
 * sub-group ends when this rank destroys the communicator of the whole group. Sentences name its ranks by their numbers
 * in the whole group. For a comm of NULL *out becomes NULL. The caller destroys *out. */
ITH_API ith_status ith_comm_split(ith_comm *comm, int colour, int key, ith_comm **out);

/* Fills in where rank `rank` of the group runs. comm may be NULL: this process. ITH_ERR_ARGUMENT if there is no such
 * rank. Not collective. */
ITH_API ith_status ith_comm_place(const ith_comm *comm, int rank, ith_place *place);

/* ---- Modules --------------------------------------------------------------------------------------------------- */

#define ITH_TRANSPORT_MODULE_ABI 3

/* A transport in a shared module: the file ithaca_transport_NAME.so, in a folder where ith_module_list looks, exports
 * one of these as ith_transport_module_table. */
typedef struct ith_transport_module {
    uint32_t abi;     /* ITH_TRANSPORT_MODULE_ABI */
    const char *name; /* NAME of the file */
    const ith_transport *transport;
    /* Connects `ranks` ranks (1 or more) of this process with the ranks of the other processes, and fills in the rest
     * for ith_comm_create: states [ranks] and numbers [ranks], the state and the number of each rank of this process,
     * and *size, the number of all ranks. The numbers of ranks of one process follow one another, and so do the numbers
     * of ranks of one host. `where` says where the processes meet, in a form that the transport defines; NULL: it knows
     * from its environment. Returns ITH_ERR_TIMEOUT if another process does not answer for `seconds`. On failure
     * nothing is left to close, and `sentence` (`bytes` long, a string that is empty at first) may say why. */
    ith_status (*connect)(const char *where, int ranks, double seconds, void **states, int *numbers, int *size,
                          char *sentence, size_t bytes);
} ith_transport_module;

/* Sets the time limit of ith_comm_connect and ith_run_ranks_connected with this context and with clones that are made
 * later: they fail with ITH_ERR_TIMEOUT if another process does not answer for this many seconds. 0 or less: 60, as at
 * first. Over MPI a call of MPI may then not have returned yet, in another thread: a program that has initialised MPI
 * itself must not call MPI any more, not even MPI_Finalize, which could wait for ever. It ends by _exit. */
ITH_API void ith_context_set_connect_timeout(ith_context *context, double seconds);

/* Makes a communicator with the transport of the module that is called `name`, for a process with one rank.
 * ITH_ERR_UNSUPPORTED if no such module can be used; the sentence says why. A failure to connect has the status of the
 * module. */
ITH_API ith_status ith_comm_connect(ith_context *context, const char *name, const char *where, ith_comm **out);

/* As ith_run_ranks, for ranks of several processes: runs `ranks` ranks as threads of this process, in one group with
 * the ranks of all other processes that call it. Each process may have another number of ranks. Collective over the
 * processes. name, where: as in ith_comm_connect. Errors as there and for ith_run_ranks. If a rank of another process
 * fails, the status and the sentence are the failure that ended the group. */
ITH_API ith_status ith_run_ranks_connected(ith_context *context, const char *name, const char *where, int ranks,
                                           int threads, ith_rank_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
