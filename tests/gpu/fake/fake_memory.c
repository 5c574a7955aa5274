/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a fake device (fake_device.h), and pinned memory.
 *
 * Memory of the device is a file in memory with two mappings. Callers get addresses in the first mapping, which nobody
 * can access. The module uses the second. */
#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 256                  /* of blocks */
#define MOST_FILLED ((int64_t)1 << 20) /* bytes of pinned memory that are filled with NaN; filling all takes long */

bool fake_map_arena(struct ith_device *device)
{
    device->seen = device->used = MAP_FAILED;
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

void fake_unmap_arena(struct ith_device *device)
{
    if (device->seen != MAP_FAILED)
        munmap(device->seen, ARENA_BYTES);
    if (device->used != MAP_FAILED)
        munmap(device->used, ARENA_BYTES);
}

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

bool fake_is_of_device(const struct ith_device *device, const void *pointer)
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
    return fake_is_of_device(device, pointer) ? device->used + (begin - device->seen) : (void *)(uintptr_t)begin;
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

ith_status fake_allocate(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    *out = NULL;
    if (fake_is_refused(said))
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

void fake_release(struct ith_device *device, void *pointer)
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

ith_status fake_allocate_pinned(struct ith_device *device, int64_t bytes, void **out, char *said)
{
    *out = NULL;
    if (fake_is_refused(said))
        return ITH_ERR_MEMORY;
    void *pointer = NULL;
    bytes = bytes > 0 ? bytes : 1;
    if (posix_memalign(&pointer, 64, (size_t)bytes)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
        return ITH_ERR_MEMORY;
    }
    memset(pointer, 0xff, (size_t)(bytes < MOST_FILLED ? bytes : MOST_FILLED));
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

void fake_release_pinned(struct ith_device *device, void *pointer)
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

bool fake_addresses(struct ith_device *device, const void *pointer)
{
    char said[ITH_DEVICE_SENTENCE];
    return fake_at(device, pointer, 1, said) != NULL;
}
