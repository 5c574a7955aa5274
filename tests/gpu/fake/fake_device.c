/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the module ithaca_device_fake.so (fake_device.h): devices, and the functions that enqueue operations. */
#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) extern fake_control_table fake_control;
fake_control_table fake_control = {.refuse = -1, .fail = -1};

bool fake_is_refused(char *said)
{
    const bool refused = atomic_fetch_add(&fake_control.calls, 1) == atomic_load(&fake_control.refuse);
    if (refused)
        snprintf(said, ITH_DEVICE_SENTENCE, "the test refuses this call");
    return refused;
}

ith_status fake_out_of_memory(char *said)
{
    snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
    return ITH_ERR_MEMORY;
}

/* ---- Devices --------------------------------------------------------------------------------------------------- */

static void close_device(struct ith_device *device)
{
    fake_unmap_arena(device);
    for (struct ith_device_stream *stream = device->former, *next; stream; stream = next) {
        next = stream->next_former;
        free(stream);
    }
    pthread_mutex_destroy(&device->running);
    pthread_mutex_destroy(&device->blocks_lock);
    free(device);
}

static ith_status open_device(int index, struct ith_device **out, char *said)
{
    *out = NULL;
    if (index < 0 || index >= DEVICES) {
        snprintf(said, ITH_DEVICE_SENTENCE, "there is no fake device number %d: there are %d, which count from 0",
                 index, DEVICES);
        return ITH_ERR_UNSUPPORTED;
    }
    struct ith_device *device = calloc(1, sizeof *device);
    if (device) {
        pthread_mutex_init(&device->blocks_lock, NULL);
        pthread_mutex_init(&device->running, NULL);
        device->index = index;
    }
    if (!device || !fake_map_arena(device)) {
        if (device)
            close_device(device);
        snprintf(said, ITH_DEVICE_SENTENCE, "there is no memory for a fake device");
        return ITH_ERR_MEMORY;
    }
    *out = device;
    return ITH_OK;
}

static ith_status read_facts(struct ith_device *device, ith_device_facts *facts, char *said)
{
    (void)device;
    if (fake_is_refused(said))
        return ITH_ERR_INTERNAL;
    *facts = (ith_device_facts){.name = "no device: a stand-in for tests",
                                .capability = 0,
                                .processors = 1,
                                .memory_bytes = ARENA_BYTES,
                                .free_bytes = ARENA_BYTES - atomic_load(&fake_control.device_held)};
    return ITH_OK;
}

/* ---- Operations ------------------------------------------------------------------------------------------------ */

static bool is_pinned(struct ith_device *device, const void *pointer)
{
    char said[ITH_DEVICE_SENTENCE];
    return fake_is_of_device(device, pointer) || fake_at(device, pointer, 1, said);
}

/* As on a GPU, memory of the host that is not pinned is read at once; if it is the target, the stream runs first. */
static ith_status copy(struct ith_device_stream *stream, void *target, const void *source, int64_t bytes, char *said)
{
    operation o = {.kind = COPY, .copy = {.target = target, .source = source, .bytes = bytes}};
    if (bytes > 0 && !is_pinned(stream->device, source)) {
        o.kept = malloc((size_t)bytes);
        if (!o.kept)
            return fake_out_of_memory(said);
        memcpy(o.kept, source, (size_t)bytes);
        o.copy.source = o.kept;
    }
    const ith_status status = fake_enqueue(stream, &o, said);
    if (!status && bytes > 0 && !is_pinned(stream->device, target))
        fake_run_all(stream);
    return status;
}

static ith_status fill(struct ith_device_stream *stream, void *target, int byte, int64_t bytes, char *said)
{
    operation o = {.kind = FILL, .copy = {.target = target, .byte = byte, .bytes = bytes}};
    return fake_enqueue(stream, &o, said);
}

static ith_status copy_regions(struct ith_device_stream *stream, const ith_region_pair *copies, int64_t count,
                               char *said)
{
    operation o = {.kind = REGIONS};
    o.kept = malloc(((size_t)count + 1) * sizeof *copies);
    if (!o.kept)
        return fake_out_of_memory(said);
    if (count > 0)
        memcpy(o.kept, copies, (size_t)count * sizeof *copies);
    o.regions.list = o.kept;
    o.regions.count = count;
    return fake_enqueue(stream, &o, said);
}

static ith_status pack(struct ith_device_stream *stream, const ith_device_pack *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = PACK, .pack = *call}, said);
}

static ith_status key_stats(struct ith_device_stream *stream, const ith_device_key_stats *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = KEY_STATS, .key_stats = *call}, said);
}

static ith_status query_stats(struct ith_device_stream *stream, const ith_device_query_stats *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = QUERY_STATS, .query_stats = *call}, said);
}

static ith_status offsets(struct ith_device_stream *stream, const ith_device_offsets *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = OFFSETS, .offsets = *call}, said);
}

static ith_status convolve(struct ith_device_stream *stream, struct ith_device_convs *convs,
                           const ith_device_conv *conv, void *scratch, int64_t scratch_bytes, char *said)
{
    (void)convs;
    return fake_enqueue(stream, &(operation){.kind = CONVOLVE, .convolve = {*conv, scratch, scratch_bytes}}, said);
}

static ith_status pixels(struct ith_device_stream *stream, const ith_device_pixels *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = PIXELS, .pixels = *call}, said);
}

static ith_status colours(struct ith_device_stream *stream, const ith_device_colours *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = COLOURS, .colours = *call}, said);
}

static ith_status softmax(struct ith_device_stream *stream, const ith_device_softmax *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = SOFTMAX, .softmax = *call}, said);
}

static void *raw_stream(struct ith_device_stream *stream)
{
    return stream;
}

/* ---- Kernels --------------------------------------------------------------------------------------------------- */

static ith_status attend(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = ATTEND, .attend = {*call, false}}, said);
}

static ith_status attend_delayed(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = ATTEND, .attend = {*call, true}}, said);
}

static const char *refuses_nothing(const struct ith_device *device, const ith_device_attend *call)
{
    (void)device;
    (void)call;
    return NULL;
}

/* Refuses calls that kernels for matrix units would refuse, too. */
static const char *refuses_wide_types(const struct ith_device *device, const ith_device_attend *call)
{
    (void)device;
    if (call->dtype == ITH_F32)
        return "16bit_fake computes bf16 and f16 only";
    return call->head_dim % 8 || call->head_dim > 256 ? "16bit_fake takes a head_dim of 8, 16, ..., 256" : NULL;
}

static const ith_device_kernel fake_16bit = {"16bit_fake", refuses_wide_types, attend_delayed};
static const ith_device_kernel fake_f32 = {"f32_fake", refuses_nothing, attend};
static const ith_device_kernel *const kernels[] = {&fake_16bit, &fake_f32, NULL};

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Products have no state here. They are counted as memory of the device, so that a test can see whether they are
 * destroyed. */
struct ith_device_products {
    struct ith_device *device;
    void *scratch;
};

enum { SCRATCH_BYTES = 64 };

static ith_status create_products(struct ith_device *device, struct ith_device_products **out, char *said)
{
    struct ith_device_products *products = calloc(1, sizeof *products);
    *out = NULL;
    if (!products)
        return fake_out_of_memory(said);
    products->device = device;
    ith_status status = fake_allocate(device, SCRATCH_BYTES, &products->scratch, said);
    if (status)
        free(products);
    else
        *out = products;
    return status;
}

static void destroy_products(struct ith_device_products *products)
{
    if (products)
        fake_release(products->device, products->scratch);
    free(products);
}

static ith_status linear(struct ith_device_stream *stream, struct ith_device_products *products,
                         const ith_device_linear *call, char *said)
{
    (void)products;
    return fake_enqueue(stream, &(operation){.kind = LINEAR, .linear = *call}, said);
}

static ith_status update_rows(struct ith_device_stream *stream, const ith_device_row_update *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = UPDATE_ROWS, .update = *call}, said);
}

static ith_status norm_heads(struct ith_device_stream *stream, const ith_device_heads *call, char *said)
{
    return fake_enqueue(stream, &(operation){.kind = NORM_HEADS, .heads = *call}, said);
}

static const ith_device_layers layers = {.product_bytes = SCRATCH_BYTES,
                                         .create_products = create_products,
                                         .destroy_products = destroy_products,
                                         .linear = linear,
                                         .update_rows = update_rows,
                                         .norm_heads = norm_heads};

static const ith_device_convolutions convolutions = {
    .refusal = fake_conv_refusal,
    .create = fake_create_convs,
    .destroy = fake_destroy_convs,
    .prepare = fake_prepare_conv,
    .convolve = convolve,
    .pixels = pixels,
    .colours = colours,
    .softmax = softmax,
};

__attribute__((visibility("default"))) extern const ith_device_module ith_device_module_table;
const ith_device_module ith_device_module_table = {
    .head = {ITH_DEVICE_MODULE_ABI, "fake"},
    .open = open_device,
    .close = close_device,
    .facts = read_facts,
    .allocate = fake_allocate,
    .release = fake_release,
    .allocate_pinned = fake_allocate_pinned,
    .release_pinned = fake_release_pinned,
    .addresses = fake_addresses,
    .create_stream = fake_create_stream,
    .destroy_stream = fake_destroy_stream,
    .wait_for = fake_wait_for,
    .wait_for_foreign = fake_wait_for_foreign,
    .query = fake_query,
    .copy = copy,
    .fill = fill,
    .copy_regions = copy_regions,
    .pack = pack,
    .key_stats_scratch_bytes = fake_key_stats_scratch_bytes,
    .key_stats = key_stats,
    .query_stats = query_stats,
    .offsets = offsets,
    .kernels = kernels,
    .raw_stream = raw_stream,
    .layers = &layers,
    .convolutions = &convolutions,
};
