/* SPDX-License-Identifier: Apache-2.0 */
#include "open_parts.h"

#include "support/fixture.h"
#include "support/memory.h"

#define STEM "diffusion_pytorch_model"

ith_status open_dit_with(ith_context *own, const char *folder, const ith_dit_choices *choices, ith_dit **out)
{
    ith_dit_config config;
    ith_store *store = NULL;
    *out = NULL;
    ith_status status = ith_dit_config_read(own, folder, &config);
    if (!status)
        status = ith_store_open(own, folder, STEM, ITH_STORE_INDEX_FIRST, &store);
    return status ? status : ith_dit_open(own, &config, store, choices, out);
}

ith_status open_dit(ith_context *own, const char *folder, ith_number_types types, ith_linear_keep keep, ith_dit **out)
{
    return open_dit_with(own, folder, &(ith_dit_choices){.types = types, .keep = keep}, out);
}

ith_status open_text_encoder(ith_context *own, const char *folder, ith_operand_types types, bool keeps_packed,
                             ith_text_encoder **out)
{
    ith_text_config config;
    ith_store *store = NULL;
    *out = NULL;
    ith_status status = ith_text_config_read(own, folder, &config);
    if (!status)
        status = ith_store_open(own, folder, "model", ITH_STORE_FILE_FIRST, &store);
    return status ? status : ith_text_encoder_open(own, &config, store, types, keeps_packed, out);
}

ith_status open_vae(ith_context *own, const char *folder, ith_vae_half half, ith_operand_types types, ith_vae **out)
{
    ith_vae_config config;
    ith_store *store = NULL;
    *out = NULL;
    ith_status status = ith_vae_config_read(own, folder, &config);
    if (!status)
        status = ith_store_open(own, folder, STEM, ITH_STORE_INDEX_FIRST, &store);
    return status ? status : ith_vae_open(own, &config, half, store, types, out);
}

ith_status check_text_encoder(ith_context *own, const char *folder)
{
    ith_text_config config;
    ith_store *store = NULL;
    ith_status status = ith_text_config_read(own, folder, &config);
    if (!status)
        status = ith_store_open(own, folder, "model", ITH_STORE_FILE_FIRST, &store);
    if (!status)
        status = ith_text_encoder_check(own, &config, store);
    ith_store_close(&store);
    return status;
}

int64_t dit_file_bytes(ith_context *own, const char *folder, int64_t *weights)
{
    ith_dit_config config;
    ith_store *store = NULL;
    int64_t before = memory_of(own).current_bytes;
    check(own, ith_dit_config_read(own, folder, &config));
    check(own, ith_store_open(own, folder, STEM, ITH_STORE_INDEX_FIRST, &store));
    check(own, ith_dit_check(own, &config, store, NULL));
    int64_t bytes = memory_of(own).current_bytes - before;
    *weights = ith_store_bytes(store);
    ith_store_close(&store);
    return bytes;
}
