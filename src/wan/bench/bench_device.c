/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of y = x w^T for square matrices of random numbers: a device that multiplies zeros, or equal numbers,
 * takes less power and may run faster. */
#include "bench_device.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../kernels/device_use.h"
#include "../sample/noise.h"

#include <stdio.h>

#define SIZE ((int64_t)8192)     /* rows and columns */
#define DRAWN ((int64_t)1 << 20) /* random numbers that are drawn; the matrices repeat them */
#define PRODUCTS_TOGETHER 4

struct ith_device_rate {
    ith_context *context;
    ith_device_use *use;
    ith_dtype type;
    struct ith_device_stream *stream;
    struct ith_device_products *products;
    char *memory; /* x, w and y */
    char name[64];
};

/* The bytes of a matrix. */
static int64_t matrix_bytes(const ith_device_rate *rate)
{
    return SIZE * SIZE * ith_dtype_bytes(rate->type);
}

/* Fills x and w with copies of the numbers that were drawn. */
static ith_status fill(ith_device_rate *rate)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_module *module = rate->use->module;
    const int64_t bytes = DRAWN * ith_dtype_bytes(rate->type);
    float *drawn = ith_alloc(rate->context, 2 * DRAWN, sizeof *drawn, "random numbers");
    if (!drawn)
        return ITH_ERR_MEMORY;
    ith_status status = ith_noise_make(rate->context, 2, 0, DRAWN, drawn);
    if (!status) {
        ith_from_f32(drawn + DRAWN, rate->type, drawn, DRAWN);
        status = ith_device_copy(rate->context, rate->memory, drawn + DRAWN, bytes);
    }
    for (int64_t at = bytes; at < 2 * matrix_bytes(rate) && !status; at += bytes)
        status = ith_device_check(rate->context,
                                  module->copy(rate->stream, rate->memory + at, rate->memory, bytes, said), said);
    if (!status)
        status = ith_device_wait(rate->context, rate->stream, NULL, NULL);
    ith_free(rate->context, drawn);
    return status;
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

ith_status ith_device_rate_create(ith_context *context, ith_dtype type, ith_device_rate **out)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    void *memory = NULL;
    ith_device_rate *rate = ith_context_keep(context, sizeof *rate, "the rate of a device");
    *out = NULL;
    if (!rate)
        return ITH_ERR_MEMORY;
    rate->context = context, rate->use = ith_context_device_use(context), rate->type = type;
    const ith_device_module *module = rate->use->module;
    snprintf(rate->name, sizeof rate->name, "%s products on %s", ith_dtype_name(type), rate->use->name);
    ith_status status = module->create_stream(rate->use->device, &rate->stream, said);
    if (!status)
        status = module->layers->create_products(rate->use->device, &rate->products, said);
    if (!status)
        status = module->allocate(rate->use->device, 3 * matrix_bytes(rate), &memory, said);
    rate->memory = memory;
    status = ith_device_check(context, status, said);
    if (!status)
        status = fill(rate);
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
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_device_layers *layers = rate->use->module->layers;
    const ith_device_linear product = {.rows = SIZE,
                                       .in = SIZE,
                                       .out = SIZE,
                                       .type = rate->type,
                                       .y_type = rate->type,
                                       .x = rate->memory,
                                       .x_stride = SIZE,
                                       .w = rate->memory + matrix_bytes(rate),
                                       .y = rate->memory + 2 * matrix_bytes(rate),
                                       .y_stride = SIZE};
    const double begin = ith_clock_seconds();
    double count = 0, end = begin;
    do {
        for (int i = 0; i < PRODUCTS_TOGETHER; i++, count++)
            if (layers->linear(rate->stream, rate->products, &product, said))
                return 0;
        if (ith_device_wait(rate->context, rate->stream, NULL, NULL))
            return 0;
        end = ith_clock_seconds();
    } while (end - begin < seconds);
    return 2e-9 * count * (double)SIZE * (double)SIZE * (double)SIZE / (end - begin);
}
