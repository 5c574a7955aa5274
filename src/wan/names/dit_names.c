/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the transformer's tensors in the original code and in Comfy's files (module_names.h). */
#include "../../base/count.h"
#include "module_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define IMAGE "condition_embedder.image_embedder."

static const ith_module_name top[] = {
    {"time_embedding.0", "condition_embedder.time_embedder.linear_1"},
    {"time_embedding.2", "condition_embedder.time_embedder.linear_2"},
    {"time_projection.1", "condition_embedder.time_proj"},
    {"text_embedding.0", "condition_embedder.text_embedder.linear_1"},
    {"text_embedding.2", "condition_embedder.text_embedder.linear_2"},
    {"img_emb.proj.0", IMAGE "norm1"},
    {"img_emb.proj.1", IMAGE "ff.net.0.proj"},
    {"img_emb.proj.3", IMAGE "ff.net.2"},
    {"img_emb.proj.4", IMAGE "norm2"},
    {"img_emb.emb_pos", IMAGE "pos_embed"},
    {"head.modulation", "scale_shift_table"},
    {"head.head", "proj_out"},
};

/* norm3 of the original code is norm2 of diffusers. The other norms have no weights. */
static const ith_module_name layer[] = {
    {"modulation", "scale_shift_table"},
    {"self_attn.q", "attn1.to_q"},
    {"self_attn.k", "attn1.to_k"},
    {"self_attn.v", "attn1.to_v"},
    {"self_attn.o", "attn1.to_out.0"},
    {"self_attn.norm_q", "attn1.norm_q"},
    {"self_attn.norm_k", "attn1.norm_k"},
    {"cross_attn.q", "attn2.to_q"},
    {"cross_attn.k", "attn2.to_k"},
    {"cross_attn.v", "attn2.to_v"},
    {"cross_attn.o", "attn2.to_out.0"},
    {"cross_attn.norm_q", "attn2.norm_q"},
    {"cross_attn.norm_k", "attn2.norm_k"},
    {"norm3", "norm2"},
    {"cross_attn.k_img", "attn2.add_k_proj"},
    {"cross_attn.v_img", "attn2.add_v_proj"},
    {"cross_attn.norm_k_img", "attn2.norm_added_k"},
    {"ffn.0", "ffn.net.0.proj"},
    {"ffn.2", "ffn.net.2"},
};

const char *ith_dit_name_bare(const char *name)
{
    const char *bare = ith_name_after(name, "model.diffusion_model.");
    if (!bare)
        bare = ith_name_after(name, "diffusion_model.");
    return bare ? bare : name;
}

const char *ith_dit_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    (void)user;
    char head[32];
    int number;
    if (ith_name_after(name, "vae.") || ith_name_after(name, "text_encoders."))
        return NULL;
    const char *bare = ith_dit_name_bare(name), *rest = ith_name_after(bare, "blocks."), *found;
    if (!strcmp(bare, "freqs")) /* angles of RoPE, which follow from the sizes */
        return NULL;
    if (rest && (rest = ith_name_number(rest, &number))) {
        snprintf(head, sizeof head, "blocks.%d.", number);
        found = ith_module_rename(layer, ITH_COUNT(layer), head, rest, space);
    } else {
        found = ith_module_rename(top, ITH_COUNT(top), "", bare, space);
    }
    return found ? found : bare;
}

/* Whether `flat` is `name` with underscores for some or all dots. */
static bool is_flat(const char *flat, const char *name)
{
    while (*name && (*flat == *name || (*flat == '_' && *name == '.')))
        flat++, name++;
    return !*name && !*flat;
}

const char *ith_dit_flat_name(const char *name, char space[ITH_STORE_NAME_BYTES])
{
    const char *rest = ith_name_after(name, "blocks_");
    const ith_module_name *modules = rest ? layer : top;
    char head[32] = "";
    int count = rest ? ITH_COUNT(layer) : ITH_COUNT(top);
    if (!strcmp(name, "patch_embedding"))
        return name;
    if (rest) {
        const size_t digits = strspn(rest, "0123456789");
        if (!digits || digits > 4 || (rest[digits] != '_' && rest[digits] != '.'))
            return NULL;
        snprintf(head, sizeof head, "blocks.%.*s.", (int)digits, rest);
        name = rest + digits + 1;
    }
    for (int i = 0; i < count; i++)
        if (is_flat(name, modules[i].other) || is_flat(name, modules[i].canonical)) {
            snprintf(space, ITH_STORE_NAME_BYTES, "%s%s", head, modules[i].canonical);
            return space;
        }
    return NULL;
}
