/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of CLIP's image encoder, a vision transformer (arXiv:2103.00020, arXiv:2010.11929), and how a picture is
 * prepared for it. */
#ifndef ITH_WAN_VISION_CONFIG_H
#define ITH_WAN_VISION_CONFIG_H

#include "../../base/context.h"
#include "../../files/store.h"

/* The function between the two linear layers of a feed-forward network. */
typedef enum ith_vision_act {
    ITH_VISION_GELU,      /* x Phi(x) */
    ITH_VISION_GELU_QUICK /* x / (1 + e^(-1.702 x)) */
} ith_vision_act;

/* The sizes of an encoder, and the preparation of its pictures. */
typedef struct ith_vision_config {
    int64_t image, patch; /* sides of the square picture and of a square patch, in pixels */
    int64_t dim, heads, ffn_dim;
    int64_t layers; /* layers of the files; the last one is not computed */
    double eps;
    ith_vision_act act;
    /* The preparation of a picture: its shorter side becomes `resize` pixels, the middle of image x image pixels
     * remains, and x / 255 of colour i becomes (x / 255 - mean[i]) / std[i]. */
    int64_t resize;
    double mean[3], std[3];
} ith_vision_config;

/* The number of rows that a picture becomes: one for the class, and one for each patch. */
static inline int64_t ith_vision_tokens(const ith_vision_config *config)
{
    return (config->image / config->patch) * (config->image / config->patch) + 1;
}

/* Sets the preparation of a picture to CLIP's, for pictures of config->image. */
void ith_vision_config_usual(ith_vision_config *config);
/* Checks that all sizes are within limits, so that no product of two overflows, and the rules that they must meet
 * together. where: the beginning of the error message. */
ith_status ith_vision_config_check(ith_context *context, const char *where, const ith_vision_config *config);
/* Reads folder/config.json of a CLIPVisionModel or a CLIPVisionModelWithProjection. Any other encoder is refused; the
 * error message names the field that differs. A picture is prepared as CLIP's processor does by default, for the
 * encoder's size. */
ith_status ith_vision_config_read(ith_context *context, const char *folder, ith_vision_config *out);
/* Reads folder/preprocessor_config.json of a CLIPImageProcessor, and sets the preparation of a picture in `config`,
 * whose other members are set. */
ith_status ith_vision_processor_read(ith_context *context, const char *folder, ith_vision_config *config);

/* Sets the configuration of an encoder with canonical names in `store`. If folder/config.json describes an image
 * encoder, it gives the sizes. Otherwise they follow from the tensors, and the files must have all layers, the last one
 * too. Shapes show neither the heads nor the activation, so these are taken from Wan's encoder, ViT-H/14: 80 features
 * for each head, and exact GELU. folder NULL: there is none. */
ith_status ith_vision_config_find(ith_context *context, const char *folder, const ith_store *store,
                                  ith_vision_config *out);

#endif
