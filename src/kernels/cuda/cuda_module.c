/* SPDX-License-Identifier: Apache-2.0 */
/* The module ithaca_device_cuda.so: opens NVIDIA GPUs, hands out their memory and streams (kernels/device.h), and lists
 * the kernels of this folder. */
#include "cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CAPABILITY 80

static ith_status no_memory(const char *doing, char *said)
{
    snprintf(said, ITH_DEVICE_SENTENCE, "%s: there is no memory", doing);
    return ITH_ERR_MEMORY;
}

/* Makes the device current for the calling thread, as CUDA's functions need it. */
static ith_status use(const struct ith_device *device, const char *doing, char *said)
{
    return ith_cuda_check(cudaSetDevice(device->index), doing, said);
}

/* ---- Devices --------------------------------------------------------------------------------------------------- */

/* Checks that there is a device `index` which this module's code runs on. */
static ith_status check_device(int index, int *capability, int *processors, char *said)
{
    static const char doing[] = "opening a GPU";
    int count = 0, major = 0, minor = 0;
    ith_status status = ith_cuda_check(cudaGetDeviceCount(&count), doing, said);
    if (status)
        return status;
    if (index < 0 || index >= count) {
        snprintf(said, ITH_DEVICE_SENTENCE, "there is no GPU number %d: the driver finds %d, which count from 0", index,
                 count);
        return ITH_ERR_UNSUPPORTED;
    }
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (!error)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (!error)
        error = cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, index);
    *capability = 10 * major + minor;
    if (!error && *capability < LEAST_CAPABILITY) {
        snprintf(said, ITH_DEVICE_SENTENCE, "GPU number %d has compute capability %d.%d, and 8.0 is the least", index,
                 major, minor);
        return ITH_ERR_UNSUPPORTED;
    }
    return ith_cuda_check(error, doing, said);
}

static ith_status open_device(int index, struct ith_device **out, char *said)
{
    int capability = 0, processors = 0;
    *out = NULL;
    ith_status status = check_device(index, &capability, &processors, said);
    if (status)
        return status;
    struct ith_device *device = malloc(sizeof *device);
    if (!device)
        return no_memory("opening a GPU", said);
    *device = (struct ith_device){.index = index, .capability = capability, .processors = processors};
    status = use(device, "opening a GPU", said);
    if (!status) /* creates the GPU's context now, so that its failure is seen here */
        status = ith_cuda_check(cudaFree(NULL), "opening a GPU", said);
    if (status)
        free(device);
    else
        *out = device;
    return status;
}

static void close_device(struct ith_device *device)
{
    free(device);
}

static ith_status read_facts(struct ith_device *device, ith_device_facts *facts, char *said)
{
    static const char doing[] = "asking a GPU for its memory";
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, all_bytes = 0;
    ith_status status = use(device, doing, said);
    if (!status)
        status = ith_cuda_check(cudaGetDeviceProperties(&properties, device->index), doing, said);
    if (!status)
        status = ith_cuda_check(cudaMemGetInfo(&free_bytes, &all_bytes), doing, said);
    if (status)
        return status;
    *facts = (ith_device_facts){.capability = device->capability,
                                .processors = device->processors,
                                .memory_bytes = (int64_t)all_bytes,
                                .free_bytes = (int64_t)free_bytes};
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof facts->name - 1, properties.name);
    return ITH_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static ith_status allocate(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    static const char doing[] = "allocating memory of the GPU";
    *out = NULL;
    ith_status status = use(device, doing, said);
    if (status)
        return status;
    status = ith_cuda_check(cudaMalloc(out, bytes > 0 ? (size_t)bytes : 1), doing, said);
    size_t free_bytes = 0, all_bytes = 0;
    if (status == ITH_ERR_MEMORY && cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess)
        snprintf(said, ITH_DEVICE_SENTENCE, "the GPU has no %.1f MB left: %.1f MB of its %.1f MB are free",
                 (double)bytes / 1e6, (double)free_bytes / 1e6, (double)all_bytes / 1e6);
    return status;
}

static void release(struct ith_device *device, void *pointer)
{
    if (pointer && (cudaSetDevice(device->index) || cudaFree(pointer)))
        cudaGetLastError();
}

static ith_status allocate_pinned(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    static const char doing[] = "allocating pinned memory";
    *out = NULL;
    ith_status status = use(device, doing, said);
    if (status)
        return status;
    status = ith_cuda_check(cudaHostAlloc(out, bytes > 0 ? (size_t)bytes : 1, cudaHostAllocPortable), doing, said);
    if (status == ITH_ERR_MEMORY)
        snprintf(said, ITH_DEVICE_SENTENCE, "this machine cannot pin another %.1f MB of its memory for the GPU",
                 (double)bytes / 1e6);
    return status;
}

static void release_pinned(struct ith_device *device, void *pointer)
{
    if (pointer && (cudaSetDevice(device->index) || cudaFreeHost(pointer)))
        cudaGetLastError();
}

/* Whether an address lies in memory of this device, in managed memory, or in pinned or registered host memory.
 * Registered memory counts only if the device uses the same address for it. Other host memory does not count, not even
 * where the device could reach it. */
static bool addresses(struct ith_device *device, const void *pointer)
{
    struct cudaPointerAttributes attributes;
    if (!pointer || cudaSetDevice(device->index) || cudaPointerGetAttributes(&attributes, pointer)) {
        cudaGetLastError();
        return false;
    }
    switch (attributes.type) {
    case cudaMemoryTypeDevice: return attributes.device == device->index;
    case cudaMemoryTypeManaged: return true;
    case cudaMemoryTypeHost: return attributes.devicePointer == pointer;
    default: return false;
    }
}

/* ---- Streams --------------------------------------------------------------------------------------------------- */

static void destroy_stream(struct ith_device_stream *stream)
{
    if (!stream)
        return;
    if (!cudaSetDevice(stream->device->index)) {
        if (stream->event)
            cudaEventDestroy(stream->event);
        if (stream->foreign_event)
            cudaEventDestroy(stream->foreign_event);
        if (stream->stream)
            cudaStreamDestroy(stream->stream);
    }
    cudaGetLastError(); /* a failure of these calls is not reported */
    free(stream);
}

static ith_status create_stream(struct ith_device *device, struct ith_device_stream **out, char *said)
{
    static const char doing[] = "making a stream of the GPU";
    *out = NULL;
    ith_status status = use(device, doing, said);
    if (status)
        return status;
    struct ith_device_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return no_memory(doing, said);
    stream->device = device;
    status = ith_cuda_check(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking), doing, said);
    if (!status)
        status = ith_cuda_check(cudaEventCreateWithFlags(&stream->event, cudaEventDisableTiming), doing, said);
    if (!status)
        status = ith_cuda_check(cudaEventCreateWithFlags(&stream->foreign_event, cudaEventDisableTiming), doing, said);
    if (status)
        destroy_stream(stream);
    else
        *out = stream;
    return status;
}

/* Makes `stream` wait for the work that `other` has now. event: marks its end. */
static ith_status wait_for_event(struct ith_device_stream *stream, cudaStream_t other, cudaEvent_t event, char *said)
{
    static const char doing[] = "ordering two streams of the GPU";
    ith_status status = use(stream->device, doing, said);
    if (!status)
        status = ith_cuda_check(cudaEventRecord(event, other), doing, said);
    return status ? status : ith_cuda_check(cudaStreamWaitEvent(stream->stream, event, 0), doing, said);
}

static ith_status wait_for(struct ith_device_stream *stream, struct ith_device_stream *other, char *said)
{
    return wait_for_event(stream, other->stream, other->event, said);
}

static ith_status wait_for_foreign(struct ith_device_stream *stream, void *foreign, char *said)
{
    return wait_for_event(stream, (cudaStream_t)foreign, stream->foreign_event, said);
}

static ith_status query(struct ith_device_stream *stream, bool *done, char *said)
{
    static const char doing[] = "computing on the GPU";
    *done = false;
    ith_status status = use(stream->device, doing, said);
    if (status)
        return status;
    cudaError_t error = cudaStreamQuery(stream->stream);
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return ith_cuda_check(error, doing, said);
    cudaGetLastError(); /* no failure, but CUDA notes it as one */
    return ITH_OK;
}

static ith_status copy(struct ith_device_stream *stream, void *target, const void *source, int64_t bytes, char *said)
{
    static const char doing[] = "copying memory of the GPU";
    ith_status status = use(stream->device, doing, said);
    if (status || bytes == 0)
        return status;
    return ith_cuda_check(cudaMemcpyAsync(target, source, (size_t)bytes, cudaMemcpyDefault, stream->stream), doing,
                          said);
}

static ith_status fill(struct ith_device_stream *stream, void *target, int byte, int64_t bytes, char *said)
{
    static const char doing[] = "filling memory of the GPU";
    ith_status status = use(stream->device, doing, said);
    if (status || bytes == 0)
        return status;
    return ith_cuda_check(cudaMemsetAsync(target, byte, (size_t)bytes, stream->stream), doing, said);
}

static void *raw_stream(struct ith_device_stream *stream)
{
    return stream->stream;
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

static const ith_device_kernel *const kernels[] = {&ith_cuda_attn_16bit_sm90, &ith_cuda_attn_16bit_sm80,
                                                   &ith_cuda_attn_f32_sm80, NULL};

static const ith_device_layers layers = {
    .product_bytes = ITH_CUDA_PRODUCT_BYTES,
    .create_products = ith_cuda_create_products,
    .destroy_products = ith_cuda_destroy_products,
    .linear = ith_cuda_linear,
    .update_rows = ith_cuda_update_rows,
    .norm_heads = ith_cuda_norm_heads,
};

static const ith_device_convolutions convolutions = {
    .refusal = ith_cuda_conv_refusal,
    .create = ith_cuda_create_convs,
    .destroy = ith_cuda_destroy_convs,
    .prepare = ith_cuda_prepare_conv,
    .convolve = ith_cuda_convolve,
    .pixels = ith_cuda_pixels,
    .colours = ith_cuda_colours,
    .softmax = ith_cuda_softmax,
};

__attribute__((visibility("default"))) extern const ith_device_module ith_device_module_table;
const ith_device_module ith_device_module_table = {
    .head = {ITH_DEVICE_MODULE_ABI, "cuda"},
    .open = open_device,
    .close = close_device,
    .facts = read_facts,
    .allocate = allocate,
    .release = release,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .addresses = addresses,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .wait_for = wait_for,
    .wait_for_foreign = wait_for_foreign,
    .query = query,
    .copy = copy,
    .fill = fill,
    .copy_regions = ith_cuda_copy_regions,
    .pack = ith_cuda_pack,
    .key_stats_scratch_bytes = ith_cuda_key_stats_scratch_bytes,
    .key_stats = ith_cuda_key_stats,
    .query_stats = ith_cuda_query_stats,
    .offsets = ith_cuda_offsets,
    .kernels = kernels,
    .raw_stream = raw_stream,
    .layers = &layers,
    .convolutions = &convolutions,
};
