/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of tile_avx2.h for rows of left that are interleaved, [steps][TILE_ROWS]: one stream of memory instead of
 * four, which is faster, most of all where another thread uses the same core (docs/perflog.md). */
#ifndef ITH_KERNELS_TILE_INTERLEAVED_AVX2_H
#define ITH_KERNELS_TILE_INTERLEAVED_AVX2_H

#include "tile_avx2.h"

#define TILE_INTERLEAVES

_Static_assert(TILE_ROWS == 4, "the address of a step is 4 times the index");

/* Step n of a turn. TILE_INDEX rises to 0; r8 holds the end of left. */
#define INTERLEAVED_ROW(r, n, vecs)                                                                                    \
    "vbroadcastss 16*" #n "+4*" #r "(%%r8," TILE_INDEX ",4), %%ymm15\n\t" TILE_FMA_##vecs(r)
#define INTERLEAVED_STEP(n, vecs) TILE_LOAD_##vecs(n) TILE_EACH_ROW_OF(INTERLEAVED_ROW, n, vecs)
#define INTERLEAVED_TURN(vecs)                                                                                         \
    INTERLEAVED_STEP(0, vecs) INTERLEAVED_STEP(1, vecs) INTERLEAVED_STEP(2, vecs) INTERLEAVED_STEP(3, vecs)

/* The instructions before the loop. INTERLEAVED_FROM loads vector v of `from` into the sums of every row. */
#define INTERLEAVED_FROM(v) "vmovups 32*" #v "(%[from]), %[s0" #v "]\n\t" TILE_EACH_ROW_OF(TILE_FROM_ROW, v, )
#define INTERLEAVED_FROM_1 INTERLEAVED_FROM(0)
#define INTERLEAVED_FROM_2 INTERLEAVED_FROM_1 INTERLEAVED_FROM(1)
#define INTERLEAVED_FROM_3 INTERLEAVED_FROM_2 INTERLEAVED_FROM(2)
#define INTERLEAVED_BEGIN(vecs)                                                                                        \
    "movq %[end], %%r8\n\tmovq %[right], " TILE_RIGHT "\n\tmovq %[index], " TILE_INDEX "\n\t" INTERLEAVED_FROM_##vecs

/* Fetches memory that has TILE_FETCH_BYTES = 16, or 4, bytes for each step of the sum. */
#define INTERLEAVED_FETCH "prefetcht1 (%[ahead]," TILE_INDEX ",4)\n\t"
#define INTERLEAVED_FETCH_4 "prefetcht1 (%[ahead]," TILE_INDEX ")\n\t"

/* The loop: single steps until whole turns are left, then turns. */
#define INTERLEAVED_LOOP(vecs, fetch)                                                                                  \
    INTERLEAVED_BEGIN(vecs)                                                                                            \
    "1:\n\tcmpq %[turns], " TILE_INDEX "\n\tje 2f\n\t" INTERLEAVED_STEP(0, vecs)                                       \
        TILE_ADVANCE(1) "jmp 1b\n"                                                                                     \
                        "2:\n\ttestq " TILE_INDEX ", " TILE_INDEX "\n\tjz 4f\n\t.p2align 6\n3:\n\t" fetch              \
                        INTERLEAVED_TURN(vecs) TILE_ADVANCE(4) "jnz 3b\n4:"

/* The operands of the asm statement besides the sums. */
#define INTERLEAVED_OPERANDS                                                                                           \
    : [from] "r"(from), [right] "r"(right), [index] "r"(index), [turns] "r"(turns), [end] "r"(end), [ahead] "r"(past)  \
    : "rcx", "rdx", "r8", "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory"

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    [steps][TILE_ROWS]
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start
 * ahead   memory that the tile fetches if vecs is TILE_VECS; NULL (a constant of the caller): none */
static inline __attribute__((always_inline)) void tile_sum_interleaved(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                                       const float *left, const float *right,
                                                                       int64_t steps, const float *from,
                                                                       const tile_fetch *ahead)
{
    /* Negative distances to the end, in steps of 4 bytes: from the first step, and from the first whole turn. */
    const int64_t index = -steps * 4, turns = -(steps / 4 * 4) * 4;
    const float *end = left + steps * TILE_ROWS;
    const char *past = ahead ? ahead->from + steps * ahead->step_bytes : NULL;
    if (vecs == 3 && ahead && ahead->step_bytes == TILE_FETCH_BYTES)
        __asm__ volatile(INTERLEAVED_LOOP(3, INTERLEAVED_FETCH)
                         : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) INTERLEAVED_OPERANDS);
    else if (vecs == 3 && ahead)
        __asm__ volatile(INTERLEAVED_LOOP(3, INTERLEAVED_FETCH_4)
                         : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) INTERLEAVED_OPERANDS);
    else if (vecs == 3)
        __asm__ volatile(INTERLEAVED_LOOP(3, ) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) INTERLEAVED_OPERANDS);
    else if (vecs == 2)
        __asm__ volatile(INTERLEAVED_LOOP(2, ) : TILE_SUMS(0), TILE_SUMS(1) INTERLEAVED_OPERANDS);
    else
        __asm__ volatile(INTERLEAVED_LOOP(1, ) : TILE_SUMS(0) INTERLEAVED_OPERANDS);
}

#endif
