/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the image encoder (CLIP) of a video's images, to which the transformers of Wan 2.1's models from images
 * attend. The encoder reads the images as the user gives them, not scaled to the size of the video. */
#ifndef ITH_WAN_IMAGE_ROWS_H
#define ITH_WAN_IMAGE_ROWS_H

#include "rank.h"

/* Makes shared.image_rows on rank 0. `user` is not used. */
ith_status ith_image_rows_make(ith_rank *rank, void *user);
/* Sends shared.image_rows of rank 0 to the leaders of all processes, which call it through ith_rank_lead. */
ith_status ith_image_rows_share(ith_rank *rank, void *user);
/* Sets *bytes to the memory that making the rows takes in the process of rank 0, besides the rows; 0 if the model has
 * no image encoder. */
ith_status ith_image_rows_bytes(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                ith_operand_types types, int64_t *bytes);

#endif
