/* SPDX-License-Identifier: Apache-2.0 */
/* A hash with four independent states, called lanes. Each lane computes h = rotate((h ^ x) * odd constant) for every
 * fourth group x of eight bytes, so that the processor overlaps four multiplications. */
#include "hash.h"

#include <string.h>

enum { LANES = 4, WORD = 8 };

static const uint64_t FACTORS[LANES] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                                        0xd6e8feb86659fd93u};

/* Spreads every bit of h over all bits of the result. */
static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * FACTORS[3];
    h = (h ^ (h >> 29)) * FACTORS[1];
    return h ^ (h >> 32);
}

static uint64_t step(uint64_t h, uint64_t word, uint64_t factor)
{
    h = (h ^ word) * factor;
    return h << 29 | h >> 35;
}

uint64_t ith_hash(uint64_t before, const void *data, int64_t bytes)
{
    const unsigned char *from = data;
    uint64_t lanes[LANES], words[LANES], sum = before ^ (uint64_t)bytes;
    for (int i = 0; i < LANES; i++)
        lanes[i] = before + FACTORS[i];
    for (; bytes >= LANES * WORD; bytes -= LANES * WORD, from += LANES * WORD) {
        memcpy(words, from, sizeof words);
        for (int i = 0; i < LANES; i++)
            lanes[i] = step(lanes[i], words[i], FACTORS[i]);
    }
    memset(words, 0, sizeof words);
    if (bytes > 0)
        memcpy(words, from, (size_t)bytes);
    for (int i = 0; i < LANES; i++)
        sum = mix(sum ^ step(lanes[i], words[i], FACTORS[i]));
    return sum;
}
