/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL and the driver of CUDA, which are loaded when they are first needed, so that the module loads where they are
 * missing and can say so. */
#ifndef ITH_COMM_NCCL_LIBRARY_H
#define ITH_COMM_NCCL_LIBRARY_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* The functions of NCCL that the transport calls, as nccl.h declares them. */
typedef struct nccl_functions {
    __typeof__(&ncclGetVersion) get_version;
    __typeof__(&ncclGetUniqueId) get_unique_id;
    __typeof__(&ncclCommInitRankConfig) init_rank;
    __typeof__(&ncclCommFinalize) finalize;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclCommAbort) abort;
    __typeof__(&ncclCommGetAsyncError) get_async_error;
    __typeof__(&ncclGetErrorString) get_error_string;
    __typeof__(&ncclGetLastError) get_last_error;
    __typeof__(&ncclGroupStart) group_start;
    __typeof__(&ncclGroupEnd) group_end;
    __typeof__(&ncclSend) send;
    __typeof__(&ncclRecv) recv;
} nccl_functions;

/* The functions of the driver, as cuda.h declares them. */
typedef struct cuda_functions {
    __typeof__(&cuInit) init;
    __typeof__(&cuGetErrorString) get_error_string;
    __typeof__(&cuStreamGetCtx) stream_get_context;
    __typeof__(&cuCtxPushCurrent) push_context;
    __typeof__(&cuCtxPopCurrent) pop_context;
    __typeof__(&cuStreamCreateWithPriority) create_stream;
    __typeof__(&cuStreamDestroy) destroy_stream;
    __typeof__(&cuStreamWaitEvent) wait_event;
    __typeof__(&cuStreamSynchronize) synchronize;
    __typeof__(&cuEventCreate) create_event;
    __typeof__(&cuEventDestroy) destroy_event;
    __typeof__(&cuEventRecord) record_event;
    __typeof__(&cuEventQuery) query_event;
    __typeof__(&cuMemAlloc) allocate;
    __typeof__(&cuMemFree) release;
} cuda_functions;

extern nccl_functions ith_nccl;
extern cuda_functions ith_cuda_driver;

/* Loads NCCL: the library that ITHACA_NCCL names, otherwise libnccl.so.2. Returns false with a sentence if it cannot be
 * loaded, or is too old. Any thread, any number of times. */
bool ith_nccl_load(char *sentence, size_t bytes);
/* Loads the driver, libcuda.so.1. */
bool ith_cuda_driver_load(char *sentence, size_t bytes);

#endif
