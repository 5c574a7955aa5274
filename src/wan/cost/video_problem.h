/* SPDX-License-Identifier: Apache-2.0 */
/* Checks video problems. */
#ifndef ITH_WAN_VIDEO_PROBLEM_H
#define ITH_WAN_VIDEO_PROBLEM_H

#include <ithaca/video_cost.h>

/* Checks a problem whose fields have been read. */
ith_status ith_video_problem_check(ith_context *context, const ith_video_problem *problem);

#endif
