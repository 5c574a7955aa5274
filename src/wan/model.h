/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint folder says of itself: every configuration file, read and held against the others. */
#ifndef ITH_WAN_MODEL_H
#define ITH_WAN_MODEL_H

#include <ithaca/wan.h>

#include "dit/dit.h"
#include "sample/sampler.h"
#include "text/text_encoder.h"
#include "vae/vae.h"

typedef struct ith_model {
    char *folder;
    char kind[64], shift_source[160];
    ith_model_info info;   /* its boundary is NAN if two experts have none */
    ith_dit_config dit[2]; /* high noise, low noise; one expert: the first */
    ith_text_config text;
    ith_vae_config vae;
    ith_scheduler scheduler;
} ith_model;

/* ITH_ERR_IO or ITH_ERR_FORMAT for a file that is missing or wrong, ITH_ERR_UNSUPPORTED for a model of another kind. */
ith_status ith_model_read(ith_context *context, const char *folder, ith_model **out);
/* Whether every component's weights are there, by name, type and shape, so that a run does not find out after an hour
 * that its second expert is cut short. Reads headers and small tensors only. */
ith_status ith_model_check_weights(ith_context *context, const ith_model *model);
/* Of every configuration file and all weights (ith_store_hash): for ranks whose processes opened a checkpoint each. */
ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash);
void ith_model_free(ith_context *context, ith_model **model);

/* folder/part, to be freed with ith_free. */
char *ith_model_path(ith_context *context, const ith_model *model, const char *part);

#endif
