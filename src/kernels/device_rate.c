/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of y = x w^T for square matrices of random numbers. */
#include "device_rate.h"

#include "../base/clock.h"
#include "../base/context.h"
#include "../base/dtype.h"
#include "../base/size.h"
#include "device_random.h"

#include <stdio.h>

/* Rows and columns of the matrices: the smallest power of two that keeps the device busy for BUSY_SECONDS with
 * PRODUCTS_TOGETHER products, within these limits. */
#define SIZE_LEAST ((int64_t)256)
#define SIZE_MOST ((int64_t)8192)
#define BUSY_SECONDS 4e-3
#define PRODUCTS_TOGETHER 4

struct ith_device_rate {
    ith_context *context;
    ith_device_use *use;
    ith_dtype type;
    int64_t size; /* rows and columns of the matrices */
    struct ith_device_stream *stream;
    struct ith_device_products *products;
    char *memory; /* x, w and y */
    char name[64];
};

/* The bytes of a matrix. */
static int64_t matrix_bytes(const ith_device_rate *rate)
{
    return rate->size * rate->size * ith_dtype_bytes(rate->type);
}

/* Makes matrices of another size. */
static ith_status resize(ith_device_rate *rate, int64_t size)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_module *module = rate->use->module;
    void *memory = NULL;
    module->release(rate->use->device, rate->memory);
    rate->size = size;
    ith_status status = module->allocate(rate->use->device, 3 * matrix_bytes(rate), &memory, said);
    rate->memory = memory;
    if (status)
        return ith_device_check(rate->context, status, said);
    return ith_device_fill_random(rate->context, rate->stream, rate->type, memory, 2 * matrix_bytes(rate));
}

void ith_device_rate_free(ith_device_rate **rate)
{
    ith_device_rate *r = *rate;
    if (!r)
        return;
    r->use->module->layers->destroy_products(r->products);
    r->use->module->destroy_stream(r->stream);
    r->use->module->release(r->use->device, r->memory);
    ith_context_drop(r->context, r);
    *rate = NULL;
}

/* Multiplies the matrices, PRODUCTS_TOGETHER times. */
static ith_status multiply(const ith_device_rate *rate)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_linear product = {.rows = rate->size,
                                       .in = rate->size,
                                       .out = rate->size,
                                       .type = rate->type,
                                       .y_type = rate->type,
                                       .x = rate->memory,
                                       .x_stride = rate->size,
                                       .w = rate->memory + matrix_bytes(rate),
                                       .y = rate->memory + 2 * matrix_bytes(rate),
                                       .y_stride = rate->size};
    ith_status status = ITH_OK;
    for (int i = 0; i < PRODUCTS_TOGETHER && !status; i++)
        status = rate->use->module->layers->linear(rate->stream, rate->products, &product, said);
    status = ith_device_check(rate->context, status, said);
    return status ? status : ith_device_wait(rate->context, rate->stream, NULL, NULL);
}

/* Finds the size of the matrices. The first products of a size choose their algorithm, and do not count. */
static ith_status find_size(ith_device_rate *rate)
{
    ith_status status = ITH_OK;
    double seconds = 0;
    for (int64_t size = SIZE_LEAST; size <= SIZE_MOST && seconds < BUSY_SECONDS && !status; size *= 2) {
        status = resize(rate, size);
        if (!status)
            status = multiply(rate);
        const double begin = ith_clock_seconds();
        if (!status)
            status = multiply(rate);
        seconds = ith_clock_seconds() - begin;
    }
    return status;
}

ith_status ith_device_rate_create(ith_context *context, ith_dtype type, ith_device_rate **out)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_use *use = ith_context_device_use(context);
    *out = NULL;
    if (!use->module->layers)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "the device %s computes attention only, and no matrix products to compare with", use->name);
    ith_device_rate *rate = ith_context_keep(context, sizeof *rate, "the rate of a device");
    if (!rate)
        return ITH_ERR_MEMORY;
    rate->context = context, rate->use = use, rate->type = type;
    snprintf(rate->name, sizeof rate->name, "%s products on %s", ith_dtype_name(type), use->name);
    ith_status status = use->module->create_stream(use->device, &rate->stream, said);
    if (!status)
        status = use->module->layers->create_products(use->device, &rate->products, said);
    status = ith_device_check(context, status, said);
    if (!status)
        status = find_size(rate);
    if (status)
        ith_device_rate_free(&rate);
    *out = rate;
    return status;
}

const char *ith_device_rate_name(const ith_device_rate *rate)
{
    return rate->name;
}

double ith_device_rate_measure(ith_device_rate *rate, double seconds)
{
    const double begin = ith_clock_seconds(), size = (double)rate->size;
    double count = 0, end = begin;
    do {
        if (multiply(rate))
            return 0;
        count += PRODUCTS_TOGETHER;
        end = ith_clock_seconds();
    } while (end - begin < seconds);
    return 2e-9 * count * size * size * size / (end - begin);
}
