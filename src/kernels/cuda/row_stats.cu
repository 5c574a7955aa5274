/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of keys, values and queries, and row offsets, for the fixed-m softmax. attention/fixed_m.h has the
 * equations, kernels/device.h the contracts. For each kv head:
 *     mean_d = sum_j k_jd / n,   max_j |k_j - mean|^2,   max_jd |v_jd|,   n = number of keys that are not absent
 * and for each query head max_i |q_i|^2 or
 *     m_i = c q_i . mean + ceil(|c| (norm_factor |q_i| bound + head_dim 2^-125) + margin) - 88.
 *
 * A row is read by 1 to 32 neighbouring threads of a warp (its lanes). Lane t reads 16 bytes at a time: the numbers
 * [t W, (t + 1) W) of each stretch of lanes * W numbers, W = 16 / bytes of a number. Sums over a row are 4 sums in each
 * lane, with fused multiply-adds, which are then added up pair by pair. That makes fewer than head_dim / 16 + 7
 * roundings for every head_dim, so the errors are below the bounds of keyops.h. The order of a sum depends only on
 * head_dim and the type, so a row has the same result wherever it lies.
 *
 * Largest numbers are found by their bits, which are ordered like the numbers that have no sign, with NaN above
 * infinity. So NaN is the largest, and the order of the comparisons does not matter. */
#include "cuda_rows.h"

enum {
    THREADS = 256,
    WARP = 32,
    TOGETHER = 4, /* rows that the lanes of a row read at the same time */
    TURNS = 4,    /* times that they do so in a block */
    CHAINS = 4,   /* sums of a row in each lane */
    SUM_ROWS =
        512, /* keys that a block sums. A thread sums at most 64 of them in f32, and the rest is summed in f64. */
    MEAN_COLUMNS = 32,
    COUNT_THREADS = 1024
};
static_assert(SUM_ROWS / (THREADS / WARP) <= 64, "a sum in f32 has at most 64 rows");

/* How the threads of a block divide its rows. The lanes of a row are 2^lane_bits threads. */
typedef struct row_plan {
    int lane_bits;
    uint32_t heads, tiles; /* of the grid: consecutive blocks take tiles of columns, then heads, then rows */
} row_plan;

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

/* The number types, by their bits. */
typedef struct bf16 {
    uint16_t bits;
} bf16;
typedef struct f16 {
    uint16_t bits;
} f16;
typedef struct f32 {
    uint32_t bits;
} f32;

/* The numbers of 16 bytes. */
template <typename Number> struct width {
    enum { NUMBERS = 16 / sizeof(Number) };
};

static __device__ inline float f32_of_half(uint32_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)bits));
    return x;
}

static __device__ inline void unpack_word(float *x, uint32_t word, bf16)
{
    x[0] = __uint_as_float(word << 16);
    x[1] = __uint_as_float(word & 0xffff0000u);
}

static __device__ inline void unpack_word(float *x, uint32_t word, f16)
{
    x[0] = f32_of_half(word & 0xffffu);
    x[1] = f32_of_half(word >> 16);
}

static __device__ inline void unpack_word(float *x, uint32_t word, f32)
{
    x[0] = __uint_as_float(word);
}

template <typename Number> static __device__ inline void unpack(float (&x)[width<Number>::NUMBERS], uint4 bits)
{
    const int each = 4 / sizeof(Number);
    unpack_word(x, bits.x, Number());
    unpack_word(x + each, bits.y, Number());
    unpack_word(x + 2 * each, bits.z, Number());
    unpack_word(x + 3 * each, bits.w, Number());
}

/* Largest magnitudes: of the words with one f32 or two numbers of 16 bits. */
static __device__ inline uint32_t larger_word(uint32_t a, uint32_t word, f32)
{
    return max(a, word & 0x7fffffffu);
}

template <typename Half> static __device__ inline uint32_t larger_word(uint32_t a, uint32_t word, Half)
{
    return __vmaxu2(a, word & 0x7fff7fffu);
}

template <typename Number> static __device__ inline uint32_t larger_words(uint32_t a, uint4 bits)
{
    a = larger_word(a, bits.x, Number());
    a = larger_word(a, bits.y, Number());
    a = larger_word(a, bits.z, Number());
    return larger_word(a, bits.w, Number());
}

/* The bits, as f32, of the largest number in a word that larger_words has returned. */
template <typename Number> static __device__ inline uint32_t largest_of(uint32_t word)
{
    float x[2] = {};
    unpack_word(x, word, Number());
    return max(__float_as_uint(x[0]), __float_as_uint(x[1]));
}

/* Loads the numbers of `row` from `column` on: 16 bytes, with zeros from number `end` on. ALIGNED: `row` is aligned to
 * 16 bytes, and `end` is a multiple of the numbers in 16 bytes. */
template <typename Number, bool ALIGNED> static __device__ inline uint4 load(const Number *row, int column, int end)
{
    if (ALIGNED)
        return __ldg((const uint4 *)(row + column));
    uint32_t words[4] = {};
    const int each = 4 / sizeof(Number);
#pragma unroll
    for (int i = 0; i < width<Number>::NUMBERS; i++)
        if (column + i < end)
            words[i / each] |= (uint32_t)row[column + i].bits << (i % each * 16);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Loads the numbers of a vector y of f32 in the same way. */
template <typename Number, bool ALIGNED>
static __device__ inline void load_vector(float (&x)[width<Number>::NUMBERS], const float *y, int column, int end)
{
#pragma unroll
    for (int i = 0; i < width<Number>::NUMBERS; i += 4)
        unpack<f32>(*(float(*)[4])(x + i), load<f32, ALIGNED>((const f32 *)y, column + i, end));
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* Where a thread is: its lane and the number of lanes, its group of lanes and the number of groups in the block, and
 * the head, the tile and the stretch of rows of its block. */
typedef struct place {
    int lane, lanes, group, groups;
    uint32_t head, tile, stretch;
} place;

static __device__ inline place find_place(const row_plan &plan)
{
    place at;
    at.lanes = 1 << plan.lane_bits;
    at.lane = threadIdx.x & (at.lanes - 1);
    at.group = threadIdx.x >> plan.lane_bits;
    at.groups = THREADS >> plan.lane_bits;
    uint32_t block = blockIdx.x / plan.tiles;
    at.tile = blockIdx.x - block * plan.tiles;
    at.stretch = block / plan.heads;
    at.head = block - at.stretch * plan.heads;
    return at;
}

/* The first of the rows that a group of lanes reads in one of its TURNS. */
static __device__ inline int64_t first_row(const place &at, int turn)
{
    return (((int64_t)at.stretch * TURNS + turn) * at.groups + at.group) * TOGETHER;
}

/* The rows of a head. */
template <typename Number> struct head_rows {
    const Number *data;
    int64_t stride;
};

template <typename Number>
static __device__ inline head_rows<Number> rows_of(const ith_device_rows &rows, int64_t head, int64_t head_dim)
{
    head_rows<Number> found = {(const Number *)rows.data + cuda_head_offset(rows, head, head_dim), rows.row_stride};
    return found;
}

/* Adds up the sums of each row: first the sums of a lane, then the results of all lanes. Every lane gets the sum. */
static __device__ inline void add_up(float (&sum)[TOGETHER], const float (&chains)[TOGETHER][CHAINS], int lanes)
{
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        sum[i] = (chains[i][0] + chains[i][1]) + (chains[i][2] + chains[i][3]);
    for (int apart = lanes / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], apart);
}

/* Computes square[i] = |x_i - centre|^2 for the TOGETHER rows from `first` on. If bit i of `mask` is 0, row i is not
 * read, and square[i] is 0. centre NULL: zeros. All threads of a warp call this. */
template <typename Number, bool ALIGNED>
static __device__ inline void measure_distances(float (&square)[TOGETHER], const head_rows<Number> &x, int64_t first,
                                                uint32_t mask, const float *centre, int end, const place &at)
{
    const int numbers = width<Number>::NUMBERS;
    float chains[TOGETHER][CHAINS] = {};
    for (int column = at.lane * numbers; column < end; column += at.lanes * numbers) {
        uint4 bits[TOGETHER] = {};
        float middle[numbers] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (mask >> i & 1)
                bits[i] = load<Number, ALIGNED>(x.data + (first + i) * x.stride, column, end);
        if (centre)
            load_vector<Number, ALIGNED>(middle, centre, column, end);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            float row[numbers];
            unpack<Number>(row, bits[i]);
#pragma unroll
            for (int d = 0; d < numbers; d++) {
                float distance = row[d] - middle[d];
                chains[i][d % CHAINS] = fmaf(distance, distance, chains[i][d % CHAINS]);
            }
        }
    }
    add_up(square, chains, at.lanes);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        square[i] = mask >> i & 1 ? square[i] : 0.0f;
}

/* Computes dot[i] = x_i . y and square[i] = |x_i|^2 in the same way. y NULL: zeros. */
template <typename Number, bool ALIGNED>
static __device__ inline void multiply_rows(float (&dot)[TOGETHER], float (&square)[TOGETHER],
                                            const head_rows<Number> &x, int64_t first, uint32_t mask, const float *y,
                                            int end, const place &at)
{
    const int numbers = width<Number>::NUMBERS;
    float dots[TOGETHER][CHAINS] = {}, squares[TOGETHER][CHAINS] = {};
    for (int column = at.lane * numbers; column < end; column += at.lanes * numbers) {
        uint4 bits[TOGETHER] = {};
        float vector[numbers] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (mask >> i & 1)
                bits[i] = load<Number, ALIGNED>(x.data + (first + i) * x.stride, column, end);
        if (y)
            load_vector<Number, ALIGNED>(vector, y, column, end);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            float row[numbers];
            unpack<Number>(row, bits[i]);
#pragma unroll
            for (int d = 0; d < numbers; d++) {
                dots[i][d % CHAINS] = fmaf(row[d], vector[d], dots[i][d % CHAINS]);
                squares[i][d % CHAINS] = fmaf(row[d], row[d], squares[i][d % CHAINS]);
            }
        }
    }
    add_up(dot, dots, at.lanes);
    add_up(square, squares, at.lanes);
}

/* Raises *to, a number without a sign, to the largest `bits` of the block's threads. */
static __device__ inline void raise(float *to, uint32_t bits)
{
    __shared__ uint32_t of_warps[THREADS / WARP];
    bits = __reduce_max_sync(0xffffffffu, bits);
    if (threadIdx.x % WARP == 0)
        of_warps[threadIdx.x / WARP] = bits;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / WARP; i++)
            bits = max(bits, of_warps[i]);
        atomicMax((unsigned *)to, bits);
    }
    __syncthreads();
}

/* ---- Keys and values ------------------------------------------------------------------------------------------- */

/* Writes the number of keys of a head and whether some bias is neither 0 nor -INFINITY, and zeros between them. There
 * is one block for each head. */
static __global__ void __launch_bounds__(COUNT_THREADS) count_keys(const __grid_constant__ ith_device_key_stats call)
{
    __shared__ unsigned long long all;
    const cuda_keys keys = cuda_keys_of(call, call.first + blockIdx.x);
    unsigned count = 0;
    bool odd = false;
    if (threadIdx.x == 0)
        all = 0;
    __syncthreads();
    for (int64_t row = threadIdx.x; keys.bias && row < keys.count; row += COUNT_THREADS) {
        float bias = keys.bias[row];
        count += bias != -INFINITY;
        odd |= !(bias == 0.0f || bias == -INFINITY);
    }
    count = __reduce_add_sync(0xffffffffu, count);
    if (threadIdx.x % WARP == 0)
        atomicAdd(&all, (unsigned long long)count);
    odd = __syncthreads_or(odd);
    if (threadIdx.x == 0) {
        float *stats = call.stats + (int64_t)blockIdx.x * 4;
        stats[0] = keys.bias ? (float)all : (float)keys.count;
        stats[1] = 0.0f;
        stats[2] = 0.0f;
        stats[3] = odd ? 1.0f : 0.0f;
    }
}

/* A mask of the rows first + i * apart, i < TOGETHER, that lie before row `end` and hold a key. Bit i: row i. */
static __device__ inline uint32_t mask_keys(const cuda_keys &keys, int64_t first, int apart, int64_t end)
{
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        mask |= (uint32_t)(first + i * apart < end && cuda_has_key(keys, first + i * apart)) << i;
    return mask;
}

/* Sums the keys of a stretch of SUM_ROWS rows: scratch[head, stretch, d] = sum_j k_jd. Each thread sums some columns of
 * at most 64 rows in f32; the sums of the groups of lanes are added in f64. */
template <typename Number, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    sum_keys(const __grid_constant__ ith_device_key_stats call, const __grid_constant__ row_plan plan)
{
    const int numbers = width<Number>::NUMBERS;
    __shared__ double sums[THREADS * numbers]; /* [group, number, lane] */
    const place at = find_place(plan);
    const cuda_keys keys = cuda_keys_of(call, call.first + at.head);
    const head_rows<Number> k = rows_of<Number>(call.k, call.first + at.head, call.head_dim);
    const int end = (int)call.head_dim, first_column = at.tile * at.lanes * numbers;
    const int column = first_column + at.lane * numbers;
    const int64_t first = (int64_t)at.stretch * SUM_ROWS;
    float sum[numbers] = {};
    for (int next = at.group; next < SUM_ROWS && column < end; next += TOGETHER * at.groups) {
        uint4 bits[TOGETHER] = {};
        const int64_t row = first + next;
        const uint32_t mask = mask_keys(keys, row, at.groups, first + SUM_ROWS);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (mask >> i & 1)
                bits[i] = load<Number, ALIGNED>(k.data + (row + i * at.groups) * k.stride, column, end);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            float key[numbers];
            unpack<Number>(key, bits[i]);
#pragma unroll
            for (int d = 0; d < numbers; d++)
                sum[d] += key[d];
        }
    }
#pragma unroll
    for (int d = 0; d < numbers; d++)
        sums[(at.group * numbers + d) * at.lanes + at.lane] = (double)sum[d];
    __syncthreads();
    const int64_t stretches = (call.kv_rows + SUM_ROWS - 1) / SUM_ROWS;
    double *to = call.scratch + (at.head * stretches + at.stretch) * call.head_dim + first_column;
    for (int d = threadIdx.x; d < at.lanes * numbers && first_column + d < end; d += THREADS) {
        double all = 0;
        for (int group = 0; group < at.groups; group++)
            all += sums[(group * numbers + d % numbers) * at.lanes + d / numbers];
        to[d] = all;
    }
}

/* Computes the mean keys from the sums of all stretches and the numbers of keys. A block computes MEAN_COLUMNS columns
 * of a head. */
static __global__ void __launch_bounds__(THREADS)
    average_keys(const __grid_constant__ ith_device_key_stats call, uint32_t head_blocks)
{
    __shared__ double sums[THREADS];
    const uint32_t head = blockIdx.x / head_blocks, parts = THREADS / MEAN_COLUMNS, part = threadIdx.x / MEAN_COLUMNS;
    const int64_t stretches = (call.kv_rows + SUM_ROWS - 1) / SUM_ROWS;
    const int64_t d = (int64_t)(blockIdx.x % head_blocks) * MEAN_COLUMNS + threadIdx.x % MEAN_COLUMNS;
    const double *from = call.scratch + head * stretches * call.head_dim + d;
    double sum = 0;
    if (d < call.head_dim)
#pragma unroll 8
        for (int64_t stretch = part; stretch < stretches; stretch += parts)
            sum += from[stretch * call.head_dim];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (part > 0 || d >= call.head_dim)
        return;
    for (uint32_t i = 1; i < parts; i++)
        sum += sums[i * MEAN_COLUMNS + threadIdx.x];
    const double count = (double)call.stats[(int64_t)head * 4];
    call.means[head * call.head_dim + d] = count > 0 ? (float)(sum / count) : 0.0f;
}

/* The largest magnitude in the TOGETHER rows from `first` on, and `largest`, as larger_words finds it. */
template <typename Number, bool ALIGNED>
static __device__ inline uint32_t measure_magnitudes(uint32_t largest, const head_rows<Number> &x, int64_t first,
                                                     uint32_t mask, int end, const place &at)
{
    const int numbers = width<Number>::NUMBERS;
    for (int column = at.lane * numbers; column < end; column += at.lanes * numbers) {
        uint4 bits[TOGETHER] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (mask >> i & 1)
                bits[i] = load<Number, ALIGNED>(x.data + (first + i) * x.stride, column, end);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            largest = larger_words<Number>(largest, bits[i]);
    }
    return largest;
}

/* Finds the largest |k_j - mean|^2 and the largest |v_jd|, in stats[1] and stats[2] of each head. */
template <typename Number, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    measure_keys(const __grid_constant__ ith_device_key_stats call, const __grid_constant__ row_plan plan)
{
    const place at = find_place(plan);
    const cuda_keys keys = cuda_keys_of(call, call.first + at.head);
    const head_rows<Number> k = rows_of<Number>(call.k, call.first + at.head, call.head_dim);
    const head_rows<Number> v = rows_of<Number>(call.v, call.first + at.head, call.head_dim);
    const float *mean = call.smoothed ? call.means + at.head * call.head_dim : NULL;
    uint32_t farthest = 0, largest = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const int64_t first = first_row(at, turn);
        const uint32_t mask = mask_keys(keys, first, 1, keys.count);
        float square[TOGETHER];
        measure_distances<Number, ALIGNED>(square, k, first, mask, mean, (int)call.head_dim, at);
        for (int i = 0; i < TOGETHER; i++)
            farthest = max(farthest, __float_as_uint(square[i]));
        largest = measure_magnitudes<Number, ALIGNED>(largest, v, first, mask, (int)call.head_dim, at);
    }
    raise(call.stats + (int64_t)at.head * 4 + 1, farthest);
    raise(call.stats + (int64_t)at.head * 4 + 2, largest_of<Number>(largest));
}

/* ---- Queries --------------------------------------------------------------------------------------------------- */

/* A mask of the TOGETHER rows from `first` on: bit i is 1 if there is a row first + i. */
static __device__ inline uint32_t mask_rows(int64_t first, int64_t rows)
{
    int64_t left = rows - first;
    return left >= TOGETHER ? (1u << TOGETHER) - 1 : left > 0 ? (1u << left) - 1 : 0;
}

template <typename Number, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    measure_queries(const __grid_constant__ ith_device_query_stats call, const __grid_constant__ row_plan plan)
{
    const place at = find_place(plan);
    const head_rows<Number> q = rows_of<Number>(call.q, call.first + at.head, call.head_dim);
    uint32_t farthest = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const int64_t first = first_row(at, turn);
        float square[TOGETHER];
        measure_distances<Number, ALIGNED>(square, q, first, mask_rows(first, call.q_rows), NULL, (int)call.head_dim,
                                           at);
        for (int i = 0; i < TOGETHER; i++)
            farthest = max(farthest, __float_as_uint(square[i]));
    }
    raise(call.squares + at.head, farthest);
}

/* The offset m_i. The norm |q_i| is rounded up, also where squares underflow, and m_i is rounded to the nearest f32:
 * if all keys are equal, each 2^(s - m) is then a power of two, and its sums are exact. */
static __device__ inline float offset_of(const ith_device_offsets &call, float dot, float square, double bound)
{
    const double least = (double)call.head_dim * 0x1p-125;
    const double norm = call.norm_factor * sqrt((double)square + least);
    const double whole = ceil(fabs(call.c) * (norm * bound + least) + call.margin);
    return (float)__dadd_rn(__dmul_rn(call.c, (double)dot), whole - 88.0);
}

template <typename Number, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    find_offsets(const __grid_constant__ ith_device_offsets call, const __grid_constant__ row_plan plan)
{
    const place at = find_place(plan);
    if (!call.fixed[at.head])
        return;
    const int64_t head = call.first + at.head, kv_head = (uint32_t)head / (uint32_t)call.per_kv - call.kv_first;
    const head_rows<Number> q = rows_of<Number>(call.q, head, call.head_dim);
    const float *mean = call.means ? call.means + kv_head * call.head_dim : NULL;
    const double bound = call.bounds[kv_head];
    for (int turn = 0; turn < TURNS; turn++) {
        const int64_t first = first_row(at, turn);
        float dot[TOGETHER], square[TOGETHER];
        multiply_rows<Number, ALIGNED>(dot, square, q, first, mask_rows(first, call.q_rows), mean, (int)call.head_dim,
                                       at);
        for (int next = 0; next < TOGETHER; next += at.lanes) { /* each lane completes another row */
            const int own = next + at.lane;
            float own_dot = dot[0], own_square = square[0];
#pragma unroll
            for (int i = 1; i < TOGETHER; i++)
                if (i == own) {
                    own_dot = dot[i];
                    own_square = square[i];
                }
            if (own < TOGETHER && first + own < call.q_rows)
                call.m[at.head * call.q_rows + first + own] = offset_of(call, own_dot, own_square, bound);
        }
    }
}

/* ---- Launchers ------------------------------------------------------------------------------------------------- */

/* The lanes of rows of head_dim numbers: enough to read a row at once, and at most a warp. */
static int lane_bits_of(ith_dtype dtype, int64_t head_dim)
{
    const int64_t pieces = ith_div_up(head_dim * (dtype == ITH_F32 ? 4 : 2), 16);
    int bits = 0;
    while ((1 << bits) < WARP && (1 << bits) < pieces)
        bits++;
    return bits;
}

/* The plan for blocks that measure rows, and their number for each head. */
static row_plan plan_of(ith_dtype dtype, int64_t head_dim, int64_t heads, int64_t rows, int64_t *head_blocks)
{
    row_plan plan = {lane_bits_of(dtype, head_dim), (uint32_t)heads, 1};
    *head_blocks = ith_div_up(rows, (int64_t)(THREADS >> plan.lane_bits) * TOGETHER * TURNS);
    return plan;
}

/* Whether each row is aligned to 16 bytes and has a multiple of 16 bytes. */
static bool is_aligned(const ith_device_rows *rows, ith_dtype dtype, int64_t head_dim)
{
    const int64_t number = dtype == ITH_F32 ? 4 : 2;
    uint64_t bits = (uint64_t)(uintptr_t)rows->data | (uint64_t)(rows->row_stride * number);
    return cuda_unit(bits | (uint64_t)(rows->batch_stride * number) | (uint64_t)(head_dim * number)) == 16;
}

static bool vector_is_aligned(const float *y, int64_t head_dim)
{
    return ((uintptr_t)y | (uintptr_t)head_dim * 4) % 16 == 0;
}

int64_t ith_cuda_key_stats_scratch_bytes(int64_t count, int64_t kv_rows, int64_t head_dim)
{
    int64_t bytes = 0;
    bool fits = kv_rows >= 0 && ith_size_mul(count, kv_rows / SUM_ROWS + (kv_rows % SUM_ROWS > 0), &bytes) &&
                ith_size_mul(bytes, head_dim, &bytes) && ith_size_mul(bytes, (int64_t)sizeof(double), &bytes);
    return fits ? bytes : -1;
}

/* Computes the mean keys of a smoothed call. */
template <typename Number>
static ith_status find_means(cudaStream_t stream, const ith_device_key_stats *stats, bool aligned, const char *doing,
                             char *said)
{
    row_plan plan = {lane_bits_of(stats->dtype, stats->head_dim), (uint32_t)stats->count, 1};
    plan.tiles = (uint32_t)ith_div_up(stats->head_dim, (int64_t)width<Number>::NUMBERS << plan.lane_bits);
    const int64_t head_blocks = ith_div_up(stats->head_dim, MEAN_COLUMNS);
    unsigned sum_blocks, mean_blocks;
    ith_status status =
        cuda_grid(ith_div_up(stats->kv_rows, SUM_ROWS), stats->count, plan.tiles, &sum_blocks, doing, said);
    if (!status)
        status = cuda_grid(stats->count, head_blocks, 1, &mean_blocks, doing, said);
    if (status)
        return status;
    (aligned ? sum_keys<Number, true> : sum_keys<Number, false>)<<<sum_blocks, THREADS, 0, stream>>>(*stats, plan);
    average_keys<<<mean_blocks, THREADS, 0, stream>>>(*stats, (uint32_t)head_blocks);
    return ith_cuda_check_launch(doing, said);
}

template <typename Number>
static ith_status measure(cudaStream_t stream, const ith_device_key_stats *stats, const char *doing, char *said)
{
    bool aligned = is_aligned(&stats->k, stats->dtype, stats->head_dim);
    ith_status status = stats->smoothed ? find_means<Number>(stream, stats, aligned, doing, said) : ITH_OK;
    int64_t head_blocks;
    const row_plan plan = plan_of(stats->dtype, stats->head_dim, stats->count, stats->kv_rows, &head_blocks);
    unsigned blocks;
    if (!status)
        status = cuda_grid(head_blocks, stats->count, 1, &blocks, doing, said);
    if (status)
        return status;
    aligned = aligned && is_aligned(&stats->v, stats->dtype, stats->head_dim) &&
              vector_is_aligned(stats->means, stats->head_dim);
    (aligned ? measure_keys<Number, true> : measure_keys<Number, false>)<<<blocks, THREADS, 0, stream>>>(*stats, plan);
    return ith_cuda_check_launch(doing, said);
}

ith_status ith_cuda_key_stats(struct ith_device_stream *stream, const ith_device_key_stats *stats, char *said)
{
    static const char doing[] = "measuring keys on the GPU";
    const ith_device_key_stats *s = stats;
    ith_status status = cuda_check_rows(s->dtype, s->head_dim, s->first, s->count, s->kv_heads, &s->k, doing, said);
    if (!status)
        status = cuda_check_rows(s->dtype, s->head_dim, s->first, s->count, s->kv_heads, &s->v, doing, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || s->count == 0)
        return status;
    count_keys<<<(unsigned)s->count, COUNT_THREADS, 0, stream->stream>>>(*s);
    status = ith_cuda_check_launch(doing, said);
    if (!status && (!s->smoothed || s->kv_rows == 0))
        status = ith_cuda_check(
            cudaMemsetAsync(s->means, 0, (size_t)(s->count * s->head_dim) * sizeof *s->means, stream->stream), doing,
            said);
    if (status || s->kv_rows == 0)
        return status;
    switch (s->dtype) {
    case ITH_F32: return measure<f32>(stream->stream, s, doing, said);
    case ITH_BF16: return measure<bf16>(stream->stream, s, doing, said);
    default: return measure<f16>(stream->stream, s, doing, said);
    }
}

template <typename Number>
static void start_query_stats(cudaStream_t stream, const ith_device_query_stats *stats, const row_plan &plan,
                              unsigned blocks)
{
    if (is_aligned(&stats->q, stats->dtype, stats->head_dim))
        measure_queries<Number, true><<<blocks, THREADS, 0, stream>>>(*stats, plan);
    else
        measure_queries<Number, false><<<blocks, THREADS, 0, stream>>>(*stats, plan);
}

ith_status ith_cuda_query_stats(struct ith_device_stream *stream, const ith_device_query_stats *stats, char *said)
{
    static const char doing[] = "measuring queries on the GPU";
    const ith_device_query_stats *s = stats;
    ith_status status = cuda_check_rows(s->dtype, s->head_dim, s->first, s->count, s->q.heads, &s->q, doing, said);
    int64_t head_blocks;
    const row_plan plan = plan_of(s->dtype, s->head_dim, s->count, s->q_rows, &head_blocks);
    unsigned blocks;
    if (!status)
        status = cuda_grid(head_blocks, s->count, 1, &blocks, doing, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || s->count == 0)
        return status;
    status = ith_cuda_check(cudaMemsetAsync(s->squares, 0, (size_t)s->count * sizeof *s->squares, stream->stream),
                            doing, said);
    if (status || blocks == 0)
        return status;
    switch (s->dtype) {
    case ITH_F32: start_query_stats<f32>(stream->stream, s, plan, blocks); break;
    case ITH_BF16: start_query_stats<bf16>(stream->stream, s, plan, blocks); break;
    default: start_query_stats<f16>(stream->stream, s, plan, blocks);
    }
    return ith_cuda_check_launch(doing, said);
}

template <typename Number>
static void start_offsets(cudaStream_t stream, const ith_device_offsets *offsets, const row_plan &plan, unsigned blocks)
{
    if (is_aligned(&offsets->q, offsets->dtype, offsets->head_dim) &&
        vector_is_aligned(offsets->means, offsets->head_dim))
        find_offsets<Number, true><<<blocks, THREADS, 0, stream>>>(*offsets, plan);
    else
        find_offsets<Number, false><<<blocks, THREADS, 0, stream>>>(*offsets, plan);
}

ith_status ith_cuda_offsets(struct ith_device_stream *stream, const ith_device_offsets *offsets, char *said)
{
    static const char doing[] = "computing offsets on the GPU";
    const ith_device_offsets *o = offsets;
    ith_status status = cuda_check_rows(o->dtype, o->head_dim, o->first, o->count, o->per_kv, &o->q, doing, said);
    int64_t head_blocks;
    const row_plan plan = plan_of(o->dtype, o->head_dim, o->count, o->q_rows, &head_blocks);
    unsigned blocks;
    if (!status)
        status = cuda_grid(head_blocks, o->count, 1, &blocks, doing, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || blocks == 0)
        return status;
    switch (o->dtype) {
    case ITH_F32: start_offsets<f32>(stream->stream, o, plan, blocks); break;
    case ITH_BF16: start_offsets<bf16>(stream->stream, o, plan, blocks); break;
    default: start_offsets<f16>(stream->stream, o, plan, blocks);
    }
    return ith_cuda_check_launch(doing, said);
}
