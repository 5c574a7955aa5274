/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the transport nccl, in a process of its own that shares the one GPU with the others: its state, memory of
 * the device and a stream. NCCL takes processes with different NCCL_HOSTID for processes of different hosts, and so
 * lets them share a GPU. */
#ifndef ITH_TESTS_NCCL_RANK_H
#define ITH_TESTS_NCCL_RANK_H

#include <ithaca/transport.h>

#include <cuda.h>
#include <sys/types.h>

/* Sizes of the three memories of a rank. */
#define NCCL_RANK_BYTES ((int64_t)160 << 20)

/* The functions of the driver that the tests call. */
typedef struct nccl_driver {
    __typeof__(&cuInit) init;
    __typeof__(&cuDeviceGetCount) count;
    __typeof__(&cuDevicePrimaryCtxRetain) retain;
    __typeof__(&cuCtxSetCurrent) set_current;
    __typeof__(&cuStreamCreate) create_stream;
    __typeof__(&cuStreamSynchronize) synchronize;
    __typeof__(&cuMemAlloc) allocate;
    __typeof__(&cuMemAllocHost) allocate_host;
    __typeof__(&cuMemcpyHtoDAsync) upload;
    __typeof__(&cuMemcpyDtoHAsync) download;
    __typeof__(&cuMemsetD8Async) fill;
} nccl_driver;

typedef struct nccl_rank {
    const ith_transport *table;
    void *state;
    int rank, size;
    int64_t posted; /* exchanges of the whole group so far */
    CUstream stream;
    CUdeviceptr send, receive; /* memory of the device */
    char *host;                /* memory of the host that the device can copy to */
    int failures;
} nccl_rank;

extern nccl_driver nccl_cuda;

/* Runs `ranks` processes that call fn, each with a limit of 60 s. seconds: the time limit of connecting and of first
 * exchanges. dead: the process that must die, -1: none. Returns the number of other processes that failed. */
int nccl_run(int ranks, double seconds, int dead, void (*fn)(nccl_rank *r));
/* Whether there is a GPU that a process can use; otherwise prints why not. */
bool nccl_has_gpu(void);

/* Counts and prints a failure. */
void nccl_fail(nccl_rank *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the process if a call of the driver has failed. */
void nccl_must(nccl_rank *r, CUresult result, const char *call);
#define NCCL_MUST(r, call) nccl_must(r, nccl_cuda.call, #call)

/* Posts an exchange and waits for its request. state: the state of the group. */
ith_status nccl_post(nccl_rank *r, void *state, int64_t number, const ith_transfer *sends, int64_t send_count,
                     const ith_transfer *receives, int64_t receive_count, bool device);
ith_status nccl_wait(nccl_rank *r, void *state, int64_t number);
/* An exchange that must succeed. */
void nccl_exchange(nccl_rank *r, void *state, int64_t number, const ith_transfer *sends, int64_t send_count,
                   const ith_transfer *receives, int64_t receive_count, bool device);
/* Checks that the group has failed with a status and a sentence that contains `word`, and that the stream ends. since:
 * the time of the fault, which must be at most `limit` seconds ago. */
void nccl_expect(nccl_rank *r, ith_status got, ith_status expected, const char *word, double since, double limit);

ith_transfer nccl_transfer(int peer, CUdeviceptr data, int64_t bytes);
double nccl_now(void);

#endif
