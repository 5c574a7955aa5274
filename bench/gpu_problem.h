/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bench_gpu_attention: a GPU with its module, random problems in its memory, and the comparison with
 * float64. Functions print a sentence and end the program if the GPU fails. */
#ifndef ITH_BENCH_GPU_PROBLEM_H
#define ITH_BENCH_GPU_PROBLEM_H

#include "../src/kernels/device.h"

typedef struct bench_gpu {
    const ith_device_module *module;
    const ith_device_kernel *kernel;
    struct ith_device *device;
    struct ith_device_stream *stream;
    int32_t *halt; /* on the device: 0 */
} bench_gpu;

/* Random tensors q, o [batch, q_rows, heads, head_dim] and k, v [batch, kv_rows, heads / per_kv, head_dim], with a
 * state and lse, on the device. */
typedef struct gpu_problem {
    ith_dtype dtype;
    int64_t head_dim, batch, heads, per_kv, q_rows, kv_rows;
    uint64_t seed;
    void *q, *k, *v, *o; /* on the device, set by gpu_make_problem */
    float *o_sum, *m, *l, *lse;
} gpu_problem;

/* Opens GPU 0 with the module that ITHACA_DEVICE_MODULE names, or ithaca_device_cuda.so beside the program. Returns
 * false, after a sentence, if there is none. */
bool gpu_open(bench_gpu *gpu, const char *kernel);

/* Ends the program if error is not 0. */
void gpu_check(int error, const char *doing);
void gpu_attend(bench_gpu *gpu, const ith_device_attend *call);
void gpu_wait(bench_gpu *gpu);
void *gpu_allocate(bench_gpu *gpu, int64_t bytes);
void gpu_copy(bench_gpu *gpu, void *to, const void *from, int64_t bytes);
void gpu_fill_floats(bench_gpu *gpu, float *to, int64_t count, float value);

ith_dtype gpu_dtype(const char *name);
/* Number `index` of the random numbers of a seed: about normal, with a variance of 1. */
float gpu_random(uint64_t seed, int64_t index);

/* Makes the tensors, and a call for all heads with one shard. */
ith_device_attend gpu_make_problem(bench_gpu *gpu, gpu_problem *problem);
void gpu_free_problem(bench_gpu *gpu, gpu_problem *problem);

#endif
