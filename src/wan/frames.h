/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds decoded frames to 8-bit RGB and passes them to on_frame, the callback in the options of a run. */
#ifndef ITH_WAN_FRAMES_H
#define ITH_WAN_FRAMES_H

#include "rank.h"

/* The data that ith_frames_take gets as its argument `user`. */
typedef struct ith_frames {
    ith_rank *rank;
    uint8_t *rgb; /* a frame as 8-bit RGB, [height, width, 3] */
} ith_frames;

/* Tells the context's observer which frame is being decoded. The error message of an interruption then names this
 * frame. */
void ith_frames_set_activity(const ith_rank *rank);
/* A callback for ith_vae_decode; `user` points to an ith_frames. Rounds a frame to 8 bits, passes it to on_frame,
 * copies it into the contents of the run's dump file if one is to be written, and counts it. */
ith_status ith_frames_take(void *user, int64_t index, const float *frame, int64_t height, int64_t width);

#endif
