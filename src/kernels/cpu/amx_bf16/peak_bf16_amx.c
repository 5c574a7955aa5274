/* The bf16 product rate of AMX: four sums, more than a product's latency. */
#include "../../peak.h"

#include "tiles_amx.h"

enum { STEPS = 64, PRODUCTS = 4 };

static double work(int64_t rounds)
{
    tiles_claim();
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

const ith_peak ith_k_peak_bf16_amx = {.name = "bf16_amx", .cpu = ITH_CPU_AMX_BF16, .counts = false, .work = work};
