/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates the memory of an arena (arena.h). */
#include "arena.h"

#include "context.h"

#include <string.h>

ith_status ith_arena_allocate(ith_context *context, ith_arena *arena, const char *what)
{
    if (arena->overflow)
        return ith_fail(context, ITH_ERR_MEMORY, "%s: more memory than a size can hold", what);
    arena->base = ith_alloc(context, arena->used_bytes, 1, what);
    arena->used_bytes = 0;
    return arena->base ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_arena_allocate_zero(ith_context *context, ith_arena *arena, const char *what)
{
    const int64_t bytes = arena->used_bytes;
    ith_status status = ith_arena_allocate(context, arena, what);
    if (!status)
        memset(arena->base, 0, (size_t)bytes);
    return status;
}
