/* SPDX-License-Identifier: Apache-2.0 */
/* Many arrays in one allocation, whose size is known before it is made: the same function lays the arrays out twice,
 * first with no base, which only counts, then with the memory. */
#ifndef ITH_BASE_ARENA_H
#define ITH_BASE_ARENA_H

#include <ithaca/ithaca.h>

#include "size.h"

#include <stddef.h>

#define ITH_ARENA_ALIGNMENT 64

typedef struct ith_arena {
    char *base; /* NULL: count only; aligned to ITH_ARENA_ALIGNMENT */
    int64_t used_bytes;
    bool overflow; /* more than a size can hold was asked for */
} ith_arena;

/* The place of count * size_bytes bytes, aligned; NULL while counting. Nothing may be written to it before. */
static inline void *ith_arena_take(ith_arena *arena, int64_t count, int64_t size_bytes)
{
    int64_t bytes, end;
    if (!ith_size_mul(count, size_bytes, &bytes) || !ith_size_add(arena->used_bytes, bytes, &end) ||
        end > INT64_MAX - ITH_ARENA_ALIGNMENT) {
        arena->overflow = true;
        return NULL;
    }
    char *place = arena->base ? arena->base + arena->used_bytes : NULL;
    arena->used_bytes = ith_round_up(end, ITH_ARENA_ALIGNMENT);
    return place;
}

/* Gives an arena that has counted the memory for all of it (base, to be freed with ith_free), and starts it anew.
 * ITH_ERR_MEMORY, with a sentence that names `what`, if there is not so much. */
ith_status ith_arena_allocate(ith_context *context, ith_arena *arena, const char *what);

#endif
