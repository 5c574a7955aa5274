/* SPDX-License-Identifier: Apache-2.0 */
/* From a decoded frame to the caller's on_frame. */
#ifndef ITH_WAN_FRAMES_H
#define ITH_WAN_FRAMES_H

#include "rank.h"

typedef struct ith_frames {
    ith_rank *rank;
    uint8_t *rgb; /* room for a frame: [height, width, 3] */
} ith_frames;

/* Sets the activity of the rank's observer to the frame that is decoded now. */
void ith_frames_set_activity(const ith_rank *rank);
/* An ith_vae_frame_fn whose user is an ith_frames: rounds a frame to 8 bits, passes it to on_frame, copies it into
 * the dump, and counts it. */
ith_status ith_frames_take(void *user, int64_t index, const float *frame, int64_t height, int64_t width);

#endif
