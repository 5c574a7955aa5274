/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's checkpoint as a folder of links, in which a test replaces one file at a time and sees it refused. The
 * context and the folder are the fixture's. */
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

/* Makes a part the link that it was. */
void link_part(const char *part);

/* The tear-down is folder_tear_down. */
int altered_model_set_up(void **state);

/* Puts a file of its own in the place of a part. */
void replace_part(const char *part, const void *data, size_t bytes);

/* Puts `to` for the first `from` of a part; in a weight file only in its header, whose length is made right. */
void edit_part(const char *part, const char *from, const char *to);

/* One frame of 16 x 16 in two steps, one with each expert. */
ith_status generate(ith_pipeline *pipeline, int *frames);

/* Opens and checks the model and, if that went well, makes a frame, which must go well too: what is wrong with a
 * checkpoint is found before anything is loaded. */
ith_status attempt(void);

/* FORMAT_OR_UNSUPPORTED: whether a value makes a file wrong or a model of another kind is a matter of taste. */
enum { FORMAT_OR_UNSUPPORTED = 1 };

void assert_refused(int wanted, const char *file, const char *word);

typedef struct edit {
    const char *part, *from, *to;
    int status;
    const char *file, *word; /* both in the sentence */
} edit;

void refuse_edits(const edit *edits, size_t count);

#define F ITH_ERR_FORMAT
#define U ITH_ERR_UNSUPPORTED
#define EITHER FORMAT_OR_UNSUPPORTED

#endif
