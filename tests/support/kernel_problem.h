/* SPDX-License-Identifier: Apache-2.0 */
/* Problems for attention kernels, and three answers to each: float64, the plain way of computing the same in the same
 * type, and the kernel's. Every array that a kernel reads or writes lies between guard bytes, what it writes starts as
 * NaNs, and rows stand in memory in reverse order, some elements apart and one off any alignment. */
#ifndef ITH_TESTS_KERNEL_PROBLEM_H
#define ITH_TESTS_KERNEL_PROBLEM_H

#include "kernels/kernel.h"

/* ---- Random numbers, guarded memory ---------------------------------------------------------------------------- */

extern uint64_t random_state;

void *allocate(int64_t count, size_t size);

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* `bytes` of NaNs between two guards; aligned to 64. */
void *guarded(int64_t bytes);

void release(void *array, int64_t bytes);

/* ---- A problem ------------------------------------------------------------------------------------------------- */

enum { CUTS_MAX = 5 };

typedef struct problem {
    ith_dtype dtype;
    ith_softmax softmax;
    int64_t rows, keys, D;
    float scale;
    float *q, *k, *v; /* [rows or keys, D]: numbers that dtype holds */
    float *bias;      /* [keys] or NULL */
    bool *absent;     /* [keys] or NULL */
    ith_mask mask_kind;
    uint8_t *shown; /* [rows, keys], BOOL */
    float *added;   /* [rows, keys], ADDITIVE */
    float *m;       /* [rows], FIXED_M */
    ith_attn_tiles tiles;
    bool piecemeal; /* packed in several calls, in any order */
    int cuts;       /* KV blocks are keys [cut[i], cut[i + 1]) */
    int64_t cut[CUTS_MAX + 1];
} problem;

typedef struct answer {
    float *o; /* [rows, D] */
    float *lse;
} answer;

float rounded(ith_dtype dtype, float x);

float *random_array(ith_dtype dtype, int64_t count, float size);

/* Normal numbers, logits of about `spread`, one KV block, the tiles that the kernel likes best. */
problem make_problem(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t rows, int64_t keys, int64_t D,
                     float spread);

void free_problem(problem *p);

bool sees(const problem *p, int64_t i, int64_t j);

/* A random mask of that kind, with a few rows that see nothing. */
void add_mask(problem *p, ith_mask kind);

/* Turns the problem into one of that softmax: offsets from which a row's largest logit is between 2^-40 and 2^80. */
void set_softmax(problem *p, ith_softmax softmax);

/* Up to CUTS_MAX KV blocks, some of them empty. */
void cut_somewhere(problem *p);

/* ---- The exact and the plain answer ---------------------------------------------------------------------------- */

answer make_answer(const problem *p);

void free_answer(answer *a);

/* In float64. */
answer exact(const problem *p);

/* f32 logits, weights rounded to the type of v, f32 sums, the output rounded to its type. */
answer plain(const problem *p);

/* ---- The kernel's answer --------------------------------------------------------------------------------------- */

/* Rows of D numbers somewhere in memory. */
typedef struct scattered {
    void **row;
    char *memory;
    int64_t bytes, count, stride;
} scattered;

scattered make_rows(const problem *p, int64_t count, int64_t stride);

scattered make_rows_of(const problem *p, const float *x, int64_t count, int64_t stride);

void free_rows(scattered *r);

/* State between calls, in guarded memory. */
typedef struct saved_state {
    int64_t bytes, o_bytes;
    float *m, *l, *o_sum;
} saved_state;

saved_state make_state(const problem *p, int64_t count);

void free_state(saved_state *s);

/* One call: keys [first, first + keys), and queries from row `begin` on. */
void attend_keys(const ith_attn_kernel *kernel, const problem *p, ith_attn_call call, int64_t begin, int64_t first);

ith_attn_call call_of(const problem *p, int64_t count);

answer attend_rows(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count);

answer attend(const ith_attn_kernel *kernel, const problem *p);

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

double relative_error(const problem *p, const answer *a, const answer *b);

/* Half a unit in the last place. */
double unit(ith_dtype dtype);

double bound_of(ith_dtype dtype);

void check_lse(const problem *p, const float *mine, const float *truth);

/* o and lse of the kernel against float64: within the type's bound, and at most twice as far as the plain way, which
 * for a lone key may be right to the bit. On a few numbers that may be so by luck, and o so small a difference of large
 * v that no bound holds: only some units are asked for then. */
void check_accuracy(const ith_attn_kernel *kernel, const problem *p, double bound);

void assert_same_bits(const float *a, const float *b, int64_t count);

#endif
