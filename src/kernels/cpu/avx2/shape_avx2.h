/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers in a vector of AVX2, and the size of the tile of a matrix product in rows and vectors. */
#ifndef ITH_KERNELS_SHAPE_AVX2_H
#define ITH_KERNELS_SHAPE_AVX2_H

enum { LANES = 8, TILE_ROWS = 4, TILE_VECS = 3 };

#endif
