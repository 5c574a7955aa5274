/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the names of tensors in LoRA files (lora_keys.h). */
#include "lora_keys.h"

#include "../../base/count.h"
#include "../../files/suffix.h"

#include <stdio.h>
#include <string.h>

/* Finds ".lora_A.weight", or ".lora_A.NAME.weight" with the name of an adapter, at the end of a name. In this example
 * middle is ".lora_A." and last is ".weight". *adapter: as in ith_lora_key. */
static const char *adapter_end(const char *name, const char *middle, const char *last, const char **adapter)
{
    const char *at = strstr(name, middle);
    if (!at)
        return NULL;
    const char *rest = at + strlen(middle), *dot = strchr(rest, '.');
    const bool alone = !strcmp(rest, last + 1);
    *adapter = alone ? "" : rest;
    return alone || (dot && dot > rest && !strcmp(dot, last)) ? at : NULL;
}

/* Returns the end of the module in `name`, and sets role and adapter of *key; NULL if no part of a module follows. */
static const char *module_end(const char *name, ith_lora_key *key)
{
    static const struct {
        const char *end;
        ith_lora_role role;
    } ends[] = {
        {".lora_down.weight", ITH_LORA_DOWN}, {".lora_up.weight", ITH_LORA_UP}, {".lora.down.weight", ITH_LORA_DOWN},
        {".lora.up.weight", ITH_LORA_UP},     {".alpha", ITH_LORA_ALPHA},       {".diff", ITH_LORA_WEIGHT},
        {".diff_b", ITH_LORA_BIAS},           {".diff_m", ITH_LORA_MODULATION},
    };
    static const struct {
        const char *middle, *last;
        ith_lora_role role;
    } adapters[] = {{".lora_A.", ".weight", ITH_LORA_DOWN},
                    {".lora_B.", ".weight", ITH_LORA_UP},
                    {".lora_B.", ".bias", ITH_LORA_UP_BIAS}};
    const char *at;
    for (int i = 0; i < ITH_COUNT(ends); i++)
        if ((at = ith_suffix(name, ends[i].end))) {
            key->role = ends[i].role;
            key->adapter = "";
            return at;
        }
    for (int i = 0; i < ITH_COUNT(adapters); i++)
        if ((at = adapter_end(name, adapters[i].middle, adapters[i].last, &key->adapter))) {
            key->role = adapters[i].role;
            return at;
        }
    return NULL;
}

bool ith_lora_key_read(const char *name, ith_lora_key *key)
{
    static const char *const prefixes[] = {"base_model.model.", "pipe.dit.", "transformer."};
    static const char *const flat_prefixes[] = {"lora_unet__", "lora_unet_", "lycoris_"};
    char module[ITH_STORE_NAME_BYTES], space[ITH_STORE_NAME_BYTES];
    const char *end = module_end(name, key), *flat = NULL, *found = NULL;
    if (!end || end - name >= ITH_STORE_NAME_BYTES)
        return false;
    snprintf(module, sizeof module, "%.*s", (int)(end - name), name);
    for (int i = 0; i < ITH_COUNT(flat_prefixes) && !flat; i++)
        flat = ith_name_after(name, flat_prefixes[i]);
    if (flat) {
        found = ith_dit_flat_name(module + (flat - name), space);
        found = found ? found : module + (flat - name);
    } else {
        const char *bare = module;
        for (int i = 0; i < ITH_COUNT(prefixes); i++)
            bare = ith_name_after(bare, prefixes[i]) ? ith_name_after(bare, prefixes[i]) : bare;
        found = ith_dit_name(NULL, bare, space);
    }
    if (!found)
        return false;
    /* The original code has the last table of modulation in a module "head". */
    snprintf(key->module, sizeof key->module, "%s",
             key->role == ITH_LORA_MODULATION && !strcmp(found, "head") ? "" : found);
    return true;
}

bool ith_lora_reads_image(const char *module)
{
    static const char *const parts[] = {"attn2.add_", "attn2.norm_added", "image_embedder", "_img", "img_emb"};
    for (int i = 0; i < ITH_COUNT(parts); i++)
        if (strstr(module, parts[i]))
            return true;
    return false;
}

const char *ith_lora_key_unsupported(const char *name)
{
    static const struct {
        const char *part, *form;
    } inside[] = {{"lokr_", "LoKr"},
                  {"hada_", "LoHa"},
                  {"dora_scale", "DoRA"},
                  {"lora_magnitude_vector", "DoRA"},
                  {"lora_mid", "LoCon with lora_mid"},
                  {"oft_", "OFT"},
                  {"glora", "GLoRA"}};
    static const char *const glora[] = {".a1.weight", ".a2.weight", ".b1.weight", ".b2.weight"};
    for (int i = 0; i < ITH_COUNT(inside); i++)
        if (strstr(name, inside[i].part))
            return inside[i].form;
    for (int i = 0; i < ITH_COUNT(glora); i++)
        if (ith_suffix(name, glora[i]))
            return "GLoRA";
    return ith_suffix(name, ".lora_A.bias") ? "LoRA with biases of the matrix down" : NULL;
}
