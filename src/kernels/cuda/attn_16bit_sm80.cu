/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of bf16 and f16 tensors with mma.sync, for every CUDA device since sm_80. With logits in base 2,
 *
 *     s_ij = c q_i . k_j + log2(e) (bias_j + mask_ij),   c = log2(e) scale
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   l'_i = sum_j p'_ij,   o_i = sum_j p'_ij v_j / l'_i
 *
 * where p' is p rounded to the type of v. So the weights p' / l' of o add up to 1. Logits and sums are f32. lse comes
 * from l, and o_sum leaves a call multiplied by l / l'.
 *
 * A block of 4 warps computes BQ queries of one head, and walks over the keys in tiles of BK. Each warp has M times 16
 * queries. Queries, and two tiles of keys and values, lie in shared memory: while one tile is used, cp.async brings the
 * next. The tile of logits and the output stay in registers. The fragments of the product m16n8k16 have the layout of
 * the PTX manual: thread t of a warp holds columns 2 (t % 4) and 2 (t % 4) + 1 of rows t / 4 and t / 4 + 8 of a 16 x 8
 * tile of sums; two such tiles of probabilities, rounded, are a left operand of the next product.
 *
 * The head size is padded with zeros to HD, a multiple of 32. A row of shared memory is 8 numbers longer, so that the
 * rows that ldmatrix reads together begin in different banks. Source: FlashAttention-2, arXiv:2307.08691. */
#include "attn_call.cuh"

namespace
{

constexpr int THREADS = 128, WARPS = THREADS / 32;

/* The sizes of a block for a padded head size. */
template <int HD> struct sizes {
    static constexpr int M = HD <= 128 ? 2 : 1;
    static constexpr int BQ = 16 * M * WARPS, BK = HD <= 64 ? 64 : 32, STRIDE = HD + 8;
    static constexpr int BYTES = 2 * STRIDE * (BQ + 4 * BK); /* queries, and two tiles of keys and values */
};

/* ---- Instructions ---------------------------------------------------------------------------------------------- */

/* Loads four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ void load_matrices(uint32_t (&to)[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same, and each matrix is transposed. */
__device__ void load_transposed_matrices(uint32_t (&to)[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* sums [16, 8] += a [16, 16] b [16, 8] */
__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Rounds x and y to the 16-bit type and back, and returns both: x in the lower half. */
__device__ uint32_t round_pair(float *x, float *y, __nv_bfloat16)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(*x, *y);
    *x = __low2float(pair), *y = __high2float(pair);
    return *(const uint32_t *)&pair;
}

__device__ uint32_t round_pair(float *x, float *y, __half)
{
    __half2 pair = __floats2half2_rn(*x, *y);
    *x = __low2float(pair), *y = __high2float(pair);
    return *(const uint32_t *)&pair;
}

/* ---- Loading --------------------------------------------------------------------------------------------------- */

/* Brings `rows` rows of D numbers to a tile of ROWS rows in shared memory, and zeros behind them. aligned: all rows
 * begin at multiples of 16 bytes, and D is a multiple of 8. */
template <int ROWS, int HD>
__device__ void load_tile(uint16_t *tile, const uint16_t *from, int64_t stride, int64_t rows, int D, bool aligned)
{
    constexpr int PIECES = HD / 8; /* of 16 bytes, in a row */
    for (int n = threadIdx.x; n < ROWS * PIECES; n += THREADS) {
        int row = n / PIECES, d = n % PIECES * 8;
        uint16_t *to = tile + row * sizes<HD>::STRIDE + d;
        const uint16_t *source = from + row * stride + d;
        if (aligned) {
            bool present = row < rows && d < D;
            copy_16_bytes(to, present ? source : from, present);
            continue;
        }
        uint32_t numbers[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            numbers[i] = row < rows && d + i < D ? source[i] : 0;
        *(uint4 *)to = make_uint4(numbers[0] | numbers[1] << 16, numbers[2] | numbers[3] << 16,
                                  numbers[4] | numbers[5] << 16, numbers[6] | numbers[7] << 16);
    }
}

/* ---- One warp -------------------------------------------------------------------------------------------------- */

/* The part of its warp's queries that a thread holds. Half h of 16-row tile x is row 16 x + 8 h + lane / 4 of the
 * warp. */
template <int HD> struct warp_state {
    static constexpr int M = sizes<HD>::M;
    float o[M][HD / 8][4];                 /* unnormalised outputs */
    float m[M][2], l[M][2], rounded[M][2]; /* l, and l' in `rounded`: this thread's part of the row's sums */
};

/* The number, in its head, of a thread's row. */
__device__ int64_t row_of(int64_t first_row, int x, int half)
{
    return first_row + 16 * x + 8 * half + threadIdx.x % 32 / 4;
}

template <typename T, int HD>
__device__ void compute_logits(float (&s)[sizes<HD>::M][sizes<HD>::BK / 8][4], const uint16_t *q, const uint16_t *k,
                               int D)
{
    constexpr int M = sizes<HD>::M, BK = sizes<HD>::BK, STRIDE = sizes<HD>::STRIDE;
    int lane = threadIdx.x % 32;
    const uint16_t *q_row = q + lane % 16 * STRIDE + lane / 16 * 8;
    const uint16_t *k_row = k + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int x = 0; x < M; x++)
#pragma unroll
        for (int n = 0; n < BK / 8; n++)
            s[x][n][0] = s[x][n][1] = s[x][n][2] = s[x][n][3] = 0.0f;
#pragma unroll 2
    for (int d = 0; d < D; d += 16) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int x = 0; x < M; x++)
            load_matrices(a[x], q_row + 16 * x * STRIDE + d);
#pragma unroll
        for (int n = 0; n < BK / 8; n += 2) {
            load_matrices(b, k_row + 8 * n * STRIDE + d);
#pragma unroll
            for (int x = 0; x < M; x++) {
                multiply_add(s[x][n], a[x], b[0], b[1], T());
                multiply_add(s[x][n + 1], a[x], b[2], b[3], T());
            }
        }
    }
}

/* Scales a tile of products to logits in base 2, adds biases and masks, and hides the keys behind the last. Keys
 * `first` to `first` + BK belong to the tile. */
template <int M, int N>
__device__ void finish_logits(float (&s)[M][N][4], const ith_device_attend &call, const logit_terms &terms,
                              int64_t first_row, int64_t first, int64_t keys)
{
    float c = call.scale * LOG2_E;
#pragma unroll
    for (int x = 0; x < M; x++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[x][n][e] = __fmul_rn(s[x][n][e], c);
    if (first + 8 * N <= keys && !terms.bias && !terms.mask)
        return;
#pragma unroll
    for (int x = 0; x < M; x++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t i = row_of(first_row, x, e / 2), j = first + 8 * n + threadIdx.x % 4 * 2 + e % 2;
                if (j >= keys)
                    s[x][n][e] = -CUDART_INF_F;
                else if (i < call.q_rows)
                    s[x][n][e] = add_terms(call, terms, i, j, s[x][n][e]);
            }
}

/* Raises the maximum of each row to the maximum of its logits, and multiplies the sums l and o by 2^(old - new
 * maximum). */
template <int HD>
__device__ void raise_maxima(warp_state<HD> &row, const float (&s)[sizes<HD>::M][sizes<HD>::BK / 8][4])
{
    constexpr int M = sizes<HD>::M, N = sizes<HD>::BK / 8;
#pragma unroll
    for (int x = 0; x < M; x++) {
        float rescale[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float m = row.m[x][half];
#pragma unroll
            for (int n = 0; n < N; n++)
                m = fmaxf(m, fmaxf(s[x][n][2 * half], s[x][n][2 * half + 1]));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
            rescale[half] = exp2_fast(row.m[x][half] - shift_of(m));
            row.m[x][half] = m;
            row.l[x][half] = __fmul_rn(row.l[x][half], rescale[half]);
            row.rounded[x][half] = __fmul_rn(row.rounded[x][half], rescale[half]);
        }
        /* A product with 1 changes nothing, so that the choice, which looks at all rows, does not change a row's bits.
         */
        if (!__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f))
            continue;
#pragma unroll
        for (int n = 0; n < HD / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                row.o[x][n][e] *= rescale[e / 2];
    }
}

/* Adds a tile's probabilities to l, the rounded ones to l', and their products with v to o. */
template <typename T, int HD>
__device__ void accumulate(warp_state<HD> &row, float (&s)[sizes<HD>::M][sizes<HD>::BK / 8][4], const uint16_t *v,
                           int D)
{
    constexpr int M = sizes<HD>::M, BK = sizes<HD>::BK, STRIDE = sizes<HD>::STRIDE;
    int lane = threadIdx.x % 32;
    const uint16_t *v_row = v + (lane / 8 % 2 * 8 + lane % 8) * STRIDE + lane / 16 * 8;
    uint32_t p[M][BK / 16][4]; /* left operands */
#pragma unroll
    for (int x = 0; x < M; x++) {
        float sum[2] = {}, rounded[2] = {}; /* of the tile alone, so that l is not one long sum */
        float shift[2] = {shift_of(row.m[x][0]), shift_of(row.m[x][1])};
#pragma unroll
        for (int n = 0; n < BK / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *pair = &s[x][n][2 * half];
                pair[0] = exp2_fast(pair[0] - shift[half]);
                pair[1] = exp2_fast(pair[1] - shift[half]);
                sum[half] += pair[0] + pair[1];
                p[x][n / 2][n % 2 * 2 + half] = round_pair(&pair[0], &pair[1], T());
                rounded[half] += pair[0] + pair[1];
            }
#pragma unroll
        for (int half = 0; half < 2; half++)
            row.l[x][half] += sum[half], row.rounded[x][half] += rounded[half];
    }
#pragma unroll
    for (int d = 0; d < HD; d += 16) {
        if (d >= D)
            break;
#pragma unroll
        for (int j = 0; j < BK / 16; j++) {
            uint32_t b[4];
            load_transposed_matrices(b, v_row + 16 * j * STRIDE + d);
#pragma unroll
            for (int x = 0; x < M; x++) {
                multiply_add(row.o[x][d / 8], p[x][j], b[0], b[1], T());
                multiply_add(row.o[x][d / 8 + 1], p[x][j], b[2], b[3], T());
            }
        }
    }
}

/* ---- State and results ----------------------------------------------------------------------------------------- */

template <int HD>
__device__ void load_state(warp_state<HD> &row, const ith_device_attend &call, const block_place &place,
                           int64_t first_row)
{
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int x = 0; x < sizes<HD>::M; x++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t i = row_of(first_row, x, half), at = place.index * call.q_rows + i;
            bool present = i < call.q_rows;
            row.m[x][half] = -CUDART_INF_F, row.l[x][half] = 0.0f;
            if (present)
                load_m_l(call, at, &row.m[x][half], &row.l[x][half]);
            if (threadIdx.x % 4 != 0) /* four threads share the row, and one has the sum of earlier calls */
                row.l[x][half] = 0.0f;
            row.rounded[x][half] = row.l[x][half];
            const float *o = call.o_sum + at * call.head_dim;
#pragma unroll
            for (int n = 0; n < HD / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int d = 8 * n + column + e;
                    bool read = present && !call.first_shard && d < call.head_dim;
                    row.o[x][n][2 * half + e] = read ? o[d] : 0.0f;
                }
        }
}

/* Stores two neighbours of a row of o; the second only if it is in the row. */
template <typename T> __device__ void store_pair(T *to, float x, float y, bool both)
{
    T pair[2];
    from_f32(&pair[0], x);
    from_f32(&pair[1], y);
    if (both && (uintptr_t)to % 4 == 0) {
        *(uint32_t *)to = *(const uint16_t *)&pair[0] | (uint32_t) * (const uint16_t *)&pair[1] << 16;
        return;
    }
    to[0] = pair[0];
    if (both)
        to[1] = pair[1];
}

/* Stores a row's output, o divided by l', or for the next call the unnormalised o multiplied by l / l'. */
template <typename T, int HD>
__device__ void store_row(const float (&o)[HD / 8][4], int half, const ith_device_attend &call,
                          const block_place &place, int64_t i, float l, float rounded)
{
    T *output = rows_of<T>(call.o, place.head, call.head_dim) + i * call.o.row_stride;
    float *sums = call.o_sum + (place.index * call.q_rows + i) * call.head_dim;
    float factor = rounded == 0.0f ? 0.0f : l / rounded;
#pragma unroll
    for (int n = 0; n < HD / 8; n++) {
        int d = 8 * n + threadIdx.x % 4 * 2;
        float x = o[n][2 * half], y = o[n][2 * half + 1];
        if (d >= call.head_dim)
            continue;
        if (call.last_shard) {
            store_pair(output + d, rounded == 0.0f ? 0.0f : x / rounded, rounded == 0.0f ? 0.0f : y / rounded,
                       d + 1 < call.head_dim);
            continue;
        }
        sums[d] = x * factor;
        if (d + 1 < call.head_dim)
            sums[d + 1] = y * factor;
    }
}

/* The sum of the parts that the four threads of a row have. */
__device__ float sum_of_row(float part)
{
    part += __shfl_xor_sync(~0u, part, 1);
    return part + __shfl_xor_sync(~0u, part, 2);
}

template <typename T, int HD>
__device__ void store_results(const warp_state<HD> &row, const ith_device_attend &call, const block_place &place,
                              int64_t first_row)
{
#pragma unroll
    for (int x = 0; x < sizes<HD>::M; x++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t i = row_of(first_row, x, half);
            float l = sum_of_row(row.l[x][half]), rounded = sum_of_row(row.rounded[x][half]);
            if (i >= call.q_rows)
                continue;
            store_row<T, HD>(row.o[x], half, call, place, i, l, rounded);
            if (threadIdx.x % 4 == 0)
                store_m_l(call, place, i, row.m[x][half], l);
        }
}

/* ---- The kernel ------------------------------------------------------------------------------------------------ */

template <typename T, int HD>
__global__ void __launch_bounds__(THREADS) attend_block(const __grid_constant__ ith_device_attend call, bool aligned)
{
    constexpr int BQ = sizes<HD>::BQ, BK = sizes<HD>::BK, STRIDE = sizes<HD>::STRIDE;
    extern __shared__ uint4 memory[];
    uint16_t *q = (uint16_t *)memory, *k = q + BQ * STRIDE, *v = k + 2 * BK * STRIDE;
    block_place place = place_of(call, BQ);
    if (is_idle(call, place))
        return;
    int D = (int)call.head_dim, warp_row = threadIdx.x / 32 * 16 * sizes<HD>::M;
    int64_t keys = keys_of(call, place), first_row = place.row + warp_row, kv_head = place.head / call.per_kv;
    const uint16_t *q_from = rows_of<uint16_t>(call.q, place.head, D) + place.row * call.q.row_stride;
    const uint16_t *k_from = rows_of<uint16_t>(call.k, kv_head, D), *v_from = rows_of<uint16_t>(call.v, kv_head, D);
    logit_terms terms = terms_of(call, place);
    warp_state<HD> row;
    load_state(row, call, place, first_row);
    for (int64_t j = -BK; j < keys; j += BK) { /* the tile behind j is loaded while the tile of j is used */
        int64_t next = j + BK;
        int stage = next / BK % 2;
        wait_for_copies();
        __syncthreads(); /* tile j has arrived, and the other one is no longer used */
        if (j < 0)
            load_tile<BQ, HD>(q, q_from, call.q.row_stride, call.q_rows - place.row, D, aligned);
        if (next < keys) {
            load_tile<BK, HD>(k + stage * BK * STRIDE, k_from + next * call.k.row_stride, call.k.row_stride,
                              keys - next, D, aligned);
            load_tile<BK, HD>(v + stage * BK * STRIDE, v_from + next * call.v.row_stride, call.v.row_stride,
                              keys - next, D, aligned);
        }
        if (j < 0)
            continue;
        int used = (stage ^ 1) * BK * STRIDE;
        float s[sizes<HD>::M][BK / 8][4];
        compute_logits<T, HD>(s, q + warp_row * STRIDE, k + used, D);
        finish_logits(s, call, terms, first_row, j, keys);
        if (call.softmax == ITH_SOFTMAX_ONLINE)
            raise_maxima<HD>(row, s);
        accumulate<T, HD>(row, s, v + used, D);
    }
    wait_for_copies(); /* of queries, where there are no keys */
    store_results<T, HD>(row, call, place, first_row);
}

/* ---- Starting -------------------------------------------------------------------------------------------------- */

const char *refuses(const struct ith_device *, const ith_device_attend *call)
{
    if (call->dtype != ITH_BF16 && call->dtype != ITH_F16)
        return "the kernel 16bit_sm80 takes bf16 and f16 only";
    if (call->head_dim < 1 || call->head_dim > 256)
        return "the kernel 16bit_sm80 takes head sizes from 1 to 256";
    if (call->softmax == ITH_SOFTMAX_FIXED_M && call->dtype == ITH_F16)
        return "the kernel 16bit_sm80 has no fixed_m for f16, whose range its weights of up to 2^88 exceed";
    if (call->softmax != ITH_SOFTMAX_ONLINE && call->softmax != ITH_SOFTMAX_FIXED_M)
        return "the kernel 16bit_sm80 takes the online softmax and fixed_m only";
    return NULL;
}

/* Whether rows can be copied in pieces of 16 bytes. */
bool is_aligned(const ith_device_rows *rows, int64_t head_dim)
{
    return (uintptr_t)rows->data % 16 == 0 && rows->row_stride % 8 == 0 && rows->batch_stride % 8 == 0 &&
           head_dim % 8 == 0;
}

template <typename T, int HD>
ith_status start(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    static const char doing[] = "starting the attention kernel 16bit_sm80";
    int64_t D = call->head_dim, blocks = ith_cuda_attn_blocks(call, sizes<HD>::BQ, said);
    bool aligned = is_aligned(&call->q, D) && is_aligned(&call->k, D) && is_aligned(&call->v, D);
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

template <typename T>
ith_status start_for_size(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    if (call->head_dim <= 32)
        return start<T, 32>(stream, call, said);
    if (call->head_dim <= 64)
        return start<T, 64>(stream, call, said);
    if (call->head_dim <= 96)
        return start<T, 96>(stream, call, said);
    if (call->head_dim <= 128)
        return start<T, 128>(stream, call, said);
    return call->head_dim <= 192 ? start<T, 192>(stream, call, said) : start<T, 256>(stream, call, said);
}

ith_status attend(struct ith_device_stream *stream, const ith_device_attend *call, char *said)
{
    ith_status status =
        ith_cuda_check(cudaSetDevice(stream->device->index), "starting the attention kernel 16bit_sm80", said);
    if (status || call->count == 0 || call->q_rows == 0)
        return status;
    return call->dtype == ITH_BF16 ? start_for_size<__nv_bfloat16>(stream, call, said)
                                   : start_for_size<__half>(stream, call, said);
}

} // namespace

const ith_device_kernel ith_cuda_attn_16bit_sm80 = {"16bit_sm80", refuses, attend};
