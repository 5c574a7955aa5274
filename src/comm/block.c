/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between strided blocks of different layouts: two cursors, each of which walks over the runs of its block. */
#include "block.h"

#include "../base/size.h"

#include <string.h>

int64_t ith_block_bytes(const ith_block *block)
{
    int64_t bytes = 0;
    if (!ith_size_mul(block->count[0], block->count[1], &bytes) || !ith_size_mul(bytes, block->bytes, &bytes))
        return -1;
    return bytes;
}

/* The same bytes in as few runs as their place in memory allows. */
static ith_block flatten(ith_block block)
{
    if (block.count[1] == 1 || block.stride[1] == block.bytes) {
        block.bytes *= block.count[1];
        block.count[1] = 1;
    }
    if (block.count[1] == 1 && (block.count[0] == 1 || block.stride[0] == block.bytes)) {
        block.bytes *= block.count[0];
        block.count[0] = 1;
    }
    return block;
}

typedef struct cursor {
    ith_block block;
    int64_t run[2]; /* which run */
    int64_t done;   /* bytes of it */
} cursor;

static char *cursor_at(const cursor *c)
{
    return (char *)c->block.data + c->run[0] * c->block.stride[0] + c->run[1] * c->block.stride[1] + c->done;
}

static void cursor_advance(cursor *c, int64_t bytes)
{
    c->done += bytes;
    if (c->done < c->block.bytes)
        return;
    c->done = 0;
    if (++c->run[1] < c->block.count[1])
        return;
    c->run[1] = 0;
    c->run[0]++;
}

void ith_block_copy(const ith_block *target, const ith_block *source)
{
    int64_t left = ith_block_bytes(source);
    cursor to = {.block = flatten(*target)}, from = {.block = flatten(*source)};
    while (left > 0) {
        int64_t bytes = ith_min64(to.block.bytes - to.done, from.block.bytes - from.done);
        memcpy(cursor_at(&to), cursor_at(&from), (size_t)bytes);
        cursor_advance(&to, bytes);
        cursor_advance(&from, bytes);
        left -= bytes;
    }
}
