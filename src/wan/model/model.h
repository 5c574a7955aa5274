/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a model: all of its configuration files, read and checked against one another. */
#ifndef ITH_WAN_MODEL_H
#define ITH_WAN_MODEL_H

#include <ithaca/wan.h>

#include "../dit/dit.h"
#include "../sample/sampler.h"
#include "../source/model_source.h"
#include "../text/text_encoder.h"
#include "../vae/vae.h"
#include "../vision/vision_encoder.h"

/* A model: its files, its configurations, and its default settings. */
typedef struct ith_model {
    char *folder; /* the folder, or else the file of the transformer, for messages; NULL: a model without files */
    ith_sources sources;
    char kind[64], shift_source[160];
    double shift, shift_480p; /* the default shift; of videos of at most 480 x 832 pixels, if it is not 0 */
    ith_model_info info;      /* info.boundary is NAN if the checkpoint has two experts but no boundary_ratio */
    ith_dit_config dit[2];    /* of the high-noise and the low-noise expert; a single expert is dit[0] */
    ith_text_config text;
    ith_vae_config vae;
    ith_vision_config vision; /* zeros if the model has no image encoder */
    ith_scheduler scheduler;
    ith_lora *loras[2];          /* changes to the weights of each expert; NULL: none */
    ith_store *files[ITH_PARTS]; /* the weight files of each component, if ith_model_check_weights opened them */
    int64_t lists[ITH_PARTS];    /* for a model without files: the results of ith_model_list_bytes */
} ith_model;

/* Finds the files of a model, and reads and checks all of its configurations. The caller frees *out with
 * ith_model_free. ITH_ERR_IO if a file cannot be read, ITH_ERR_FORMAT if its contents are wrong, ITH_ERR_UNSUPPORTED
 * for a model of another kind, ITH_ERR_ARGUMENT for files that make no model together. */
ith_status ith_model_read(ith_context *context, const ith_model_files *files, ith_model **out);
/* The default shift of a video whose frames have this number of pixels. info.shift is of a video of default size. */
double ith_model_shift(const ith_model *model, int64_t pixels);
/* Whether the model has this component. Every model has each, except a second transformer and an image encoder. */
bool ith_model_has_part(const ith_model *model, ith_part part);
/* Opens the weight files of a component. The caller closes *out. No other function opens weights of a model. */
ith_status ith_model_open_part(ith_context *context, const ith_model *model, ith_part part, ith_store **out);
/* Opens the weight files of every component, and checks that they hold all of its tensors, by name, type and shape.
 * Without this check a run could fail after an hour, when it opens the second expert. Reads headers only. Does not read
 * files again that are open from an earlier call and have not changed since. */
ith_status ith_model_check_weights(ith_context *context, ith_model *model);
/* Checks that the weight files of a component are the files that ith_model_check_weights opened, with the same
 * content. Otherwise ITH_ERR_IO, with the name of the file. Checks nothing if the files are not open. */
ith_status ith_model_check_unchanged(ith_context *context, const ith_model *model, ith_part part);
/* Opens the weight files of a component for a stage of a run: as ith_model_open_part, after ith_model_check_unchanged.
 */
ith_status ith_model_open_unchanged(ith_context *context, const ith_model *model, ith_part part, ith_store **out);
/* Sets *bytes to the memory of the lists of tensors of a component's open files (ith_store_held_bytes), which are read
 * from the files if they are not open; to 0 if the model has no such component, or if a run would refuse the files. */
ith_status ith_model_list_bytes(ith_context *context, const ith_model *model, ith_part part, int64_t *bytes);
/* The bytes of all weights in the files that ith_model_check_weights opened. */
int64_t ith_model_file_bytes(const ith_model *model);
/* Computes a hash of the configuration files and of the open weight files (ith_store_hash). Processes compare their
 * models by this hash. */
ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash);
/* Computes a hash of the LoRA files, and of the open weight files that do not lie in a diffusers checkpoint. */
ith_status ith_model_hash_added(ith_context *context, const ith_model *model, uint64_t *hash);
void ith_model_free(ith_context *context, ith_model **model);

#endif
