/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of the umT5 text encoder. */
#ifndef ITH_WAN_TEXT_CONFIG_H
#define ITH_WAN_TEXT_CONFIG_H

#include "../../base/context.h"
#include "../../files/store.h"

/* The sizes of an encoder. buckets, max_distance: of the biases by distance. */
typedef struct ith_text_config {
    int64_t vocab, dim, heads, head_dim, ffn_dim, layers, buckets, max_distance;
    double eps;
} ith_text_config;
/* Checks that all sizes are within limits, so that no product of two overflows, and the rules that they must meet
 * together. where: the beginning of the error message. */
ith_status ith_text_config_check(ith_context *context, const char *where, const ith_text_config *config);
/* Reads folder/config.json. Any encoder but a umT5 with gated GELU is refused; the error message names the field that
 * differs. */
ith_status ith_text_config_read(ith_context *context, const char *folder, ith_text_config *out);

/* Sets the configuration of an encoder with canonical names in `store`. If folder/config.json describes a text encoder,
 * it gives the sizes; otherwise they follow from the tensors. A T5 is refused. */
ith_status ith_text_config_find(ith_context *context, const char *folder, const ith_store *store, ith_text_config *out);

#endif
