/* SPDX-License-Identifier: Apache-2.0 */
/* A forward pass, and the functions that compute it: on the processor (dit_forward.c) or on a device (device/). The
 * loop over the layers is the same. */
#ifndef ITH_WAN_DIT_PASS_H
#define ITH_WAN_DIT_PASS_H

#include "dit_workspace.h"

/* The stages of a layer: q, k and v; self-attention; its projection and the q of cross-attention; cross-attention; its
 * projection and the feed-forward network. */
#define ITH_DIT_STAGES 5

/* The state of one forward pass. */
typedef struct ith_dit_pass {
    ith_context *context;
    ith_dit_workspace *w;
    const ith_dit_layer *layer;
    int64_t index; /* number of the current layer */
    int64_t dim;
} ith_dit_pass;

/* The functions of a pass. They are called in the order of the members. */
typedef struct ith_dit_engine {
    /* x = patch embedding(rows); the time embedding is complete */
    ith_status (*embed)(const ith_dit_pass *pass, const ith_linear_input *rows);
    /* Waits for the weights of the current layer, and asks for the weights of the next one. NULL: there is nothing to
     * do. */
    ith_status (*begin_layer)(const ith_dit_pass *pass);
    ith_status (*stages[ITH_DIT_STAGES])(const ith_dit_pass *pass);
    void (*end_layer)(const ith_dit_pass *pass); /* NULL: nothing to do */
    /* out = head(x) */
    ith_status (*finish)(const ith_dit_pass *pass, float *out);
    /* For tests: the rows x in memory of the host. */
    const float *(*rows)(const ith_dit_pass *pass);
} ith_dit_engine;

/* The functions of a pass on the device of the expert. */
extern const ith_dit_engine ith_dit_device_engine;

/* For tests: passes the output of a stage in the current layer to the function that ith_dit_workspace_watch has set. */
void ith_dit_show_in_layer(const ith_dit_pass *pass, const char *part, const float *rows);

#endif
