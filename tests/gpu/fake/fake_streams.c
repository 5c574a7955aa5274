/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of a fake device: queues of operations, and when these run (fake_device.h). */
#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The address at which this module can access any memory. Memory of the host has the same address. */
static void *anywhere(struct ith_device *device, const void *pointer, int64_t bytes, char *said)
{
    return fake_is_of_device(device, pointer) ? fake_at(device, pointer, bytes, said) : (void *)(uintptr_t)pointer;
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

ith_status fake_enqueue(struct ith_device_stream *stream, const operation *o, char *said)
{
    if (fake_is_refused(said)) {
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
        return fake_out_of_memory(said);
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

void fake_run_all(struct ith_device_stream *stream)
{
    pthread_mutex_lock(&stream->device->running);
    while (stream->first && stream->device->index == ON_THREADS)
        pthread_cond_wait(&stream->running, &stream->device->running);
    while (stream->first)
        run_first(stream);
    pthread_mutex_unlock(&stream->device->running);
}

/* ---- Streams --------------------------------------------------------------------------------------------------- */

ith_status fake_create_stream(struct ith_device *device, struct ith_device_stream **out, char *said)
{
    *out = NULL;
    if (fake_is_refused(said))
        return ITH_ERR_INTERNAL;
    struct ith_device_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return fake_out_of_memory(said);
    stream->device = device;
    stream->last = &stream->first;
    pthread_cond_init(&stream->enqueuing, NULL);
    pthread_cond_init(&stream->running, NULL);
    if (device->index == ON_THREADS && pthread_create(&stream->thread, NULL, serve, stream)) {
        free(stream);
        return fake_out_of_memory(said);
    }
    pthread_mutex_lock(&device->running);
    stream->older = device->newest;
    device->newest = stream;
    pthread_mutex_unlock(&device->running);
    atomic_fetch_add(&fake_control.streams, 1);
    *out = stream;
    return ITH_OK;
}

void fake_destroy_stream(struct ith_device_stream *stream)
{
    if (!stream)
        return;
    fake_run_all(stream);
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

ith_status fake_wait_for(struct ith_device_stream *stream, struct ith_device_stream *other, char *said)
{
    operation o = {.kind = WAIT};
    pthread_mutex_lock(&other->device->running);
    o.wait.other = other;
    o.wait.until = other->enqueued;
    pthread_mutex_unlock(&other->device->running);
    if (other == stream)
        return fake_is_refused(said) ? ITH_ERR_INTERNAL : ITH_OK;
    return fake_enqueue(stream, &o, said);
}

ith_status fake_wait_for_foreign(struct ith_device_stream *stream, void *foreign, char *said)
{
    if (!foreign)
        return fake_is_refused(said) ? ITH_ERR_INTERNAL : ITH_OK;
    return fake_wait_for(stream, foreign, said);
}

ith_status fake_query(struct ith_device_stream *stream, bool *done, char *said)
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
