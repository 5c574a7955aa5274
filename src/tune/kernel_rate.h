/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of attention kernels: times of calls on whole blocks and on short ones, and of packing (quiet.h).
 *
 * A call of a kernel with b queries and n keys of D numbers takes about
 *
 *     call_seconds + 4 b n D / (1e9 gflops).
 *
 * Calls on two lengths of KV blocks give both figures. All `threads` threads work at the same time, each on memory of
 * its own, because they share caches, memory and power; the first thread is measured. */
#ifndef ITH_TUNE_KERNEL_RATE_H
#define ITH_TUNE_KERNEL_RATE_H

#include "../plan/measure.h"
#include "quiet.h"

/* The memory and the numbers with which kernels of one type and head size are measured. */
typedef struct ith_rate_scene {
    ith_context *context;
    ith_dtype dtype;
    int64_t head_dim, threads;
    int64_t rows, heads; /* k and v are [rows, heads, head_dim] */
    char *k, *v;
    const void **k_rows, **v_rows; /* [heads][rows]: pointers to the rows of each head */
    ith_quiet *quiet;
    void *memory;     /* one allocation, which holds the arrays */
    char *run_memory; /* the memory of the threads; grows with the needs of the kernels */
    int64_t run_bytes;
    bool (*stopped)(void *user); /* asked by one thread at a time, every few milliseconds; NULL: never stopped */
    void *user;
} ith_rate_scene;

/* A kernel with its tiles, and how it is to be measured. */
typedef struct ith_rate_request {
    const ith_attn_kernel *kernel;
    ith_softmax softmax;
    ith_attn_tiles tiles;
    int64_t keys;   /* keys to which a block of queries attends, in KV blocks of tiles.block_kv */
    double seconds; /* time that the measurement may take, about; three repeats are made in any case */
} ith_rate_request;

typedef struct ith_rate {
    /* as in ith_machine_attention; the last is 0 with the online softmax */
    double gflops, call_seconds, pack_bytes_per_second, offset_bytes_per_second;
    double whole_gflops; /* the rate of calls on whole KV blocks, with the other costs of a call */
} ith_rate;

/* Allocates a scene and fills k and v with random numbers. */
ith_status ith_rate_scene_create(ith_context *context, ith_dtype dtype, int64_t head_dim, int64_t threads,
                                 ith_rate_scene *scene);
void ith_rate_scene_free(ith_rate_scene *scene);

/* Measures all figures of a kernel, from typical times. request->keys is lowered if the time is too short. */
ith_status ith_rate_measure(ith_rate_scene *scene, const ith_rate_request *request, ith_rate *rate);
/* Measures whole_gflops alone, on exactly request->keys keys, from the quiet time. */
ith_status ith_rate_measure_whole(ith_rate_scene *scene, const ith_rate_request *request, double *gflops);

#endif
