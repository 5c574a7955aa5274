/* SPDX-License-Identifier: Apache-2.0 */
/* Passes decoded frames to the caller's on_frame, as 8-bit RGB. */
#ifndef ITH_WAN_FRAMES_H
#define ITH_WAN_FRAMES_H

#include "rank.h"

/* The `user` of ith_frames_take. */
typedef struct ith_frames {
    ith_rank *rank;
    uint8_t *rgb; /* a frame as 8-bit RGB, [height, width, 3] */
} ith_frames;

/* Notes which frame is being decoded, so that the error message of an interruption can name it. */
void ith_frames_set_activity(const ith_rank *rank);
/* A callback for ith_vae_decode; its user is an ith_frames. Rounds a frame to 8 bits, passes it to on_frame, copies it
 * into the dump if there is one, and counts it. */
ith_status ith_frames_take(void *user, int64_t index, const float *frame, int64_t height, int64_t width);

#endif
