/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a checkpoint folder: all of its configuration files, read and checked against one another. */
#ifndef ITH_WAN_MODEL_H
#define ITH_WAN_MODEL_H

#include <ithaca/wan.h>

#include "dit/dit.h"
#include "sample/sampler.h"
#include "text/text_encoder.h"
#include "vae/vae.h"

/* The components that have weights. */
typedef enum ith_part { ITH_PART_TEXT, ITH_PART_DIT, ITH_PART_DIT_2, ITH_PART_VAE, ITH_PARTS } ith_part;
/* The name of a component's folder: "text_encoder", "transformer", "transformer_2" or "vae". */
const char *ith_part_name(ith_part part);

typedef struct ith_model {
    char *folder;
    char kind[64], shift_source[160];
    ith_model_info info;   /* info.boundary is NAN if the checkpoint has two experts but no boundary_ratio */
    ith_dit_config dit[2]; /* of the high-noise and the low-noise expert; a single expert is dit[0] */
    ith_text_config text;
    ith_vae_config vae;
    ith_scheduler scheduler;
    ith_store *files[ITH_PARTS]; /* the weight files of each component, if ith_model_check_weights opened them */
} ith_model;

/* Reads and checks all configuration files of a folder. The caller frees *out with ith_model_free. ITH_ERR_IO if a file
 * cannot be read, ITH_ERR_FORMAT if its contents are wrong, ITH_ERR_UNSUPPORTED for a model of another kind. */
ith_status ith_model_read(ith_context *context, const char *folder, ith_model **out);
/* Opens the weight files of every component, and checks that they hold all of its tensors, by name, type and shape, so
 * that a run does not fail after an hour, when it opens the second expert. Reads headers only. Does not read files
 * again that are open from an earlier call and have not changed since. */
ith_status ith_model_check_weights(ith_context *context, ith_model *model);
/* Checks that the weight files of a component are the files that ith_model_check_weights opened, with the same
 * content. Otherwise ITH_ERR_IO, with the name of the file. Checks nothing if the files are not open. */
ith_status ith_model_check_unchanged(ith_context *context, const ith_model *model, ith_part part);
/* The bytes of all weights in the files that ith_model_check_weights opened. */
int64_t ith_model_file_bytes(const ith_model *model);
/* Computes a hash of the configuration files and of the open weight files (ith_store_hash). Processes compare their
 * checkpoints by this hash. */
ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash);
void ith_model_free(ith_context *context, ith_model **model);

/* Returns the path of the file or folder `part` in the checkpoint's folder, or NULL if memory is short. The caller
 * frees it with ith_free. */
char *ith_model_path(ith_context *context, const ith_model *model, const char *part);

#endif
