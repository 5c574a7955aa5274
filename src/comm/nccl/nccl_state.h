/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the transport over NCCL.
 *
 * It stands on another transport, the *inner* one, between the same ranks. The inner transport serves exchanges of
 * memory of the host, signs of life, notices and failures; NCCL carries memory of devices and nothing else. A `world`
 * is the view that one rank has of the whole group and its sub-groups, a `state` its view of one of them.
 *
 * An exchange of device memory is two exchanges. The inner transport carries records of the sizes of all transfers
 * between ranks, under the same request. So both have the same numbers, and a rank that dies, stops or posts something
 * else is found as in every other exchange. NCCL carries the data (nccl_device.c). */
#ifndef ITH_COMM_NCCL_STATE_H
#define ITH_COMM_NCCL_STATE_H

#include "nccl_library.h"

#include <ithaca/transport.h>

#include <pthread.h>

/* The record of the data that a rank sends to another one in an exchange of device memory. */
typedef struct nccl_record {
    int64_t regions, bytes;
    uint64_t sizes; /* a hash of the sizes of all regions */
} nccl_record;

/* A request of a group that may hold an exchange of device memory. */
typedef struct nccl_request {
    bool device; /* an exchange of device memory, in flight; the members below belong to it */
    ith_operation posted;
    int64_t number;                 /* of the exchange in its group */
    bool awaiting;                  /* the inner exchange is in flight */
    double matched_at;              /* when the records of all peers had come */
    CUevent begin, end;             /* on the caller's stream before the exchange, on the state's stream behind it */
    nccl_record *out, *in;          /* [size]: sent to each rank, and received from it */
    nccl_record *expected;          /* [size]: the data from each rank in this rank's list of receives */
    ith_transfer *sends, *receives; /* [2 size]: of the inner exchange */
} nccl_request;

/* One rank's view of a group. */
typedef struct nccl_state {
    struct nccl_state *next; /* in world.states */
    struct nccl_world *world;
    void *inner;   /* the inner transport's state */
    int64_t group; /* ith_subgroup.number; 0: the whole group */
    int rank, size;
    int *members;            /* [size]: the number of each rank in the whole group */
    int64_t posted;          /* exchanges posted so far */
    nccl_request *requests;  /* [world.inner->requests] */
    nccl_record *records;    /* memory of the records of all requests */
    ith_transfer *transfers; /* memory of requests[].sends and .receives */
    /* Made at the first exchange of device memory: */
    ncclUniqueId id;
    ncclComm_t comm; /* NULL: none, or it has ended */
    bool connected;  /* NCCL has its connections between all ranks */
    CUstream stream;
    CUevent drained;      /* recorded when the group fails, behind all work of the stream */
    CUdeviceptr greeting; /* [2] bytes for the first messages */
    bool stuck;           /* the device still uses the stream, which is never freed */
} nccl_state;

/* One rank's view of the whole group and all its sub-groups. */
typedef struct nccl_world {
    pthread_mutex_t lock; /* protects communicators, the list of states, and `stopped` */
    const ith_transport *inner;
    double seconds;    /* time limit of NCCL's connections */
    CUcontext context; /* of the device; NULL until the first exchange of its memory */
    nccl_state *states, *whole;
    bool several_hosts;
    bool stopped; /* the group has failed, and NCCL has been stopped */
} nccl_world;

/* ---- nccl_device.c */

/* Posts an exchange of device memory. */
ith_status ith_nccl_post(nccl_state *s, const ith_operation *operation);
/* Waits for an exchange of device memory, as ith_transport.wait does. */
ith_status ith_nccl_await(nccl_state *s, nccl_request *request, double seconds, bool *done);

/* ---- nccl_records.c */

/* Takes the records of a request if they come within `seconds`, and compares them with this rank's lists. */
ith_status ith_nccl_take_records(nccl_state *s, nccl_request *request, double seconds);

/* ---- nccl_life.c */

/* If the group has failed, stops NCCL in all groups of this rank, so that the device no longer uses memory that was
 * posted, and returns the failure. */
ith_status ith_nccl_settle(nccl_world *w);
/* Ends the communicator of a state when all its data have arrived. Several seconds at most. */
void ith_nccl_end(nccl_state *s);
/* Ends the communicator, and frees the state's objects on the device. */
void ith_nccl_free(nccl_state *s);

/* ---- nccl_failure.c: sentences */

/* Bytes of the longest name of a rank, name of an operation, and sentence. */
enum { NCCL_NAME = 96, NCCL_OPERATION = 128, NCCL_SENTENCE = 960 };

/* Ends the group with a failure. Returns the failure that ended it. */
ith_status ith_nccl_fail(nccl_state *s, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes "rank 3", or "rank 3 (host b)", for a rank of the state's group. Returns text. */
const char *ith_nccl_name(const nccl_state *s, int rank, char text[NCCL_NAME]);
/* Writes "an exchange (exchange 17 of group 2)". Returns text. */
const char *ith_nccl_operation(const nccl_state *s, const nccl_request *request, char text[NCCL_OPERATION]);

/* ---- nccl_check.c: failures of NCCL and CUDA */

/* If the result is an error, ends the group. `call` is the function that returned it. */
ith_status ith_nccl_check(nccl_state *s, nccl_request *request, ncclResult_t result, const char *call);
ith_status ith_nccl_check_cuda(nccl_state *s, const nccl_request *request, CUresult result, const char *call);

/* ---- nccl_transport.c */

extern const ith_transport ith_nccl_transport;

/* Makes the state of a rank of the whole group over the inner transport's. On success it owns the inner state; NULL:
 * there is no memory. */
nccl_state *ith_nccl_open(const ith_transport *inner, void *inner_state, int rank, int size, double seconds);

#endif
