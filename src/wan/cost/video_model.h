/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a video problem by the engine's own structs of a model and of a run. So the functions that lay out and
 * predict a run also serve a problem without a checkpoint. */
#ifndef ITH_WAN_VIDEO_MODEL_H
#define ITH_WAN_VIDEO_MODEL_H

#include <ithaca/video_cost.h>

#include "../part/precision.h"
#include "../run/pipeline.h"
#include "../sample/latents.h"

/* A model without files and a run of it, as a video problem describes them. */
typedef struct ith_video_model {
    ith_model model;              /* without a folder; both experts have the same LoRA, which has no numbers */
    ith_generate_options options; /* with all defaults filled in */
    ith_image image; /* of the video's size, without pixels: options.image and options.last_image point to it */
    ith_number_types types;
    ith_latent_size size;
    int64_t counts[2]; /* tokens of the prompt, and of the negative prompt */
} ith_video_model;

/* Reads and checks the caller's problem: *full gets all its fields, *out the model. cfg AUTO: BATCH. */
ith_status ith_video_model_make(ith_context *context, const ith_video_problem *given, ith_cfg cfg,
                                ith_video_problem *full, ith_video_model *out);
/* Frees the memory of a model. It may be called after a failure of ith_video_model_make. */
void ith_video_model_free(ith_video_model *model);

/* The shape of a pass in which each rank computes `batch` guidance branches. */
ith_dit_shape ith_video_shape(const ith_video_model *m, int64_t batch);

#endif
