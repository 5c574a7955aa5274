/* SPDX-License-Identifier: Apache-2.0 */
/* Problems for attention kernels, and three results of each: exact in float64, by the plain computation in the
 * problem's type, and by the kernel. Every array that a kernel reads or writes lies between guard bytes. Arrays that it
 * writes are NaN at first. Rows lie in memory in reverse order, with a gap between them, and one element off any
 * alignment. */
#ifndef ITH_TESTS_KERNEL_PROBLEM_H
#define ITH_TESTS_KERNEL_PROBLEM_H

#include "kernels/kernel.h"

/* ---- Random numbers, guarded memory ---------------------------------------------------------------------------- */

extern uint64_t random_state;

void *allocate(int64_t count, size_t size);

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* Allocates `bytes` bytes, aligned to 64, that hold NaN, between two guards. `release` checks the guards. */
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
    uint8_t *shown; /* [rows, keys]: the mask of kind BOOL */
    float *added;   /* [rows, keys]: the mask of kind ADDITIVE */
    float *m;       /* [rows]: the offsets of FIXED_M */
    ith_attn_tiles tiles;
    bool piecemeal; /* each KV block is packed by several calls, from its end to its beginning */
    int cuts;       /* KV blocks are keys [cut[i], cut[i + 1]) */
    int64_t cut[CUTS_MAX + 1];
} problem;

typedef struct answer {
    float *o; /* [rows, D] */
    float *lse;
} answer;

float rounded(ith_dtype dtype, float x);

float *random_array(ith_dtype dtype, int64_t count, float size);

/* Makes a problem of normal numbers with logits of about `spread`, one KV block and the kernel's best tiles. */
problem make_problem(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t rows, int64_t keys, int64_t D,
                     float spread);

void free_problem(problem *p);

bool sees(const problem *p, int64_t i, int64_t j);

/* Adds a random mask of this kind, which hides all keys from some rows. */
void add_mask(problem *p, ith_mask kind);

/* Sets the softmax of the problem. For fixed_m it draws an offset for each row, so that the largest logit of the row in
 * base 2 exceeds the offset by -41 to 80. */
void set_softmax(problem *p, ith_softmax softmax);

/* Cuts the keys into 2 to CUTS_MAX KV blocks at random; some may be empty. */
void cut_somewhere(problem *p);

/* ---- The exact and the plain answer ---------------------------------------------------------------------------- */

answer make_answer(const problem *p);

void free_answer(answer *a);

/* The result in float64, by the oracle. */
answer exact(const problem *p);

/* The result of the plain computation: f32 logits, probabilities rounded to the type of v, f32 sums, the output rounded
 * to the problem's type. */
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

/* Makes one call of the kernel, for the KV block that begins at key `first` and queries from row `begin` on. */
void attend_keys(const ith_attn_kernel *kernel, const problem *p, ith_attn_call call, int64_t begin, int64_t first);

ith_attn_call call_of(const problem *p, int64_t count);

answer attend_rows(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count);

answer attend(const ith_attn_kernel *kernel, const problem *p);

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

double relative_error(const problem *p, const answer *a, const answer *b);

/* Half a unit in the last place of a number just below 1, in this type; for f32 a whole unit. */
double unit(ith_dtype dtype);

double bound_of(ith_dtype dtype);

void check_lse(const problem *p, const float *mine, const float *truth);

/* Compares o and lse of the kernel with float64. The relative L2 error of o must be within `bound`, and at most twice
 * the error of the plain computation, or one half unit of f32. If o has few numbers, the plain error may be small by
 * chance, and o may be a small difference of large values. Then `bound` does not count, and an error of some half units
 * in the last place is allowed. */
void check_accuracy(const ith_attn_kernel *kernel, const problem *p, double bound);

void assert_same_bits(const float *a, const float *b, int64_t count);

#endif
