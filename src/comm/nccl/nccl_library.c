/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NCCL and the driver of CUDA (nccl_library.h). */
#include "nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first version whose communicators that do not block can be finalised and aborted. */
enum { LEAST_VERSION = NCCL_VERSION(2, 18, 0) };

#define TEXT(x) #x
#define NAME(x) TEXT(x) /* the symbol behind a macro of cuda.h, such as cuMemFree_v2 */

/* A function and where its address goes. */
typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

nccl_functions ith_nccl;
cuda_functions ith_cuda_driver;

static const symbol nccl_symbols[] = {
    {NAME(ncclGetVersion), offsetof(nccl_functions, get_version)},
    {NAME(ncclGetUniqueId), offsetof(nccl_functions, get_unique_id)},
    {NAME(ncclCommInitRankConfig), offsetof(nccl_functions, init_rank)},
    {NAME(ncclCommFinalize), offsetof(nccl_functions, finalize)},
    {NAME(ncclCommDestroy), offsetof(nccl_functions, destroy)},
    {NAME(ncclCommAbort), offsetof(nccl_functions, abort)},
    {NAME(ncclCommGetAsyncError), offsetof(nccl_functions, get_async_error)},
    {NAME(ncclGetErrorString), offsetof(nccl_functions, get_error_string)},
    {NAME(ncclGetLastError), offsetof(nccl_functions, get_last_error)},
    {NAME(ncclGroupStart), offsetof(nccl_functions, group_start)},
    {NAME(ncclGroupEnd), offsetof(nccl_functions, group_end)},
    {NAME(ncclSend), offsetof(nccl_functions, send)},
    {NAME(ncclRecv), offsetof(nccl_functions, recv)},
};

static const symbol cuda_symbols[] = {
    {NAME(cuInit), offsetof(cuda_functions, init)},
    {NAME(cuGetErrorString), offsetof(cuda_functions, get_error_string)},
    {NAME(cuStreamGetCtx), offsetof(cuda_functions, stream_get_context)},
    {NAME(cuCtxPushCurrent), offsetof(cuda_functions, push_context)},
    {NAME(cuCtxPopCurrent), offsetof(cuda_functions, pop_context)},
    {NAME(cuStreamCreateWithPriority), offsetof(cuda_functions, create_stream)},
    {NAME(cuStreamDestroy), offsetof(cuda_functions, destroy_stream)},
    {NAME(cuStreamWaitEvent), offsetof(cuda_functions, wait_event)},
    {NAME(cuStreamSynchronize), offsetof(cuda_functions, synchronize)},
    {NAME(cuEventCreate), offsetof(cuda_functions, create_event)},
    {NAME(cuEventDestroy), offsetof(cuda_functions, destroy_event)},
    {NAME(cuEventRecord), offsetof(cuda_functions, record_event)},
    {NAME(cuEventQuery), offsetof(cuda_functions, query_event)},
    {NAME(cuMemAlloc), offsetof(cuda_functions, allocate)},
    {NAME(cuMemFree), offsetof(cuda_functions, release)},
};

/* A library, and why it could not be loaded. */
typedef struct library {
    bool loaded;
    char refusal[256];
} library;

static library nccl, cuda;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Opens a library, which stays open, and takes its functions. Returns false with a reason in l->refusal. */
static bool open_library(library *l, const char *file, const symbol *symbols, size_t count, void *table)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        snprintf(l->refusal, sizeof l->refusal, "%s", reason ? reason : file);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (!address) {
            snprintf(l->refusal, sizeof l->refusal, "%.150s has no function %s", file, symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return true;
}

static void load_nccl(void)
{
    const char *named = getenv("ITHACA_NCCL");
    const char *file = named && named[0] ? named : "libnccl.so.2";
    int version = 0;
    if (!open_library(&nccl, file, nccl_symbols, sizeof nccl_symbols / sizeof *nccl_symbols, &ith_nccl))
        return;
    if (ith_nccl.get_version(&version) == ncclSuccess && version >= LEAST_VERSION)
        nccl.loaded = true;
    else
        snprintf(nccl.refusal, sizeof nccl.refusal, "%.150s has version %d, and 2.18 or later is needed", file,
                 version);
}

static void load_cuda(void)
{
    CUresult result;
    if (!open_library(&cuda, "libcuda.so.1", cuda_symbols, sizeof cuda_symbols / sizeof *cuda_symbols,
                      &ith_cuda_driver))
        return;
    result = ith_cuda_driver.init(0);
    cuda.loaded = result == CUDA_SUCCESS;
    if (!cuda.loaded)
        snprintf(cuda.refusal, sizeof cuda.refusal, "cuInit returned %d", (int)result);
}

/* Loads a library the first time, and again after a failure. */
static bool load(library *l, void (*load_it)(void), char *refusal, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!l->loaded)
        load_it();
    bool loaded = l->loaded;
    if (!loaded)
        snprintf(refusal, bytes, "%s", l->refusal);
    pthread_mutex_unlock(&lock);
    return loaded;
}

bool ith_nccl_load(char *sentence, size_t bytes)
{
    char refusal[256];
    if (load(&nccl, load_nccl, refusal, sizeof refusal))
        return true;
    snprintf(sentence, bytes,
             "NCCL cannot be used (%s): install libnccl.so.2 where the loader finds it, or let ITHACA_NCCL name the "
             "file",
             refusal);
    return false;
}

bool ith_cuda_driver_load(char *sentence, size_t bytes)
{
    char refusal[256];
    if (load(&cuda, load_cuda, refusal, sizeof refusal))
        return true;
    snprintf(sentence, bytes, "the driver of CUDA cannot be used (%s)", refusal);
    return false;
}
