/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of ith_linear and ith_linear_set, for the files of this folder that use them. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

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
    char *packed; /* [blocks][parts_max][out][row_bytes]: converted weights that are kept; NULL: they are not kept */
    float *bias;  /* [out]; NULL for the matrices of an addition */
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

/* Sets the matrices of a layer, which are known to be legal, and converts them with the layer's merged additions if the
 * set keeps them. The matrices may be linear->weights. */
ith_status ith_linear_take(ith_context *context, ith_linear *linear, const ith_linear_weight *matrices, int count);
/* The set's size of layers from `in` to `out`; NULL: there are none. */
ith_linear_size *ith_linear_size_of(const ith_linear_set *set, int64_t in, int64_t out, const ith_operand_types *types);
/* Adds a layer without a bias to a set, with room for `matrices` matrices. Sets *size to its size, NULL after a
 * failure. Otherwise like ith_linear_lay_out. */
ith_linear *ith_linear_place(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, int64_t matrices,
                             ith_arena *arena, ith_linear_size **size);
/* The number of parts of the converted weights of a matrix. */
int ith_linear_weight_parts(const ith_linear_size *size, const ith_linear_weight *weight);

/* Converted weights of some features within one block of k: a left operand of a product kernel. */
typedef struct ith_linear_left {
    char *first;        /* part 0 of the first feature; the next feature lies size->row_bytes behind it */
    int64_t part_bytes; /* bytes from one part to the next */
} ith_linear_left;

/* The largest in out / (in + out) of a layer into which low-rank additions are merged. For rank r, merging costs r in
 * out operations whenever the weights are converted, and a separate product costs r (in + out) operations for each row.
 * So merging is faster from in out / (in + out) rows on. The choice does not depend on the number of rows, because the
 * bits of y may not depend on it. */
#define ITH_LINEAR_MERGES_MOST 2048

/* Whether low-rank additions to layers of this size can be merged, and in out / (in + out) is at most merges_most. */
bool ith_linear_may_merge(const ith_linear_size *size, int64_t merges_most);
/* Bytes of the converted weights of a layer. */
int64_t ith_linear_packed_bytes(const ith_linear_size *size);
/* Takes memory for these weights from an arena. */
char *ith_linear_take_packed(const ith_linear_size *size, ith_arena *arena);
/* The number of pieces in which all weights of a layer are converted. */
int64_t ith_linear_pieces(const ith_linear_size *size);
/* Converts one of these pieces into linear->packed. Returns NULL, or the name of the file that was cut while it was
 * read. */
const char *ith_linear_pack_piece(const ith_linear *linear, int64_t piece);
/* The packed weights of a layer within block number `block` of k, from output feature `first` on. */
ith_linear_left ith_linear_packed_left(const ith_linear *linear, int64_t first, int64_t block);

/* Converts the weights of features [first, first + count) within block number `block` of k, with the merged additions
 * to them. Writes part p of feature first + i to `to` + p * part_bytes + i * row_bytes. Returns NULL, or the name of
 * the file that was cut while it was read. */
const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes);
/* The same for all blocks of k: writes block b to `to` + b * block_bytes. */
const char *ith_linear_convert_all(const ith_linear *linear, int64_t first, int64_t count, char *to,
                                   int64_t block_bytes, int64_t part_bytes);
/* Lets a call of the kernel fetch the weights of features [first, first + count) within a block of k: sets the members
 * next_left* of the call. If the features lie in several matrices, it fetches only from the first. */
void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call);

#endif
