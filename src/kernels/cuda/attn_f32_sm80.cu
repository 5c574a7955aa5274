/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in f32 multiply-adds, for every CUDA device since sm_80, every head size, and tensors of f32, bf16 and f16,
 * which are converted to f32 when they are loaded. With logits in base 2,
 *
 *     s_ij = c q_i . k_j + log2(e) (bias_j + mask_ij),   c = log2(e) scale
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j / l_i
 *
 * There are two kernels. attend_block, for head sizes up to 256, keeps a tile of queries, of keys and of values in
 * shared memory and computes two products of small matrices: each thread has a tile of logits and a tile of outputs in
 * its registers. attend_wide, for larger heads, reads queries and keys from global memory, and computes WIDE_COLUMNS
 * columns of the output in one launch. It is slower. */
#include "attn_call.cuh"

namespace
{

/* ---- Probabilities --------------------------------------------------------------------------------------------- */

/* The offset of a row, as a whole number and the rest. */
struct row_offset {
    float whole, rest;
};

__device__ row_offset split(float m)
{
    float whole = rintf(shift_of(m));
    return {whole, shift_of(m) - whole};
}

/* 2^(s - m), also if m is a fixed offset, so that s - m may be near 88 and would lose bits of s. So s is split as m is:
 * the difference of the whole numbers is exact, and the difference of the rests is small. */
__device__ float exp2_far(float s, row_offset m)
{
    const float round = 12582912.0f; /* 1.5 2^23: a sum with it has no fraction */
    float y = s - m.rest;
    float whole = __fadd_rn(__fadd_rn(y, round), -round);
    whole = fminf(fmaxf(whole, -FLT_MAX), FLT_MAX); /* y may be infinite */
    return __fmul_rn(exp2_fast(y - whole), exp2_fast(whole - m.whole));
}

__device__ float probability(const ith_device_attend &call, float s, row_offset m)
{
    return call.softmax == ITH_SOFTMAX_FIXED_M ? exp2_far(s, m) : exp2_fast(s - (m.whole + m.rest));
}

/* The logit in base 2 of query i and key j from their product. Keys from `keys` on are hidden. */
__device__ float logit(const ith_device_attend &call, const logit_terms &terms, int64_t i, int64_t j, int64_t keys,
                       float product)
{
    float s = __fmul_rn(product, call.scale * LOG2_E);
    if (j >= keys)
        return -CUDART_INF_F;
    return i < call.q_rows ? add_terms(call, terms, i, j, s) : s;
}

/* ---- Heads of up to 256: tiles in shared memory ---------------------------------------------------------------- */

constexpr int THREADS = 128, ACROSS = 16, DOWN = THREADS / ACROSS;

/* The sizes of a block. Thread t has the rows t / ACROSS + DOWN r of the tile of queries, the keys
 * t % ACROSS + ACROSS c of the tile of logits, and the columns 4 (t % ACROSS) + 64 u + e of the tile of outputs. */
template <int HD> struct sizes {
    static constexpr int BQ = HD <= 128 ? 64 : 32, BK = BQ;
    static constexpr int R = BQ / DOWN, C = BK / ACROSS, U = HD / 64;
    static constexpr int STRIDE = HD + 4, P_STRIDE = BK + 16; /* neighbouring rows begin in different banks */
    static constexpr int K_FLOATS = BK * STRIDE > BQ *P_STRIDE ? BK *STRIDE : BQ *P_STRIDE;
    static constexpr int BYTES = 4 * (BQ * STRIDE + K_FLOATS + BK * STRIDE);
};

template <int HD> struct thread_state {
    float o[sizes<HD>::R][sizes<HD>::U][4];
    float m[sizes<HD>::R], l[sizes<HD>::R]; /* l is this thread's part of the row's sum */
};

__device__ int64_t row_of(const block_place &place, int r)
{
    return place.row + threadIdx.x / ACROSS + DOWN * r;
}

/* Brings four neighbours to shared memory as f32. T: f32 is copied in the background. */
template <typename T> __device__ void load_four(float *to, const T *from)
{
    ushort4 bits = *(const ushort4 *)from;
    *(float4 *)to = make_float4(to_f32(*(const T *)&bits.x), to_f32(*(const T *)&bits.y), to_f32(*(const T *)&bits.z),
                                to_f32(*(const T *)&bits.w));
}

template <> __device__ void load_four<float>(float *to, const float *from)
{
    copy_16_bytes(to, from, true);
}

/* Brings `rows` rows of D numbers to a tile of ROWS rows in shared memory, and zeros behind them. aligned: four
 * neighbours from a multiple of four on can be loaded at once, and D is a multiple of 4. */
template <typename T, int ROWS, int HD>
__device__ void load_tile(float *tile, const T *from, int64_t stride, int64_t rows, int D, bool aligned)
{
#pragma unroll 4
    for (int n = threadIdx.x; n < ROWS * (HD / 4); n += THREADS) {
        int row = n / (HD / 4), d = n % (HD / 4) * 4;
        float *to = tile + row * sizes<HD>::STRIDE + d;
        const T *source = from + row * stride + d;
        if (aligned && row < rows && d < D) {
            load_four(to, source);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] = row < rows && d + i < D ? to_f32(source[i]) : 0.0f;
    }
}

/* The products of this thread's queries and keys. */
template <int HD>
__device__ void compute_products(float (&s)[sizes<HD>::R][sizes<HD>::C], const float *q, const float *k, int D)
{
    constexpr int R = sizes<HD>::R, C = sizes<HD>::C, STRIDE = sizes<HD>::STRIDE;
    const float *q_row = q + threadIdx.x / ACROSS * STRIDE, *k_row = k + threadIdx.x % ACROSS * STRIDE;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            s[r][c] = 0.0f;
#pragma unroll 2
    for (int d = 0; d < D; d += 4) {
        float4 a[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            a[r] = *(const float4 *)(q_row + DOWN * r * STRIDE + d);
#pragma unroll
        for (int c = 0; c < C; c++) {
            float4 b = *(const float4 *)(k_row + ACROSS * c * STRIDE + d);
#pragma unroll
            for (int r = 0; r < R; r++) {
                s[r][c] = fmaf(a[r].x, b.x, s[r][c]);
                s[r][c] = fmaf(a[r].y, b.y, s[r][c]);
                s[r][c] = fmaf(a[r].z, b.z, s[r][c]);
                s[r][c] = fmaf(a[r].w, b.w, s[r][c]);
            }
        }
    }
}

/* Turns products into logits of keys from `first` on. */
template <int HD>
__device__ void finish_logits(float (&s)[sizes<HD>::R][sizes<HD>::C], const ith_device_attend &call,
                              const block_place &place, const logit_terms &terms, int64_t first, int64_t keys)
{
    constexpr int R = sizes<HD>::R, C = sizes<HD>::C;
    if (first + sizes<HD>::BK <= keys && !terms.bias && !terms.mask) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < C; c++)
                s[r][c] = __fmul_rn(s[r][c], call.scale * LOG2_E);
        return;
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            int64_t j = first + threadIdx.x % ACROSS + ACROSS * c;
            s[r][c] = logit(call, terms, row_of(place, r), j, keys, s[r][c]);
        }
}

/* Raises the maximum of each row to the maximum of its logits, and multiplies the sums l and o by 2^(old - new
 * maximum). */
template <int HD> __device__ void raise_maxima(thread_state<HD> &row, const float (&s)[sizes<HD>::R][sizes<HD>::C])
{
#pragma unroll
    for (int r = 0; r < sizes<HD>::R; r++) {
        float m = row.m[r];
#pragma unroll
        for (int c = 0; c < sizes<HD>::C; c++)
            m = fmaxf(m, s[r][c]);
#pragma unroll
        for (int step = 1; step < ACROSS; step *= 2)
            m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
        float rescale = exp2_fast(row.m[r] - shift_of(m));
        row.m[r] = m;
        row.l[r] = __fmul_rn(row.l[r], rescale);
#pragma unroll
        for (int u = 0; u < sizes<HD>::U; u++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                row.o[r][u][e] *= rescale;
    }
}

/* Writes probabilities to p in shared memory, and adds them to l. */
template <int HD>
__device__ void store_probabilities(thread_state<HD> &row, const float (&s)[sizes<HD>::R][sizes<HD>::C],
                                    const ith_device_attend &call, float *p)
{
    p += threadIdx.x / ACROSS * sizes<HD>::P_STRIDE + threadIdx.x % ACROSS;
#pragma unroll
    for (int r = 0; r < sizes<HD>::R; r++) {
        row_offset m = split(row.m[r]);
        float sum = 0.0f; /* of the tile alone, so that l is not one long sum */
#pragma unroll
        for (int c = 0; c < sizes<HD>::C; c++) {
            float x = probability(call, s[r][c], m);
            p[DOWN * r * sizes<HD>::P_STRIDE + ACROSS * c] = x;
            sum += x;
        }
        row.l[r] += sum;
    }
}

/* Adds the products of probabilities p and values v to o. */
template <int HD> __device__ void add_values(thread_state<HD> &row, const float *p, const float *v)
{
    constexpr int R = sizes<HD>::R, STRIDE = sizes<HD>::STRIDE, P_STRIDE = sizes<HD>::P_STRIDE;
    const float *p_row = p + threadIdx.x / ACROSS * P_STRIDE, *v_column = v + threadIdx.x % ACROSS * 4;
#pragma unroll 1
    for (int j = 0; j < sizes<HD>::BK; j += 4) {
        float a[R][4];
#pragma unroll
        for (int r = 0; r < R; r++)
            *(float4 *)a[r] = *(const float4 *)(p_row + DOWN * r * P_STRIDE + j);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int u = 0; u < sizes<HD>::U; u++) {
                float4 b = *(const float4 *)(v_column + (j + n) * STRIDE + 64 * u);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    row.o[r][u][0] = fmaf(a[r][n], b.x, row.o[r][u][0]);
                    row.o[r][u][1] = fmaf(a[r][n], b.y, row.o[r][u][1]);
                    row.o[r][u][2] = fmaf(a[r][n], b.z, row.o[r][u][2]);
                    row.o[r][u][3] = fmaf(a[r][n], b.w, row.o[r][u][3]);
                }
            }
    }
}

template <int HD>
__device__ void load_state(thread_state<HD> &row, const ith_device_attend &call, const block_place &place)
{
#pragma unroll
    for (int r = 0; r < sizes<HD>::R; r++) {
        int64_t i = row_of(place, r), at = place.index * call.q_rows + i;
        bool present = i < call.q_rows;
        row.m[r] = -CUDART_INF_F, row.l[r] = 0.0f;
        if (present)
            load_m_l(call, at, &row.m[r], &row.l[r]);
        if (threadIdx.x % ACROSS != 0) /* several threads share the row, and one has the sum of earlier calls */
            row.l[r] = 0.0f;
        const float *o = call.o_sum + at * call.head_dim;
#pragma unroll
        for (int u = 0; u < sizes<HD>::U; u++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int d = threadIdx.x % ACROSS * 4 + 64 * u + e;
                row.o[r][u][e] = present && !call.first_shard && d < call.head_dim ? o[d] : 0.0f;
            }
    }
}

template <typename T, int HD>
__device__ void store_results(const thread_state<HD> &row, const ith_device_attend &call, const block_place &place)
{
    T *output = rows_of<T>(call.o, place.head, call.head_dim);
#pragma unroll
    for (int r = 0; r < sizes<HD>::R; r++) {
        float l = row.l[r];
#pragma unroll
        for (int step = 1; step < ACROSS; step *= 2)
            l += __shfl_xor_sync(~0u, l, step);
        int64_t i = row_of(place, r);
        if (i >= call.q_rows)
            continue;
        float *sums = call.o_sum + (place.index * call.q_rows + i) * call.head_dim;
#pragma unroll
        for (int u = 0; u < sizes<HD>::U; u++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int d = threadIdx.x % ACROSS * 4 + 64 * u + e;
                if (d < call.head_dim && call.last_shard)
                    from_f32(output + i * call.o.row_stride + d, l == 0.0f ? 0.0f : row.o[r][u][e] / l);
                else if (d < call.head_dim)
                    sums[d] = row.o[r][u][e];
            }
        if (threadIdx.x % ACROSS == 0)
            store_m_l(call, place, i, row.m[r], l);
    }
}

template <typename T, int HD>
__global__ void __launch_bounds__(THREADS, 2) attend_block(const __grid_constant__ ith_device_attend call, bool aligned)
{
    constexpr int BQ = sizes<HD>::BQ, BK = sizes<HD>::BK;
    extern __shared__ float4 memory[];
    float *q = (float *)memory, *k = q + BQ * sizes<HD>::STRIDE, *v = k + sizes<HD>::K_FLOATS, *p = k;
    block_place place = place_of(call, BQ);
    if (is_idle(call, place))
        return;
    int D = (int)call.head_dim;
    int64_t keys = keys_of(call, place), kv_head = place.head / call.per_kv;
    const T *k_from = rows_of<T>(call.k, kv_head, D), *v_from = rows_of<T>(call.v, kv_head, D);
    logit_terms terms = terms_of(call, place);
    thread_state<HD> row;
    load_state(row, call, place);
    load_tile<T, BQ, HD>(q, rows_of<T>(call.q, place.head, D) + place.row * call.q.row_stride, call.q.row_stride,
                         call.q_rows - place.row, D, aligned);
    for (int64_t j = 0; j < keys; j += BK) {
        load_tile<T, BK, HD>(k, k_from + j * call.k.row_stride, call.k.row_stride, keys - j, D, aligned);
        end_group();
        load_tile<T, BK, HD>(v, v_from + j * call.v.row_stride, call.v.row_stride, keys - j, D, aligned);
        end_group();
        wait_for_groups<1>();
        __syncthreads(); /* queries and keys are there */
        float s[sizes<HD>::R][sizes<HD>::C];
        compute_products<HD>(s, q, k, D);
        __syncthreads(); /* the keys are no longer used: probabilities take their place */
        finish_logits<HD>(s, call, place, terms, j, keys);
        if (call.softmax == ITH_SOFTMAX_ONLINE)
            raise_maxima<HD>(row, s);
        store_probabilities<HD>(row, s, call, p);
        wait_for_groups<0>();
        __syncthreads(); /* probabilities and values are there */
        add_values<HD>(row, p, v);
        __syncthreads(); /* both are no longer used */
    }
    wait_for_copies(); /* of queries, where there are no keys */
    store_results<T, HD>(row, call, place);
}

/* ---- Larger heads: rows in global memory ----------------------------------------------------------------------- */

constexpr int WIDE_THREADS = 256, WIDE_WARPS = WIDE_THREADS / 32, WIDE_ROWS = 4, WIDE_KEYS = 64;
constexpr int WIDE_EACH = 16,
              WIDE_COLUMNS = WIDE_EACH * WIDE_THREADS; /* columns of the output: of a thread, of a block */
constexpr int TOGETHER = 4;                            /* keys of a warp at a time */

/* The data that the threads of a block share: logits, then probabilities, and the state of each row. */
struct wide_shared {
    float p[WIDE_ROWS][WIDE_KEYS];
    float m[WIDE_ROWS], l[WIDE_ROWS], rescale[WIDE_ROWS];
};

/* Writes the products of the block's queries with the keys from `first` on. Rows behind the last are read as the last.
 */
template <typename T>
__device__ void wide_products(wide_shared *shared, const ith_device_attend &call, const block_place &place,
                              const T *k_from, int64_t first, int64_t keys)
{
    int lane = threadIdx.x % 32;
    const T *q_from = rows_of<T>(call.q, place.head, call.head_dim), *q[WIDE_ROWS], *k[TOGETHER];
#pragma unroll
    for (int r = 0; r < WIDE_ROWS; r++)
        q[r] = q_from + min((long long)(place.row + r), (long long)(call.q_rows - 1)) * call.q.row_stride;
    for (int j = threadIdx.x / 32 * TOGETHER; j < WIDE_KEYS && first + j < keys; j += WIDE_WARPS * TOGETHER) {
        float sums[WIDE_ROWS][TOGETHER] = {};
#pragma unroll
        for (int n = 0; n < TOGETHER; n++)
            k[n] = k_from + min((long long)(first + j + n), (long long)(keys - 1)) * call.k.row_stride;
        for (int64_t d = lane; d < call.head_dim; d += 32) {
            float a[WIDE_ROWS];
#pragma unroll
            for (int r = 0; r < WIDE_ROWS; r++)
                a[r] = to_f32(q[r][d]);
#pragma unroll
            for (int n = 0; n < TOGETHER; n++) {
                float b = to_f32(k[n][d]);
#pragma unroll
                for (int r = 0; r < WIDE_ROWS; r++)
                    sums[r][n] = fmaf(a[r], b, sums[r][n]);
            }
        }
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++)
#pragma unroll
            for (int n = 0; n < TOGETHER; n++) {
#pragma unroll
                for (int step = 1; step < 32; step *= 2)
                    sums[r][n] += __shfl_xor_sync(~0u, sums[r][n], step);
                if (lane == 0)
                    shared->p[r][j + n] = sums[r][n];
            }
    }
}

/* Turns the products of row r into probabilities, and brings m and l up to date. One warp calls it. */
__device__ void wide_softmax(wide_shared *shared, const ith_device_attend &call, const block_place &place,
                             const logit_terms &terms, int r, int64_t first, int64_t keys)
{
    float s[WIDE_KEYS / 32], m = shared->m[r], rescale = 1.0f, sum = 0.0f;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < WIDE_KEYS / 32; n++)
        s[n] = logit(call, terms, place.row + r, first + lane + 32 * n, keys, shared->p[r][lane + 32 * n]);
    if (call.softmax == ITH_SOFTMAX_ONLINE) {
        float old = m;
#pragma unroll
        for (int n = 0; n < WIDE_KEYS / 32; n++)
            m = fmaxf(m, s[n]);
#pragma unroll
        for (int step = 1; step < 32; step *= 2)
            m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
        rescale = exp2_fast(old - shift_of(m));
    }
#pragma unroll
    for (int n = 0; n < WIDE_KEYS / 32; n++) {
        float x = probability(call, s[n], split(m));
        shared->p[r][lane + 32 * n] = x;
        sum += x;
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (lane != 0)
        return;
    shared->m[r] = m;
    shared->l[r] = fmaf(shared->l[r], rescale, sum);
    shared->rescale[r] = rescale;
}

/* Adds the products of probabilities and values of keys from `first` on to this thread's columns of o, which begin at
 * `column` and are WIDE_THREADS apart. */
template <typename T>
__device__ void wide_add_values(float (&o)[WIDE_ROWS][WIDE_EACH], const wide_shared *shared,
                                const ith_device_attend &call, const T *v_from, int64_t column, int64_t first,
                                int64_t keys)
{
#pragma unroll
    for (int r = 0; r < WIDE_ROWS; r++)
#pragma unroll
        for (int e = 0; e < WIDE_EACH; e++)
            o[r][e] *= shared->rescale[r];
    for (int j = 0; j < WIDE_KEYS && first + j < keys; j++) {
        const T *v = v_from + (first + j) * call.v.row_stride;
#pragma unroll
        for (int e = 0; e < WIDE_EACH; e++) {
            int64_t d = column + e * WIDE_THREADS;
            float x = d < call.head_dim ? to_f32(v[d]) : 0.0f;
#pragma unroll
            for (int r = 0; r < WIDE_ROWS; r++)
                o[r][e] = fmaf(shared->p[r][j], x, o[r][e]);
        }
    }
}

/* Loads (or stores, at the end) this thread's columns of o and, by thread r, the state of row r. */
__device__ void wide_load(float (&o)[WIDE_ROWS][WIDE_EACH], wide_shared *shared, const ith_device_attend &call,
                          const block_place &place, int64_t column)
{
    if (threadIdx.x < WIDE_ROWS) {
        float m = -CUDART_INF_F, l = 0.0f;
        if (place.row + threadIdx.x < call.q_rows)
            load_m_l(call, place.index * call.q_rows + place.row + threadIdx.x, &m, &l);
        shared->m[threadIdx.x] = m, shared->l[threadIdx.x] = l;
    }
#pragma unroll
    for (int r = 0; r < WIDE_ROWS; r++)
#pragma unroll
        for (int e = 0; e < WIDE_EACH; e++) {
            int64_t d = column + e * WIDE_THREADS, at = place.index * call.q_rows + place.row + r;
            bool present = !call.first_shard && place.row + r < call.q_rows && d < call.head_dim;
            o[r][e] = present ? call.o_sum[at * call.head_dim + d] : 0.0f;
        }
}

template <typename T>
__device__ void wide_store(const float (&o)[WIDE_ROWS][WIDE_EACH], const wide_shared *shared,
                           const ith_device_attend &call, const block_place &place, int64_t column)
{
    T *output = rows_of<T>(call.o, place.head, call.head_dim);
#pragma unroll
    for (int r = 0; r < WIDE_ROWS; r++) {
        int64_t i = place.row + r;
        float l = shared->l[r];
#pragma unroll
        for (int e = 0; e < WIDE_EACH; e++) {
            int64_t d = column + e * WIDE_THREADS;
            if (i >= call.q_rows || d >= call.head_dim)
                continue;
            if (call.last_shard)
                from_f32(output + i * call.o.row_stride + d, l == 0.0f ? 0.0f : o[r][e] / l);
            else
                call.o_sum[(place.index * call.q_rows + i) * call.head_dim + d] = o[r][e];
        }
    }
}

/* Computes the columns [first_column, first_column + WIDE_COLUMNS) of the output. The launch for column 0 comes last,
 * as it stores the m and l that all launches load. */
template <typename T>
__global__ void __launch_bounds__(WIDE_THREADS)
    attend_wide(const __grid_constant__ ith_device_attend call, int64_t first_column)
{
    __shared__ wide_shared shared;
    block_place place = place_of(call, WIDE_ROWS);
    if (is_idle(call, place))
        return;
    int64_t keys = keys_of(call, place), kv_head = place.head / call.per_kv, column = first_column + threadIdx.x;
    const T *k_from = rows_of<T>(call.k, kv_head, call.head_dim), *v_from = rows_of<T>(call.v, kv_head, call.head_dim);
    logit_terms terms = terms_of(call, place);
    float o[WIDE_ROWS][WIDE_EACH];
    wide_load(o, &shared, call, place, column);
    __syncthreads();
    for (int64_t j = 0; j < keys; j += WIDE_KEYS) {
        wide_products<T>(&shared, call, place, k_from, j, keys);
        __syncthreads();
        if (threadIdx.x / 32 < WIDE_ROWS)
            wide_softmax(&shared, call, place, terms, threadIdx.x / 32, j, keys);
        __syncthreads();
        wide_add_values<T>(o, &shared, call, v_from, column, j, keys);
        __syncthreads();
    }
    wide_store<T>(o, &shared, call, place, column);
    if (first_column == 0 && threadIdx.x < WIDE_ROWS && place.row + threadIdx.x < call.q_rows)
        store_m_l(call, place, place.row + threadIdx.x, shared.m[threadIdx.x], shared.l[threadIdx.x]);
}

/* ---- Starting -------------------------------------------------------------------------------------------------- */

const char doing[] = "starting the attention kernel f32_sm80";

const char *refuses(const struct ith_device *, const ith_device_attend *call)
{
    if (!ith_dtype_is_operand(call->dtype))
        return "the kernel f32_sm80 takes f32, bf16 and f16 only";
    if (call->head_dim < 1 || call->head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return "the kernel f32_sm80 takes head sizes from 1 to 65536";
    if (call->softmax != ITH_SOFTMAX_ONLINE && call->softmax != ITH_SOFTMAX_FIXED_M)
        return "the kernel f32_sm80 takes the online softmax and fixed_m only";
    return NULL;
}

/* Whether four neighbours of a row can be loaded at once. */
bool is_aligned(const ith_device_rows *rows, int64_t head_dim, int64_t bytes)
{
    return (uintptr_t)rows->data % (4 * bytes) == 0 && rows->row_stride % 4 == 0 && rows->batch_stride % 4 == 0 &&
           head_dim % 4 == 0;
}

template <typename T, int HD>
ith_status start(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    int64_t D = call->head_dim, blocks = ith_cuda_attn_blocks(call, sizes<HD>::BQ, said);
    bool aligned =
        is_aligned(&call->q, D, sizeof(T)) && is_aligned(&call->k, D, sizeof(T)) && is_aligned(&call->v, D, sizeof(T));
    if (!blocks)
        return ITH_ERR_UNSUPPORTED;
    ith_status status = ith_cuda_check(
        cudaFuncSetAttribute(attend_block<T, HD>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizes<HD>::BYTES), doing,
        said);
    if (status)
        return status;
    attend_block<T, HD><<<(unsigned)blocks, THREADS, sizes<HD>::BYTES, stream->stream>>>(*call, aligned);
    return ith_cuda_check_launch(doing, said);
}

template <typename T> ith_status start_wide(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    int64_t blocks = ith_cuda_attn_blocks(call, WIDE_ROWS, said);
    if (!blocks)
        return ITH_ERR_UNSUPPORTED;
    ith_status status = ITH_OK;
    for (int64_t column = (call->head_dim - 1) / WIDE_COLUMNS * WIDE_COLUMNS; !status && column >= 0;
         column -= WIDE_COLUMNS) {
        attend_wide<T><<<(unsigned)blocks, WIDE_THREADS, 0, stream->stream>>>(*call, column);
        status = ith_cuda_check_launch(doing, said);
    }
    return status;
}

template <typename T>
ith_status start_for_size(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    if (call->head_dim <= 64)
        return start<T, 64>(stream, call, said);
    if (call->head_dim <= 128)
        return start<T, 128>(stream, call, said);
    return call->head_dim <= 256 ? start<T, 256>(stream, call, said) : start_wide<T>(stream, call, said);
}

ith_status attend(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || call->count == 0 || call->q_rows == 0)
        return status;
    if (call->dtype == ITH_F32)
        return start_for_size<float>(stream, call, said);
    return call->dtype == ITH_BF16 ? start_for_size<__nv_bfloat16>(stream, call, said)
                                   : start_for_size<__half>(stream, call, said);
}

} // namespace

const ith_device_kernel ith_cuda_attn_f32_sm80 = {"f32_sm80", refuses, attend};
