/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds decoded frames to 8-bit RGB and passes them to on_frame, the callback in the options of a run. */
#ifndef ITH_WAN_FRAMES_H
#define ITH_WAN_FRAMES_H

#include "rank.h"

/* The data that ith_frames_take gets as its argument `user`. Each process decodes some rows of every frame. Rank 0
 * gathers them. */
typedef struct ith_frames {
    ith_rank *rank;
    uint8_t *rgb; /* 8-bit RGB: on rank 0 a frame [height, width, 3], on another leader its decoded rows */
    int64_t height, width;
    ith_transfer *parts; /* [part_count]: on rank 0 the receives of the rows of the other processes, on another leader
                            the send of its own rows */
    int64_t part_count;  /* 0 if one process decodes alone */
} ith_frames;

/* Tells the context's observer that frame `index` is being decoded. The error message of an interruption then names
 * this frame. */
void ith_frames_set_activity(const ith_rank *rank, int64_t index);
/* A callback for ith_vae_decode; `user` points to an ith_frames. Rounds `count` rows of frame `index` to 8 bits, and
 * gathers the frame on rank 0. There it passes the frame to on_frame, copies it into the contents of the run's dump
 * file if one is to be written, and counts it. A process that decodes no rows calls it with count 0 for each frame. */
ith_status ith_frames_take(void *user, int64_t index, const float *rows, int64_t count, int64_t width);

#endif
