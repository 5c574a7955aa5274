/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on NVIDIA GPUs (kernels/device_conv.h), by cuDNN 9, which is loaded when it is first needed.
 *
 * Arrays are channels-last: [N][D][H][W][C], with filters [K][T][R][S][C]. Three forms of calls serve all convolutions:
 *
 *   depth 1            N = frames, two dimensions, R = S = kernel
 *   depth 3, kernel 1  N = 1, two dimensions: H = frames, W = all pixels of a frame, R = 3, S = 1, without edges
 *   depth 3, kernel 3  N = 1, three dimensions, without edges in time
 *
 * Only algorithms with the same bits every time are used: implicit and explicit matrix products. BF16 numbers are
 * multiplied by matrix units and added in f32; F32 numbers by fused multiply-adds. */
#include "cuda_device.h"

#include <cudnn.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The library ----------------------------------------------------------------------------------------------- */

/* The functions of cuDNN. */
typedef struct library {
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnCreateTensorDescriptor) *tensor_create;
    __typeof__(cudnnDestroyTensorDescriptor) *tensor_destroy;
    __typeof__(cudnnSetTensorNdDescriptorEx) *tensor_set;
    __typeof__(cudnnCreateFilterDescriptor) *filter_create;
    __typeof__(cudnnDestroyFilterDescriptor) *filter_destroy;
    __typeof__(cudnnSetFilterNdDescriptor) *filter_set;
    __typeof__(cudnnCreateConvolutionDescriptor) *conv_create;
    __typeof__(cudnnDestroyConvolutionDescriptor) *conv_destroy;
    __typeof__(cudnnSetConvolutionNdDescriptor) *conv_set;
    __typeof__(cudnnSetConvolutionMathType) *conv_math;
    __typeof__(cudnnGetConvolutionForwardAlgorithm_v7) *algorithms;
    __typeof__(cudnnGetConvolutionForwardWorkspaceSize) *workspace;
    __typeof__(cudnnConvolutionForward) *forward;
} library;

/* The loaded library, or why it could not be loaded. It is loaded once in a process, and stays. */
static library dnn;
static char dnn_refusal[ITH_DEVICE_SENTENCE];
static pthread_once_t dnn_once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const struct {
        const char *name;
        void **function;
    } functions[] = {
        {"cudnnGetErrorString", (void **)&dnn.error_string},
        {"cudnnGetVersion", (void **)&dnn.version},
        {"cudnnCreate", (void **)&dnn.create},
        {"cudnnDestroy", (void **)&dnn.destroy},
        {"cudnnSetStream", (void **)&dnn.set_stream},
        {"cudnnCreateTensorDescriptor", (void **)&dnn.tensor_create},
        {"cudnnDestroyTensorDescriptor", (void **)&dnn.tensor_destroy},
        {"cudnnSetTensorNdDescriptorEx", (void **)&dnn.tensor_set},
        {"cudnnCreateFilterDescriptor", (void **)&dnn.filter_create},
        {"cudnnDestroyFilterDescriptor", (void **)&dnn.filter_destroy},
        {"cudnnSetFilterNdDescriptor", (void **)&dnn.filter_set},
        {"cudnnCreateConvolutionDescriptor", (void **)&dnn.conv_create},
        {"cudnnDestroyConvolutionDescriptor", (void **)&dnn.conv_destroy},
        {"cudnnSetConvolutionNdDescriptor", (void **)&dnn.conv_set},
        {"cudnnSetConvolutionMathType", (void **)&dnn.conv_math},
        {"cudnnGetConvolutionForwardAlgorithm_v7", (void **)&dnn.algorithms},
        {"cudnnGetConvolutionForwardWorkspaceSize", (void **)&dnn.workspace},
        {"cudnnConvolutionForward", (void **)&dnn.forward},
    };
    void *file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        snprintf(
            dnn_refusal, sizeof dnn_refusal,
            "convolutions on a GPU need cuDNN 9: libcudnn.so.9 was not found; LD_LIBRARY_PATH may name its folder");
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *functions[i].function = dlsym(file, functions[i].name);
        if (!*functions[i].function)
            snprintf(dnn_refusal, sizeof dnn_refusal, "the library libcudnn.so.9 has no function %s",
                     functions[i].name);
    }
}

const char *ith_cuda_conv_refusal(void)
{
    pthread_once(&dnn_once, load);
    return *dnn_refusal ? dnn_refusal : NULL;
}

/* ITH_OK for success; otherwise a failure whose sentence begins with `doing`. */
static ith_status check(cudnnStatus_t error, const char *doing, char *said)
{
    if (error == CUDNN_STATUS_SUCCESS)
        return ITH_OK;
    snprintf(said, ITH_DEVICE_SENTENCE, "%s: cuDNN %d says %s", doing, (int)dnn.version(), dnn.error_string(error));
    switch (error) {
    case CUDNN_STATUS_ALLOC_FAILED: return ITH_ERR_MEMORY;
    case CUDNN_STATUS_NOT_SUPPORTED:
    case CUDNN_STATUS_NOT_INITIALIZED: return ITH_ERR_UNSUPPORTED;
    default: return ITH_ERR_INTERNAL;
    }
}

/* ---- Objects --------------------------------------------------------------------------------------------------- */

/* The sizes and types on which the choice of an algorithm depends. The struct has no padding, because it is compared as
 * bytes. */
typedef struct problem {
    int64_t frames, height, width, in, out, depth, kernel, type;
} problem;

/* A convolution with its descriptors and its algorithm. */
typedef struct choice {
    problem problem;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnConvolutionFwdAlgo_t algorithm;
    size_t scratch_bytes;
} choice;

/* CHOICES: the latest convolutions are kept. ALGORITHMS: suggestions that cuDNN is asked for. */
enum { CHOICES = 256, ALGORITHMS = 16 };

/* Algorithms that need more scratch memory than this are left out. */
static const size_t most_scratch = (size_t)4 << 30;

/* cuDNN takes arrays of less than 2^31 numbers. */
static const int64_t most_numbers = INT32_MAX;

struct ith_device_convs {
    struct ith_device *device;
    cudnnHandle_t handle;
    choice choices[CHOICES];
    int64_t chosen; /* number of choices that were ever made */
};

static void forget(choice *c)
{
    if (c->conv)
        dnn.conv_destroy(c->conv);
    if (c->w)
        dnn.filter_destroy(c->w);
    if (c->x)
        dnn.tensor_destroy(c->x);
    if (c->y)
        dnn.tensor_destroy(c->y);
    *c = (choice){0};
}

void ith_cuda_destroy_convs(struct ith_device_convs *convs)
{
    if (!convs)
        return;
    for (int i = 0; i < CHOICES; i++)
        forget(&convs->choices[i]);
    if (convs->handle && !cudaSetDevice(convs->device->index))
        dnn.destroy(convs->handle);
    free(convs);
}

ith_status ith_cuda_create_convs(struct ith_device *device, struct ith_device_convs **out, char *said)
{
    static const char doing[] = "preparing convolutions";
    *out = NULL;
    if (ith_cuda_conv_refusal()) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s", dnn_refusal);
        return ITH_ERR_UNSUPPORTED;
    }
    ith_status status = ith_cuda_check(cudaSetDevice(device->index), doing, said);
    if (status)
        return status;
    struct ith_device_convs *convs = calloc(1, sizeof *convs);
    if (!convs) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: there is no memory", doing);
        return ITH_ERR_MEMORY;
    }
    convs->device = device;
    status = check(dnn.create(&convs->handle), doing, said);
    if (status)
        ith_cuda_destroy_convs(convs);
    else
        *out = convs;
    return status;
}

/* ---- Descriptors ----------------------------------------------------------------------------------------------- */

/* The sizes of one call, in cuDNN's order: N, C, then D, H, W or H, W. */
typedef struct sizes {
    int dims, x[5], y[5], w[5], edges[3];
} sizes;

static sizes sizes_of(const problem *p)
{
    const int frames = (int)p->frames, height = (int)p->height, width = (int)p->width;
    const int in = (int)p->in, out = (int)p->out, kernel = (int)p->kernel, edge = (kernel - 1) / 2;
    if (p->depth == 1)
        return (sizes){.dims = 4,
                       .x = {frames, in, height, width},
                       .y = {frames, out, height, width},
                       .w = {out, in, kernel, kernel},
                       .edges = {edge, edge}};
    if (p->kernel == 1)
        return (sizes){.dims = 4,
                       .x = {1, in, frames + 2, height * width},
                       .y = {1, out, frames, height * width},
                       .w = {out, in, 3, 1}};
    return (sizes){.dims = 5,
                   .x = {1, in, frames + 2, height, width},
                   .y = {1, out, frames, height, width},
                   .w = {out, in, 3, kernel, kernel},
                   .edges = {0, edge, edge}};
}

static cudnnStatus_t describe(choice *c)
{
    static const int ones[3] = {1, 1, 1};
    const sizes s = sizes_of(&c->problem);
    const cudnnDataType_t type = c->problem.type == ITH_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnStatus_t error = dnn.tensor_create(&c->x);
    if (!error)
        error = dnn.tensor_create(&c->y);
    if (!error)
        error = dnn.filter_create(&c->w);
    if (!error)
        error = dnn.conv_create(&c->conv);
    if (!error)
        error = dnn.tensor_set(c->x, CUDNN_TENSOR_NHWC, type, s.dims, s.x);
    if (!error)
        error = dnn.tensor_set(c->y, CUDNN_TENSOR_NHWC, type, s.dims, s.y);
    if (!error)
        error = dnn.filter_set(c->w, type, CUDNN_TENSOR_NHWC, s.dims, s.w);
    if (!error)
        error = dnn.conv_set(c->conv, s.dims - 2, s.edges, ones, ones, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    return error;
}

/* ---- Algorithms ------------------------------------------------------------------------------------------------ */

/* F32 numbers are never rounded to TF32, which the other kinds of arithmetic allow. */
static cudnnMathType_t math_of(const problem *p, cudnnMathType_t suggested)
{
    return p->type == ITH_BF16 ? suggested : CUDNN_FMA_MATH;
}

/* Whether a suggestion of cuDNN may be used. */
static bool is_suitable(const problem *p, const cudnnConvolutionFwdAlgoPerf_t *a)
{
    const bool rounds = a->mathType == CUDNN_TENSOR_OP_MATH || a->mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    return a->status == CUDNN_STATUS_SUCCESS && a->determinism == CUDNN_DETERMINISTIC && a->memory <= most_scratch &&
           a->algo <= CUDNN_CONVOLUTION_FWD_ALGO_GEMM && (p->type == ITH_BF16 || !rounds);
}

/* Takes the first suitable suggestion, which is the fastest one by cuDNN's estimate. Returns whether there is one. */
static bool take_suggestion(struct ith_device_convs *convs, choice *c)
{
    cudnnConvolutionFwdAlgoPerf_t list[ALGORITHMS];
    int count = 0;
    if (dnn.algorithms(convs->handle, c->x, c->w, c->conv, c->y, ALGORITHMS, &count, list))
        return false;
    for (int i = 0; i < count; i++)
        if (is_suitable(&c->problem, &list[i]) && !dnn.conv_math(c->conv, math_of(&c->problem, list[i].mathType)) &&
            !dnn.workspace(convs->handle, c->x, c->w, c->conv, c->y, list[i].algo, &c->scratch_bytes) &&
            c->scratch_bytes <= most_scratch) {
            c->algorithm = list[i].algo;
            return true;
        }
    return false;
}

/* Chooses an algorithm. Without a suitable suggestion it is one of the matrix products that cuDNN says it can compute.
 */
static ith_status choose(struct ith_device_convs *convs, choice *c, char *said)
{
    static const char doing[] = "choosing the algorithm of a convolution";
    static const cudnnConvolutionFwdAlgo_t others[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                       CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM};
    cudnnStatus_t error = describe(c);
    if (!error)
        error = dnn.conv_math(c->conv, math_of(&c->problem, CUDNN_TENSOR_OP_MATH));
    if (error)
        return check(error, "describing a convolution", said);
    if (take_suggestion(convs, c))
        return ITH_OK;
    error = dnn.conv_math(c->conv, math_of(&c->problem, CUDNN_TENSOR_OP_MATH));
    if (error)
        return check(error, doing, said);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        c->algorithm = others[i];
        error = dnn.workspace(convs->handle, c->x, c->w, c->conv, c->y, c->algorithm, &c->scratch_bytes);
        if (!error && c->scratch_bytes <= most_scratch)
            return ITH_OK;
    }
    return check(error ? error : CUDNN_STATUS_NOT_SUPPORTED, doing, said);
}

static ith_status check_problem(const problem *p, char *said)
{
    const int64_t pixels = (p->frames + p->depth - 1) * p->height * p->width;
    const int64_t channels = p->in > p->out ? p->in : p->out;
    if (p->frames < 1 || p->height < 1 || p->width < 1 || channels < 1 || pixels > most_numbers / channels) {
        snprintf(said, ITH_DEVICE_SENTENCE,
                 "a convolution of %lld frames of %lld x %lld pixels with %lld channels: cuDNN takes at most 2^31 - 1 "
                 "numbers",
                 (long long)(p->frames + p->depth - 1), (long long)p->width, (long long)p->height, (long long)channels);
        return ITH_ERR_UNSUPPORTED;
    }
    return ITH_OK;
}

/* Finds the choice for a convolution among the earlier ones, or makes it. */
static ith_status find_choice(struct ith_device_convs *convs, const ith_device_conv *conv, const choice **out,
                              char *said)
{
    const problem wanted = {conv->frames, conv->height, conv->width,  conv->in,
                            conv->out,    conv->depth,  conv->kernel, conv->type};
    const int64_t known = convs->chosen < CHOICES ? convs->chosen : CHOICES;
    for (int64_t i = 0; i < known; i++)
        if (!memcmp(&convs->choices[i].problem, &wanted, sizeof wanted)) {
            *out = &convs->choices[i];
            return ITH_OK;
        }
    ith_status status = check_problem(&wanted, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(convs->device->index), "choosing the algorithm of a convolution", said);
    if (status)
        return status;
    choice *made = &convs->choices[convs->chosen % CHOICES];
    forget(made);
    made->problem = wanted;
    status = choose(convs, made, said);
    if (status) {
        forget(made);
        return status;
    }
    convs->chosen++;
    *out = made;
    return ITH_OK;
}

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

ith_status ith_cuda_prepare_conv(struct ith_device_convs *convs, const ith_device_conv *conv, int64_t *bytes,
                                 char *said)
{
    const choice *chosen = NULL;
    ith_status status = conv->frames ? find_choice(convs, conv, &chosen, said) : ITH_OK;
    *bytes = chosen ? (int64_t)chosen->scratch_bytes : 0;
    return status;
}

ith_status ith_cuda_convolve(struct ith_device_stream *stream, struct ith_device_convs *convs,
                             const ith_device_conv *conv, void *scratch, int64_t scratch_bytes, char *said)
{
    static const char doing[] = "starting a convolution";
    const float one = 1, zero = 0;
    const choice *chosen = NULL;
    if (!conv->frames)
        return ITH_OK;
    ith_status status = find_choice(convs, conv, &chosen, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (!status)
        status = check(dnn.set_stream(convs->handle, stream->stream), doing, said);
    if (status)
        return status;
    return check(dnn.forward(convs->handle, &one, chosen->x, conv->x, chosen->w, conv->w, chosen->conv,
                             chosen->algorithm, scratch, (size_t)scratch_bytes, &zero, chosen->y, conv->y),
                 doing, said);
}
