/* SPDX-License-Identifier: Apache-2.0 */
/* The predicted cost of a video: operations compared with counts by hand on machines with round rates, sums of the
 * parts, memory compared with ith_pipeline_predict, problems of published models, and nonsense. */
#include <ithaca/video_cost.h>

#include "kernels/product.h"

#include "support/engine/pipeline_fixture.h"
#include "support/engine/video_scene.h"
#include "support/in_range.h"
#include "support/refused.h"
#include "support/temporary.h"

#include <ithaca/files.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Scenes ------------------------------------------------------------------------------------------------------ */

/* A small model, for which operations are counted by hand: 2 layers of 2 heads of 4, 3 x 2 x 2 tokens. */
static ith_video_problem small(void)
{
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    p.layers = 2, p.heads = 2, p.head_dim = 4, p.ffn_dim = 12, p.freq_dim = 6, p.channels = 16;
    p.text_dim = 10, p.text_layers = 2, p.text_heads = 1, p.text_head_dim = 4, p.text_ffn_dim = 14, p.text_vocab = 100;
    p.text_buckets = 8;
    p.frames = 9, p.height = 32, p.width = 32, p.steps = 3, p.guided_steps = 2;
    p.prompt_rows = 5, p.negative_rows = 3;
    p.threads = 1, p.precision = ITH_PRECISION_F32;
    return p;
}

static ith_video_cost cost_of(const ith_video_problem *p, ith_cfg cfg, const ith_machine *machine, int ranks)
{
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    check(context, ith_video_predict(context, p, NULL, cfg, machine, ranks, NULL, NULL, &cost));
    return cost;
}

static void near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%s is %.12g, not %.12g", what, got, wanted);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* The operations of a product of n rows from `in` to `out` numbers: 2 for each multiplication with its addition. */
static double product(double n, double in, double out)
{
    return 2 * n * in * out;
}

/* The operations of a layer's products in a pass of the small model, for `batch` branches with 12 tokens each. */
static double layer_products(double batch)
{
    const double n = 12 * batch, d = 8;
    return product(n, d, 3 * d) + 3 * product(n, d, d) + product(n, d, 12) + product(n, 12, d);
}

static double ends_products(double batch)
{
    return product(12 * batch, 64, 8) + product(batch, 6, 8) + product(batch, 8, 8) + product(batch, 8, 48) +
           product(12 * batch, 8, 64);
}

/* The operations of 2 layers of umT5 for n tokens: q, k, v, o; wi_0, wi_1, wo; logits and sums of one head of 4. */
static double text_operations(double n)
{
    return 2 * (product(n, 10, 12) + product(n, 4, 10) + 3 * product(n, 10, 14) + 4 * n * n * 4);
}

/* The operations of the text embedding and, in 2 layers, of keys and values, for a batch of two with 5 + 1 keys
 * each. */
static double key_operations(double rows)
{
    return product(rows, 10, 8) + product(rows, 8, 8) + 2 * product(rows, 8, 16);
}

static void operations_are_those_by_hand(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    const ith_video_problem p = small();
    const ith_video_cost batch = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    near("linear_seconds", batch.linear_seconds, 1e-9 * layer_products(2));
    near("ends_seconds", batch.ends_seconds, 1e-9 * ends_products(2));
    /* self-attention of 2 x 2 heads of 4 over 12 tokens, cross-attention to 6 keys */
    near("attention_seconds", batch.attention_seconds, 1e-9 * 4 * 4 * 12 * 12 * 4);
    near("cross_seconds", batch.cross_seconds, 1e-9 * 4 * 4 * 12 * 6 * 4);
    near("text_seconds", batch.text_seconds, 1e-9 * (text_operations(5) + text_operations(3) + key_operations(12)));
    const ith_video_cost in_turn = cost_of(&p, ITH_CFG_SEQUENTIAL, &s.machine, 1);
    near("linear_seconds in turn", in_turn.linear_seconds, 1e-9 * layer_products(1));
    near("text_seconds in turn", in_turn.text_seconds,
         1e-9 * (text_operations(5) + text_operations(3) + key_operations(6) + key_operations(4)));
    const double attention = 2.0 * 4 * 12 * 4 * (12 + 6);
    const double branch = 2 * (layer_products(1) + attention) + ends_products(1);
    near("operations", batch.operations, 5 * branch + 1e9 * batch.text_seconds);
    assert_int_equal(batch.passes, 1);
    assert_int_equal(in_turn.passes, 2);
}

/* The operations of a LoRA of rank 3 in layers from `in` to `out` numbers. Where f32 instructions multiply, the LoRA is
 * merged into the weights of these small layers (w + up down), in each pass or, if they are kept, once for the run.
 * Otherwise there are products from `in` to 3 and from 3 to `out` numbers. */
static double lora_products(double n, double in, double out, bool keeps)
{
    const bool merges = ith_product_kernel_choose(ITH_F32, ith_context_cpu(context))->parts == 1;
    const double once = keeps ? 0 : product(out, 3, in);
    return merges ? once : product(n, in, 3) + product(n, 3, out);
}

static void a_lora_adds_operations(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    const ith_video_cost without = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    p.lora_rank = 3;
    for (int keeps = 0; keeps < 2; keeps++) {
        p.keep_packed = keeps ? ITH_KEEP_AUTO : ITH_KEEP_NONE;
        const ith_video_cost with = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
        const double n = 24, layer = 6 * lora_products(n, 8, 8, keeps) + lora_products(n, 8, 12, keeps) +
                                     lora_products(n, 12, 8, keeps);
        near("linear_seconds", with.linear_seconds, 1e-9 * (layer_products(2) + layer));
        near("ends_seconds", with.ends_seconds, without.ends_seconds);
        /* keys and values of the prompts, in 2 layers */
        near("text_seconds", with.text_seconds, without.text_seconds + 1e-9 * 2 * 2 * lora_products(12, 8, 8, keeps));
        assert_true(with.memory_bytes > without.memory_bytes);
    }
}

/* The operations of a residual block from `in` to `out` channels: two 3 x 3 x 3 convolutions, and the shortcut. */
static double residual(double pixels, double in, double out)
{
    return product(pixels, 27 * in, out) + product(pixels, 27 * out, out) + (in == out ? 0 : product(pixels, in, out));
}

/* A decoder of 8, 16 and 32 channels whose first doubling doubles the frames: latents of 3 frames of 4 x 4. */
static void decoding_is_that_by_hand(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    p.decoder_dim = 8, p.decoder_blocks = 1, p.decoder_levels = 3, p.channels = 16;
    p.decoder_factors[0] = 1, p.decoder_factors[1] = 2, p.decoder_factors[2] = 4;
    p.decoder_doubles[0] = 1;
    p.frame_stride = 2, p.pixel_stride = 4, p.frames = 5, p.height = p.width = 16;
    const double latent = product(16, 16, 16) + product(16, 27 * 16, 32) + 2 * residual(16, 32, 32) +
                          product(16, 32, 96) + product(16, 32, 32) + 4.0 * 16 * 16 * 32;
    const double level_1 = 2 * residual(16, 32, 32), time = product(16, 3 * 32, 64), to_2 = product(64, 9 * 32, 16);
    const double level_2 = residual(64, 16, 16) * 2, to_3 = product(256, 9 * 16, 8);
    const double level_3 = residual(256, 8, 8) * 2, picture = product(256, 27 * 8, 3);
    const double frames = 5;
    near("decode_seconds", cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).decode_seconds,
         1e-9 * (3 * (latent + level_1) + 2 * time + frames * (to_2 + level_2 + to_3 + level_3 + picture)));
    /* Wan 2.2: a change of the level keeps the channels, and the last convolution makes 2 x 2 pixels */
    p.decoder_residual = 1, p.decoder_patch = 2, p.pixel_stride = 8, p.height = p.width = 32;
    const double wide_2 = residual(64, 32, 16) + residual(64, 16, 16), to_wide_2 = product(64, 9 * 32, 32);
    const double wide_3 = residual(256, 16, 8) + residual(256, 8, 8), to_wide_3 = product(256, 9 * 16, 16);
    near("decode_seconds", cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).decode_seconds,
         1e-9 * (3 * (latent + level_1) + 2 * time +
                 frames * (to_wide_2 + wide_2 + to_wide_3 + wide_3 + product(256, 27 * 8, 12))));
    /* with saved latents only decoding is left */
    p.steps = p.guided_steps = p.prompt_rows = p.negative_rows = 0;
    const ith_video_cost decoded = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    assert_true(decoded.text_seconds == 0 && decoded.denoise_seconds == 0 && decoded.step_seconds == 0);
    near("seconds", decoded.seconds, decoded.decode_seconds + decoded.write_seconds);
}

/* Steps that a saved run has done cost nothing. If no step is left, there is no plan. */
static void steps_that_are_done_cost_nothing(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    p.guided_steps = 0;
    const ith_video_cost all = cost_of(&p, ITH_CFG_BATCH, &s.machine, 2);
    p.steps_done = 2;
    const ith_video_cost last = cost_of(&p, ITH_CFG_BATCH, &s.machine, 2);
    near("denoise_seconds", last.denoise_seconds, all.denoise_seconds / 3);
    near("step_seconds", last.step_seconds, all.step_seconds);
    near("memory_bytes", (double)last.memory_bytes, (double)all.memory_bytes);
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_cost attention = ITH_COST_INIT;
    ith_video_cost none = ITH_VIDEO_COST_INIT;
    info.ring = 7, attention.seconds = 7, p.steps_done = 3;
    check(context, ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 2, &info, &attention, &none));
    assert_true(info.ring == 0 && attention.seconds == 0);
    assert_true(none.text_seconds == 0 && none.denoise_seconds == 0 && none.step_seconds == 0);
    assert_true(none.memory_bytes < all.memory_bytes && none.sent_bytes < all.sent_bytes);
}

/* An encoder of 8, 16 and 32 channels, which halves the frames after the first level: 5 frames of 16 x 16. */
static void encoding_is_that_by_hand(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    ith_video_cost none = ITH_VIDEO_COST_INIT;
    p.image_use = ITH_IMAGE_OPTIONAL, p.images = 1, p.encoder_dim = 8;
    REFUSED(context, "decoder_levels is 0",
            ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &none));
    p.decoder_dim = 8, p.decoder_blocks = 1, p.decoder_levels = 3, p.channels = 16;
    p.decoder_factors[0] = 1, p.decoder_factors[1] = 2, p.decoder_factors[2] = 4;
    p.decoder_doubles[1] = 1;
    p.frame_stride = 2, p.pixel_stride = 4, p.frames = 5, p.height = p.width = 16;
    const double latent = residual(16, 16, 32) + 2 * residual(16, 32, 32) + product(16, 32, 96) + product(16, 32, 32) +
                          4.0 * 16 * 16 * 32 + product(16, 27 * 32, 32) + product(16, 32, 16);
    const double level_1 = product(256, 27 * 3, 8) + residual(256, 8, 8) + product(64, 9 * 8, 8);
    const double level_2 = residual(64, 8, 16) + product(16, 9 * 16, 16), time = product(64, 3 * 8, 8);
    near("image_seconds of an image", cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).image_seconds,
         1e-9 * (level_1 + level_2 + latent));
    p.image_use = ITH_IMAGE_NEEDED, p.images = 2; /* the whole video becomes three latent frames */
    const ith_video_cost cost = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    near("image_seconds", cost.image_seconds, 1e-9 * (5 * level_1 + 2 * time + 3 * (level_2 + latent)));
    near("seconds", cost.seconds,
         cost.text_seconds + cost.image_seconds + cost.denoise_seconds + cost.decode_seconds + cost.write_seconds);
}

/* The image encoder of Wan 2.1's I2V-14B makes 257 rows in 31 layers. The transformer makes keys of them in 40 layers,
 * and 32760 tokens attend to these, in 50 steps of two branches. */
static void an_image_encoder_is_that_by_hand(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    s.machine.host_units = 1;
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    check(context, ith_video_problem_named(context, "wan2.1-i2v-14b-480p", &p));
    p.steps = p.guided_steps = 50, p.prompt_rows = p.negative_rows = 20;
    const ith_video_cost with = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    p.vision_dim = 0;
    const ith_video_cost without = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    const double layer = 4 * product(257, 1280, 1280) + 2 * product(257, 1280, 5120) + 4.0 * 257 * 257 * 1280;
    const double encoder = product(256, 588, 1280) + 31 * layer;
    const double keys = product(257, 1280, 1280) + product(257, 1280, 5120) + 40 * 2 * product(257, 5120, 5120);
    near("image_seconds", with.image_seconds, without.image_seconds + 1e-9 * encoder);
    near("text_seconds", with.text_seconds, without.text_seconds + 1e-9 * keys);
    near("operations", with.operations - without.operations, encoder + keys + 50 * 2 * 40 * 4.0 * 32760 * 257 * 5120);
    assert_true(with.memory_bytes > without.memory_bytes);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static void parts_add_up(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.machine.row_bytes_per_second = 1e9, s.machine.start_seconds = 1e-3;
    s.level.bytes_per_second = 1e9, s.level.latency_seconds = 1e-6;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (ith_cfg cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
            if (cfg == ITH_CFG_PARALLEL && ranks % 2)
                continue;
            ith_video_problem p = small();
            const ith_video_cost both = cost_of(&p, cfg, &s.machine, ranks);
            p.guided_steps = 0;
            const ith_video_cost single = cost_of(&p, cfg, &s.machine, ranks);
            near("layer", both.layer_seconds,
                 both.attention_seconds + both.linear_seconds + both.cross_seconds + both.row_seconds);
            near("pass", both.pass_seconds, 2 * both.layer_seconds + both.ends_seconds);
            near("step", both.step_seconds, (double)both.passes * both.pass_seconds + both.exchange_seconds);
            near("denoise", both.denoise_seconds, 2 * both.step_seconds + single.step_seconds);
            near("all", both.seconds,
                 both.text_seconds + both.denoise_seconds + both.decode_seconds + both.write_seconds);
            assert_true(both.row_seconds > 0 && both.exchange_seconds > 0);
            assert_true(ranks > 1 ? both.sent_bytes > 0 : both.sent_bytes == 0);
            assert_true(both.host_bytes == ranks * both.memory_bytes);
        }
}

/* Hosts that share out the weights: in every pass each of two hosts sends its half of every layer to the other one, and
 * holds two layers. 2 layers of 576 numbers of bf16; 1 pass with one branch, and 2 steps with both branches. */
static void shared_weights_are_sent_in_every_pass(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.level.between_hosts = true;
    for (ith_cfg cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
        ith_video_problem p = small();
        const ith_video_cost apart = cost_of(&p, cfg, &s.machine, 2);
        p.shard_weights = 1;
        const ith_video_cost cost = cost_of(&p, cfg, &s.machine, 2);
        const int64_t passes = cfg == ITH_CFG_SEQUENTIAL ? 1 + 2 * 2 : 1 + 2, layer_bytes = 576 * 2;
        assert_int_equal(cost.sent_bytes - apart.sent_bytes, passes * 2 * layer_bytes / 2);
        assert_true(in_range(cost.memory_bytes - apart.memory_bytes, 2 * layer_bytes, 2 * layer_bytes + 8192));
        near("a load that is hidden", cost.linear_seconds, apart.linear_seconds);
    }
}

/* A layer takes as long as its load if that is longer than its computing. */
static void a_slow_load_of_weights_counts(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.level.between_hosts = true, s.level.bytes_per_second = 576;
    ith_video_problem p = small();
    p.shard_weights = 1;
    near("layer", cost_of(&p, ITH_CFG_SEQUENTIAL, &s.machine, 2).layer_seconds, 1);
}

/* The attention of a layer has the cost that ith_plan_cost gives, with the sequence on all ranks or on half of them. */
static void attention_is_that_of_the_plan(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.level.bytes_per_second = 1e9;
    ith_video_problem p = small();
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    problem.heads = 2, problem.head_dim = 4, problem.q_len = problem.kv_len = 12;
    options.strategy = ITH_STRATEGY_RING, options.threads = 1;
    for (int parallel = 0; parallel < 2; parallel++) {
        ith_cost alone = ITH_COST_INIT, part = ITH_COST_INIT;
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        ith_video_cost cost = ITH_VIDEO_COST_INIT;
        problem.batch = parallel ? 1 : 2;
        check(context, ith_plan_cost(context, &problem, &options, &s.machine, parallel ? 2 : 4, NULL, &alone));
        check(context, ith_video_predict(context, &p, &options, parallel ? ITH_CFG_PARALLEL : ITH_CFG_BATCH, &s.machine,
                                         4, &info, &part, &cost));
        near("attention", cost.attention_seconds, alone.seconds);
        near("cost", part.seconds, alone.seconds);
        assert_int_equal(info.strategy, ITH_STRATEGY_RING);
        assert_int_equal(info.ranks, parallel ? 2 : 4);
    }
}

/* Ranks that share the units of a host take as long as one rank with all units. If there are fewer units than ranks,
 * they take longer. */
static void ranks_share_units(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    s.machine.host_units = 2, p.threads = 2;
    const double alone = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).linear_seconds;
    near("two ranks", cost_of(&p, ITH_CFG_BATCH, &s.machine, 2).linear_seconds, alone);
    near("four ranks", cost_of(&p, ITH_CFG_BATCH, &s.machine, 4).linear_seconds, alone);
    p.threads = 1;
    near("one unit", cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).linear_seconds, 2 * alone);
}

/* Of several rates, the rate that was measured with the nearest sizes counts. */
static void the_nearest_rate_counts(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    const ith_video_problem p = small();
    s.product[0].dtype = ITH_F32, s.product[0].features = 4096, s.product[0].rows = 100, s.product[0].gflops = 50;
    s.product[1].features = 8, s.product[1].rows = 24, s.product[1].gflops = 2;
    near("linear_seconds", cost_of(&p, ITH_CFG_BATCH, &s.machine, 1).linear_seconds, 0.5e-9 * layer_products(2));
}

/* ---- Problems ---------------------------------------------------------------------------------------------------- */

static void names_are_problems(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.machine.host_units = 8;
    int count = 0;
    for (const char *name; (name = ith_video_problem_list(count)); count++) {
        ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
        check(context, ith_video_problem_named(context, name, &p));
        assert_string_equal(p.name, name);
        p.prompt_rows = p.negative_rows = 20;
        const ith_video_cost cost = cost_of(&p, ITH_CFG_PARALLEL, &s.machine, 8);
        assert_true(cost.seconds > cost.denoise_seconds && cost.memory_bytes > 0);
        REFUSED(context, name, ith_video_problem_named(context, "nothing", &p));
    }
    assert_int_equal(count, 12);
    assert_null(ith_video_problem_list(-1));
    assert_null(ith_video_problem_list(INT_MAX));
    /* 75,600 tokens; 14.3 10^9 weights, of which 40 (6 d^2 + 2 d f) are multiplied with each token */
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    check(context, ith_video_problem_named(context, "wan2.2-a14b-720p", &p));
    const ith_video_cost cost = cost_of(&p, ITH_CFG_SEQUENTIAL, &s.machine, 1);
    near("linear_seconds of A14B", 8 * cost.linear_seconds,
         1e-9 * 2 * 75600 * (6.0 * 5120 * 5120 + 2.0 * 5120 * 13824));
    near("attention_seconds of A14B", 8 * cost.attention_seconds, 1e-9 * 4 * 75600.0 * 75600 * 5120);
}

/* Compares the memory of a problem of a checkpoint with ith_pipeline_predict, on one to four ranks, in one process or
 * each in a process of its own. */
static void compare_memory(ith_pipeline *of, const ith_generate_options *o, video_scene *s, bool processes, int variant)
{
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    check(context, ith_video_problem_read(of, o, &p));
    for (int ranks = 1; ranks <= 4; ranks++) {
        int64_t bytes = 0;
        if (o->cfg == ITH_CFG_PARALLEL && ranks % 2)
            continue;
        check(context, ith_pipeline_predict(of, o, ranks, processes ? ranks : 1, &bytes));
        const ith_video_cost cost = cost_of(&p, o->cfg, &s->machine, ranks);
        /* the LoRA files of the two experts have paths of different lengths, which a problem does not know */
        if (llabs(cost.memory_bytes - bytes) > (p.lora_rank ? 64 : 0))
            fail_msg("variant %d on %d ranks: %lld bytes, and the pipeline predicts %lld", variant, ranks,
                     (long long)cost.memory_bytes, (long long)bytes);
        assert_true(!o->image == (cost.image_seconds == 0));
    }
}

/* The images have the size of the video. */
static void memory_of_images_is_that_of_the_pipeline(void **state)
{
    (void)state;
    static uint8_t pixels[64 * 96 * 3];
    const ith_image image = {sizeof image, pixels, 64, 96};
    static const struct {
        const char *folder;
        int images; /* the most that the model takes */
    } models[] = {{"golden/i2v/model", 2}, {"golden/ti2v/model", 1}, {"golden/i2v21", 1}, {"golden/flf2v21", 2}};
    video_scene s;
    for (int run = 0; run < 4 * 2 * 3; run++) {
        const int model = run % 4, variant = run / 4;
        ith_pipeline *of = NULL;
        ith_generate_options o = video_scene_run();
        check(context, ith_pipeline_open(context, models[model].folder, &of));
        video_scene_set(&s, variant % 2);
        s.machine.host_units = 2;
        o.cfg = (ith_cfg)((int)ITH_CFG_BATCH + variant / 2);
        o.boundary = NAN, o.height = 64, o.width = 96;
        o.precision = variant % 3 ? ITH_PRECISION_F32 : ITH_PRECISION_BF16;
        o.image = &image, o.last_image = models[model].images == 2 && (model || variant % 3) ? &image : NULL;
        compare_memory(of, &o, &s, variant % 2, run);
        ith_pipeline_close(&of);
    }
}

/* The memory of a process is as ith_pipeline_predict gives it, for ranks in one process and in processes of their
 * own. */
static void memory_is_that_of_the_pipeline(void **state)
{
    (void)state;
    video_scene s;
    for (int variant = 0; variant < 2 * 3 * 8; variant++) {
        const ith_cfg cfg = (ith_cfg)((int)ITH_CFG_BATCH + variant / 2 % 3);
        ith_generate_options o = video_scene_run();
        video_scene_set(&s, variant % 2);
        s.machine.host_units = 2;
        o.cfg = cfg;
        o.precision = variant / 6 % 2 ? ITH_PRECISION_F32 : ITH_PRECISION_BF16;
        o.keep_packed = variant / 12 % 2;
        o.dump_file = variant / 24 % 2 ? "a file" : NULL;
        o.solver = (ith_solver)((int)ITH_SOLVER_UNIPC + variant / 12 % 3);
        compare_memory(pipeline, &o, &s, variant % 2, variant);
    }
}

/* Writes a LoRA of rank 3 for every matrix of the blocks of the demo's transformer. */
static void write_lora(const char *path)
{
    static const char *const modules[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v",     "attn1.to_out.0", "attn2.to_q",
                                          "attn2.to_k", "attn2.to_v", "attn2.to_out.0", "ffn.net.0.proj", "ffn.net.2"};
    enum { LAYERS = 6, DIM = 192, FFN = 768, RANK = 3, TENSORS = LAYERS * 10 * 2 };
    static float numbers[FFN * RANK];
    static char names[TENSORS][64];
    static ith_tensor tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        const int module = i / 2 % 10, up = i % 2;
        ith_tensor *t = &tensors[i];
        snprintf(names[i], sizeof names[i], "transformer.blocks.%d.%s.lora_%c.weight", i / 20, modules[module],
                 up ? 'B' : 'A');
        *t = (ith_tensor)ITH_TENSOR_INIT;
        t->name = names[i], t->dtype = ITH_F32, t->data = numbers, t->dims = 2;
        t->shape[up ? 1 : 0] = RANK;
        t->shape[up ? 0 : 1] = module == (up ? 8 : 9) ? FFN : DIM;
        t->bytes = t->shape[0] * t->shape[1] * (int64_t)sizeof *numbers;
    }
    check(context, ith_tensor_file_write(context, path, tensors, TENSORS, NULL, NULL, 0));
}

/* The problem of a checkpoint with a LoRA has the LoRA's rank, and takes the same memory as the pipeline. */
static void a_lora_of_a_checkpoint_counts(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_pipeline *of = NULL;
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    video_scene s;
    lora.file = temporary_path(folder, "style.safetensors");
    write_lora(lora.file);
    files.folder = MODEL, files.loras = &lora, files.lora_count = 1;
    for (int expert = ITH_LORA_BOTH; expert <= ITH_LORA_LOW; expert++) {
        ith_generate_options o = video_scene_run();
        lora.expert = expert;
        check(context, ith_pipeline_open_files(context, &files, &of));
        check(context, ith_video_problem_read(of, &o, &p));
        assert_int_equal(p.lora_rank, 3);
        for (int variant = 0; variant < 4; variant++) {
            o.precision = variant / 2 ? ITH_PRECISION_F32 : ITH_PRECISION_BF16, o.keep_packed = variant % 3;
            o.cfg = ITH_CFG_BATCH;
            video_scene_set(&s, variant % 2);
            s.machine.host_units = 2;
            compare_memory(of, &o, &s, variant % 2, variant);
        }
        ith_pipeline_close(&of);
    }
    temporary_remove(folder);
}

/* ---- Nonsense ---------------------------------------------------------------------------------------------------- */

/* A field of a problem, and a number that it must not have. */
typedef struct wrong_field {
    size_t offset;
    int64_t value;
    const char *word;
} wrong_field;
#define WRONG(field, number)                                                                                           \
    {                                                                                                                  \
        offsetof(ith_video_problem, field), number, #field                                                             \
    }

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    static const wrong_field fields[] = {
        WRONG(experts, 0),       WRONG(experts, 3),        WRONG(layers, 0),          WRONG(layers, INT64_MAX),
        WRONG(heads, 0),         WRONG(heads, INT64_MAX),  WRONG(head_dim, 3),        WRONG(head_dim, INT64_MIN),
        WRONG(ffn_dim, -1),      WRONG(freq_dim, 3),       WRONG(channels, 65),       WRONG(text_dim, 0),
        WRONG(text_layers, 0),   WRONG(text_heads, 0),     WRONG(text_vocab, 0),      WRONG(text_ffn_dim, INT64_MAX),
        WRONG(frames, 0),        WRONG(frames, 8),         WRONG(height, 8),          WRONG(width, 31),
        WRONG(steps, -1),        WRONG(guided_steps, 4),   WRONG(prompt_rows, 0),     WRONG(prompt_rows, 513),
        WRONG(negative_rows, 0), WRONG(decoder_levels, 9), WRONG(decoder_levels, -1), WRONG(solver_order, 4),
        WRONG(solver, 4),        WRONG(solver, -1),        WRONG(frame_stride, 0),    WRONG(pixel_stride, 1000),
        WRONG(lora_rank, -1),    WRONG(lora_rank, 4097),   WRONG(list_bytes[3], -1),  WRONG(solver, 2 /* Euler */),
        WRONG(steps_done, -1),   WRONG(steps_done, 4)};
    video_scene s;
    video_scene_set(&s, true);
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ith_video_problem p = small();
        memcpy((char *)&p + fields[i].offset, &fields[i].value, sizeof fields[i].value);
        REFUSED(context, fields[i].word,
                ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
    }
    ith_video_problem p = small();
    p.decoder_levels = 2, p.decoder_dim = 8, p.decoder_blocks = 1, p.decoder_factors[0] = p.decoder_factors[1] = 1;
    p.decoder_patch = 17;
    REFUSED(context, "decoder_patch",
            ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
    p.decoder_patch = 1;
    ith_video_problem odd = ITH_VIDEO_PROBLEM_INIT;
    check(context, ith_video_problem_named(context, "wan2.1-1.3b-480p", &odd));
    odd.decoder_dim = 7;
    for (int64_t i = 0; i < odd.decoder_levels; i++)
        odd.decoder_factors[i] = 1;
    REFUSED(context, "must be even",
            ith_video_predict(context, &odd, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
    REFUSED(context, "strides", ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
}

static void wrong_image_encoders_are_refused(void **state)
{
    (void)state;
    static const wrong_field fields[] = {
        WRONG(vision_dim, -1),    WRONG(vision_dim, INT64_MAX), WRONG(vision_layers, 1),  WRONG(vision_heads, 0),
        WRONG(vision_ffn_dim, 0), WRONG(vision_image, 0),       WRONG(vision_patch, 225), WRONG(vision_list_bytes, -1)};
    video_scene s;
    video_scene_set(&s, true);
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    ith_video_problem right = ITH_VIDEO_PROBLEM_INIT;
    check(context, ith_video_problem_named(context, "wan2.1-flf2v-14b-720p", &right));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ith_video_problem p = right;
        memcpy((char *)&p + fields[i].offset, &fields[i].value, sizeof fields[i].value);
        REFUSED(context, fields[i].word,
                ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
    }
    ith_video_problem p = right;
    p.vision_heads = 3;
    REFUSED(context, "cannot be divided into 3 heads",
            ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
    p = right, p.image_use = ITH_IMAGE_OPTIONAL, p.images = 1;
    REFUSED(context, "its model needs no image",
            ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* The plans that ith_video_list has passed to its callback. */
typedef struct seen {
    const ith_video_problem *problem;
    const ith_machine *machine;
    ith_cfg cfg;
    int legal, illegal;
    double last;     /* attention_seconds of the last legal plan */
    ith_status stop; /* the status that ends the list */
} seen;

/* Predicts the video with the options of a listed plan, and compares the cost with the cost in the list. */
static ith_status compare_plan(void *user, const ith_plan_candidate *plan, const ith_video_cost *cost)
{
    seen *s = user;
    ith_video_cost alone = ITH_VIDEO_COST_INIT;
    assert_true(plan->legal == (cost != NULL));
    if (!cost) {
        assert_true(strlen(plan->rule) > 0);
        s->illegal++;
        return s->stop;
    }
    check(context, ith_video_predict(context, s->problem, plan->options, s->cfg, s->machine, 4, NULL, NULL, &alone));
    assert_memory_equal(&alone, cost, sizeof alone);
    assert_true(cost->attention_seconds >= s->last);
    s->last = cost->attention_seconds;
    s->legal++;
    return s->stop;
}

static void a_list_has_the_costs_of_its_plans(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.level.bytes_per_second = 1e6, s.level.latency_seconds = 1e-5;
    ith_video_problem p = small();
    for (int cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
        seen all = {.problem = &p, .machine = &s.machine, .cfg = (ith_cfg)cfg};
        check(context, ith_video_list(context, &p, NULL, all.cfg, &s.machine, 4, compare_plan, &all));
        assert_true(all.legal > 4 && all.illegal > 0);
    }
    seen all = {.problem = &p, .machine = &s.machine, .cfg = ITH_CFG_BATCH, .stop = ITH_ERR_INTERRUPTED};
    assert_int_equal(ith_video_list(context, &p, NULL, all.cfg, &s.machine, 4, compare_plan, &all),
                     ITH_ERR_INTERRUPTED);
    assert_int_equal(all.legal + all.illegal, 1);
    all = (seen){.problem = &p, .machine = &s.machine, .cfg = ITH_CFG_BATCH, .stop = ITH_ERR_INTERRUPTED};
    REFUSED_AS(ITH_ERR_INTERRUPTED, context, "take returned ITH_ERR_INTERRUPTED for plan 0",
               ith_video_list(context, &p, NULL, all.cfg, &s.machine, 4, compare_plan, &all));
    all = (seen){.problem = &p, .machine = &s.machine, .cfg = ITH_CFG_BATCH, .stop = (ith_status)42};
    REFUSED_AS(ITH_ERR_ABORTED, context, "take returned 42",
               ith_video_list(context, &p, NULL, all.cfg, &s.machine, 4, compare_plan, &all));
    REFUSED(context, "take", ith_video_list(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 4, NULL, NULL));
    REFUSED(context, "odd", ith_video_list(context, &p, NULL, ITH_CFG_PARALLEL, &s.machine, 3, compare_plan, &all));
    REFUSED(NULL, "context", ith_video_list(NULL, &p, NULL, ITH_CFG_BATCH, &s.machine, 4, compare_plan, &all));
}

/* Each product also takes call_seconds. A layer has six products: q, k and v in one, three others of the attentions,
 * two of the feed-forward network. The ends of a pass have five: the patches, three of the time embedding, and the
 * head. */
static void calls_cost_what_they_take(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    const ith_video_problem p = small();
    const ith_video_cost before = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    s.product[0].call_seconds = s.product[1].call_seconds = 0.25;
    const ith_video_cost after = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    near("linear_seconds", after.linear_seconds, before.linear_seconds + 0.25 * 6);
    near("ends_seconds", after.ends_seconds, before.ends_seconds + 0.25 * 5);
    near("attention_seconds", after.attention_seconds, before.attention_seconds);
    s.product[0].call_seconds = -1;
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    REFUSED(context, "call_seconds",
            ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &cost));
}

/* On a slow rank all parts of a layer take longer, and so does the layer. The ends of a pass do not. */
static void a_simulation_has_the_layers(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    s.level.bytes_per_second = 1e12;
    const ith_video_problem p = small();
    ith_simulation simulation = ITH_SIMULATION_INIT;
    ith_video_cost got = ITH_VIDEO_COST_INIT;
    for (int cfg = ITH_CFG_BATCH; cfg <= ITH_CFG_SEQUENTIAL; cfg++) {
        const ith_video_cost model = cost_of(&p, (ith_cfg)cfg, &s.machine, 4);
        check(context, ith_video_simulate(context, &p, NULL, (ith_cfg)cfg, &s.machine, 4, NULL, NULL, NULL, &got));
        assert_true(fabs(got.step_seconds / model.step_seconds - 1) < 0.02);
        assert_true(fabs(got.seconds / model.seconds - 1) < 0.02);
        simulation.slow_rank = 1, simulation.slow_factor = 3;
        check(context,
              ith_video_simulate(context, &p, NULL, (ith_cfg)cfg, &s.machine, 4, &simulation, NULL, NULL, &got));
        assert_true(got.layer_seconds / model.layer_seconds > 2.8 && got.layer_seconds / model.layer_seconds < 3.001);
        near("ends_seconds", got.ends_seconds, model.ends_seconds);
        near("decode_seconds", got.decode_seconds, model.decode_seconds);
    }
    simulation.slow_rank = 4;
    REFUSED(context, "slow_rank",
            ith_video_simulate(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 4, &simulation, NULL, NULL, &got));
    REFUSED(NULL, "context", ith_video_simulate(NULL, &p, NULL, ITH_CFG_BATCH, &s.machine, 4, NULL, NULL, NULL, &got));
    REFUSED_SIZES(context, simulation, "ith_simulation",
                  ith_video_simulate(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 4, &simulation, NULL, NULL, &got));
}

/* A rank has more threads than its host has units. */
static void a_simulation_with_too_many_threads(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, false);
    ith_video_problem p = small();
    ith_video_cost got = ITH_VIDEO_COST_INIT;
    p.threads = 8 * (int)s.machine.host_units;
    const ith_video_cost model = cost_of(&p, ITH_CFG_BATCH, &s.machine, 1);
    check(context, ith_video_simulate(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, NULL, &got));
    assert_true(fabs(got.attention_seconds / model.attention_seconds - 1) < 0.02);
    assert_true(fabs(got.step_seconds / model.step_seconds - 1) < 0.02);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    video_scene s;
    video_scene_set(&s, true);
    ith_video_problem p = small();
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    ith_machine_product rows[ITH_VIDEO_RATES] = {ITH_MACHINE_PRODUCT_INIT};
    int64_t count = 0;
#define PREDICT(c, problem, cfg, machine, ranks, out)                                                                  \
    ith_video_predict(c, problem, NULL, cfg, machine, ranks, NULL, NULL, out)
    REFUSED(NULL, "context", PREDICT(NULL, &p, ITH_CFG_BATCH, &s.machine, 1, &cost));
    REFUSED(context, "ith_video_problem", PREDICT(context, NULL, ITH_CFG_BATCH, &s.machine, 1, &cost));
    REFUSED(context, "ith_machine", PREDICT(context, &p, ITH_CFG_BATCH, NULL, 1, &cost));
    REFUSED(context, "ith_video_cost", PREDICT(context, &p, ITH_CFG_BATCH, &s.machine, 1, NULL));
    REFUSED(context, "ranks", PREDICT(context, &p, ITH_CFG_BATCH, &s.machine, 0, &cost));
    REFUSED(context, "cfg", PREDICT(context, &p, (ith_cfg)9, &s.machine, 1, &cost));
    REFUSED(context, "odd", PREDICT(context, &p, ITH_CFG_PARALLEL, &s.machine, 3, &cost));
    REFUSED(context, "2147483646 ranks", PREDICT(context, &p, ITH_CFG_PARALLEL, &s.machine, INT32_MAX, &cost));
    REFUSED_SIZES(context, p, "ith_video_problem", PREDICT(context, &p, ITH_CFG_BATCH, &s.machine, 1, &cost));
    REFUSED_SIZES(context, cost, "ith_video_cost", PREDICT(context, &p, ITH_CFG_BATCH, &s.machine, 1, &cost));
    s.machine.product_count = 0;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "products", PREDICT(context, &p, ITH_CFG_BATCH, &s.machine, 1, &cost));
    REFUSED(NULL, "pipeline", ith_video_problem_read(NULL, NULL, &p));
    REFUSED(NULL, "context", ith_video_problem_named(NULL, "wan2.1-14b-480p", &p));
    REFUSED(context, "name", ith_video_problem_named(context, NULL, &p));
    REFUSED(NULL, "context", ith_video_measure(NULL, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, rows, &count, NULL));
    REFUSED(context, "count",
            ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, rows, NULL, NULL));
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    static const double wrong[] = {-1, INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        measuring.seconds = wrong[i];
        REFUSED(context, "seconds",
                ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, &measuring, rows, &count, NULL));
    }
    REFUSED(context, "ith_machine_product",
            ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, NULL, NULL, &count, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_those_by_hand),
        cmocka_unit_test(a_lora_adds_operations),
        cmocka_unit_test(decoding_is_that_by_hand),
        cmocka_unit_test(steps_that_are_done_cost_nothing),
        cmocka_unit_test(encoding_is_that_by_hand),
        cmocka_unit_test(an_image_encoder_is_that_by_hand),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(shared_weights_are_sent_in_every_pass),
        cmocka_unit_test(a_slow_load_of_weights_counts),
        cmocka_unit_test(attention_is_that_of_the_plan),
        cmocka_unit_test(ranks_share_units),
        cmocka_unit_test(the_nearest_rate_counts),
        cmocka_unit_test(names_are_problems),
        cmocka_unit_test(memory_is_that_of_the_pipeline),
        cmocka_unit_test(memory_of_images_is_that_of_the_pipeline),
        cmocka_unit_test(a_lora_of_a_checkpoint_counts),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(wrong_image_encoders_are_refused),
        cmocka_unit_test(a_list_has_the_costs_of_its_plans),
        cmocka_unit_test(a_simulation_has_the_layers),
        cmocka_unit_test(a_simulation_with_too_many_threads),
        cmocka_unit_test(calls_cost_what_they_take),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
