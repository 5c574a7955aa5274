/* SPDX-License-Identifier: Apache-2.0 */
/* Checks video problems. */
#ifndef ITH_WAN_VIDEO_PROBLEM_H
#define ITH_WAN_VIDEO_PROBLEM_H

#include <ithaca/video_cost.h>

/* The number of denoising steps that are not done yet. */
static inline int64_t ith_video_steps_left(const ith_video_problem *problem)
{
    return problem->steps - problem->steps_done;
}

/* Checks a problem whose fields have been read. */
ith_status ith_video_problem_check(ith_context *context, const ith_video_problem *problem);

#endif
