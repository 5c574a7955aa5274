/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a packed strip of rows by one linear layer, cut into units. One thread computes a unit.
 *
 * A unit is the product of some output features by a range of right panels. With one thread, or with many features, a
 * range has all right panels of the strip. */
#ifndef ITH_LINEAR_LINEAR_UNIT_H
#define ITH_LINEAR_LINEAR_UNIT_H

#include "../kernels/rowops.h"
#include "linear_state.h"
#include "linear_work.h"

/* The product of a strip by a layer or, with a gate, by two layers of the same size. The result goes to `output`, or
 * becomes the packed hidden rows of a feed-forward network:
 *     y = w x + b    or    hidden = act(w x + b)    or    hidden = act(w x + b) * (w_gate x + b_gate)
 * Separate low-rank additions to w add their products, `up` times t, to w x. */
typedef struct ith_linear_product {
    const ith_linear *layer, *gate; /* gate NULL: there is one layer */
    const ith_rowops *rowops;
    ith_linear_outcome *outcome;
    int64_t first, rows;  /* the strip is rows [first, first + rows) of x */
    const char *panels;   /* the packed rows of the strip, one right panel behind the other */
    const char *added[2]; /* the packed rows t of the additions to the layer, and to the gate */
    char *hidden;         /* packed hidden rows, right panels of the next product; NULL: the result goes to `output` */
    int64_t hidden_steps; /* steps of a panel of hidden rows */
    void (*act)(float *y, const float *x, int64_t n);
    const float *factors; /* NULL: there are none; otherwise hidden = factor w x, the rows t of additions */
    const ith_linear_output *output;
    int64_t features; /* output features of a unit */
    int64_t ranges;   /* number of ranges of right panels */
    int64_t units;
    int64_t strip;           /* number of the strip */
    ith_linear_stage *stage; /* the stage whose items are the units */
    /* A unit begins to write its results when this stage of the strip before has ended. NULL: at once. */
    const ith_linear_stage *frees;
} ith_linear_product;

/* The number of right panels of a strip of `rows` rows. */
static inline int64_t ith_linear_panels(const ith_linear_size *size, int64_t rows)
{
    return (rows + size->kernel->columns - 1) / size->kernel->columns;
}

/* Cuts a product into units for a team of threads: sets its features, ranges and units. A product with fewer rows may
 * have the same features, ranges and units; some units are empty then. */
void ith_linear_divide(ith_linear_product *product, int threads);
/* Bytes of scratch memory with which a thread computes a unit of a layer of this size, for strips of `rows` rows. */
int64_t ith_linear_unit_bytes(const ith_linear_size *size, int64_t rows);
/* Computes units in the calling thread's scratch memory `memory` until none is left or the call has failed. Other
 * threads may still compute theirs then. */
void ith_linear_compute(const ith_linear_product *product, char *memory);

#endif
