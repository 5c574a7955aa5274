/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_TESTS_VIDEO_SCENE_H
#define ITH_TESTS_VIDEO_SCENE_H

#include <ithaca/cost.h>
#include <ithaca/wan.h>

/* A machine whose units do 10^9 operations a second in products, and as many in attention. */
typedef struct video_scene {
    ith_machine_level level;
    ith_machine_attention attention[3];
    ith_machine_product product[2];
    ith_machine machine;
} video_scene;

/* shares_memory: of the ranks. */
void video_scene_set(video_scene *s, bool shares_memory);

/* The options of a short run of a model of two experts. */
ith_generate_options video_scene_run(void);

#endif
