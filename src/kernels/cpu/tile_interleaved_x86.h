/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of tile_x86.h for rows of left that are interleaved, [steps][TILE_INTERLEAVED]: one stream of memory instead
 * of several, which is faster, most of all where another thread uses the same core (docs/perflog.md).
 *
 * Include tile_<isa>.h before this header, and define
 *   TILE_INTERLEAVED                  number of rows that are interleaved; the other rows of the tile, one at most, are
 *                                     plain
 *   TILE_INTERLEAVED_NUMBER(r, n)     the address of the number of interleaved row r in step n of a turn.
 *                                     TILE_POINTER_0 holds the end of these rows. TILE_INDEX rises to 0 by 4 with each
 *                                     step
 *   TILE_EACH_INTERLEAVED_ROW(text, a, b)   text(0, a, b) text(1, a, b) ..., for each interleaved row
 *   TILE_PLAIN_ROW(text, a, b)        text(r, a, b) for the plain row r, or nothing if there is none
 *   TILE_FETCH_OUT                    prefetches of a turn into the first-level cache, from the memory whose end is at
 *                                     TILE_POINTER_1, or nothing
 *   TILE_FETCH_OUT_NUMBERS            f32 numbers that they fetch for each step; 0 if there are none */
#ifndef ITH_KERNELS_TILE_INTERLEAVED_X86_H
#define ITH_KERNELS_TILE_INTERLEAVED_X86_H

#define TILE_INTERLEAVES

#define INTERLEAVED_ROW(r, n, vecs)                                                                                    \
    "vbroadcastss " TILE_INTERLEAVED_NUMBER(r, n) ", " TILE_BROADCAST "\n\t" TILE_FMA_##vecs(r)
#define INTERLEAVED_STEP(n, vecs)                                                                                      \
    TILE_LOAD_##vecs(n) TILE_EACH_INTERLEAVED_ROW(INTERLEAVED_ROW, n, vecs) TILE_PLAIN_ROW(TILE_ROW, n, vecs)
#define INTERLEAVED_END(r, a, b) TILE_END(r)
#define INTERLEAVED_BEGIN(vecs) TILE_END(0) TILE_END(1) TILE_PLAIN_ROW(INTERLEAVED_END, , ) TILE_BEGIN_COLUMNS(vecs)

/* The loop: single steps until whole turns are left, then turns. */
#define INTERLEAVED_LOOP(vecs, fetch)                                                                                  \
    INTERLEAVED_BEGIN(vecs)                                                                                            \
    "1:\n\tcmpq 24(%[input]), " TILE_INDEX "\n\tje 2f\n\t" INTERLEAVED_STEP(0, vecs)                                   \
        TILE_ADVANCE(1) "jmp 1b\n"                                                                                     \
                        "2:\n\ttestq " TILE_INDEX ", " TILE_INDEX "\n\tjz 4f\n\t.p2align 6\n3:\n\t" fetch              \
                        TILE_EACH_STEP(INTERLEAVED_STEP, vecs) TILE_ADVANCE(TILE_TURN_STEPS) "jnz 3b\n4:"

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    [steps][TILE_INTERLEAVED]
 * plain   the `steps` numbers of the plain row; NULL: there is none
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start
 * ahead   memory that the tile fetches if vecs is TILE_VECS; NULL (a constant of the caller): none
 * out     memory that is written after the tile. With `ahead`, its first steps * TILE_FETCH_OUT_NUMBERS numbers are
 *         fetched into the first-level cache. NULL if `ahead` is NULL */
static inline __attribute__((always_inline)) void
tile_sum_interleaved(vec sum[TILE_ROWS][TILE_VECS], const int vecs, const float *left, const float *plain,
                     const float *right, int64_t steps, const float *from, const tile_fetch *ahead, const float *out)
{
    tile_input input = tile_begin(from, right, steps, ahead);
    input.ends[TILE_ROWS - 1] = plain ? plain + steps : NULL;
    input.ends[0] = left + steps * TILE_INTERLEAVED;
    input.ends[1] = out ? out + steps * TILE_FETCH_OUT_NUMBERS : NULL;
    if (vecs == 3 && ahead != NULL && ahead->step_bytes == TILE_FETCH_BYTES)
        __asm__ volatile(INTERLEAVED_LOOP(3, TILE_FETCH TILE_FETCH_OUT)
                         : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 3 && ahead != NULL)
        __asm__ volatile(INTERLEAVED_LOOP(3, TILE_FETCH_4 TILE_FETCH_OUT)
                         : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 3)
        __asm__ volatile(INTERLEAVED_LOOP(3, ) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 2)
        __asm__ volatile(INTERLEAVED_LOOP(2, ) : TILE_SUMS(0), TILE_SUMS(1) TILE_OPERANDS);
    else
        __asm__ volatile(INTERLEAVED_LOOP(1, ) : TILE_SUMS(0) TILE_OPERANDS);
}

#endif
