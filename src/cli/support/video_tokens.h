/* SPDX-License-Identifier: Apache-2.0 */
/* The length of the sequence of a video. */
#ifndef ITH_CLI_VIDEO_TOKENS_H
#define ITH_CLI_VIDEO_TOKENS_H

#include <ithaca/video_cost.h>

/* The number of tokens of a video. A token is a patch of 1 x 2 x 2 latents. */
static inline int64_t ith_video_tokens(const ith_video_problem *p)
{
    const int64_t side = 2 * p->pixel_stride;
    return ((p->frames - 1) / p->frame_stride + 1) * (p->height / side) * (p->width / side);
}

#endif
