/* SPDX-License-Identifier: Apache-2.0 */
/* Reads model_index.json: the classes of the components, and the boundary between the experts. */
#ifndef ITH_WAN_MODEL_INDEX_H
#define ITH_WAN_MODEL_INDEX_H

#include "../sample/scheduler.h"

/* The contents of model_index.json. */
typedef struct ith_model_index {
    int experts;        /* number of DiTs: 1 or 2 */
    double boundary;    /* boundary_ratio; 0 with one expert; NAN if the file has two experts and no boundary_ratio */
    ith_solver solver;  /* as the class of the scheduler says */
    bool has_processor; /* there is an image_processor */
    bool from_image;    /* the class is WanImageToVideoPipeline */
    bool expands;       /* expand_timesteps: the tokens of a first image have time step 0 (TI2V) */
} ith_model_index;

/* Reads folder/model_index.json. For an unknown pipeline or component, returns ITH_ERR_UNSUPPORTED with an error
 * message that names its class. */
ith_status ith_model_index_read(ith_context *context, const char *folder, ith_model_index *out);

#endif
