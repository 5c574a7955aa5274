/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a GPU for bench_gpu_attention, and makes random problems in its memory. */
#include "gpu_problem.h"

#include "../src/base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the program if a call of the module has failed. said: the sentence of the module. */
static void check_status(ith_status status, const char *said)
{
    if (status) {
        fprintf(stderr, "bench_gpu_attention: %s\n", said);
        exit(1);
    }
}

void gpu_check(int error, const char *doing)
{
    if (error) {
        fprintf(stderr, "bench_gpu_attention: %s failed with CUDA's error %d\n", doing, error);
        exit(1);
    }
}

static char *find_module(void)
{
    const char *named = getenv("ITHACA_DEVICE_MODULE");
    if (named)
        return strdup(named);
    static const char file[] = "/ithaca_device_cuda.so";
    char *folder = ith_module_find_folder(&find_module);
    char *path = malloc(strlen(folder) + sizeof file);
    strcat(strcpy(path, folder), file);
    free(folder);
    return path;
}

bool gpu_open(bench_gpu *gpu, const char *kernel)
{
    static const ith_module_kind kind = {
        .name = "device", .symbol = "ith_device_module_table", .abi = ITH_DEVICE_MODULE_ABI};
    ith_module module = {.path = find_module()};
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_facts facts;
    ith_module_open(&kind, &module);
    *gpu = (bench_gpu){.module = (const ith_device_module *)module.table};
    if (!module.table) {
        fprintf(stderr, "bench_gpu_attention: %s: %s\n", module.path, module.refusal);
        return false;
    }
    if (gpu->module->open(0, &gpu->device, said)) {
        fprintf(stderr, "bench_gpu_attention: %s\n", said);
        return false;
    }
    for (int i = 0; gpu->module->kernels[i]; i++)
        if (!strcmp(gpu->module->kernels[i]->name, kernel))
            gpu->kernel = gpu->module->kernels[i];
    if (!gpu->kernel) {
        fprintf(stderr, "bench_gpu_attention: the module has no kernel called %s\n", kernel);
        return false;
    }
    check_status(gpu->module->create_stream(gpu->device, &gpu->stream, said), said);
    check_status(gpu->module->facts(gpu->device, &facts, said), said);
    fprintf(stderr, "%s, %d processors\n", facts.name, facts.processors);
    gpu->halt = gpu_allocate(gpu, sizeof *gpu->halt);
    gpu_copy(gpu, gpu->halt, &(int32_t){0}, sizeof *gpu->halt);
    free(module.path);
    return true;
}

void gpu_attend(bench_gpu *gpu, const ith_device_attend *call)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const char *refusal = gpu->kernel->refuses(gpu->device, call);
    check_status(refusal ? ITH_ERR_UNSUPPORTED : ITH_OK, refusal);
    check_status(gpu->kernel->attend(gpu->stream, call, said), said);
}

void gpu_wait(bench_gpu *gpu)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const time_t begin = time(NULL);
    bool done = false;
    while (!done) {
        check_status(gpu->module->query(gpu->stream, &done, said), said);
        check_status(time(NULL) > begin + 20 ? ITH_ERR_TIMEOUT : ITH_OK, "the GPU has not answered for 20 seconds");
    }
}

void *gpu_allocate(bench_gpu *gpu, int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    void *pointer = NULL;
    check_status(gpu->module->allocate(gpu->device, bytes, &pointer, said), said);
    return pointer;
}

void gpu_copy(bench_gpu *gpu, void *to, const void *from, int64_t bytes)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    check_status(gpu->module->copy(gpu->stream, to, from, bytes, said), said);
    gpu_wait(gpu);
}

void gpu_fill_floats(bench_gpu *gpu, float *to, int64_t count, float value)
{
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
    gpu_copy(gpu, to, values, count * (int64_t)sizeof *values);
    free(values);
}

ith_dtype gpu_dtype(const char *name)
{
    return !strcmp(name, "f16") ? ITH_F16 : !strcmp(name, "f32") ? ITH_F32 : ITH_BF16;
}

/* The sum of four 16-bit numbers of a hash (splitmix64), centred. */
float gpu_random(uint64_t seed, int64_t index)
{
    uint64_t x = (seed << 40) + (uint64_t)index * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const uint64_t sum = (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48);
    return ((float)sum - 131070) * (1.f / 37837);
}

/* A random tensor on the device. */
static void *make_tensor(bench_gpu *gpu, ith_dtype dtype, uint64_t seed, int64_t count)
{
    const int64_t bytes = count * (dtype == ITH_F32 ? 4 : 2);
    char *values = malloc((size_t)bytes + 1);
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) {
        const float value = gpu_random(seed, i);
        if (dtype == ITH_F32)
            ((float *)values)[i] = value;
        else
            ((uint16_t *)values)[i] = dtype == ITH_BF16 ? ith_bf16_from_f32(value) : ith_f16_from_f32(value);
    }
    void *tensor = gpu_allocate(gpu, bytes);
    gpu_copy(gpu, tensor, values, bytes);
    free(values);
    return tensor;
}

ith_device_attend gpu_make_problem(bench_gpu *gpu, gpu_problem *p)
{
    const int64_t kv_heads = p->heads / p->per_kv, rows = p->batch * p->heads * p->q_rows, d = p->head_dim;
    const int64_t kv_count = p->batch * p->kv_rows * kv_heads * d, wide = (int64_t)sizeof(float);
    p->q = make_tensor(gpu, p->dtype, 3 * p->seed, rows * d);
    p->k = make_tensor(gpu, p->dtype, 3 * p->seed + 1, kv_count);
    p->v = make_tensor(gpu, p->dtype, 3 * p->seed + 2, kv_count);
    p->o = gpu_allocate(gpu, rows * d * (p->dtype == ITH_F32 ? 4 : 2));
    p->o_sum = gpu_allocate(gpu, rows * d * wide);
    p->m = gpu_allocate(gpu, rows * wide);
    p->l = gpu_allocate(gpu, rows * wide);
    p->lse = gpu_allocate(gpu, rows * wide);
    const ith_device_rows q = {p->q, 0, p->heads, p->heads * d, p->q_rows * p->heads * d};
    const ith_device_rows k = {p->k, 0, kv_heads, kv_heads * d, p->kv_rows * kv_heads * d};
    ith_device_rows v = k, o = q;
    v.data = p->v;
    o.data = p->o;
    const float scale = 1 / sqrtf((float)d);
    return (ith_device_attend){.dtype = p->dtype,
                               .head_dim = d,
                               .scale = scale,
                               .softmax = ITH_SOFTMAX_ONLINE,
                               .count = p->batch * p->heads,
                               .heads = p->heads,
                               .per_kv = p->per_kv,
                               .q = q,
                               .k = k,
                               .v = v,
                               .o = o,
                               .q_rows = p->q_rows,
                               .kv_rows = p->kv_rows,
                               .first_shard = true,
                               .last_shard = true,
                               .o_sum = p->o_sum,
                               .m = p->m,
                               .l = p->l,
                               .lse = p->lse,
                               .lse_stride = p->q_rows,
                               .halt = gpu->halt};
}

void gpu_free_problem(bench_gpu *gpu, gpu_problem *p)
{
    void *const all[] = {p->q, p->k, p->v, p->o, p->o_sum, p->m, p->l, p->lse};
    for (int i = 0; i < 8; i++)
        gpu->module->release(gpu->device, all[i]);
}
