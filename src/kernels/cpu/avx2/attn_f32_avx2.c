/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX2 and FMA: attn_f32_tmpl.c with the tile of these instruction sets. */
#include "attn_f32_avx2.h"
#include "tile_interleaved_avx2.h"

#include "../attn_pack_interleaved.h"

/* tile_rows() of tile_rows.h, computed by the tile of the product kernels. */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from)
{
    (void)left_stride;
    tile_sum_interleaved(sum, vecs, left, NULL, right, steps, from, NULL, NULL);
}

#include "../attn_f32_tmpl.c"

void ith_attn_f32_avx2_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f32_avx2_attend(const ith_attn_call *call)
{
    attend(call);
}
