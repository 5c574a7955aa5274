/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine is, measured. */
#ifndef ITH_CLI_INFO_RATES_H
#define ITH_CLI_INFO_RATES_H

#include <ithaca/ithaca.h>

#include <jansson.h>

/* The peak of every instruction set: [{"name", "gflops"}]. */
json_t *ith_info_peaks(ith_context *context, int threads);
/* Every kernel: [{"name", "usable", "peak", "peak_gflops", "bf16_gflops", "bf16_share", ...}], rates and shares of
 * peak_gflops only where the kernel runs and takes the type. "peak" names the instructions. */
json_t *ith_info_kernels(ith_context *context, int threads);

#endif
