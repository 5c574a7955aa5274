/* SPDX-License-Identifier: Apache-2.0 */
/* The members of linear layers and of their sets, for the files of this folder. */
#ifndef ITH_LINEAR_LINEAR_STATE_H
#define ITH_LINEAR_LINEAR_STATE_H

#include "../kernels/product.h"
#include "../kernels/rowops.h"
#include "../kernels/unpack.h"
#include "linear.h"

/* One size of layer. Its products are cut along k into blocks of `depth` steps; the last block may have fewer. */
typedef struct ith_linear_size {
    struct ith_linear_size *next;
    int64_t in, out;
    ith_operand_types types;
    const ith_product_kernel *kernel;
    const ith_product_kernel *exact; /* multiplies the matrices of merged additions */
    ith_unpack_fn unpack;
    const ith_rowops *rowops;
    int64_t depth, blocks;
    int parts_max;     /* the largest number of parts of a converted weight (product.h) */
    int64_t quantum;   /* the number of features of a unit is a multiple of this; only the last unit may have fewer */
    int64_t element;   /* bytes of one part of a converted weight */
    int64_t row_bytes; /* bytes of one part of a row of converted weights within a block of k */
    int64_t features;  /* the largest number of features of a unit: their converted weights within a block of k fit the
                          second-level cache */
    bool applied;   /* layers of this size are applied; otherwise they only hold matrices `up` of separate additions */
    bool may_merge; /* low-rank additions are merged: added to the weights when these are converted */
    bool merges;    /* layers of this size merge low-rank additions whenever they are applied */
    /* The largest sizes of the separate additions to a layer of this size: blocks of k behind the blocks of one matrix,
     * steps of the packed rows t, and bytes of one part of a row of converted weights. */
    int64_t added_blocks, added_steps, added_row_bytes;
} ith_linear_size;

/* The linear layers of one model, and their sizes. */
struct ith_linear_set {
    ith_context *context;
    ith_status status;
    ith_linear_keep keep;
    /* Low-rank additions are merged into layers where in out / (in + out) is at most this (ITH_LINEAR_MERGES_MOST;
     * tests change it before they lay out layers). */
    int64_t merges_most;
    int64_t count; /* number of sizes */
    ith_linear_size *sizes;
};

/* A separate addition to one matrix of a layer: a low-rank addition that is not merged. It adds the product up t, with
 * t = factor down x. Its blocks of k come behind the blocks of the matrix and of the additions before it. */
typedef struct ith_linear_added {
    int matrix;
    int64_t first; /* the first output feature of the matrix; its number of features is the number of outputs of `up` */
    int64_t at;    /* the first step of t in the packed rows t of the layer */
    int64_t number;        /* number of its first block among the blocks that additions append to the matrix */
    struct ith_linear *up; /* from rank to the rows of the matrix; without a bias */
} ith_linear_added;

/* A linear layer: pointers to its weights, and its bias. */
struct ith_linear {
    const ith_linear_size *size;
    ith_linear_weight *weights; /* matrices, one below the other; without data: zeros */
    int count;                  /* number of matrices */
    int parts;                  /* number of parts of a converted weight (product.h) */
    char *packed; /* [blocks][parts_max][ith_linear_left_rows][row_bytes]: converted weights; NULL: they are not kept */
    bool interleaved;    /* converted weights are interleaved (product.h) */
    float *bias;         /* [out]; NULL for the matrices of an addition */
    int64_t added_count; /* number of separate additions */
    ith_linear_added *added;
    ith_linear *down; /* their matrices `down`, each followed by rows of zeros up to whole steps of the kernel */
    float *factors;   /* [outputs of `down`]: the factors of t */
    /* Merged additions, which are added to the weights when these are converted. Before ith_linear_add their number is
     * 0, and their places hold only their sizes. */
    int64_t merged_count, merged_places;
    ith_linear_addition *merged;
    bool merges; /* some merged additions are of low rank */
};

/* The number of steps of block number `block` of k. */
static inline int64_t ith_linear_steps(const ith_linear_size *size, int64_t block)
{
    int64_t rest = size->in - block * size->depth;
    return rest < size->depth ? rest : size->depth;
}

/* The rows of the memory for converted weights of `features` features: whole tiles if rows may be interleaved. */
static inline int64_t ith_linear_left_rows(const ith_linear_size *size, int64_t features)
{
    return size->kernel->interleave ? ith_round_up(features, size->kernel->rows) : features;
}

/* The largest in out / (in + out) of a layer into which low-rank additions are merged. For rank r, merging costs r in
 * out operations whenever the weights are converted, and a separate product costs r (in + out) operations for each row.
 * So merging is faster from in out / (in + out) rows on. The choice does not depend on the number of rows, because the
 * bits of y may not depend on it. */
#define ITH_LINEAR_MERGES_MOST 2048

#endif
