/* SPDX-License-Identifier: Apache-2.0 */
#include "repackage.h"

#include "base/dtype.h"
#include "support/fixture.h"
#include "support/temporary.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    const char *canonical, *other;
} pair;

void name_as_is(const char *canonical, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", canonical);
}

/* Finds the first pair whose first text occurs in the name, and replaces this text by the second one. */
static void replace(char *name, size_t bytes, const pair *pairs)
{
    char copy[192];
    snprintf(copy, sizeof copy, "%s", name);
    for (; pairs->canonical; pairs++) {
        const char *at = strstr(copy, pairs->canonical);
        if (at) {
            snprintf(name, bytes, "%.*s%s%s", (int)(at - copy), copy, pairs->other, at + strlen(pairs->canonical));
            return;
        }
    }
}

void name_original_dit(const char *canonical, char *out, size_t bytes)
{
    static const pair pairs[] = {{"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
                                 {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
                                 {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
                                 {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
                                 {"condition_embedder.time_proj", "time_projection.1"},
                                 {"condition_embedder.image_embedder.norm1", "img_emb.proj.0"},
                                 {"condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"},
                                 {"condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"},
                                 {"condition_embedder.image_embedder.norm2", "img_emb.proj.4"},
                                 {"condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"},
                                 {"attn2.add_k_proj", "cross_attn.k_img"},
                                 {"attn2.add_v_proj", "cross_attn.v_img"},
                                 {"attn2.norm_added_k", "cross_attn.norm_k_img"},
                                 {"attn1.to_out.0", "self_attn.o"},
                                 {"attn2.to_out.0", "cross_attn.o"},
                                 {"attn1.to_", "self_attn."},
                                 {"attn2.to_", "cross_attn."},
                                 {"attn1.", "self_attn."},
                                 {"attn2.", "cross_attn."},
                                 {"ffn.net.0.proj", "ffn.0"},
                                 {"ffn.net.2", "ffn.2"},
                                 {"norm2", "norm3"},
                                 {"proj_out", "head.head"},
                                 {".scale_shift_table", ".modulation"},
                                 {"scale_shift_table", "head.modulation"},
                                 {NULL, NULL}};
    snprintf(out, bytes, "%s", canonical);
    replace(out, bytes, pairs);
}

void name_original_text(const char *canonical, char *out, size_t bytes)
{
    static const pair pairs[] = {{"SelfAttention.relative_attention_bias", "pos_embedding.embedding"},
                                 {"layer.0.SelfAttention.", "attn."},
                                 {"layer.0.layer_norm", "norm1"},
                                 {"layer.1.layer_norm", "norm2"},
                                 {"layer.1.DenseReluDense.wi_0", "ffn.gate.0"},
                                 {"layer.1.DenseReluDense.wi_1", "ffn.fc1"},
                                 {"layer.1.DenseReluDense.wo", "ffn.fc2"},
                                 {"encoder.final_layer_norm", "norm"},
                                 {"shared", "token_embedding"},
                                 {NULL, NULL}};
    static const pair rest[] = {{"encoder.block.", "blocks."}, {NULL, NULL}},
                      inner[] = {{"layer.0.pos", "pos"}, {NULL, NULL}};
    snprintf(out, bytes, "%s", canonical);
    replace(out, bytes, pairs);
    replace(out, bytes, rest);
    replace(out, bytes, inner);
}

void name_llama_text(const char *canonical, char *out, size_t bytes)
{
    static const pair pairs[] = {{"layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"},
                                 {"layer.0.SelfAttention.", "attn_"},
                                 {"layer.0.layer_norm", "attn_norm"},
                                 {"layer.1.layer_norm", "ffn_norm"},
                                 {"layer.1.DenseReluDense.wi_0", "ffn_gate"},
                                 {"layer.1.DenseReluDense.wi_1", "ffn_up"},
                                 {"layer.1.DenseReluDense.wo", "ffn_down"},
                                 {"encoder.final_layer_norm", "enc.output_norm"},
                                 {"shared", "token_embd"},
                                 {NULL, NULL}};
    static const pair rest[] = {{"encoder.block.", "enc.blk."}, {NULL, NULL}};
    snprintf(out, bytes, "%s", canonical);
    replace(out, bytes, pairs);
    replace(out, bytes, rest);
}

void name_original_vae(const char *canonical, char *out, size_t bytes)
{
    static const pair halves[] = {{"post_quant_conv", "conv2"},        {"quant_conv", "conv1"},
                                  {"coder.conv_in", "coder.conv1"},    {"coder.norm_out", "coder.head.0"},
                                  {"coder.conv_out", "coder.head.2"},  {"mid_block.attentions.0", "middle.1"},
                                  {"mid_block.resnets.0", "middle.0"}, {"mid_block.resnets.1", "middle.2"},
                                  {"down_blocks.", "downsamples."},    {NULL, NULL}};
    static const pair blocks[] = {{".norm1.", ".residual.0."},
                                  {".conv1.weight", ".residual.2.weight"},
                                  {".conv1.bias", ".residual.2.bias"},
                                  {".norm2.", ".residual.3."},
                                  {".conv2.", ".residual.6."},
                                  {"conv_shortcut", "shortcut"},
                                  {NULL, NULL}};
    int block, index, used = 0;
    snprintf(out, bytes, "%s", canonical);
    if (sscanf(canonical, "decoder.up_blocks.%d.resnets.%d.%n", &block, &index, &used) == 2 && used)
        snprintf(out, bytes, "decoder.upsamples.%d.%s", 3 * block + index, canonical + used);
    else if (sscanf(canonical, "decoder.up_blocks.%d.upsamplers.0.%n", &block, &used) == 1 && used)
        snprintf(out, bytes, "decoder.upsamples.%d.%s", 3 * block + 2, canonical + used);
    if (strstr(out, "blocks.") || strstr(out, "upsamples.") || strstr(out, "resnets."))
        replace(out, bytes, blocks);
    replace(out, bytes, halves);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* Converts the numbers of a tensor to bf16 by cutting off bits; or to f16 from these bf16 numbers, which f16 holds
 * exactly where they are not tiny. */
static void convert(ith_tensor *tensor, ith_dtype type, void **owned)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->dims; i++)
        count *= tensor->shape[i];
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    check(context, ith_tensor_to_f32(context, tensor, numbers));
    if (type == ITH_F32) {
        *owned = numbers;
    } else {
        uint16_t *halves = malloc((size_t)count * sizeof *halves + 1);
        ith_from_f32(halves, ITH_F16, numbers, count);
        for (int64_t i = 0; type == ITH_BF16 && i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &numbers[i], sizeof bits);
            halves[i] = (uint16_t)(bits >> 16);
        }
        free(numbers);
        *owned = halves;
    }
    tensor->dtype = type, tensor->data = *owned;
    tensor->bytes = count * ith_dtype_bytes(type);
}

static int is_weights(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > 12 && !strcmp(entry->d_name + length - 12, ".safetensors");
}

void package_add(package *p, const char *from, rename_fn *rename, const char *prefix, ith_dtype type)
{
    struct dirent **entries = NULL;
    const int files = scandir(from, &entries, is_weights, alphasort);
    temporary_require(files > 0, from);
    for (int f = 0; f < files; f++) {
        char path[512], name[160];
        snprintf(path, sizeof path, "%s/%s", from, entries[f]->d_name);
        free(entries[f]);
        ith_tensor_file *file = NULL;
        check(context, ith_tensor_file_open(context, path, &file));
        p->files[p->file_count++] = file;
        for (int64_t i = 0; i < ith_tensor_file_count(file); i++, p->count++) {
            ith_tensor *tensor = &p->tensors[p->count];
            *tensor = *ith_tensor_file_at(file, i);
            rename(tensor->name, name, sizeof name);
            snprintf(p->names[p->count], sizeof p->names[0], "%s%s", prefix, name);
            tensor->name = p->names[p->count];
            if (type != ITH_DTYPE_NONE)
                convert(tensor, type, &p->owned[p->count]);
        }
    }
    free(entries);
}

void package_write(const package *p, const char *path, int part, int parts)
{
    ith_tensor chosen[400];
    int64_t count = 0;
    for (int64_t i = part; i < p->count; i += parts)
        chosen[count++] = p->tensors[i];
    check(context, ith_tensor_file_write(context, path, chosen, count, NULL, NULL, 0));
}

void package_free(package *p)
{
    for (int64_t i = 0; i < p->count; i++)
        free(p->owned[i]);
    for (int i = 0; i < p->file_count; i++)
        ith_tensor_file_close(&p->files[i]);
    free(p);
}
