/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers in the memory of a device, for measurements: a device that multiplies zeros, or equal numbers, takes
 * less power and may run faster. */
#ifndef ITH_KERNELS_DEVICE_RANDOM_H
#define ITH_KERNELS_DEVICE_RANDOM_H

#include "device_use.h"

/* Fills memory of the context's device with nearly normal numbers: one block of them, and copies of it. Returns when
 * the numbers are there. stream: a stream of the device, for the copies. */
ith_status ith_device_fill_random(ith_context *context, struct ith_device_stream *stream, ith_dtype dtype, void *memory,
                                  int64_t bytes);

#endif
