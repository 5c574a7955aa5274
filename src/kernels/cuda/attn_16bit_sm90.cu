/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of 16bit_sm90, attention on Hopper (attn_16bit_sm90.cuh): which calls it takes, the maps of tensors for
 * the copy engine (TMA), and the start of the kernel. */
#include "attn_16bit_sm90.cuh"
#include "cuda_device.h"

#include <stdio.h>

/* A kernel for one type and head size. */
typedef struct form {
    void (*kernel)(attend_arguments);
    ith_dtype dtype;
    int head_dim, keys, groups, shared;
} form;

template <typename T, int D, int KEYS, int GROUPS> constexpr form make_form()
{
    return {attend_kernel<T, D, KEYS, GROUPS>, is_bf16<T> ? ITH_BF16 : ITH_F16, D, KEYS, GROUPS,
            shared_bytes<D, KEYS, GROUPS>};
}

static const form forms[] = {
    make_form<__nv_bfloat16, 128, 176, 2>(),
    make_form<__half, 128, 176, 2>(),
    make_form<__nv_bfloat16, 64, 128, 3>(),
    make_form<__half, 64, 128, 3>(),
};

/* The form for a call that is not refused. */
static const form *find_form(const ith_device_attend *call)
{
    const form *f = forms;
    while (f->dtype != call->dtype || f->head_dim != call->head_dim)
        f++;
    return f;
}

/* Why TMA cannot read such rows of heads [first, first + count); NULL: it can. */
static const char *find_fault_of_rows(const ith_device_rows *rows, int64_t head_dim, int64_t first, int64_t count)
{
    const bool batches = rows->heads > 0 && first + count - rows->first > rows->heads;
    if ((uintptr_t)rows->data % 16)
        return "16bit_sm90 needs tensors that begin at multiples of 16 bytes";
    if (rows->row_stride % 8 || (batches && rows->batch_stride % 8))
        return "16bit_sm90 needs rows whose distances are multiples of 8 numbers";
    if (rows->heads < 1 || rows->heads > INT32_MAX || rows->row_stride < head_dim || rows->row_stride >= 1ll << 39 ||
        (batches && (rows->batch_stride < head_dim || rows->batch_stride >= 1ll << 39)))
        return "16bit_sm90 needs rows less than 2^40 bytes apart that do not overlap";
    return NULL;
}

static const char *find_fault_of_sizes(const ith_device_attend *call)
{
    const int64_t most = 1 << 30;
    if (call->head_dim != 64 && call->head_dim != 128)
        return "16bit_sm90 computes a head_dim of 64 or 128";
    if (call->q_rows > most || call->kv_rows > most || call->first + call->count > most || call->heads > most)
        return "16bit_sm90 computes at most 2^30 rows and heads";
    const int64_t kv_first = call->first / call->per_kv;
    const int64_t kv_count = call->count > 0 ? (call->first + call->count - 1) / call->per_kv - kv_first + 1 : 0;
    const char *fault = find_fault_of_rows(&call->q, call->head_dim, call->first, call->count);
    if (!fault)
        fault = find_fault_of_rows(&call->o, call->head_dim, call->first, call->count);
    if (!fault && call->kv_rows > 0)
        fault = find_fault_of_rows(&call->k, call->head_dim, kv_first, kv_count);
    if (!fault && call->kv_rows > 0)
        fault = find_fault_of_rows(&call->v, call->head_dim, kv_first, kv_count);
    return fault;
}

static const char *refuses(const struct ith_device *device, const ith_device_attend *call)
{
    if (device->capability != 90)
        return "16bit_sm90 needs a device of compute capability 9.0";
    if (call->dtype != ITH_BF16 && call->dtype != ITH_F16)
        return "16bit_sm90 computes bf16 and f16";
    if (call->softmax != ITH_SOFTMAX_ONLINE && call->softmax != ITH_SOFTMAX_FIXED_M)
        return "16bit_sm90 computes the softmaxes online and fixed_m";
    if (call->softmax == ITH_SOFTMAX_FIXED_M && call->dtype == ITH_F16)
        return "16bit_sm90 computes f16 with the online softmax only: f16 cannot hold 2^88";
    if (call->key_bias || call->mask_kind != ITH_MASK_NONE)
        return "16bit_sm90 computes attention without key_bias and mask";
    if (!(call->scale > 0))
        return "16bit_sm90 needs a positive scale";
    return find_fault_of_sizes(call);
}

typedef decltype(&cuTensorMapEncodeTiled) encode_function;

static ith_status find_encode(encode_function *encode, char *said)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!error && (found != cudaDriverEntryPointSuccess || !function))
        error = cudaErrorInsufficientDriver;
    *encode = (encode_function)function;
    return ith_cuda_check(error, "looking for the driver's tensor maps", said);
}

/* The map [head_dim, heads, rows, batch] of rows that heads [first, first + count) lie in, for boxes of `box_rows` rows
 * of a strip. */
static ith_status map_rows(encode_function encode, CUtensorMap *map, const ith_device_attend *call,
                           const ith_device_rows *rows, int64_t first, int64_t count, int64_t row_count, int box_rows,
                           char *said)
{
    const cuuint64_t batches = (cuuint64_t)((first + count - 1 - rows->first) / rows->heads + 1);
    const cuuint64_t sizes[4] = {(cuuint64_t)call->head_dim, (cuuint64_t)rows->heads, (cuuint64_t)row_count, batches};
    const cuuint64_t row_bytes = 2 * (cuuint64_t)rows->row_stride;
    const cuuint64_t strides[3] = {2 * (cuuint64_t)call->head_dim, row_bytes,
                                   batches > 1 ? 2 * (cuuint64_t)rows->batch_stride : row_bytes};
    const cuuint32_t box[4] = {STRIP, 1, (cuuint32_t)box_rows, 1}, steps[4] = {1, 1, 1, 1};
    const CUtensorMapDataType type =
        call->dtype == ITH_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const CUresult result =
        encode(map, type, 4, rows->data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return ith_cuda_check(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue,
                          "describing a tensor to the copy engine of the GPU", said);
}

static ith_status map_tensors(attend_arguments *a, const ith_device_attend *call, int keys, char *said)
{
    encode_function encode;
    ith_status status = find_encode(&encode, said);
    const int64_t kv_first = call->first / call->per_kv;
    const int64_t kv_count = (call->first + call->count - 1) / call->per_kv - kv_first + 1;
    if (!status)
        status = map_rows(encode, &a->q_map, call, &call->q, call->first, call->count, call->q_rows, ROWS, said);
    if (!status && call->kv_rows > 0)
        status = map_rows(encode, &a->k_map, call, &call->k, kv_first, kv_count, call->kv_rows, keys, said);
    if (!status && call->kv_rows > 0)
        status = map_rows(encode, &a->v_map, call, &call->v, kv_first, kv_count, call->kv_rows, keys, said);
    return status;
}

static head_rows place_heads(const ith_device_rows *rows)
{
    return {(int)rows->first, (int)rows->heads};
}

static attend_arguments make_arguments(const ith_device_attend *call, const form *f)
{
    attend_arguments a = {};
    a.q = place_heads(&call->q);
    a.k = place_heads(&call->k);
    a.v = place_heads(&call->v);
    a.o = place_heads(&call->o);
    a.o_data = call->o.data;
    a.o_row_stride = call->o.row_stride;
    a.o_batch_stride = call->o.batch_stride;
    a.first = (int)call->first;
    a.heads = (int)call->heads;
    a.per_kv = (int)call->per_kv;
    a.q_rows = (int)call->q_rows;
    a.kv_rows = (int)call->kv_rows;
    const int item_rows = f->groups * ROWS;
    a.items_per_head = (call->q_rows + item_rows - 1) / item_rows;
    a.items = a.items_per_head * call->count;
    a.c = (float)(call->scale * 1.4426950408889634);
    a.wants_fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
    a.first_shard = call->first_shard;
    a.last_shard = call->last_shard;
    a.fixed = call->fixed;
    a.keys = call->keys;
    a.halt = call->halt;
    a.o_sum = call->o_sum;
    a.m = call->m;
    a.l = call->l;
    a.lse = call->lse;
    a.lse_stride = call->lse_stride;
    return a;
}

static cudaError_t launch(const struct ith_device_stream *stream, const form *f, attend_arguments *a)
{
    cudaError_t error =
        cudaFuncSetAttribute((const void *)f->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, f->shared);
    if (error)
        return error;
    const int64_t processors = stream->device->processors;
    const dim3 blocks((unsigned)(a->items < processors ? a->items : processors)), threads(128 * (f->groups + 1));
    void *arguments[] = {a};
    return cudaLaunchKernel((const void *)f->kernel, blocks, threads, arguments, (size_t)f->shared, stream->stream);
}

static ith_status attend(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    static const char doing[] = "starting the attention kernel 16bit_sm90";
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || call->count == 0 || call->q_rows == 0)
        return status;
    const form *f = find_form(call);
    attend_arguments a = make_arguments(call, f);
    status = map_tensors(&a, call, f->keys, said);
    return status ? status : ith_cuda_check(launch(stream, f, &a), doing, said);
}

extern "C" const ith_device_kernel ith_cuda_attn_16bit_sm90 = {"16bit_sm90", refuses, attend};
