/* SPDX-License-Identifier: Apache-2.0 */
/* The relative error of a result, for tests that compare it with an oracle. */
#ifndef ITH_TESTS_COMPARE_H
#define ITH_TESTS_COMPARE_H

#include <stdint.h>

/* |x - y| / |y|, in double; 0 for two empty or two zero arrays; NaN anywhere gives NaN. */
double relative_l2(const float *x, const float *y, int64_t count);
/* The larger of two errors; NaN if one of them is NaN, which fmax would leave out. */
double larger_error(double one, double other);

#endif
