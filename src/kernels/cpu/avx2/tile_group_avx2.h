/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of tile_avx2.h for a group: rows of left that are interleaved, [steps][TILE_ROWS]. A group is one stream of
 * memory, and rows are four. So a group is faster, most of all where another thread uses the same core
 * (docs/perflog.md). */
#ifndef ITH_KERNELS_TILE_GROUP_AVX2_H
#define ITH_KERNELS_TILE_GROUP_AVX2_H

#include "tile_avx2.h"

_Static_assert(TILE_ROWS == 4, "the address of a step is 4 times the index");

/* Step n of a turn. TILE_INDEX rises to 0; r8 holds the end of the group. */
#define GROUP_ROW(r, n, vecs) "vbroadcastss 16*" #n "+4*" #r "(%%r8," TILE_INDEX ",4), %%ymm15\n\t" TILE_FMA_##vecs(r)
#define GROUP_STEP(n, vecs) TILE_LOAD_##vecs(n) TILE_EACH_ROW_OF(GROUP_ROW, n, vecs)
#define GROUP_TURN(vecs) GROUP_STEP(0, vecs) GROUP_STEP(1, vecs) GROUP_STEP(2, vecs) GROUP_STEP(3, vecs)

/* The instructions before the loop. GROUP_FROM loads vector v of `from` into the sums of every row. */
#define GROUP_FROM(v) "vmovups 32*" #v "(%[from]), %[s0" #v "]\n\t" TILE_EACH_ROW_OF(TILE_FROM_ROW, v, )
#define GROUP_FROM_1 GROUP_FROM(0)
#define GROUP_FROM_2 GROUP_FROM_1 GROUP_FROM(1)
#define GROUP_FROM_3 GROUP_FROM_2 GROUP_FROM(2)
#define GROUP_BEGIN(vecs)                                                                                              \
    "movq %[end], %%r8\n\tmovq %[right], " TILE_RIGHT "\n\tmovq %[index], " TILE_INDEX "\n\t" GROUP_FROM_##vecs

/* The loop: single steps until whole turns are left, then turns. */
#define GROUP_LOOP(vecs)                                                                                               \
    GROUP_BEGIN(vecs)                                                                                                  \
    "1:\n\tcmpq %[turns], " TILE_INDEX "\n\tje 2f\n\t" GROUP_STEP(0, vecs)                                             \
        TILE_ADVANCE(1) "jmp 1b\n"                                                                                     \
                        "2:\n\ttestq " TILE_INDEX ", " TILE_INDEX "\n\tjz 4f\n\t.p2align 6\n3:\n\t" GROUP_TURN(vecs)   \
                            TILE_ADVANCE(4) "jnz 3b\n4:"

/* The operands of the asm statement besides the sums. */
#define GROUP_OPERANDS                                                                                                 \
    : [from] "r"(from), [right] "r"(right), [index] "r"(index), [turns] "r"(turns), [end] "r"(end)                     \
    : TILE_CLOBBERS, "cc", "memory"

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    [steps][TILE_ROWS]
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start */
static inline __attribute__((always_inline)) void tile_sum_group(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                                 const float *left, const float *right, int64_t steps,
                                                                 const float *from)
{
    /* Negative distances to the end, in steps of 4 bytes: from the first step, and from the first whole turn. */
    const int64_t index = -steps * 4, turns = -(steps / 4 * 4) * 4;
    const float *end = left + steps * TILE_ROWS;
    if (vecs == 3)
        __asm__ volatile(GROUP_LOOP(3) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) GROUP_OPERANDS);
    else if (vecs == 2)
        __asm__ volatile(GROUP_LOOP(2) : TILE_SUMS(0), TILE_SUMS(1) GROUP_OPERANDS);
    else
        __asm__ volatile(GROUP_LOOP(1) : TILE_SUMS(0) GROUP_OPERANDS);
}

/* tile_rows() of tile_rows.h for a group. left_stride has no meaning. */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from)
{
    (void)left_stride;
    tile_sum_group(sum, vecs, left, right, steps, from);
}

#endif
