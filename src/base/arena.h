/* SPDX-License-Identifier: Apache-2.0 */
/* Many arrays in one allocation. The same function lays the arrays out twice: first without memory, to count the bytes,
 * then in an allocation of that size. So the predicted size is the allocated size. */
#ifndef ITH_BASE_ARENA_H
#define ITH_BASE_ARENA_H

#include <ithaca/ithaca.h>

#include "size.h"

#include <stddef.h>

#define ITH_ARENA_ALIGNMENT 64 /* alignment in bytes of every array in an arena */

/* An allocation in which arrays are laid out, or the count of its bytes. */
typedef struct ith_arena {
    char *base;         /* NULL while the arena only adds up bytes; otherwise aligned to ITH_ARENA_ALIGNMENT */
    int64_t used_bytes; /* bytes reserved so far */
    bool overflow;      /* the sum of the sizes does not fit into an int64_t */
} ith_arena;

/* Reserves count * size_bytes bytes at an aligned address. Returns NULL while the arena has no memory yet and
 * only adds up the bytes. */
static inline void *ith_arena_take(ith_arena *arena, int64_t count, int64_t size_bytes)
{
    int64_t bytes = 0, end = 0;
    if (!ith_size_mul(count, size_bytes, &bytes) || !ith_size_add(arena->used_bytes, bytes, &end) ||
        end > INT64_MAX - ITH_ARENA_ALIGNMENT) {
        arena->overflow = true;
        return NULL;
    }
    char *place = arena->base ? arena->base + arena->used_bytes : NULL;
    arena->used_bytes = ith_round_up(end, ITH_ARENA_ALIGNMENT);
    return place;
}

/* Reserves further bytes until at least `bytes` lie behind `begin`, an earlier value of used_bytes. So arrays that are
 * never in use together can share the bytes behind `begin`. */
static inline void ith_arena_extend(ith_arena *arena, int64_t begin, int64_t bytes)
{
    ith_arena_take(arena, ith_max64(bytes - (arena->used_bytes - begin), 0), 1);
}

/* Allocates the bytes that the arena has counted, and resets the count for the second layout. The caller frees
 * arena->base with ith_free. ITH_ERR_MEMORY, with an error sentence that names `what`, if the allocation fails. */
ith_status ith_arena_allocate(ith_context *context, ith_arena *arena, const char *what);
/* As ith_arena_allocate, and fills the memory with zeros. */
ith_status ith_arena_allocate_zero(ith_context *context, ith_arena *arena, const char *what);

#endif
