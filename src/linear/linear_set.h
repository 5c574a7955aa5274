/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and sets from the inside, for the files that convert weights and multiply. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

#include "../kernels/product.h"
#include "linear.h"

/* One size of layer. Its products are cut along k into blocks of `depth` steps, of which the last may have fewer. */
typedef struct ith_linear_size {
    struct ith_linear_size *next;
    int64_t in, out;
    ith_operand_types types;
    const ith_product_kernel *kernel;
    int64_t depth, blocks;
    int parts_max;     /* the most parts that a converted weight may have */
    int64_t quantum;   /* units have a multiple of this number of features, except for the last of a layer */
    int64_t row_bytes; /* bytes of one part of a row of converted weights, within a block of k */
    int64_t features; /* the most features whose converted weights, within a block of k, stay in a second-level cache */
} ith_linear_size;

/* The linear layers of one model, and their sizes. */
struct ith_linear_set {
    ith_context *context;
    ith_status status;
    bool keeps_packed;
    int64_t count; /* number of sizes */
    ith_linear_size *sizes;
};

/* A layer. */
struct ith_linear {
    const ith_linear_size *size;
    ith_linear_weight weights[ITH_LINEAR_PARTS_MAX]; /* matrices, one below the other */
    int count;                                       /* number of matrices */
    int parts;                                       /* parts of a converted weight */
    char *packed; /* [blocks][parts_max][out][row_bytes]: converted weights; NULL if the set does not keep them */
    float *bias;  /* [out] */
};

/* Steps of block number `block` of k. */
static inline int64_t ith_linear_steps(const ith_linear_size *size, int64_t block)
{
    int64_t rest = size->in - block * size->depth;
    return rest < size->depth ? rest : size->depth;
}

/* Converted weights of some features within one block of k: a left operand of a product kernel. */
typedef struct ith_linear_left {
    const char *first;  /* part 0 of the first feature; the next feature lies size->row_bytes behind it */
    int64_t part_bytes; /* from one part to the next */
} ith_linear_left;

/* Converts the weights of features [first, first + count) within block number `block` of k. Part p of feature
 * first + i is written to `to` + p * part_bytes + i * row_bytes. Returns NULL, or the name of the file that was cut
 * while it was read. */
const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes);
/* Sets call->next_left to the weights of features [first, first + count) within a block of k. Features of a second
 * matrix are left out. */
void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call);

#endif
