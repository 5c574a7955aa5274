/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of ith_linear and ith_linear_set, for the files of this folder that use them. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

#include "../kernels/product.h"
#include "linear.h"

/* One size of layer. Its products are cut along k into blocks of `depth` steps; the last block may have fewer. */
typedef struct ith_linear_size {
    struct ith_linear_size *next;
    int64_t in, out;
    ith_operand_types types;
    const ith_product_kernel *kernel;
    int64_t depth, blocks;
    int parts_max;     /* the largest number of parts of a converted weight (product.h) */
    int64_t quantum;   /* the number of features of a unit is a multiple of this; only the last unit may have fewer */
    int64_t row_bytes; /* bytes of one part of a row of converted weights within a block of k */
    int64_t features;  /* the largest number of features of a unit: their converted weights within a block of k fit the
                          second-level cache */
} ith_linear_size;

/* The linear layers of one model, and their sizes. */
struct ith_linear_set {
    ith_context *context;
    ith_status status;
    bool keeps_packed;
    int64_t count; /* number of sizes */
    ith_linear_size *sizes;
};

/* A linear layer: pointers to its weights, and its bias. */
struct ith_linear {
    const ith_linear_size *size;
    ith_linear_weight weights[ITH_LINEAR_MATRICES_MAX]; /* matrices, one below the other */
    int count;                                          /* number of matrices */
    int parts;                                          /* number of parts of a converted weight (product.h) */
    char *packed; /* [blocks][parts_max][out][row_bytes]: converted weights; NULL if the set does not keep them */
    float *bias;  /* [out] */
};

/* The number of steps of block number `block` of k. */
static inline int64_t ith_linear_steps(const ith_linear_size *size, int64_t block)
{
    int64_t rest = size->in - block * size->depth;
    return rest < size->depth ? rest : size->depth;
}

/* Converted weights of some features within one block of k: a left operand of a product kernel. */
typedef struct ith_linear_left {
    const char *first;  /* part 0 of the first feature; the next feature lies size->row_bytes behind it */
    int64_t part_bytes; /* bytes from one part to the next */
} ith_linear_left;

/* Converts the weights of features [first, first + count) within block number `block` of k. Part p of feature
 * first + i is written to `to` + p * part_bytes + i * row_bytes. Returns NULL, or the name of the file that was cut
 * while it was read. */
const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes);
/* Lets a call of the kernel fetch the weights of features [first, first + count) within a block of k: sets the members
 * next_left* of the call. If the features lie in several matrices, it fetches only from the first. */
void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call);

#endif
