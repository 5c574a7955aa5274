/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of a matrix product in registers, for AVX2 and AVX-512:
 *
 *     sum[r][j] = from[j] + sum over k < steps of left[r][k] right[k][j]
 *
 * The numbers of left are broadcast; the columns of right lie in the lanes of up to three vectors. Each sum[r][j] is
 * one chain of fused multiply-adds in the order of k, for any number of columns.
 *
 * The loop over k is one asm statement, because it needs every register: compilers that unroll it write some registers
 * to memory, and with few rows they read right from memory again in every multiply-add. Each turn of the loop computes
 * a few steps, which saves instructions: the number of instructions, rather than the multipliers, holds up two threads
 * that share a core.
 *
 * Include tile_avx2.h or tile_avx512.h, which define
 *   TILE_ROWS, TILE_VECS                the size of the tile in rows and vectors, TILE_VECS = 3
 *   TILE_TURN_STEPS                     number of steps of a turn, as a literal
 *   TILE_EACH_STEP(text, a)             text(0, a) text(1, a) ..., for each step of a turn
 *   TILE_VEC_BYTES                      bytes of a vector, as a string
 *   TILE_RIGHT_0, _1, _2                registers for the vectors of a step of right
 *   TILE_BROADCAST                      a register for a broadcast number
 *   TILE_POINTER_0, ...                 registers for the ends of the rows of left
 *   TILE_RIGHT                          a register for the address of a step of right
 *   TILE_INDEX                          a register for the distance to the ends of the rows
 *   TILE_AHEAD                          a register for the end of the memory that is fetched
 *   TILE_FETCH_BYTES, TILE_FETCH        the larger step_bytes of a tile_fetch; its prefetches in a turn
 *   TILE_EACH_ROW(text)                 text(0) text(1) ..., for each row
 *   TILE_EACH_ROW_OF(text, a, b)        text(0, a, b) text(1, a, b) ..., for each row
 *   TILE_SUMS(v)                        the operands s0v, s1v, ... of the asm statement: vector v of each row of sum
 *   TILE_CLOBBERS                       the registers above */
#ifndef ITH_KERNELS_TILE_X86_H
#define ITH_KERNELS_TILE_X86_H

#include "tile_fetch.h"

/* The instruction that multiplies and adds. With VDPBF16PS, left and right are pairs of bf16 in words of 32 bits. */
#ifndef TILE_MULTIPLY
#define TILE_MULTIPLY "vfmadd231ps"
#endif

/* The memory operand of the asm statement, which contains the offsets of these members as numbers. */
typedef struct tile_input {
    const float *from, *right;
    int64_t index;     /* the negative distance from the first step to the ends of the rows, in bytes */
    int64_t turns;     /* the negative distance from the first whole turn to the ends of the rows, in bytes */
    const char *ahead; /* the end of the memory that is fetched */
    const float *ends[TILE_ROWS];
} tile_input;

/* Step n of a turn. TILE_INDEX rises to 0. */
#define TILE_FMA(r, v) TILE_MULTIPLY " " TILE_RIGHT_##v ", " TILE_BROADCAST ", %[s" #r #v "]\n\t"
#define TILE_ROW(r, n, vecs)                                                                                           \
    "vbroadcastss 4*" #n "(" TILE_POINTER_##r "," TILE_INDEX "), " TILE_BROADCAST "\n\t" TILE_FMA_##vecs(r)
#define TILE_LOAD(v, n) "vmovups " TILE_VEC_BYTES "*(3*" #n "+" #v ")(" TILE_RIGHT "), " TILE_RIGHT_##v "\n\t"
#define TILE_STEP(n, vecs) TILE_LOAD_##vecs(n) TILE_EACH_ROW_OF(TILE_ROW, n, vecs)
#define TILE_ADVANCE(steps)                                                                                            \
    "addq $3*" TILE_TEXT(steps) "*" TILE_VEC_BYTES ", " TILE_RIGHT "\n\taddq $4*" TILE_TEXT(steps) ", " TILE_INDEX     \
                                                                                                   "\n\t"
#define TILE_TURN(vecs) TILE_EACH_STEP(TILE_STEP, vecs) TILE_ADVANCE(TILE_TURN_STEPS)

/* A macro's value as a string. */
#define TILE_TEXT(value) TILE_TEXT_OF(value)
#define TILE_TEXT_OF(value) #value

/* The multiply-adds of a row, and the loads of a step of right, for one, two and three vectors. */
#define TILE_FMA_1(r) TILE_FMA(r, 0)
#define TILE_FMA_2(r) TILE_FMA_1(r) TILE_FMA(r, 1)
#define TILE_FMA_3(r) TILE_FMA_2(r) TILE_FMA(r, 2)
#define TILE_LOAD_1(n) TILE_LOAD(0, n)
#define TILE_LOAD_2(n) TILE_LOAD_1(n) TILE_LOAD(1, n)
#define TILE_LOAD_3(n) TILE_LOAD_2(n) TILE_LOAD(2, n)

/* The instructions before the loop. TILE_END loads the end of row r. TILE_FROM loads vector v of `from` into the sums
 * of every row. */
#define TILE_END(r) "movq 40+8*" #r "(%[input]), " TILE_POINTER_##r "\n\t"
#define TILE_FROM_ROW(r, v, unused) "vmovaps %[s0" #v "], %[s" #r #v "]\n\t"
#define TILE_FROM(v)                                                                                                   \
    "vmovups " TILE_VEC_BYTES "*" #v "(" TILE_AHEAD "), %[s0" #v "]\n\t" TILE_EACH_ROW_OF(TILE_FROM_ROW, v, )
#define TILE_FROM_1 TILE_FROM(0)
#define TILE_FROM_2 TILE_FROM_1 TILE_FROM(1)
#define TILE_FROM_3 TILE_FROM_2 TILE_FROM(2)
#define TILE_BEGIN(vecs) TILE_EACH_ROW(TILE_END) TILE_BEGIN_COLUMNS(vecs)
#define TILE_BEGIN_COLUMNS(vecs)                                                                                       \
    "movq 8(%[input]), " TILE_RIGHT "\n\tmovq 16(%[input]), " TILE_INDEX "\n\tmovq (%[input]), " TILE_AHEAD            \
    "\n\t" TILE_FROM_##vecs "movq 32(%[input]), " TILE_AHEAD "\n\t"

/* Fetches memory that has 4 bytes for each step of the sum. */
#define TILE_FETCH_4 "prefetcht1 (" TILE_AHEAD "," TILE_INDEX ")\n\t"

/* The loop: single steps until whole turns are left, then turns. */
#define TILE_LOOP(vecs, fetch)                                                                                         \
    TILE_BEGIN(vecs)                                                                                                   \
    "1:\n\tcmpq 24(%[input]), " TILE_INDEX "\n\tje 2f\n\t" TILE_STEP(0, vecs)                                          \
        TILE_ADVANCE(1) "jmp 1b\n"                                                                                     \
                        "2:\n\ttestq " TILE_INDEX ", " TILE_INDEX "\n\tjz 4f\n\t.p2align 6\n3:\n\t" fetch              \
                        TILE_TURN(vecs) "jnz 3b\n4:"

/* The operands of the asm statement besides the sums. GCC accepts 30. */
#define TILE_OPERANDS : [input] "r"(&input) : TILE_CLOBBERS, "cc", "memory"

/* Returns the members of a tile_input besides `ends`. */
static inline __attribute__((always_inline)) tile_input tile_begin(const float *from, const float *right, int64_t steps,
                                                                   const tile_fetch *ahead)
{
    return (tile_input){.from = from,
                        .right = right,
                        .index = -steps * (int64_t)sizeof(float),
                        .turns = -(steps / TILE_TURN_STEPS * TILE_TURN_STEPS) * (int64_t)sizeof(float),
                        .ahead = ahead ? ahead->from + steps * ahead->step_bytes : NULL};
}

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    pointers to `steps` contiguous numbers each; pointers may be equal
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start
 * ahead   memory that the tile fetches if vecs is TILE_VECS; NULL (a constant of the caller): none */
static inline __attribute__((always_inline)) void tile_sum(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                           const float *const left[TILE_ROWS], const float *right,
                                                           int64_t steps, const float *from, const tile_fetch *ahead)
{
    tile_input input = tile_begin(from, right, steps, ahead);
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++)
        input.ends[r] = left[r] + steps;
    if (vecs == 3 && ahead != NULL && ahead->step_bytes == TILE_FETCH_BYTES)
        __asm__ volatile(TILE_LOOP(3, TILE_FETCH) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 3 && ahead != NULL)
        __asm__ volatile(TILE_LOOP(3, TILE_FETCH_4) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 3)
        __asm__ volatile(TILE_LOOP(3, ) : TILE_SUMS(0), TILE_SUMS(1), TILE_SUMS(2) TILE_OPERANDS);
    else if (vecs == 2)
        __asm__ volatile(TILE_LOOP(2, ) : TILE_SUMS(0), TILE_SUMS(1) TILE_OPERANDS);
    else
        __asm__ volatile(TILE_LOOP(1, ) : TILE_SUMS(0) TILE_OPERANDS);
}

#endif
