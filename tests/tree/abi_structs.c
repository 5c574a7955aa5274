/* The layout of libithaca's public structs, a line each: what a program that was built before relies on. */
#include <ithaca/ithaca.h>

#include <stdio.h>

#define SHOW(type, last) printf("%s %zu bytes, %s at %zu\n", #type, sizeof(type), #last, offsetof(type, last))

int main(void)
{
    SHOW(ith_allocator, user);
    SHOW(ith_context_options, cpu_mask);
    SHOW(ith_memory_use, peak_bytes);
    SHOW(ith_attn_problem, o_batch_stride);
    SHOW(ith_attn_tiles, block_kv_compute_in);
    SHOW(ith_attn_options, tiles);
    SHOW(ith_attn_tensors, mask);
    SHOW(ith_plan_info, memory_bytes);
    SHOW(ith_plan_counters, waiting_seconds);
    return 0;
}
