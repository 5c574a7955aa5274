/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the tests of device modules (kernels/device.h). A test is a plain program: gpu_begin opens the module and
 * its first device, GPU_OK checks calls of the module, gpu_fail counts failures, and the program returns gpu_end().
 * Exit status: 0 passed, 1 failed, 77 skipped because there is no device. */
#ifndef ITH_TESTS_GPU_TEST_H
#define ITH_TESTS_GPU_TEST_H

#include "base/modules.h"
#include "kernels/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The bytes before and after a guarded buffer, their value, and the value of the bytes of outputs before a call, which
 * is NaN in every number type. */
enum { GPU_GUARD = 1024, GPU_GUARD_BYTE = 0xa5, GPU_POISON = 0xff };
/* The number of failures that are printed; others are only counted. Seconds after which a stream counts as hung. */
enum { GPU_PRINTED = 40, GPU_PATIENCE = 60 };

/* The module under test, its device and the stream of all calls. */
static const ith_device_module *gpu_module;
static struct ith_device *gpu_device;
static struct ith_device_stream *gpu_stream;
static ith_device_facts gpu_facts;
static char gpu_said[ITH_DEVICE_SENTENCE];
static int gpu_failures;

/* Ends the program if a call of the module fails, because later failures would only follow from it. */
#define GPU_OK(call)                                                                                                   \
    do {                                                                                                               \
        ith_status gpu_status = (call);                                                                                \
        if (gpu_status != ITH_OK) {                                                                                    \
            printf("%s:%d: %s: status %d: %s\n", __FILE__, __LINE__, #call, (int)gpu_status, gpu_said);                \
            fflush(stdout);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Counts a failure, and prints it if there were not too many. */
__attribute__((format(printf, 1, 2), unused)) static void gpu_fail(const char *format, ...)
{
    if (gpu_failures++ >= GPU_PRINTED)
        return;
    va_list arguments;
    va_start(arguments, format);
    printf("FAILED: ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* The time of a steady clock in seconds. */
__attribute__((unused)) static double gpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Loads the module that ITHACA_DEVICE_MODULE names, or ithaca_device_cuda.so beside the program. */
static void gpu_load(void)
{
    static const ith_module_kind kind = {
        .name = "device", .symbol = "ith_device_module_table", .abi = ITH_DEVICE_MODULE_ABI};
    static char path[4096];
    const char *named = getenv("ITHACA_DEVICE_MODULE");
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    path[length > 0 ? length : 0] = 0;
    char *end = strrchr(path, '/');
    if (named)
        snprintf(path, sizeof path, "%s%s", strchr(named, '/') ? "" : "./", named);
    else if (end)
        strcpy(end, "/ithaca_device_cuda.so");
    ith_module module = {.path = path};
    ith_module_open(&kind, &module);
    if (!module.table) {
        printf("%s: %s\n", path, module.refusal);
        exit(1);
    }
    gpu_module = (const ith_device_module *)module.table;
}

/* Opens the module, its device 0 and a stream. Ends the program with 77 if there is no device that the module takes. */
__attribute__((unused)) static void gpu_begin(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    gpu_load();
    ith_status status = gpu_module->open(0, &gpu_device, gpu_said);
    if (status == ITH_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", gpu_said);
        exit(77);
    }
    GPU_OK(status);
    GPU_OK(gpu_module->facts(gpu_device, &gpu_facts, gpu_said));
    GPU_OK(gpu_module->create_stream(gpu_device, &gpu_stream, gpu_said));
    printf("device: %s, compute capability %d.%d, %d processors\n", gpu_facts.name, gpu_facts.capability / 10,
           gpu_facts.capability % 10, gpu_facts.processors);
}

/* Closes everything, prints the outcome and returns the exit status. */
__attribute__((unused)) static int gpu_end(void)
{
    gpu_module->destroy_stream(gpu_stream);
    gpu_module->close(gpu_device);
    printf(gpu_failures ? "FAILED: %d failures\n" : "passed\n", gpu_failures);
    return gpu_failures ? 1 : 0;
}

/* Waits for all work of the stream. Work that does not end fails the program. */
static void gpu_wait(void)
{
    bool done = false;
    for (double begin = gpu_now(); !done;) {
        GPU_OK(gpu_module->query(gpu_stream, &done, gpu_said));
        if (!done && gpu_now() - begin > GPU_PATIENCE) {
            printf("FAILED: the stream did not end within %d seconds\n", GPU_PATIENCE);
            fflush(stdout);
            _exit(1);
        }
    }
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Memory of the device with guard bytes before and after it. */
typedef struct gpu_buffer {
    char *whole, *data;
    int64_t bytes;
} gpu_buffer;

/* A buffer whose bytes are all `byte`. data is aligned to 256. */
static gpu_buffer gpu_filled(int64_t bytes, int byte)
{
    gpu_buffer buffer = {.bytes = bytes};
    void *whole;
    GPU_OK(gpu_module->allocate(gpu_device, bytes + 2 * GPU_GUARD, &whole, gpu_said));
    GPU_OK(gpu_module->fill(gpu_stream, whole, GPU_GUARD_BYTE, bytes + 2 * GPU_GUARD, gpu_said));
    buffer.whole = whole;
    buffer.data = buffer.whole + GPU_GUARD;
    GPU_OK(gpu_module->fill(gpu_stream, buffer.data, byte, bytes, gpu_said));
    return buffer;
}

/* A buffer for outputs: NaN in every number type. */
__attribute__((unused)) static gpu_buffer gpu_poisoned(int64_t bytes)
{
    return gpu_filled(bytes, GPU_POISON);
}

/* A buffer with a copy of `bytes` bytes of host memory. */
__attribute__((unused)) static gpu_buffer gpu_upload(const void *host, int64_t bytes)
{
    gpu_buffer buffer = gpu_filled(bytes, GPU_POISON);
    GPU_OK(gpu_module->copy(gpu_stream, buffer.data, host, bytes, gpu_said));
    gpu_wait();
    return buffer;
}

/* Copies memory of the device to the host, and waits for it. */
__attribute__((unused)) static void gpu_download(void *host, const void *data, int64_t bytes)
{
    GPU_OK(gpu_module->copy(gpu_stream, host, data, bytes, gpu_said));
    gpu_wait();
}

/* Whether the bytes around a buffer are untouched. */
__attribute__((unused)) static bool gpu_is_guarded(const gpu_buffer *buffer)
{
    unsigned char guards[2][GPU_GUARD];
    gpu_download(guards[0], buffer->whole, GPU_GUARD);
    gpu_download(guards[1], buffer->data + buffer->bytes, GPU_GUARD);
    for (int i = 0; i < 2 * GPU_GUARD; i++)
        if (guards[i / GPU_GUARD][i % GPU_GUARD] != GPU_GUARD_BYTE)
            return false;
    return true;
}

__attribute__((unused)) static void gpu_free(gpu_buffer *buffer)
{
    gpu_module->release(gpu_device, buffer->whole);
    *buffer = (gpu_buffer){0};
}

#endif
