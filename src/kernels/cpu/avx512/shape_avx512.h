/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers in a vector of AVX-512. */
#ifndef ITH_KERNELS_SHAPE_AVX512_H
#define ITH_KERNELS_SHAPE_AVX512_H

enum { LANES = 16 };

#endif
