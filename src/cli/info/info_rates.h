/* SPDX-License-Identifier: Apache-2.0 */
/* The rates that ithaca info measures, on `threads` threads at once, in 10^9 operations a second. */
#ifndef ITH_CLI_INFO_RATES_H
#define ITH_CLI_INFO_RATES_H

#include <ithaca/ithaca.h>
#include <jansson.h>

/* Measures the peak rate of every instruction set. Returns a JSON array [{"name", "gflops"}]. */
json_t *ith_info_peaks(ith_context *context, int threads);
/* Measures every kernel. Returns a JSON array [{"name", "usable", "peak", "peak_gflops", "bf16_gflops", "bf16_share",
 * ...}]. Only usable kernels have rates, and only for the types that they support. "peak" names the instructions that
 * the kernel multiplies with; a share is the kernel's rate divided by peak_gflops. */
json_t *ith_info_kernels(ith_context *context, int threads);

#endif
