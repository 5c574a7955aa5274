/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the umT5 encoder's tensors in the original code (the published .pth file, as safetensors), in Comfy's
 * files, and in GGUF files (module_names.h). */
#include "../../base/count.h"
#include "module_names.h"

#include <stdio.h>
#include <string.h>

static const ith_module_name top[] = {
    {"token_embedding", "shared"},
    {"norm", "encoder.final_layer_norm"},
    {"token_embd", "shared"},
    {"enc.output_norm", "encoder.final_layer_norm"},
};

#define ATTENTION "layer.0.SelfAttention."
#define FFN "layer.1.DenseReluDense."

/* After "blocks.N." of the original code, and after "enc.blk.N." of GGUF files. No name means two modules. */
static const ith_module_name layer[] = {
    {"norm1", "layer.0.layer_norm"},
    {"attn.q", ATTENTION "q"},
    {"attn.k", ATTENTION "k"},
    {"attn.v", ATTENTION "v"},
    {"attn.o", ATTENTION "o"},
    {"pos_embedding.embedding", ATTENTION "relative_attention_bias"},
    {"norm2", "layer.1.layer_norm"},
    {"ffn.gate.0", FFN "wi_0"},
    {"ffn.fc1", FFN "wi_1"},
    {"ffn.fc2", FFN "wo"},
    {"attn_norm", "layer.0.layer_norm"},
    {"attn_q", ATTENTION "q"},
    {"attn_k", ATTENTION "k"},
    {"attn_v", ATTENTION "v"},
    {"attn_o", ATTENTION "o"},
    {"attn_rel_b", ATTENTION "relative_attention_bias"},
    {"ffn_norm", "layer.1.layer_norm"},
    {"ffn_gate", FFN "wi_0"},
    {"ffn_up", FFN "wi_1"},
    {"ffn_down", FFN "wo"},
};

const char *ith_text_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    (void)user;
    char head[32];
    int number;
    const char *bare = ith_name_after(name, "text_encoders.umt5xxl.transformer.");
    if (!bare &&
        (ith_name_after(name, "vae.") || ith_dit_name_bare(name) != name || ith_name_after(name, "text_encoders.")))
        return NULL;
    bare = bare ? bare : name;
    if (!strcmp(bare, "spiece_model")) /* the tokenizer's file, in Comfy's text encoders */
        return NULL;
    const char *rest = ith_name_after(bare, "blocks."), *found;
    rest = rest ? rest : ith_name_after(bare, "enc.blk.");
    if (rest && (rest = ith_name_number(rest, &number))) {
        snprintf(head, sizeof head, "encoder.block.%d.", number);
        found = ith_module_rename(layer, ITH_COUNT(layer), head, rest, space);
    } else {
        found = ith_module_rename(top, ITH_COUNT(top), "", bare, space);
    }
    return found ? found : bare;
}
