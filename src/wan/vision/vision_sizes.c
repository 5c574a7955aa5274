/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of CLIP's image encoder without a config.json, from the shapes of its tensors. */
#include "../../base/size.h"
#include "../part/config_fields.h"
#include "vision_config.h"

#include <math.h>
#include <string.h>

#define PUBLISHED_HEAD_DIM 80 /* of ViT-H/14, the image encoder of Wan 2.1 */

#define MODEL "vision_model."
#define LAYERS MODEL "encoder.layers."

/* Returns the largest integer whose square is at most x. */
static int64_t root_of(int64_t x)
{
    int64_t root = (int64_t)sqrt((double)x);
    return root * root > x ? root - 1 : root;
}

static ith_status read_shapes(ith_context *context, const ith_store *store, ith_vision_config *out)
{
    static const char filters[] = MODEL "embeddings.patch_embedding.weight";
    static const char positions[] = MODEL "embeddings.position_embedding.weight";
    const char *path = ith_store_path(store);
    const int64_t patches = ith_store_rows(store, positions) - 1, grid = root_of(ith_max64(patches, 0));
    *out = (ith_vision_config){.patch = ith_store_size(store, filters, 2),
                               .dim = ith_store_size(store, filters, 0),
                               .ffn_dim = ith_store_size(store, LAYERS "0.mlp.fc1.weight", 0),
                               .layers = ith_store_count(store, LAYERS, ".layer_norm1.weight", INT16_MAX),
                               .eps = 1e-5,
                               .act = ITH_VISION_GELU};
    if (grid < 1 || grid * grid != patches || !out->patch || !out->dim || !out->ffn_dim || !out->layers)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: its tensors do not make an image encoder of CLIP", path);
    if (!ith_size_mul(grid, out->patch, &out->image))
        out->image = INT64_MAX; /* which is refused below */
    if (out->dim % PUBLISHED_HEAD_DIM)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: its rows have %lld features: without a config.json beside it, the image encoder must be "
                        "CLIP's ViT-H/14, which Wan 2.1 has, whose rows have 1280",
                        path, (long long)out->dim);
    out->heads = out->dim / PUBLISHED_HEAD_DIM;
    ith_vision_config_usual(out);
    return ith_vision_config_check(context, path, out);
}

ith_status ith_vision_config_find(ith_context *context, const char *folder, const ith_store *store,
                                  ith_vision_config *out)
{
    ith_config_class name;
    ith_status status = ith_config_class_read(context, folder, &name);
    if (!status && (strstr(name.text, "CLIPVisionModel") || !strcmp(name.text, "clip_vision_model")))
        return ith_vision_config_read(context, folder, out);
    return status ? status : read_shapes(context, store, out);
}
