/* SPDX-License-Identifier: Apache-2.0 */
/* The product kernel in plain C, which defines the results of all others (product.h). Machines without a faster kernel
 * use it. A right panel is [steps][COLUMNS]. */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../product.h"

enum { COLUMNS = 8, DEPTH = 256 };

static int64_t right_bytes(int64_t steps)
{
    return ith_round_up(steps * COLUMNS * (int64_t)sizeof(float), 64);
}

static void pack_left(const ith_product_left *p)
{
    float *to = p->to;
    ith_to_f32(to, p->x, p->dtype, p->count);
    for (int64_t i = 0; p->rounds && i < p->count; i++)
        to[i] = ith_round_to_bf16(to[i]);
}

static void pack_right(const ith_product_right *p)
{
    float *panel = p->panel;
    for (int64_t j = 0; j < p->count; j++)
        for (int64_t k = 0; k < p->steps; k++) {
            float x = p->x[j] ? p->x[j][k] : 0.0f;
            panel[k * COLUMNS + p->first + j] = p->rounds ? ith_round_to_bf16(x) : x;
        }
}

static void pack_turned(const ith_product_turned *p)
{
    float *panel = (float *)p->panel + p->first * COLUMNS;
    for (int64_t k = 0; k < p->count; k++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            float x = p->x[k * p->stride + j];
            panel[k * COLUMNS + j] = p->rounds ? ith_round_to_bf16(x) : x;
        }
}

static void multiply(const ith_product_call *c)
{
    for (int64_t i = 0; i < c->rows; i++) {
        const float *left = (const float *)(const void *)((const char *)c->left + i * c->left_stride);
        float sums[COLUMNS] = {0}, *out = c->out + i * c->out_stride;
        for (int64_t j = 0; c->adds && j < c->columns; j++)
            sums[j] = out[j];
        for (int64_t k = 0; k < c->steps; k++)
            for (int64_t j = 0; j < COLUMNS; j++)
                sums[j] += left[k] * ((const float *)c->right)[k * COLUMNS + j];
        for (int64_t j = 0; j < c->columns; j++)
            out[j] = sums[j];
    }
}

const ith_product_kernel ith_k_product_f32_ref_1x8 = {.name = "f32_ref",
                                                      .cpu = ITH_CPU_BASELINE,
                                                      .type = ITH_F32,
                                                      .parts = 1,
                                                      .rows = 1,
                                                      .columns = COLUMNS,
                                                      .lanes = COLUMNS,
                                                      .step = 2,
                                                      .depth = DEPTH,
                                                      .block_bytes = 192 * 1024,
                                                      .strip = 504,
                                                      .instructions = {{"f32_ref", 1}},
                                                      ITH_PRODUCT_FUNCTIONS};
