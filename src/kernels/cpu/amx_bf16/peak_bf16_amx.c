/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of bf16 products in AMX. Four independent sums are enough to hide the latency of a product. The
 * factors are random numbers, because AMX multiplies zeros faster. */
#include "../../peak.h"

#include "tiles_amx.h"

enum { STEPS = 64, PRODUCTS = 4, FACTORS = 4, HALVES = TILE_BYTES / 2 };

/* Fills x with random bf16 numbers from 1/2 to 2, of both signs. */
static void fill(uint16_t *x, int64_t count)
{
    uint32_t seed = 1;
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3f00u + (seed >> 24) + (seed & 0x800000u ? 0x8000u : 0));
    }
}

static void load(const uint16_t *x)
{
    tiles_see_memory();
    _tile_loadd(4, x, TILE_ROW_BYTES);
    _tile_loadd(5, x + HALVES, TILE_ROW_BYTES);
    _tile_loadd(6, x + 2 * HALVES, TILE_ROW_BYTES);
    _tile_loadd(7, x + 3 * HALVES, TILE_ROW_BYTES);
}

static double work(int64_t rounds)
{
    uint16_t factors[FACTORS * HALVES];
    fill(factors, FACTORS * HALVES);
    tiles_claim();
    load(factors);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    _tile_release();
    return 2.0 * 16 * 16 * 32 * PRODUCTS * STEPS * (double)rounds;
}

const ith_peak_row ith_k_peak_bf16_amx = {.name = "bf16_amx", .cpu = ITH_CPU_AMX_BF16, .work = work};
