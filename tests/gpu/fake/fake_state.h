/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a fake device (fake_device.h), and the functions of its memory (fake_memory.c) and of its streams
 * (fake_streams.c). Functions that are members of ith_device_module have its contracts. */
#ifndef ITH_TESTS_FAKE_STATE_H
#define ITH_TESTS_FAKE_STATE_H

#include "fake_device.h"

#include <pthread.h>

#define ARENA_BYTES ((int64_t)1 << 30) /* memory of a device */
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

/* Whether this call must fail, because a test asks for it. */
bool fake_is_refused(char *said);
/* Says that the processor has no memory left. Returns ITH_ERR_MEMORY. */
ith_status fake_out_of_memory(char *said);

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Makes the two mappings of the device's memory. Returns false if there is no memory; fake_unmap_arena frees what was
 * made in any case. */
bool fake_map_arena(struct ith_device *device);
void fake_unmap_arena(struct ith_device *device);
/* Whether an address is one of the device's memory, allocated or not. */
bool fake_is_of_device(const struct ith_device *device, const void *pointer);
ith_status fake_allocate(struct ith_device *device, int64_t bytes, void **out, char *said);
void fake_release(struct ith_device *device, void *pointer);
ith_status fake_allocate_pinned(struct ith_device *device, int64_t bytes, void **out, char *said);
void fake_release_pinned(struct ith_device *device, void *pointer);
bool fake_addresses(struct ith_device *device, const void *pointer);

/* ---- Streams --------------------------------------------------------------------------------------------------- */

ith_status fake_create_stream(struct ith_device *device, struct ith_device_stream **out, char *said);
void fake_destroy_stream(struct ith_device_stream *stream);
/* Enqueues an operation, or runs it AT_ONCE. kept: memory that the operation owns. */
ith_status fake_enqueue(struct ith_device_stream *stream, const operation *o, char *said);
/* Returns when all operations of a stream have run. */
void fake_run_all(struct ith_device_stream *stream);
ith_status fake_wait_for(struct ith_device_stream *stream, struct ith_device_stream *other, char *said);
/* A caller's stream is a stream of this module, or NULL, the default stream, which never has work. */
ith_status fake_wait_for_foreign(struct ith_device_stream *stream, void *foreign, char *said);
ith_status fake_query(struct ith_device_stream *stream, bool *done, char *said);

#endif
