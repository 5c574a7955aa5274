/* SPDX-License-Identifier: Apache-2.0 */
/* The size of a tile register of AMX. */
#ifndef ITH_KERNELS_SHAPE_AMX_H
#define ITH_KERNELS_SHAPE_AMX_H

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES };

#endif
