/* SPDX-License-Identifier: Apache-2.0 */
/* Nearly normal numbers from a linear congruential generator (random_numbers.h). */
#include "random_numbers.h"

#include "dtype.h"

void ith_random_numbers(ith_dtype dtype, char *data, int64_t count, uint32_t *seed)
{
    static const float normal = 1.7320508f; /* the sum of four has the variance 1/3 */
    for (int64_t i = 0; i < count; i++) {
        float sum = -2.0f;
        for (int n = 0; n < 4; n++) {
            *seed = *seed * 1664525u + 1013904223u;
            sum += (float)(*seed >> 8) * 0x1p-24f;
        }
        sum *= normal;
        ith_from_f32(data + i * ith_dtype_bytes(dtype), dtype, &sum, 1);
    }
}
