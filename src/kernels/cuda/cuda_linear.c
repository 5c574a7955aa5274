/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on NVIDIA GPUs: y = act(x w^T + bias), by cuBLASLt, which is loaded when the first layers are made.
 *
 * cuBLASLt's matrices are column-major. A row-major matrix y [rows, out] is a column-major one of out x rows, and so
 * y^T = w x^T is computed: w is the first operand, transposed, and x is the second one. The bias belongs to the rows of
 * y^T, as cuBLASLt wants it. */
#include "cuda_device.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The library ----------------------------------------------------------------------------------------------- */

/* The functions of cuBLASLt. */
typedef struct library {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetStatusName) *status_name;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmul) *matmul;
} library;

/* The loaded library, or why it could not be loaded. It is loaded once in a process, and stays. */
static library lt;
static char lt_refusal[ITH_DEVICE_SENTENCE];
static pthread_once_t lt_once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const struct {
        const char *name;
        void **function;
    } functions[] = {
        {"cublasLtCreate", (void **)&lt.create},
        {"cublasLtDestroy", (void **)&lt.destroy},
        {"cublasLtGetStatusName", (void **)&lt.status_name},
        {"cublasLtMatmulDescCreate", (void **)&lt.desc_create},
        {"cublasLtMatmulDescDestroy", (void **)&lt.desc_destroy},
        {"cublasLtMatmulDescSetAttribute", (void **)&lt.desc_set},
        {"cublasLtMatrixLayoutCreate", (void **)&lt.layout_create},
        {"cublasLtMatrixLayoutDestroy", (void **)&lt.layout_destroy},
        {"cublasLtMatmulPreferenceCreate", (void **)&lt.preference_create},
        {"cublasLtMatmulPreferenceDestroy", (void **)&lt.preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", (void **)&lt.preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void **)&lt.heuristic},
        {"cublasLtMatmul", (void **)&lt.matmul},
    };
    void *file = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !file; i++)
        file = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        snprintf(lt_refusal, sizeof lt_refusal,
                 "linear layers on a GPU need cuBLAS: neither libcublasLt.so.13 nor libcublasLt.so.12 was found; "
                 "LD_LIBRARY_PATH may name its folder");
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *functions[i].function = dlsym(file, functions[i].name);
        if (!*functions[i].function)
            snprintf(lt_refusal, sizeof lt_refusal, "the library libcublasLt has no function %s", functions[i].name);
    }
}

/* ITH_OK for success; otherwise a failure whose sentence begins with `doing`. */
static ith_status check(cublasStatus_t error, const char *doing, char *said)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return ITH_OK;
    snprintf(said, ITH_DEVICE_SENTENCE, "%s: cuBLASLt says %s", doing, lt.status_name(error));
    return error == CUBLAS_STATUS_ALLOC_FAILED ? ITH_ERR_MEMORY : ITH_ERR_INTERNAL;
}

/* ---- Objects --------------------------------------------------------------------------------------------------- */

/* The sizes and types on which the choice of an algorithm depends. The struct has no padding, because it is compared as
 * bytes. */
typedef struct problem {
    int64_t rows, in, out, x_stride, y_stride;
    int32_t type, y_type, epilogue;
    uint32_t align_w, align_x, align_y;
} problem;

typedef struct choice {
    problem problem;
    cublasLtMatmulAlgo_t algorithm;
    bool found; /* false: cuBLASLt cannot compute this problem */
} choice;

enum { CHOICES = 64 };

struct ith_device_products {
    struct ith_device *device;
    cublasLtHandle_t handle;
    void *scratch;
    choice choices[CHOICES]; /* of the last problems; the oldest one is replaced */
    int64_t chosen;          /* number of choices that were ever made */
};

void ith_cuda_destroy_products(struct ith_device_products *products)
{
    if (!products)
        return;
    if (!cudaSetDevice(products->device->index)) {
        if (products->handle)
            lt.destroy(products->handle);
        cudaFree(products->scratch);
    }
    free(products);
}

ith_status ith_cuda_create_products(struct ith_device *device, struct ith_device_products **out, char *said)
{
    static const char doing[] = "preparing linear layers";
    *out = NULL;
    pthread_once(&lt_once, load);
    if (*lt_refusal) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s", lt_refusal);
        return ITH_ERR_UNSUPPORTED;
    }
    ith_status status = ith_cuda_check(cudaSetDevice(device->index), doing, said);
    if (status)
        return status;
    struct ith_device_products *products = calloc(1, sizeof *products);
    if (!products) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: there is no memory", doing);
        return ITH_ERR_MEMORY;
    }
    products->device = device;
    status = check(lt.create(&products->handle), doing, said);
    if (!status)
        status = ith_cuda_check(cudaMalloc(&products->scratch, ITH_CUDA_PRODUCT_BYTES), doing, said);
    if (status)
        ith_cuda_destroy_products(products);
    else
        *out = products;
    return status;
}

/* ---- Products -------------------------------------------------------------------------------------------------- */

/* The descriptors of one product. */
typedef struct descriptors {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
} descriptors;

static cudaDataType_t type_of(ith_dtype type)
{
    return type == ITH_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The largest power of two, at most 256, that divides an address. */
static uint32_t alignment_of(const void *pointer)
{
    const uintptr_t bits = (uintptr_t)pointer | 256;
    return (uint32_t)(bits & (~bits + 1));
}

static problem problem_of(const ith_device_linear *l, cublasLtEpilogue_t epilogue)
{
    return (problem){.rows = l->rows,
                     .in = l->in,
                     .out = l->out,
                     .x_stride = l->x_stride,
                     .y_stride = l->y_stride,
                     .type = (int32_t)l->type,
                     .y_type = (int32_t)l->y_type,
                     .epilogue = (int32_t)epilogue,
                     .align_w = alignment_of(l->w),
                     .align_x = alignment_of(l->x),
                     .align_y = alignment_of(l->y)};
}

static void destroy_descriptors(descriptors *d)
{
    if (d->product)
        lt.desc_destroy(d->product);
    cublasLtMatrixLayout_t layouts[] = {d->w, d->x, d->y};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt.layout_destroy(layouts[i]);
}

static cublasStatus_t set_product(descriptors *d, const ith_device_linear *l, cublasLtEpilogue_t epilogue)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint32_t value = (uint32_t)epilogue;
    const int32_t bias_type = (int32_t)type_of(l->y_type);
    cublasStatus_t error = lt.desc_create(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!error)
        error = lt.desc_set(d->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (!error)
        error = lt.desc_set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof value);
    if (error || !(value & CUBLASLT_EPILOGUE_BIAS))
        return error;
    error = lt.desc_set(d->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &l->bias, sizeof l->bias);
    if (!error)
        error = lt.desc_set(d->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    return error;
}

static ith_status make_descriptors(const ith_device_linear *l, cublasLtEpilogue_t epilogue, descriptors *d, char *said)
{
    const cudaDataType_t type = type_of(l->type), y_type = type_of(l->y_type);
    *d = (descriptors){0};
    cublasStatus_t error = set_product(d, l, epilogue);
    if (!error)
        error = lt.layout_create(&d->w, type, (uint64_t)l->in, (uint64_t)l->out, l->in);
    if (!error)
        error = lt.layout_create(&d->x, type, (uint64_t)l->in, (uint64_t)l->rows, l->x_stride);
    if (!error)
        error = lt.layout_create(&d->y, y_type, (uint64_t)l->out, (uint64_t)l->rows, l->y_stride);
    return check(error, "describing a linear layer", said);
}

/* Sets the limits of the search for an algorithm. Parts of a sum are added in memory of their own, as f32: added in
 * place, their order could change from run to run, and in the type of y they would be rounded. */
static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, const problem *p)
{
    const uint64_t bytes = ITH_CUDA_PRODUCT_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const uint32_t *value;
    } words[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->align_w},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->align_x},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p->align_y},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->align_y}};
    cublasStatus_t error =
        lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof words / sizeof *words && !error; i++)
        error = lt.preference_set(preference, words[i].name, words[i].value, sizeof *words[i].value);
    return error;
}

/* Asks cuBLASLt for an algorithm. chosen->found becomes false if it has none for this problem. */
static ith_status choose(struct ith_device_products *products, const descriptors *d, choice *chosen, char *said)
{
    static const char doing[] = "choosing the algorithm of a linear layer";
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    ith_status status = check(lt.preference_create(&preference), doing, said);
    if (status)
        return status;
    status = check(set_preference(preference, &chosen->problem), doing, said);
    if (!status) {
        const cublasStatus_t error =
            lt.heuristic(products->handle, d->product, d->w, d->x, d->y, d->y, preference, 1, &result, &count);
        chosen->found = !error && count > 0 && !result.state;
        if (chosen->found)
            chosen->algorithm = result.algo;
        else if (error != CUBLAS_STATUS_SUCCESS && error != CUBLAS_STATUS_NOT_SUPPORTED &&
                 error != CUBLAS_STATUS_INVALID_VALUE)
            status = check(error, doing, said);
    }
    lt.preference_destroy(preference);
    return status;
}

/* Finds the choice for a problem among the earlier ones, or makes it. */
static ith_status find_choice(struct ith_device_products *products, const problem *wanted, const descriptors *d,
                              const choice **out, char *said)
{
    const int64_t known = products->chosen < CHOICES ? products->chosen : CHOICES;
    for (int64_t i = 0; i < known; i++)
        if (!memcmp(&products->choices[i].problem, wanted, sizeof *wanted)) {
            *out = &products->choices[i];
            return ITH_OK;
        }
    choice made = {.problem = *wanted};
    ith_status status = choose(products, d, &made, said);
    if (status)
        return status;
    choice *place = &products->choices[products->chosen++ % CHOICES];
    *place = made;
    *out = place;
    return ITH_OK;
}

/* Enqueues a product with this epilogue. *found becomes false if cuBLASLt has no algorithm for it. */
static ith_status multiply(struct ith_device_stream *stream, struct ith_device_products *products,
                           const ith_device_linear *l, cublasLtEpilogue_t epilogue, bool *found, char *said)
{
    const float one = 1, zero = 0;
    const problem wanted = problem_of(l, epilogue);
    const choice *chosen = NULL;
    descriptors d;
    ith_status status = make_descriptors(l, epilogue, &d, said);
    if (!status)
        status = find_choice(products, &wanted, &d, &chosen, said);
    *found = !status && chosen->found;
    if (*found)
        status = check(lt.matmul(products->handle, d.product, &one, l->w, d.w, l->x, d.x, &zero, l->y, d.y, l->y, d.y,
                                 &chosen->algorithm, products->scratch, ITH_CUDA_PRODUCT_BYTES, stream->stream),
                       "starting a linear layer", said);
    destroy_descriptors(&d);
    return status;
}

/* Multiplies rows whose numbers 32-bit indices can count. Bias and activation follow in a pass of their own where
 * cuBLASLt cannot apply them. */
static ith_status multiply_rows(struct ith_device_stream *stream, struct ith_device_products *products,
                                const ith_device_linear *l, char *said)
{
    const int epilogue = (l->bias ? CUBLASLT_EPILOGUE_BIAS : 0) | (l->gelu ? CUBLASLT_EPILOGUE_GELU : 0);
    bool found = false;
    ith_status status = ITH_OK;
    if (epilogue)
        status = multiply(stream, products, l, (cublasLtEpilogue_t)epilogue, &found, said);
    if (status || found)
        return status;
    status = multiply(stream, products, l, CUBLASLT_EPILOGUE_DEFAULT, &found, said);
    if (!status && !found) {
        snprintf(said, ITH_DEVICE_SENTENCE,
                 "cuBLASLt has no algorithm for a linear layer of %lld to %lld with %lld rows", (long long)l->in,
                 (long long)l->out, (long long)l->rows);
        return ITH_ERR_UNSUPPORTED;
    }
    return status || !epilogue ? status : ith_cuda_bias_act(stream, l, said);
}

ith_status ith_cuda_linear(struct ith_device_stream *stream, struct ith_device_products *products,
                           const ith_device_linear *linear, char *said)
{
    const int64_t widest = linear->x_stride > linear->y_stride ? linear->x_stride : linear->y_stride;
    const int64_t most = INT32_MAX / widest > 256 ? INT32_MAX / widest / 256 * 256 : 256;
    const int64_t x_bytes = linear->type == ITH_BF16 ? 2 : 4, y_bytes = linear->y_type == ITH_BF16 ? 2 : 4;
    ith_status status = ITH_OK;
    if (linear->rows)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), "starting a linear layer", said);
    for (int64_t first = 0; first < linear->rows && !status; first += most) {
        ith_device_linear part = *linear;
        part.rows = linear->rows - first < most ? linear->rows - first : most;
        part.x = (const char *)linear->x + first * linear->x_stride * x_bytes;
        part.y = (char *)linear->y + first * linear->y_stride * y_bytes;
        status = multiply_rows(stream, products, &part, said);
    }
    return status;
}
