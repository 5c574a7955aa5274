/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of an autoencoder without a config.json: a published one, with the widths of its tensors. */
#include "../part/config_fields.h"
#include "vae.h"

#include <string.h>

/* The first size of a tensor, if there is one. */
static int64_t size_of(const ith_store *store, const char *name, int64_t otherwise)
{
    const int64_t size = ith_store_size(store, name, 0);
    return size ? size : otherwise;
}

ith_status ith_vae_config_find(ith_context *context, const char *folder, const ith_store *store, ith_vae_config *out)
{
    ith_config_class name;
    ith_status status = ith_config_class_read(context, folder, &name);
    if (!status && !strcmp(name.text, "AutoencoderKLWan"))
        return ith_vae_config_read(context, folder, out);
    if (status)
        return status;
    const bool wan_22 = ith_store_has(store, "decoder.up_blocks.0.upsampler.resample.1.weight");
    const int64_t channels = ith_store_size(store, "post_quant_conv.weight", 0);
    const int64_t blocks = ith_store_count(store, "decoder.up_blocks.0.resnets.", ".conv1.weight", INT8_MAX);
    ith_vae_config_published(wan_22, out);
    if (channels != out->z_dim)
        return ith_fail(
            context, ITH_ERR_UNSUPPORTED,
            "%s: an autoencoder of %lld latent channels, but Wan %s has %lld: a config.json beside the file "
            "must give their mean and deviation",
            ith_store_path(store), (long long)channels, wan_22 ? "2.2" : "2.1", (long long)out->z_dim);
    out->decoder_base_dim = size_of(store, "decoder.norm_out.gamma", out->decoder_base_dim);
    out->encoder_base_dim = size_of(store, "encoder.conv_in.weight", out->encoder_base_dim);
    out->res_blocks = blocks > 1 ? blocks - 1 : out->res_blocks;
    return ith_vae_config_check_sizes(context, ith_store_path(store), out);
}
