/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of the transport nccl in processes (nccl_rank.h). */
#include "nccl_rank.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 8, WATCHDOG_SECONDS = 60, WAIT_SECONDS = 20 };

nccl_driver nccl_cuda;

double nccl_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void nccl_fail(nccl_rank *r, const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (r->failures++ < 10)
        printf("  FAILED: rank %d of %d: %s\n", r->rank, r->size, text);
    fflush(stdout);
}

void nccl_must(nccl_rank *r, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    nccl_fail(r, "%s returned %d", call, (int)result);
    _exit(1);
}

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

ith_transfer nccl_transfer(int peer, CUdeviceptr data, int64_t bytes)
{
    return (ith_transfer){peer, {.data = (void *)data, .count = {1, 1}, .bytes = bytes}};
}

ith_status nccl_post(nccl_rank *r, void *state, int64_t number, const ith_transfer *sends, int64_t send_count,
                     const ith_transfer *receives, int64_t receive_count, bool device)
{
    ith_operation o = ITH_OPERATION_INIT;
    o.request = number % r->table->requests;
    o.tag = 7, o.what = "a test";
    o.sends = sends, o.send_count = send_count;
    o.receives = receives, o.receive_count = receive_count;
    o.stream = device ? r->stream : NULL;
    return r->table->exchange(state, &o);
}

ith_status nccl_wait(nccl_rank *r, void *state, int64_t number)
{
    const double end = nccl_now() + WAIT_SECONDS;
    bool done = false;
    ith_status status = ITH_OK;
    while (!status && !done && nccl_now() < end)
        status = r->table->wait(state, number % r->table->requests, 0.2, &done);
    if (!status && !done)
        nccl_fail(r, "exchange %lld did not end within %d s", (long long)number, WAIT_SECONDS);
    return status;
}

void nccl_exchange(nccl_rank *r, void *state, int64_t number, const ith_transfer *sends, int64_t send_count,
                   const ith_transfer *receives, int64_t receive_count, bool device)
{
    const char *sentence = "";
    ith_status status = nccl_post(r, state, number, sends, send_count, receives, receive_count, device);
    if (!status)
        status = nccl_wait(r, state, number);
    if (!status)
        return;
    r->table->failure(state, &sentence);
    nccl_fail(r, "exchange %lld: status %d: %s", (long long)number, (int)status, sentence);
    _exit(1);
}

void nccl_expect(nccl_rank *r, ith_status got, ith_status expected, const char *word, double since, double limit)
{
    const char *sentence = "";
    const double took = nccl_now() - since;
    ith_status status = r->table->failure(r->state, &sentence);
    printf("  rank %d: %.2f s: status %d: %s\n", r->rank, took, (int)got, sentence);
    fflush(stdout);
    if (got != expected || status != expected)
        nccl_fail(r, "status %d (failure: %d), expected %d", (int)got, (int)status, (int)expected);
    if (!strstr(sentence, word))
        nccl_fail(r, "the sentence lacks \"%s\"", word);
    if (took > limit)
        nccl_fail(r, "the failure took %.2f s, at most %.2f s are allowed", took, limit);
    NCCL_MUST(r, synchronize(r->stream));
    if (nccl_now() - since > limit + 2)
        nccl_fail(r, "the stream was held up for %.2f s", nccl_now() - since);
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

/* Loads the driver. Returns false with a line if there is none, or no GPU. */
static bool start_driver(void)
{
    const char *fake = getenv("ITHACA_FAKE_CUDA"); /* a library in place of the driver; its SONAME is libcuda.so.1 */
    void *driver = dlopen(fake ? fake : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int devices = 0;
    if (!driver) {
        printf("skipped: %s\n", dlerror());
        return false;
    }
#define TEXT(x) #x
#define TAKE(member, function) nccl_cuda.member = (__typeof__(nccl_cuda.member))dlsym(driver, TEXT(function))
    TAKE(init, cuInit);
    TAKE(count, cuDeviceGetCount);
    TAKE(retain, cuDevicePrimaryCtxRetain);
    TAKE(set_current, cuCtxSetCurrent);
    TAKE(create_stream, cuStreamCreate);
    TAKE(synchronize, cuStreamSynchronize);
    TAKE(allocate, cuMemAlloc);
    TAKE(allocate_host, cuMemAllocHost);
    TAKE(upload, cuMemcpyHtoDAsync);
    TAKE(download, cuMemcpyDtoHAsync);
    TAKE(fill, cuMemsetD8Async);
#undef TAKE
    if (nccl_cuda.init(0) == CUDA_SUCCESS && nccl_cuda.count(&devices) == CUDA_SUCCESS && devices > 0)
        return true;
    printf("skipped: there is no GPU\n");
    return false;
}

bool nccl_has_gpu(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork(); /* a process that has started CUDA cannot be forked */
    if (child == 0)
        exit(!start_driver());
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void start_device(nccl_rank *r)
{
    CUcontext context = NULL;
    void *host = NULL;
    if (!start_driver())
        _exit(1);
    NCCL_MUST(r, retain(&context, 0));
    NCCL_MUST(r, set_current(context));
    NCCL_MUST(r, create_stream(&r->stream, CU_STREAM_NON_BLOCKING));
    NCCL_MUST(r, allocate(&r->send, (size_t)NCCL_RANK_BYTES));
    NCCL_MUST(r, allocate(&r->receive, (size_t)NCCL_RANK_BYTES));
    NCCL_MUST(r, allocate_host(&host, (size_t)NCCL_RANK_BYTES));
    r->host = host;
}

/* The module beside the program. */
static const ith_transport_module *load_module(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    if (slash)
        strcpy(slash, "/ithaca_transport_nccl.so");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const ith_transport_module *module = handle ? dlsym(handle, "ith_transport_module_table") : NULL;
    if (!module)
        printf("  FAILED: %s\n", dlerror());
    return module;
}

static void set_environment(int rank, int ranks)
{
    char text[64];
    snprintf(text, sizeof text, "%d", rank);
    setenv("ITHACA_PROCESS", text, 1);
    snprintf(text, sizeof text, "%d", ranks);
    setenv("ITHACA_PROCESSES", text, 1);
    snprintf(text, sizeof text, "ithaca-test-%d", rank);
    setenv("NCCL_HOSTID", text, 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_NET", "Socket", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_P2P_DISABLE", "1", 1);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    setenv("NCCL_MNNVL_ENABLE", "0", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
}

/* Runs one process. Returns its exit status. */
static int be_rank(int rank, int ranks, double seconds, const char *folder, void (*fn)(nccl_rank *r))
{
    nccl_rank r = {.rank = rank, .size = ranks};
    char where[256], sentence[1024] = "";
    int size = 0;
    alarm(WATCHDOG_SECONDS);
    set_environment(rank, ranks);
    const ith_transport_module *module = load_module();
    if (!module)
        return 1;
    start_device(&r);
    snprintf(where, sizeof where, "file:%s/meeting", folder);
    r.table = module->transport;
    ith_status status = module->connect(where, 1, seconds, &r.state, &r.rank, &size, sentence, sizeof sentence);
    if (status || r.rank != rank || size != ranks) {
        nccl_fail(&r, "connect: status %d, rank %d of %d: %s", (int)status, r.rank, size, sentence);
        return 1;
    }
    fn(&r);
    r.table->leave(r.state);
    r.table->close(r.state);
    return r.failures > 0;
}

int nccl_run(int ranks, double seconds, int dead, void (*fn)(nccl_rank *r))
{
    char folder[] = "/tmp/ithaca-nccl-XXXXXX";
    pid_t children[MOST_RANKS];
    int failed = 0, started = 0;
    if (!mkdtemp(folder))
        return 1;
    fflush(stdout);
    for (; started < ranks && (children[started] = fork()) > 0; started++)
        ;
    if (started < ranks && children[started] == 0) {
        int result = be_rank(started, ranks, seconds, folder, fn);
        fflush(stdout);
        _exit(result);
    }
    for (int i = 0; i < started; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        if (i != dead && status)
            printf("  FAILED: process %d of %d: %s %d\n", i, ranks, WIFSIGNALED(status) ? "signal" : "exit status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        failed += i != dead && status != 0;
    }
    for (int i = 0; i < ranks; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/meeting.%d", folder, i); /* a process that died may have left its file */
        unlink(path);
    }
    if (rmdir(folder))
        printf("  FAILED: %s is not empty\n", folder), failed++;
    return failed + (started < ranks);
}
