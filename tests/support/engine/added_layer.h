/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer with low-rank and dense additions. It has its numbers in f32 for an oracle, and also in the types of
 * the layer. */
#ifndef ITH_TESTS_ADDED_LAYER_H
#define ITH_TESTS_ADDED_LAYER_H

#include "support/engine/one_layer.h"

enum { ADDED_MATRICES = 3, ADDED_MOST = 4 };

typedef struct added_layer {
    int64_t in, out, matrices, count;
    bool separate;                      /* low-rank additions are not merged, whatever the size of the layer */
    int64_t begins[ADDED_MATRICES + 1]; /* rows [begins[i], begins[i + 1]) of w are matrix i */
    float *w, *bias;
    struct {
        ith_dtype type;
        void *numbers; /* NULL: the layer has the matrix in f32, as it is in w */
    } stored[ADDED_MATRICES];
    struct {
        int64_t rank;
        float *down, *up;
        void *stored_down, *stored_up;
    } parts[ADDED_MOST];
    ith_linear_addition additions[ADDED_MOST];
    one_layer layer;
} added_layer;

/* Makes the layer, whose numbers must be set, without its additions. */
void added_layer_attach_weights(ith_context *context, added_layer *s, int kind, ith_linear_keep keep);

/* Makes the layer, whose numbers must be set, with its additions. one_layer_free frees it and keeps the numbers. */
void added_layer_attach(ith_context *context, added_layer *s, int kind, ith_linear_keep keep);

/* Makes random numbers and the layer. Its additions have ranks up to `most_rank`, or are dense. */
added_layer added_layer_make(ith_context *context, uint64_t *seed, int64_t in, int64_t out, int64_t most_rank, int kind,
                             bool separate);

void added_layer_free(ith_context *context, added_layer *s);

#endif
