/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's checkpoint as a folder of links. A test replaces one file at a time, and checks that the model is then
 * refused. The context and the folder are the fixture's (support/folder_fixture.h). */
#ifndef ITH_TESTS_ALTERED_MODEL_H
#define ITH_TESTS_ALTERED_MODEL_H

#include "support/folder_fixture.h"

#include <ithaca/wan.h>

#define MODEL "../models/shapes"
#define TEXT "text_encoder/model.safetensors"
#define SHARD_1 "diffusion_pytorch_model-00001-of-00002.safetensors"
#define SHARD_2 "diffusion_pytorch_model-00002-of-00002.safetensors"
#define INDEX "diffusion_pytorch_model.safetensors.index.json"
#define VAE "vae/diffusion_pytorch_model.safetensors"

/* Every file of the model. */
extern const char *const parts[];
extern const size_t part_count;

/* Makes a part a link to the file of the demo's checkpoint again. */
void link_part(const char *part);

/* The tear-down is folder_tear_down. */
int altered_model_set_up(void **state);

/* Replaces the link of a part by a file with these contents. */
void replace_part(const char *part, const void *data, size_t bytes);

/* Replaces the first `from` in a part by `to`. In a weight file `from` must stand in the header, whose length is
 * adapted. */
void edit_part(const char *part, const char *from, const char *to);

/* Generates one frame of 16 x 16 pixels in two steps, one with each expert. Adds the number of frames to *frames. */
ith_status generate(ith_pipeline *pipeline, int *frames);

/* Opens and checks the model, and generates a frame if that succeeds. Fails if only the generation fails: every fault
 * of a checkpoint must be found before anything is loaded. Returns the status of opening and checking. */
ith_status attempt(void);

/* Either of two statuses is right: a value may count as a fault of the file (ITH_ERR_FORMAT) or as a sign of another
 * kind of model (ITH_ERR_UNSUPPORTED). */
enum { FORMAT_OR_UNSUPPORTED = 1 };

void assert_refused(int wanted, const char *file, const char *word);

typedef struct edit {
    const char *part, *from, *to;
    int status;
    const char *file, *word; /* texts that the sentence must contain */
} edit;

void refuse_edits(const edit *edits, size_t count);

#define F ITH_ERR_FORMAT
#define U ITH_ERR_UNSUPPORTED
#define EITHER FORMAT_OR_UNSUPPORTED

#endif
