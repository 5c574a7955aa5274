/* SPDX-License-Identifier: Apache-2.0 */
/* How the products of linear layers are cut up, for the files that pack weights and multiply.
 *
 * A product is cut into units: a band of ITH_BAND_ROWS rows of x by a panel of columns of w^T. One unit is one call of
 * a oneDNN primitive that was made for its shape and for one thread. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

#include "linear.h"
#include "onednn.h"

#define ITH_BAND_ROWS 64

/* One size of layer. All layers of this size and these types share it. */
typedef struct ith_product {
    struct ith_product *next;
    int index; /* in the set */
    int64_t in, out;
    ith_operand_types types;
    int64_t columns;       /* of a panel */
    int64_t panels;        /* the last may have fewer columns */
    int64_t panel_bytes;   /* of a packed panel in the multiplied type */
    int64_t stored_bytes;  /* of a packed panel in the stored type: the same, or half */
    int64_t scratch_bytes; /* of one call of oneDNN */
    ith_onednn_op *ops[2]; /* for a whole panel; for the last panel if it has fewer columns */
} ith_product;

struct ith_linear_set {
    ith_context *context;
    ith_status status;
    int count;
    ith_product *products;
    ith_linear *layers;
};

struct ith_linear {
    struct ith_linear *next;
    const ith_product *product;
    char *packed;                 /* [panels][stored_bytes] */
    struct dnnl_memory **weights; /* [panels]; none where panels are widened before they are multiplied */
    float *bias;                  /* [out], zero where there is none */
};

/* Whether weights are held in bf16 and multiplied in f32. */
static inline bool ith_product_widens(const ith_product *product)
{
    return product->types.stored != product->types.multiplied;
}

/* Which of the product's ops computes a panel. */
static inline int ith_product_op(const ith_product *product, int64_t panel)
{
    return product->ops[1] && panel == product->panels - 1;
}

#endif
