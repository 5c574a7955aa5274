/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, streams and the table of the module ithaca_device_fake.so (fake_device.h).
 *
 * Memory of the device is a file in memory with two mappings. Callers get addresses in the first mapping, which nobody
 * can access. The module uses the second. */
#include "fake_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of memory of a device, and the alignment of its blocks. */
#define ARENA_BYTES ((int64_t)1 << 30)
#define ALIGNMENT 256
#define MOST_BLOCKS 8192

/* The number of the device says when its operations run (fake_device.h). */
enum { AT_ONCE, WHEN_QUERIED, ON_THREADS, OTHERS_FIRST, DEVICES };

/* Allocated memory: device memory by the callers' addresses, or pinned memory. */
typedef struct block {
    char *begin;
    int64_t bytes;
} block;

struct ith_device {
    int index;
    char *seen, *used; /* the two mappings */
    pthread_mutex_t blocks_lock;
    int blocks, pinned;
    block block[MOST_BLOCKS]; /* of device memory, by address */
    block pinned_block[MOST_BLOCKS];
    /* held while queues change and, except ON_THREADS, while queued operations run */
    pthread_mutex_t running;
    struct ith_device_stream *newest; /* the streams that exist */
    struct ith_device_stream *former; /* destroyed streams, for which other streams may still wait */
};

typedef enum kind {
    COPY,
    FILL,
    REGIONS,
    PACK,
    KEY_STATS,
    QUERY_STATS,
    OFFSETS,
    ATTEND,
    LINEAR,
    UPDATE_ROWS,
    NORM_HEADS,
    CONVOLVE,
    PIXELS,
    COLOURS,
    SOFTMAX,
    WAIT
} kind;

/* An operation of a stream. */
typedef struct operation {
    struct operation *next;
    kind kind;
    union {
        struct {
            void *target;
            const void *source;
            int byte;
            int64_t bytes;
        } copy; /* for fill, too */
        struct {
            ith_region_pair *list;
            int64_t count;
        } regions;
        ith_device_pack pack;
        ith_device_key_stats key_stats;
        ith_device_query_stats query_stats;
        ith_device_offsets offsets;
        struct {
            ith_device_attend call;
            bool delayed;
        } attend;
        ith_device_linear linear;
        ith_device_row_update update;
        ith_device_heads heads;
        struct {
            ith_device_conv conv;
            void *scratch;
            int64_t scratch_bytes;
        } convolve;
        ith_device_pixels pixels;
        ith_device_colours colours;
        ith_device_softmax softmax;
        struct {
            struct ith_device_stream *other;
            long until; /* the number of operations of `other` that must have run */
        } wait;
    };
    void *kept; /* memory of the operation, for free() */
} operation;

struct ith_device_stream {
    struct ith_device *device;
    operation *first, **last;
    long enqueued, run;
    /* ON_THREADS: the stream's thread; an operation was enqueued; an operation has run */
    pthread_t thread;
    pthread_cond_t enqueuing, running;
    bool ends;         /* the thread ends when all operations have run */
    ith_status status; /* the first failure of an operation */
    char sentence[ITH_DEVICE_SENTENCE];
    struct ith_device_stream *older, *next_former;
};

__attribute__((visibility("default"))) extern fake_control_table fake_control;
fake_control_table fake_control = {.refuse = -1, .fail = -1};

/* Whether this call must fail, because a test asks for it. */
static bool is_refused(char *said)
{
    const bool refused = atomic_fetch_add(&fake_control.calls, 1) == atomic_load(&fake_control.refuse);
    if (refused)
        snprintf(said, ITH_DEVICE_SENTENCE, "the test refuses this call");
    return refused;
}

/* ---- Devices --------------------------------------------------------------------------------------------------- */

static bool map_arena(struct ith_device *device)
{
    const int file = memfd_create("ithaca_device_fake", MFD_CLOEXEC);
    if (file < 0)
        return false;
    void *seen = MAP_FAILED, *used = MAP_FAILED;
    if (!ftruncate(file, ARENA_BYTES)) {
        seen = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        used = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    close(file);
    device->seen = seen;
    device->used = used;
    return seen != MAP_FAILED && used != MAP_FAILED;
}

static void close_device(struct ith_device *device)
{
    if (device->seen != MAP_FAILED)
        munmap(device->seen, ARENA_BYTES);
    if (device->used != MAP_FAILED)
        munmap(device->used, ARENA_BYTES);
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
        device->seen = device->used = MAP_FAILED;
    }
    if (!device || !map_arena(device)) {
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
    if (is_refused(said))
        return ITH_ERR_INTERNAL;
    *facts = (ith_device_facts){.name = "no device: a stand-in for tests",
                                .capability = 0,
                                .processors = 1,
                                .memory_bytes = ARENA_BYTES,
                                .free_bytes = ARENA_BYTES - atomic_load(&fake_control.device_held)};
    return ITH_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* The place in a list of blocks where a block that begins at `begin` is or belongs. */
static int place_of(const block *list, int count, const char *begin)
{
    int place = 0;
    while (place < count && list[place].begin < begin)
        place++;
    return place;
}

/* Whether memory lies inside one block. */
static bool is_inside(const block *list, int count, const char *begin, int64_t bytes)
{
    for (int i = 0; i < count; i++)
        if (begin >= list[i].begin && begin <= list[i].begin + list[i].bytes &&
            bytes <= list[i].begin + list[i].bytes - begin)
            return true;
    return false;
}

static bool is_of_device(const struct ith_device *device, const void *pointer)
{
    return (const char *)pointer >= device->seen && (const char *)pointer < device->seen + ARENA_BYTES;
}

void *fake_at(struct ith_device *device, const void *pointer, int64_t bytes, char *said)
{
    const char *begin = pointer;
    pthread_mutex_lock(&device->blocks_lock);
    const bool inside = bytes >= 0 && (is_inside(device->block, device->blocks, begin, bytes) ||
                                       is_inside(device->pinned_block, device->pinned, begin, bytes));
    pthread_mutex_unlock(&device->blocks_lock);
    if (!inside) {
        snprintf(said, ITH_DEVICE_SENTENCE, "an illegal address: %lld bytes at %p are not memory of the device",
                 (long long)bytes, pointer);
        return NULL;
    }
    return is_of_device(device, pointer) ? device->used + (begin - device->seen) : (void *)(uintptr_t)begin;
}

/* Inserts a block of `bytes` bytes in the first gap of the arena that is large enough. Returns its address or NULL. */
static char *insert_block(struct ith_device *device, int64_t bytes)
{
    char *begin = device->seen;
    int place = 0;
    if (device->blocks == MOST_BLOCKS || bytes > ARENA_BYTES)
        return NULL;
    for (; place < device->blocks && device->block[place].begin - begin < bytes + ALIGNMENT; place++) {
        const int64_t end = device->block[place].begin + device->block[place].bytes - device->seen;
        begin = device->seen + (end + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* at least a byte between blocks */
    }
    if (bytes > device->seen + ARENA_BYTES - begin)
        return NULL;
    memmove(device->block + place + 1, device->block + place, (size_t)(device->blocks - place) * sizeof(block));
    device->block[place] = (block){begin, bytes};
    device->blocks++;
    return begin;
}

static ith_status allocate(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    *out = NULL;
    if (is_refused(said))
        return ITH_ERR_MEMORY;
    bytes = bytes > 0 ? bytes : 1;
    pthread_mutex_lock(&device->blocks_lock);
    *out = insert_block(device, bytes);
    pthread_mutex_unlock(&device->blocks_lock);
    if (!*out) {
        snprintf(said, ITH_DEVICE_SENTENCE, "the device has no %.1f MB left: %.1f MB of its %.1f MB are free",
                 (double)bytes / 1e6, (double)(ARENA_BYTES - atomic_load(&fake_control.device_held)) / 1e6,
                 (double)ARENA_BYTES / 1e6);
        return ITH_ERR_MEMORY;
    }
    memset(device->used + ((char *)*out - device->seen), 0xff, (size_t)bytes);
    atomic_fetch_add(&fake_control.device_held, bytes);
    return ITH_OK;
}

/* Removes a block from a list and returns its bytes; -1 if there is none that begins here. */
static int64_t remove_block(block *list, int *count, const void *begin)
{
    const int place = place_of(list, *count, begin);
    if (place == *count || list[place].begin != begin)
        return -1;
    const int64_t bytes = list[place].bytes;
    memmove(list + place, list + place + 1, (size_t)(*count - place - 1) * sizeof *list);
    --*count;
    return bytes;
}

/* Called for a release of memory that is not allocated. A release cannot report a failure, so this ends the program. */
static void refuse_release(const void *pointer)
{
    fprintf(stderr, "ithaca_device_fake: %p is released, and is not allocated\n", pointer);
    abort();
}

static void release(struct ith_device *device, void *pointer)
{
    if (!pointer)
        return;
    pthread_mutex_lock(&device->blocks_lock);
    const int64_t bytes = remove_block(device->block, &device->blocks, pointer);
    if (bytes < 0)
        refuse_release(pointer);
    memset(device->used + ((char *)pointer - device->seen), 0xff, (size_t)bytes);
    pthread_mutex_unlock(&device->blocks_lock);
    atomic_fetch_sub(&fake_control.device_held, bytes);
}

static ith_status allocate_pinned(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    *out = NULL;
    if (is_refused(said))
        return ITH_ERR_MEMORY;
    void *pointer = NULL;
    bytes = bytes > 0 ? bytes : 1;
    if (posix_memalign(&pointer, 64, (size_t)bytes)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
        return ITH_ERR_MEMORY;
    }
    memset(pointer, 0xff, (size_t)bytes);
    pthread_mutex_lock(&device->blocks_lock);
    const bool fits = device->pinned < MOST_BLOCKS;
    if (fits) {
        block *list = device->pinned_block;
        const int place = place_of(list, device->pinned, pointer);
        memmove(list + place + 1, list + place, (size_t)(device->pinned - place) * sizeof *list);
        list[place] = (block){pointer, bytes};
        device->pinned++;
    }
    pthread_mutex_unlock(&device->blocks_lock);
    if (!fits) {
        free(pointer);
        snprintf(said, ITH_DEVICE_SENTENCE, "the device has no room for another block of pinned memory");
        return ITH_ERR_MEMORY;
    }
    atomic_fetch_add(&fake_control.pinned_held, bytes);
    *out = pointer;
    return ITH_OK;
}

static void release_pinned(struct ith_device *device, void *pointer)
{
    if (!pointer)
        return;
    pthread_mutex_lock(&device->blocks_lock);
    const int64_t bytes = remove_block(device->pinned_block, &device->pinned, pointer);
    if (bytes < 0)
        refuse_release(pointer);
    pthread_mutex_unlock(&device->blocks_lock);
    atomic_fetch_sub(&fake_control.pinned_held, bytes);
    free(pointer);
}

static bool addresses(struct ith_device *device, const void *pointer)
{
    char said[ITH_DEVICE_SENTENCE];
    return fake_at(device, pointer, 1, said) != NULL;
}

/* ---- Operations ------------------------------------------------------------------------------------------------ */

/* The address at which this module can access any memory. Memory of the host has the same address. */
static void *anywhere(struct ith_device *device, const void *pointer, int64_t bytes, char *said)
{
    return is_of_device(device, pointer) ? fake_at(device, pointer, bytes, said) : (void *)(uintptr_t)pointer;
}

/* Copies or fills. A single 32-bit number is written at once, because a kernel in another thread may be reading it. */
static ith_status move_bytes(struct ith_device *device, const operation *o, char *said)
{
    const int64_t bytes = o->copy.bytes;
    if (bytes == 0)
        return ITH_OK;
    char *target = anywhere(device, o->copy.target, bytes, said);
    const char *source = target && o->kind == COPY ? anywhere(device, o->copy.source, bytes, said) : NULL;
    if (!target || (o->kind == COPY && !source))
        return ITH_ERR_INTERNAL;
    if (bytes == sizeof(int32_t) && (uintptr_t)target % sizeof(int32_t) == 0) {
        int32_t value;
        if (source)
            memcpy(&value, source, sizeof value);
        else
            memset(&value, o->copy.byte, sizeof value);
        __atomic_store_n((int32_t *)(void *)target, value, __ATOMIC_RELAXED);
    } else if (source) {
        memmove(target, source, (size_t)bytes);
    } else {
        memset(target, o->copy.byte, (size_t)bytes);
    }
    return ITH_OK;
}

/* The sentence of an operation that fails because a test asks for it. */
static const char failed_by_test[] = "the test refuses this operation";

static ith_status run_operation(struct ith_device *device, const operation *o, char *said)
{
    if (atomic_fetch_add(&fake_control.runs, 1) == atomic_load(&fake_control.fail)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s", failed_by_test);
        return ITH_ERR_INTERNAL;
    }
    switch (o->kind) {
    case COPY:
    case FILL: return move_bytes(device, o, said);
    case REGIONS: return fake_copy_regions(device, o->regions.list, o->regions.count, said);
    case PACK: return fake_pack(device, &o->pack, said);
    case KEY_STATS: return fake_key_stats(device, &o->key_stats, said);
    case QUERY_STATS: return fake_query_stats(device, &o->query_stats, said);
    case OFFSETS: return fake_offsets(device, &o->offsets, said);
    case ATTEND:
        if (o->attend.delayed)
            usleep((useconds_t)atomic_load(&fake_control.delay_us));
        return fake_attend(device, &o->attend.call, said);
    case LINEAR: return fake_linear(device, &o->linear, said);
    case UPDATE_ROWS: return fake_update_rows(device, &o->update, said);
    case NORM_HEADS: return fake_norm_heads(device, &o->heads, said);
    case CONVOLVE:
        return fake_convolve(device, &o->convolve.conv, o->convolve.scratch, o->convolve.scratch_bytes, said);
    case PIXELS: return fake_pixels(device, &o->pixels, said);
    case COLOURS: return fake_colours(device, &o->colours, said);
    case SOFTMAX: return fake_softmax(device, &o->softmax, said);
    default: return ITH_OK;
    }
}

/* ---- Queues ---------------------------------------------------------------------------------------------------- */

/* Removes the first operation of a stream, which has run. The device is locked. */
static void finish_first(struct ith_device_stream *stream, ith_status status, const char *said)
{
    operation *o = stream->first;
    if (status && !stream->status) {
        stream->status = status;
        memcpy(stream->sentence, said, sizeof stream->sentence);
    }
    stream->first = o->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->run++;
    free(o->kept);
    free(o);
}

/* Runs the first operation of a stream, and before it the operations of another stream for which it waits. A stream
 * waits only for operations that were enqueued before, so this ends. The device is locked. */
static void run_first(struct ith_device_stream *stream)
{
    operation *o = stream->first;
    char said[ITH_DEVICE_SENTENCE] = "";
    if (o->kind == WAIT)
        while (o->wait.other->run < o->wait.until)
            run_first(o->wait.other);
    finish_first(stream, run_operation(stream->device, o, said), said);
}

/* Runs the operations of all streams but `last`, the newest stream first, up to operations that must wait for others.
 * The device is locked. */
static void run_others(struct ith_device_stream *last)
{
    for (struct ith_device_stream *stream = last->device->newest; stream; stream = stream->older)
        while (stream != last && stream->first &&
               (stream->first->kind != WAIT || stream->first->wait.other->run >= stream->first->wait.until))
            run_first(stream);
}

/* The thread of a stream: runs its operations in order. */
static void *serve(void *user)
{
    struct ith_device_stream *stream = user;
    struct ith_device *device = stream->device;
    pthread_mutex_lock(&device->running);
    while (stream->first || !stream->ends) {
        operation *o = stream->first;
        if (!o) {
            pthread_cond_wait(&stream->enqueuing, &device->running);
            continue;
        }
        while (o->kind == WAIT && o->wait.other->run < o->wait.until)
            pthread_cond_wait(&o->wait.other->running, &device->running);
        char said[ITH_DEVICE_SENTENCE] = "";
        pthread_mutex_unlock(&device->running);
        const ith_status status = run_operation(device, o, said);
        pthread_mutex_lock(&device->running);
        finish_first(stream, status, said);
        pthread_cond_broadcast(&stream->running);
    }
    pthread_mutex_unlock(&device->running);
    return NULL;
}

static ith_status out_of_memory(char *said)
{
    snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
    return ITH_ERR_MEMORY;
}

/* Enqueues an operation, or runs it AT_ONCE. kept: memory that the operation owns. */
static ith_status enqueue(struct ith_device_stream *stream, const operation *o, char *said)
{
    if (is_refused(said)) {
        free(o->kept);
        return ITH_ERR_INTERNAL;
    }
    if (stream->device->index == AT_ONCE) {
        const ith_status status = run_operation(stream->device, o, said);
        free(o->kept);
        return status;
    }
    operation *queued = malloc(sizeof *queued);
    if (!queued) {
        free(o->kept);
        return out_of_memory(said);
    }
    *queued = *o;
    queued->next = NULL;
    pthread_mutex_lock(&stream->device->running);
    *stream->last = queued;
    stream->last = &queued->next;
    stream->enqueued++;
    pthread_cond_signal(&stream->enqueuing);
    pthread_mutex_unlock(&stream->device->running);
    return ITH_OK;
}

/* Returns when all operations of a stream have run. */
static void run_all(struct ith_device_stream *stream)
{
    pthread_mutex_lock(&stream->device->running);
    while (stream->first && stream->device->index == ON_THREADS)
        pthread_cond_wait(&stream->running, &stream->device->running);
    while (stream->first)
        run_first(stream);
    pthread_mutex_unlock(&stream->device->running);
}

/* ---- Streams --------------------------------------------------------------------------------------------------- */

static ith_status create_stream(struct ith_device *device, struct ith_device_stream **out, char *said)
{
    *out = NULL;
    if (is_refused(said))
        return ITH_ERR_INTERNAL;
    struct ith_device_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return out_of_memory(said);
    stream->device = device;
    stream->last = &stream->first;
    pthread_cond_init(&stream->enqueuing, NULL);
    pthread_cond_init(&stream->running, NULL);
    if (device->index == ON_THREADS && pthread_create(&stream->thread, NULL, serve, stream)) {
        free(stream);
        return out_of_memory(said);
    }
    pthread_mutex_lock(&device->running);
    stream->older = device->newest;
    device->newest = stream;
    pthread_mutex_unlock(&device->running);
    atomic_fetch_add(&fake_control.streams, 1);
    *out = stream;
    return ITH_OK;
}

static void destroy_stream(struct ith_device_stream *stream)
{
    if (!stream)
        return;
    run_all(stream);
    pthread_mutex_lock(&stream->device->running);
    stream->ends = true;
    pthread_cond_signal(&stream->enqueuing);
    pthread_mutex_unlock(&stream->device->running);
    if (stream->device->index == ON_THREADS)
        pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&stream->device->running);
    struct ith_device_stream **link = &stream->device->newest;
    while (*link != stream)
        link = &(*link)->older;
    *link = stream->older;
    stream->next_former = stream->device->former;
    stream->device->former = stream;
    pthread_mutex_unlock(&stream->device->running);
    atomic_fetch_sub(&fake_control.streams, 1);
}

static ith_status wait_for(struct ith_device_stream *stream, struct ith_device_stream *other, char *said)
{
    operation o = {.kind = WAIT};
    pthread_mutex_lock(&other->device->running);
    o.wait.other = other;
    o.wait.until = other->enqueued;
    pthread_mutex_unlock(&other->device->running);
    if (other == stream)
        return is_refused(said) ? ITH_ERR_INTERNAL : ITH_OK;
    return enqueue(stream, &o, said);
}

/* A caller's stream is a stream of this module, or NULL, the default stream, which never has work. */
static ith_status wait_for_foreign(struct ith_device_stream *stream, void *foreign, char *said)
{
    if (!foreign)
        return is_refused(said) ? ITH_ERR_INTERNAL : ITH_OK;
    return wait_for(stream, foreign, said);
}

static ith_status query(struct ith_device_stream *stream, bool *done, char *said)
{
    *done = false;
    pthread_mutex_lock(&stream->device->running);
    if (stream->device->index == OTHERS_FIRST)
        run_others(stream);
    if (stream->first && stream->device->index != ON_THREADS)
        run_first(stream);
    *done = !stream->first;
    const ith_status status = stream->status;
    if (status)
        memcpy(said, stream->sentence, sizeof stream->sentence);
    if (status && !strcmp(said, failed_by_test)) /* so that later tests do not see it */
        stream->status = ITH_OK;
    pthread_mutex_unlock(&stream->device->running);
    return status;
}

static bool is_pinned(struct ith_device *device, const void *pointer)
{
    char said[ITH_DEVICE_SENTENCE];
    return is_of_device(device, pointer) || fake_at(device, pointer, 1, said);
}

/* As on a GPU, memory of the host that is not pinned is read at once; if it is the target, the stream runs first. */
static ith_status copy(struct ith_device_stream *stream, void *target, const void *source, int64_t bytes, char *said)
{
    operation o = {.kind = COPY, .copy = {.target = target, .source = source, .bytes = bytes}};
    if (bytes > 0 && !is_pinned(stream->device, source)) {
        o.kept = malloc((size_t)bytes);
        if (!o.kept)
            return out_of_memory(said);
        memcpy(o.kept, source, (size_t)bytes);
        o.copy.source = o.kept;
    }
    const ith_status status = enqueue(stream, &o, said);
    if (!status && bytes > 0 && !is_pinned(stream->device, target))
        run_all(stream);
    return status;
}

static ith_status fill(struct ith_device_stream *stream, void *target, int byte, int64_t bytes, char *said)
{
    operation o = {.kind = FILL, .copy = {.target = target, .byte = byte, .bytes = bytes}};
    return enqueue(stream, &o, said);
}

static ith_status copy_regions(struct ith_device_stream *stream, const ith_region_pair *copies, int64_t count,
                               char *said)
{
    operation o = {.kind = REGIONS};
    o.kept = malloc(((size_t)count + 1) * sizeof *copies);
    if (!o.kept)
        return out_of_memory(said);
    if (count > 0)
        memcpy(o.kept, copies, (size_t)count * sizeof *copies);
    o.regions.list = o.kept;
    o.regions.count = count;
    return enqueue(stream, &o, said);
}

static ith_status pack(struct ith_device_stream *stream, const ith_device_pack *call, char *said)
{
    return enqueue(stream, &(operation){.kind = PACK, .pack = *call}, said);
}

static ith_status key_stats(struct ith_device_stream *stream, const ith_device_key_stats *call, char *said)
{
    return enqueue(stream, &(operation){.kind = KEY_STATS, .key_stats = *call}, said);
}

static ith_status query_stats(struct ith_device_stream *stream, const ith_device_query_stats *call, char *said)
{
    return enqueue(stream, &(operation){.kind = QUERY_STATS, .query_stats = *call}, said);
}

static ith_status offsets(struct ith_device_stream *stream, const ith_device_offsets *call, char *said)
{
    return enqueue(stream, &(operation){.kind = OFFSETS, .offsets = *call}, said);
}

static ith_status convolve(struct ith_device_stream *stream, struct ith_device_convs *convs,
                           const ith_device_conv *conv, void *scratch, int64_t scratch_bytes, char *said)
{
    (void)convs;
    return enqueue(stream, &(operation){.kind = CONVOLVE, .convolve = {*conv, scratch, scratch_bytes}}, said);
}

static ith_status pixels(struct ith_device_stream *stream, const ith_device_pixels *call, char *said)
{
    return enqueue(stream, &(operation){.kind = PIXELS, .pixels = *call}, said);
}

static ith_status colours(struct ith_device_stream *stream, const ith_device_colours *call, char *said)
{
    return enqueue(stream, &(operation){.kind = COLOURS, .colours = *call}, said);
}

static ith_status softmax(struct ith_device_stream *stream, const ith_device_softmax *call, char *said)
{
    return enqueue(stream, &(operation){.kind = SOFTMAX, .softmax = *call}, said);
}

static void *raw_stream(struct ith_device_stream *stream)
{
    return stream;
}

/* ---- Kernels --------------------------------------------------------------------------------------------------- */

static ith_status attend(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    return enqueue(stream, &(operation){.kind = ATTEND, .attend = {*call, false}}, said);
}

static ith_status attend_delayed(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    return enqueue(stream, &(operation){.kind = ATTEND, .attend = {*call, true}}, said);
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
        return out_of_memory(said);
    products->device = device;
    ith_status status = allocate(device, SCRATCH_BYTES, &products->scratch, said);
    if (status)
        free(products);
    else
        *out = products;
    return status;
}

static void destroy_products(struct ith_device_products *products)
{
    if (products)
        release(products->device, products->scratch);
    free(products);
}

static ith_status linear(struct ith_device_stream *stream, struct ith_device_products *products,
                         const ith_device_linear *call, char *said)
{
    (void)products;
    return enqueue(stream, &(operation){.kind = LINEAR, .linear = *call}, said);
}

static ith_status update_rows(struct ith_device_stream *stream, const ith_device_row_update *call, char *said)
{
    return enqueue(stream, &(operation){.kind = UPDATE_ROWS, .update = *call}, said);
}

static ith_status norm_heads(struct ith_device_stream *stream, const ith_device_heads *call, char *said)
{
    return enqueue(stream, &(operation){.kind = NORM_HEADS, .heads = *call}, said);
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
