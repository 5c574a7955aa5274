/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at every component's weights before a run begins. */
#include "../base/context.h"
#include "model.h"

typedef ith_status (*check_fn)(ith_context *context, const char *folder);

/* The autoencoder's weights stay in their file until it decodes, so that to load it is to look at it. */
static ith_status check_vae(ith_context *context, const char *folder)
{
    ith_vae *vae = NULL;
    ith_status status = ith_vae_load(context, folder, ith_operands_f32(), &vae);
    ith_vae_free(context, &vae);
    return status;
}

static ith_status check_part(ith_context *context, const ith_model *model, const char *part, check_fn check)
{
    char *path = ith_model_path(context, model, part);
    ith_status status = path ? check(context, path) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

ith_status ith_model_check_weights(ith_context *context, const ith_model *model)
{
    ith_status status = check_part(context, model, "text_encoder", ith_text_encoder_check);
    if (!status)
        status = check_part(context, model, "transformer", ith_dit_check);
    if (!status && model->info.experts == 2)
        status = check_part(context, model, "transformer_2", ith_dit_check);
    if (!status)
        status = check_part(context, model, "vae", check_vae);
    return status;
}
