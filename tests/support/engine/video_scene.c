/* SPDX-License-Identifier: Apache-2.0 */
#include "video_scene.h"

#include <stdio.h>

void video_scene_set(video_scene *s, bool shares_memory)
{
    static const ith_dtype types[] = {ITH_BF16, ITH_F32};
    *s = (video_scene){.level = ITH_MACHINE_LEVEL_INIT, .machine = ITH_MACHINE_INIT};
    for (int i = 0; i < 2; i++) {
        s->attention[i] = (ith_machine_attention)ITH_MACHINE_ATTENTION_INIT;
        snprintf(s->attention[i].kernel, sizeof s->attention[i].kernel, "test");
        s->attention[i].dtype = types[i], s->attention[i].gflops = 1, s->attention[i].head_dim = 128;
        s->product[i] = (ith_machine_product)ITH_MACHINE_PRODUCT_INIT;
        s->product[i].dtype = types[i], s->product[i].gflops = 1;
    }
    s->level.shares_memory = shares_memory;
    s->machine.host_units = 64, s->machine.level_count = 1, s->machine.levels = &s->level;
    s->machine.attention_count = 2, s->machine.attention = s->attention;
    s->machine.product_count = 2, s->machine.products = s->product;
}

ith_generate_options video_scene_run(void)
{
    ith_generate_options o = ITH_GENERATE_OPTIONS_INIT;
    o.prompt = "A red circle moves to the right.", o.negative = "grey", o.boundary = 0.5;
    o.frames = 17, o.height = 64, o.width = 96, o.steps = 7, o.threads = 2;
    o.guidance[0] = o.guidance[1] = 4;
    return o;
}
