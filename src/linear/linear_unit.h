/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a packed strip of rows by one linear layer, cut into units that threads compute alone.
 *
 * A unit is a panel of features by a group of right panels. With one thread, or with many features, one group has all
 * panels of the strip. */
#ifndef ITH_LINEAR_LINEAR_UNIT_H
#define ITH_LINEAR_LINEAR_UNIT_H

#include "../kernels/rowops.h"
#include "linear_set.h"

#include <stdatomic.h>

/* How a call of ith_linear_apply goes. All of its threads read and write it. */
typedef struct ith_linear_outcome {
    ith_context *context;
    atomic_int status;          /* the first failure of a thread, an ith_status */
    _Atomic(const char *) file; /* the file that was cut, if the status is ITH_ERR_IO */
} ith_linear_outcome;

/* The product of a strip by one layer; or by two of one size, whose products are multiplied number by number. Its
 * result goes to `output`, or becomes the packed hidden rows of a feed-forward network:
 *     rows of y = w x + b    or    hidden = act(w x + b)    or    hidden = act(w x + b) * (w' x + b') */
typedef struct ith_linear_product {
    const ith_linear *layer, *gate; /* gate NULL: there is one layer */
    const ith_rowops *rowops;
    ith_linear_outcome *outcome;
    int64_t first, rows;  /* rows of x */
    const char *panels;   /* the packed rows, one right panel behind the other */
    char *hidden;         /* right panels of the next product; NULL: the result goes to `output` */
    int64_t hidden_steps; /* steps of these panels */
    void (*act)(float *y, const float *x, int64_t n);
    const ith_linear_output *output;
    int64_t features, groups; /* features of a unit, and groups of right panels */
    int64_t units;
    atomic_llong *next_unit; /* the first unit that no thread has taken */
} ith_linear_product;

/* Right panels of a strip of `rows` rows. */
static inline int64_t ith_linear_panels(const ith_linear_size *size, int64_t rows)
{
    return (rows + size->kernel->columns - 1) / size->kernel->columns;
}

/* Chooses features, groups and units of a product for a team of threads. */
void ith_linear_divide(ith_linear_product *product, int threads);
/* Bytes of scratch memory with which a thread computes a unit of a layer of this size, for strips of `rows` rows. */
int64_t ith_linear_unit_bytes(const ith_linear_size *size, int64_t rows);
/* Takes units and computes them in the calling thread's scratch memory, until there are none or the call has failed. */
void ith_linear_compute(const ith_linear_product *product, char *memory);

#endif
