/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weight files, the configurations and the tokenizer of a model lie: in a diffusers checkpoint, or in files
 * of other origins, which are recognised by the names of their tensors. */
#ifndef ITH_WAN_MODEL_SOURCE_H
#define ITH_WAN_MODEL_SOURCE_H

#include <ithaca/wan.h>

#include "../../files/store.h"

/* The components that have weights. */
typedef enum ith_part {
    ITH_PART_TEXT,
    ITH_PART_DIT,
    ITH_PART_DIT_2,
    ITH_PART_VAE,
    ITH_PART_VISION, /* the image encoder of Wan 2.1's models from images */
    ITH_PARTS
} ith_part;
/* The name of a component's folder: "text_encoder", "transformer", "transformer_2", "vae" or "image_encoder". */
const char *ith_part_name(ith_part part);

/* Where one component lies. In a diffusers checkpoint, `folder` is set. Otherwise there are `count` files, with names
 * of any origin. If both are absent, the component has no source. */
typedef struct ith_source {
    char *folder; /* the component's folder, with config.json and weights in the layout of diffusers */
    char **paths; /* [count] the weight files, or one index of shards */
    int64_t count;
    char *config;     /* a folder whose config.json gives the component's sizes; NULL: they follow from its tensors */
    int64_t in_level; /* the number of parts in a level of the autoencoder, for ith_vae_name */
} ith_source;

/* Where all files of a model lie. */
typedef struct ith_sources {
    char *folder;  /* a diffusers checkpoint: it has a model_index.json; NULL: none */
    char *variant; /* part of the names of its weight files: "fp16"; NULL: none */
    ith_source parts[ITH_PARTS];
    int experts;       /* number of transformers; 0: model_index.json has the number */
    bool needs_vision; /* the transformer's files are of a model with an image encoder; false in a checkpoint */
    char *tokenizer;   /* a folder with a tokenizer, or its file; NULL: the weight files of the text encoder hold it */
    bool tokenizer_named; /* ith_model_files names the tokenizer */
} ith_sources;

/* Finds the files of a model. Opens weight files of other origins, to recognise them. ITH_ERR_ARGUMENT for a
 * combination of members that makes no model, ITH_ERR_IO for missing files, ITH_ERR_UNSUPPORTED for files of another
 * model or format. The caller frees *out with ith_sources_free, also after a failure. */
ith_status ith_sources_find(ith_context *context, const ith_model_files *files, ith_sources *out);
void ith_sources_free(ith_context *context, ith_sources *sources);
/* Opens the weight files of a component. */
ith_status ith_source_open(ith_context *context, const ith_sources *sources, ith_part part, ith_store **out);
/* The path of a component's weights, for messages. */
const char *ith_source_path(const ith_sources *sources, ith_part part);

#endif
