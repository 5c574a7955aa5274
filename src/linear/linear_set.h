/* SPDX-License-Identifier: Apache-2.0 */
/* The division of the products of linear layers into units, for the files that pack weights and multiply.
 *
 * A unit is a band of ITH_BAND_ROWS rows of x by a panel of columns of w^T. One unit is one call of a oneDNN primitive
 * that was made for its shape and for one thread. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

#include "linear.h"
#include "onednn.h"

#define ITH_BAND_ROWS 64

/* One size of layer. All layers of this size and these types share its oneDNN primitives. */
typedef struct ith_product {
    struct ith_product *next;
    int index; /* number of this size among the sizes of the set, from 0 */
    int64_t in, out;
    ith_operand_types types;
    int64_t columns;       /* columns of w^T in a panel */
    int64_t panels;        /* number of panels of columns; the last may have fewer columns */
    int64_t panel_bytes;   /* bytes of a packed panel in the type that is multiplied */
    int64_t stored_bytes;  /* bytes of a packed panel in the type that is stored: panel_bytes or half of it */
    int64_t scratch_bytes; /* bytes of scratch memory of one call of oneDNN */
    ith_onednn_op *ops[2]; /* oneDNN primitives for a whole panel, and for a last panel with fewer columns */
} ith_product;

/* The linear layers of one model, and the sizes that they have. */
struct ith_linear_set {
    ith_context *context;
    ith_status status;
    int count;
    ith_product *products;
    ith_linear *layers;
};

/* A layer: its packed weights and its bias. */
struct ith_linear {
    struct ith_linear *next;
    const ith_product *product;
    char *packed; /* [panels][stored_bytes]: packed weights */
    /* [panels]: oneDNN handles of the packed weights; NULL if weights are stored in bf16 and multiplied in f32. */
    struct dnnl_memory **weights;
    float *bias; /* [out]; zeros if the layer has no bias */
};

/* Whether weights are stored in bf16 and multiplied in f32, so that they must be widened. */
static inline bool ith_product_widens(const ith_product *product)
{
    return product->types.stored != product->types.multiplied;
}

/* The index in product->ops of the primitive that multiplies panel number `panel` of the weights. */
static inline int ith_product_op(const ith_product *product, int64_t panel)
{
    return product->ops[1] && panel == product->panels - 1;
}

#endif
