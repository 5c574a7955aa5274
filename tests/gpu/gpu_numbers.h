/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of f32 and bf16 in memory of the host, for tests of a device's operations. */
#ifndef ITH_TESTS_GPU_NUMBERS_H
#define ITH_TESTS_GPU_NUMBERS_H

#include <ithaca/ithaca.h>

/* Number `index` of an array of a type. */
double gpu_number(const void *data, ith_dtype type, int64_t index);
/* Allocates pseudo-random numbers between offset - scale and offset + scale, other numbers in every call. The caller
 * frees them with free(). */
void *gpu_random_numbers(ith_dtype type, int64_t count, float scale, float offset);
/* The larger of a and b; NaN if b is NaN. */
double gpu_larger(double a, double b);

#endif
