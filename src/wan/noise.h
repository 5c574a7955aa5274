/* Normal noise from a counter-based generator (Philox 4x32-10, Salmon et al., SC 2011): number i depends on seed and i
 * alone, so every rank makes the same noise, whole or in part. */
#ifndef ITH_WAN_NOISE_H
#define ITH_WAN_NOISE_H

#include <stdint.h>

/* noise[i - begin] for i in [begin, begin + count): Box-Muller on pairs of 32-bit uniforms. */
void ith_noise_normal(uint64_t seed, int64_t begin, int64_t count, float *noise);

#endif
