/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the layout of each public struct in a line. Programs that were built earlier rely on it. */
#include <ithaca/cost.h>
#include <ithaca/transport.h>
#include <ithaca/tune.h>
#ifdef WITH_ENGINE
#include <ithaca/bench.h>
#include <ithaca/files.h>
#include <ithaca/video_cost.h>
#include <ithaca/wan.h>
#endif

#include <assert.h>
#include <stdio.h>

/* The last field must reach the end of the struct. Otherwise a field that is added later would lie in today's padding,
 * which programs do not set. */
#define SHOW(type, last)                                                                                               \
    do {                                                                                                               \
        static_assert(offsetof(type, struct_size) == 0, #type " begins with its size");                                \
        static_assert(offsetof(type, last) + sizeof((type *)0)->last == sizeof(type), #type " ends in padding");       \
        static_assert(sizeof((type *)0)->last % 8 == 0, "the last field of " #type " may follow padding");             \
        printf("%s %zu bytes, %s at %zu\n", #type, sizeof(type), #last, offsetof(type, last));                         \
    } while (0)

/* Structs that are elements of arrays, and so must never change. */
#define SHOW_FIXED(type, last)                                                                                         \
    printf("%s %zu bytes for ever, %s at %zu\n", #type, sizeof(type), #last, offsetof(type, last))

int main(void)
{
    SHOW(ith_allocator, user);
    SHOW(ith_context_options, parallel_user);
    SHOW(ith_memory_use, peak_bytes);
    SHOW(ith_device_info, free_bytes);
    SHOW(ith_attn_problem, o_batch_stride);
    SHOW(ith_attn_options, overlap);
    SHOW(ith_attn_tensors, stream);
    SHOW(ith_plan_info, device_bytes);
    SHOW(ith_plan_counters, compression_error);
    SHOW(ith_peak, gflops);
    SHOW(ith_machine_attention, offset_bytes_per_second);
    SHOW(ith_machine_product, call_seconds);
    SHOW(ith_machine_level, setup_seconds);
    SHOW(ith_machine, unit_hosts);
    SHOW(ith_cost, level_seconds);
    SHOW(ith_plan_candidate, cost);
    SHOW(ith_simulation, user);
    SHOW(ith_machine_case, head_dim);
    SHOW(ith_measure_options, user);
    SHOW_FIXED(ith_tile_choice, gflops);
    SHOW(ith_tile_search, user);
    SHOW(ith_tile_report, best);
    SHOW_FIXED(ith_region, bytes);
    SHOW_FIXED(ith_transfer, region);
    SHOW(ith_operation, stream);
    SHOW(ith_subgroup, members);
    SHOW(ith_place, name);
    SHOW(ith_transport, device_memory);
#ifdef WITH_ENGINE
    SHOW(ith_tensor, bytes);
    SHOW(ith_model_files, image_encoder);
    SHOW(ith_lora_file, expert);
    SHOW(ith_image, width);
    SHOW(ith_model_part, types);
    SHOW(ith_model_info, most_images);
    SHOW(ith_generate_report, streamed_layers);
    SHOW(ith_generate_options, device_memory);
    SHOW(ith_bench_stage, burst_gflops);
    SHOW(ith_bench_options, user);
    SHOW(ith_bench_report, peak_bytes);
    SHOW(ith_block_problem, lora_rank);
    SHOW(ith_decode_problem, vae);
    SHOW(ith_video_problem, steps_done);
    SHOW(ith_video_cost, image_seconds);
    SHOW(ith_video_measure_options, user);
#endif
    return 0;
}
