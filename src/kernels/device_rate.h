/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of matrix products of a device, with which benchmarks compare the rate of their own work there. */
#ifndef ITH_KERNELS_DEVICE_RATE_H
#define ITH_KERNELS_DEVICE_RATE_H

#include "../base/dtype.h"

typedef struct ith_device_rate ith_device_rate;

/* Makes square matrices of random numbers of `type` (F32 or BF16) on the device that the context uses.
 * ITH_ERR_UNSUPPORTED if its module has no matrix products. */
ith_status ith_device_rate_create(ith_context *context, ith_dtype type, ith_device_rate **out);
void ith_device_rate_free(ith_device_rate **rate);
/* The name of the rate, such as "bf16 products on cuda:0". */
const char *ith_device_rate_name(const ith_device_rate *rate);
/* Multiplies the matrices for about `seconds`, at least once. Returns the rate in 10^9 operations a second; 0 if the
 * device fails. */
double ith_device_rate_measure(ith_device_rate *rate, double seconds);

#endif
