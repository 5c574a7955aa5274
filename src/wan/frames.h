/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded frames on their way to the caller. */
#ifndef ITH_WAN_FRAMES_H
#define ITH_WAN_FRAMES_H

#include "rank.h"

typedef struct ith_frames {
    ith_rank *rank;
    uint8_t *rgb; /* room for a frame: [height, width, 3] */
} ith_frames;

/* Says which frame is being decoded, for the sentence of an interruption. */
void ith_frames_set_place(const ith_rank *rank);
/* An ith_vae_frame_fn whose user is an ith_frames: rounds a frame to 8 bits, hands it to on_frame, keeps it for the
 * dump, and counts it. */
ith_status ith_frames_take(void *user, int64_t index, const float *frame, int64_t height, int64_t width);

#endif
