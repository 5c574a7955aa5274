/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the autoencoder's tensors in the original code (module_names.h). Wan 2.1 numbers the parts of all levels
 * in one list, "decoder.upsamples.N"; Wan 2.2 has a list in each level, "decoder.upsamples.N.upsamples.M". */
#include "../../base/count.h"
#include "module_names.h"

#include <stdio.h>
#include <string.h>

static const ith_module_name top[] = {
    {"conv1", "quant_conv"},
    {"conv2", "post_quant_conv"},
};

/* After "encoder." and after "decoder.". */
static const ith_module_name ends[] = {
    {"conv1", "conv_in"},
    {"head.0", "norm_out"},
    {"head.2", "conv_out"},
    {"middle.1", "mid_block.attentions.0"},
};

/* The parts of a residual block. Its other modules have no weights. */
static const ith_module_name residual[] = {
    {"residual.0", "norm1"}, {"residual.2", "conv1"},       {"residual.3", "norm2"},
    {"residual.6", "conv2"}, {"shortcut", "conv_shortcut"},
};

/* The canonical name of a part: of a residual block, whose name begins with `head`; or of a resampling layer, whose
 * name begins with `sampling` and whose parts keep their names. */
static const char *part_name(const char *head, const char *sampling, const char *part, char space[ITH_STORE_NAME_BYTES])
{
    if (!ith_name_after(part, "resample.") && !ith_name_after(part, "time_conv."))
        return ith_module_rename(residual, ITH_COUNT(residual), head, part, space);
    const int length = snprintf(space, ITH_STORE_NAME_BYTES, "%s%s", sampling, part);
    return length < ITH_STORE_NAME_BYTES ? space : NULL;
}

/* The canonical name of "encoder.downsamples." + rest. */
static const char *down_name(const char *rest, char space[ITH_STORE_NAME_BYTES])
{
    char head[64], sampling[64];
    int block, index;
    if (!(rest = ith_name_number(rest, &block)))
        return NULL;
    const char *nested = ith_name_after(rest, "downsamples.");
    if (nested && (nested = ith_name_number(nested, &index))) {
        snprintf(head, sizeof head, "encoder.down_blocks.%d.resnets.%d.", block, index);
        snprintf(sampling, sizeof sampling, "encoder.down_blocks.%d.downsampler.", block);
        return part_name(head, sampling, nested, space);
    }
    snprintf(head, sizeof head, "encoder.down_blocks.%d.", block);
    return part_name(head, head, rest, space);
}

/* The canonical name of "decoder.upsamples." + rest. */
static const char *up_name(int64_t in_level, const char *rest, char space[ITH_STORE_NAME_BYTES])
{
    char head[64], sampling[64];
    int block, index;
    if (!(rest = ith_name_number(rest, &block)))
        return NULL;
    const char *nested = ith_name_after(rest, "upsamples.");
    if (nested && (nested = ith_name_number(nested, &index))) {
        snprintf(sampling, sizeof sampling, "decoder.up_blocks.%d.upsampler.", block);
        rest = nested;
    } else {
        index = (int)(block % in_level), block = (int)(block / in_level);
        snprintf(sampling, sizeof sampling, "decoder.up_blocks.%d.upsamplers.0.", block);
    }
    snprintf(head, sizeof head, "decoder.up_blocks.%d.resnets.%d.", block, index);
    return part_name(head, sampling, rest, space);
}

/* The canonical name of half + rest. half: "encoder." or "decoder.". */
static const char *half_name(int64_t in_level, const char *half, const char *rest, char space[ITH_STORE_NAME_BYTES])
{
    char head[64];
    int index;
    const char *part;
    if ((part = ith_name_after(rest, "downsamples.")))
        return down_name(part, space);
    if ((part = ith_name_after(rest, "upsamples.")))
        return up_name(in_level, part, space);
    part = ith_name_after(rest, "middle.");
    if (part && (part = ith_name_number(part, &index)) && index != 1) {
        snprintf(head, sizeof head, "%smid_block.resnets.%d.", half, index / 2);
        return ith_module_rename(residual, ITH_COUNT(residual), head, part, space);
    }
    return ith_module_rename(ends, ITH_COUNT(ends), half, rest, space);
}

const char *ith_vae_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    const int64_t in_level = *(const int64_t *)user;
    const char *bare = ith_name_after(name, "vae."), *rest, *found;
    if (!bare && (ith_dit_name_bare(name) != name || ith_name_after(name, "text_encoders.")))
        return NULL;
    bare = bare ? bare : name;
    if ((rest = ith_name_after(bare, "encoder.")))
        found = half_name(in_level, "encoder.", rest, space);
    else if ((rest = ith_name_after(bare, "decoder.")))
        found = half_name(in_level, "decoder.", rest, space);
    else
        found = ith_module_rename(top, ITH_COUNT(top), "", bare, space);
    return found ? found : bare;
}
