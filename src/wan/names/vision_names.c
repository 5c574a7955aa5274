/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the tensors of CLIP's image encoder in the original code, whose file has a text encoder too, and in
 * transformers' files of both encoders (module_names.h). The original code keeps q, k and v of a layer in one matrix.
 * Its canonical name, self_attn.qkv_proj, does not occur in transformers. */
#include "../../base/count.h"
#include "module_names.h"

#include <stdio.h>
#include <string.h>

#define MODEL "vision_model."

static const ith_module_name top[] = {
    {"cls_embedding", MODEL "embeddings.class_embedding"},
    {"patch_embedding", MODEL "embeddings.patch_embedding"},
    {"pos_embedding", MODEL "embeddings.position_embedding.weight"},
    {"pre_norm", MODEL "pre_layrnorm"},
    {"post_norm", MODEL "post_layernorm"},
    {"embeddings", MODEL "embeddings"}, /* this name and the next three are transformers' without its prefix */
    {"pre_layrnorm", MODEL "pre_layrnorm"},
    {"encoder.layers", MODEL "encoder.layers"},
    {"post_layernorm", MODEL "post_layernorm"},
};

/* After "transformer.N." of the original code. */
static const ith_module_name layer[] = {
    {"norm1", "layer_norm1"},
    {"attn.to_qkv", "self_attn.qkv_proj"},
    {"attn.proj", "self_attn.out_proj"},
    {"norm2", "layer_norm2"},
    {"mlp.0", "mlp.fc1"},
    {"mlp.2", "mlp.fc2"},
};

/* The beginnings of names that are no weights of the image encoder: positions that follow from the sizes, the text
 * encoder, the scale of the similarities, and the other components of an all-in-one file. */
static const char *const ignored[] = {MODEL "embeddings.position_ids",
                                      "embeddings.position_ids",
                                      "textual.",
                                      "log_scale",
                                      "text_model.",
                                      "text_projection.",
                                      "logit_scale",
                                      "vae.",
                                      "text_encoders."};

const char *ith_vision_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    (void)user;
    char head[64];
    int number;
    for (int i = 0; i < ITH_COUNT(ignored); i++)
        if (ith_name_after(name, ignored[i]))
            return NULL;
    if (ith_dit_name_bare(name) != name)
        return NULL;
    const char *bare = ith_name_after(name, "visual."), *found;
    bare = bare ? bare : name;
    if (!strcmp(bare, "head"))
        return "visual_projection";
    const char *rest = ith_name_after(bare, "transformer.");
    if (rest && (rest = ith_name_number(rest, &number))) {
        snprintf(head, sizeof head, MODEL "encoder.layers.%d.", number);
        found = ith_module_rename(layer, ITH_COUNT(layer), head, rest, space);
    } else {
        found = ith_module_rename(top, ITH_COUNT(top), "", bare, space);
    }
    return found ? found : bare;
}
