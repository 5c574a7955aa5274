/* How fast this machine is, measured. */
#ifndef ITH_CLI_INFO_RATES_H
#define ITH_CLI_INFO_RATES_H

#include <ithaca/ithaca.h>

#include <jansson.h>

/* The peak of every instruction set: [{"name", "gflops", "counts"}]. */
json_t *ith_info_peaks(const ith_context *context, int threads);
/* Every kernel: [{"name", "usable", "bf16_gflops", "f16_gflops", "f32_gflops"}], rates only where the kernel takes the
 * type. */
json_t *ith_info_kernels(ith_context *context, int threads);

#endif
