/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers in a vector of NEON, which is two registers, and the size of the tile of a matrix product in rows and
 * vectors. */
#ifndef ITH_KERNELS_SHAPE_NEON_H
#define ITH_KERNELS_SHAPE_NEON_H

enum { LANES = 8, TILE_ROWS = 4, TILE_VECS = 3 };

#endif
