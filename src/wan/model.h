/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a checkpoint folder: all its configuration files, read and checked against one another. */
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
/* Checks that the weight files of every component are complete, by name, type and shape, so that a run does not fail
 * after an hour when it loads the second expert. Reads headers and small tensors only. */
ith_status ith_model_check_weights(ith_context *context, const ith_model *model);
/* A hash of every configuration file and all weights (ith_store_hash), by which processes compare their checkpoints. */
ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash);
void ith_model_free(ith_context *context, ith_model **model);

/* folder/part, to be freed with ith_free. */
char *ith_model_path(ith_context *context, const ith_model *model, const char *part);

#endif
