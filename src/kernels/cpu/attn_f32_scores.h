/* Logits in f32 for any vector type: packing of keys and of queries, and the tile of s. Included after vec_<isa>.h and
 * attn_pass.h, with ROWS and TILE_VECS set, the tile in registers (ROWS x TILE_VECS vectors), and PANEL its keys. */
#ifndef ITH_KERNELS_ATTN_F32_SCORES_H
#define ITH_KERNELS_ATTN_F32_SCORES_H

/* k [D][PANEL] = PANEL keys from `first` on, transposed. */
static inline void scores_pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < PANEL; i += LANES) {
        const char *row[LANES];
        for (int64_t r = 0; r < LANES; r++)
            row[r] = key_row(p, p->k, first + i + r);
        for (int64_t d = 0; d < p->head_dim; d += LANES) {
            vec block[LANES];
            for (int64_t r = 0; r < LANES; r++)
                block[r] = load_part(row[r], p->dtype, d, p->head_dim);
            vec_transpose(block);
            for (int64_t c = 0; c < ith_min64(LANES, p->head_dim - d); c++)
                vec_store(k + (d + c) * PANEL + i, block[c]);
        }
    }
}

/* q [rows / ROWS][D][ROWS] = the run's queries times c, transposed by tiles; zeros behind them. */
static inline void scores_load_queries(float *q, int64_t rows, const ith_attn_run *r)
{
    int64_t D = r->head_dim;
    vec c = vec_set(r->scale * (float)M_LOG2E);
    for (int64_t i = 0; i < rows; i++) {
        const char *row = i < r->q_rows ? r->q[i] : NULL;
        float *at = q + i / ROWS * ROWS * D + i % ROWS;
        for (int64_t d = 0; d < D; d += LANES) {
            float x[LANES];
            vec_store(x, vec_mul(c, load_part(row, r->dtype, d, D)));
            for (int64_t e = 0; e < ith_min64(LANES, D - d); e++)
                at[(d + e) * ROWS] = x[e];
        }
    }
}

/* s [ROWS][PANEL] (rows s_stride apart) = q k + b, and its maxima into top [ROWS][LANES]. b: NULL for none. */
static __attribute__((noinline)) void scores_tile(float *s, int64_t s_stride, float *top, const float *q,
                                                  const float *k, const float *b, int64_t D)
{
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < TILE_VECS; n++)
            __builtin_prefetch(s + (ROWS + r) * s_stride + n * LANES, 1); /* where the next tile goes */
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t d = 0; d < D; d++, q += ROWS, k += PANEL) {
        __builtin_prefetch(q + ROWS * D); /* the next tile's */
        vec x[TILE_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            x[n] = vec_load(k + n * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            vec y = vec_set(q[r]);
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS; n++)
                sum[r][n] = vec_fma(x[n], y, sum[r][n]);
        }
    }
    if (b != NULL) {
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++)
                sum[r][n] = vec_add(sum[r][n], vec_load(b + n * LANES));
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vec most = vec_load(top + r * LANES);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++) {
            most = vec_max(sum[r][n], most);
            vec_store(s + r * s_stride + n * LANES, sum[r][n]);
        }
        vec_store(top + r * LANES, most);
    }
}

#endif
