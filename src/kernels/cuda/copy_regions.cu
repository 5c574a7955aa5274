/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between strided regions (include/ithaca/transport.h) in the memory of a GPU: gathers, scatters, and copies of
 * rows. One launch copies up to PAIRS pairs of regions.
 *
 * A pair is copied in units of 16, 8, 4, 2 or 1 bytes: the widest unit that divides all addresses, strides and runs of
 * both regions. Units are numbered along the runs. Unit n belongs to run r = n / U, where U is the number of units of a
 * run; in ith_region, this is run (r / C, r % C), where C is count[1]. Source and target are divided separately,
 * because their runs may have different lengths. */
#include "cuda_rows.h"

enum {
    THREADS = 256,
    TOGETHER = 4, /* units that a thread loads before it stores the first */
    BLOCK_UNITS = THREADS * TOGETHER,
    PAIRS = 31, /* pairs of one launch: their list is an argument of the kernel, of at most 4 KB */
    /* A pair with more units is copied with 64-bit divisions. The threads of the last block may have numbers of units
     * beyond the last unit; these numbers must fit too. */
    SHORT_UNITS = INT32_MAX - BLOCK_UNITS
};

/* A divisor d. For n < 2^31, n / d = (floor(n f / 2^32) + n) / 2^s rounded down, with s = ceil(log2 d) and
 * f = floor(2^32 (2^s - d) / d) + 1 (Granlund, Montgomery, "Division by invariant integers using multiplication", PLDI
 * 1994). */
typedef struct divisor {
    int64_t by;
    uint32_t factor, shift;
} divisor;

/* A region. Runs and strides as in ith_region. */
typedef struct side {
    char *data;
    int64_t stride[2];
    divisor run; /* units of a run */
    divisor row; /* count[1] */
} side;

typedef struct pair {
    side target, source;
    int64_t units;
    uint32_t first_block; /* the first block of the grid that copies this pair */
    int32_t unit;         /* bytes of a unit */
} pair;

typedef struct pair_list {
    int32_t count;
    uint32_t blocks;
    pair pairs[PAIRS];
} pair_list;
static_assert(sizeof(pair_list) <= 4096, "an argument of a kernel has at most 4 KB");

/* ---- The kernel ------------------------------------------------------------------------------------------------ */

static __device__ inline uint32_t divide(uint32_t n, const divisor &d)
{
    return (__umulhi(n, d.factor) + n) >> d.shift;
}

static __device__ inline uint64_t divide(uint64_t n, const divisor &d)
{
    return n / (uint64_t)d.by;
}

/* The address of unit n of a region. */
template <typename Unit, typename Index> static __device__ inline Unit *unit_at(const side &region, Index n)
{
    Index run = divide(n, region.run), row = divide(run, region.row);
    Index in_run = n - run * (Index)region.run.by, in_row = run - row * (Index)region.row.by;
    return (Unit *)(region.data + (int64_t)row * region.stride[0] + (int64_t)in_row * region.stride[1]) + in_run;
}

/* Copies the units of one block. */
template <typename Unit, typename Index> static __device__ inline void copy_units(const pair &p, uint32_t block)
{
    Unit units[TOGETHER];
    Index first = (Index)block * BLOCK_UNITS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        if (first + i * THREADS < (Index)p.units)
            units[i] = *unit_at<Unit, Index>(p.source, first + i * THREADS);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        if (first + i * THREADS < (Index)p.units)
            *unit_at<Unit, Index>(p.target, first + i * THREADS) = units[i];
}

template <typename Unit> static __device__ inline void copy_block(const pair &p, uint32_t block)
{
    if (p.units <= SHORT_UNITS)
        copy_units<Unit, uint32_t>(p, block);
    else
        copy_units<Unit, uint64_t>(p, block);
}

static __global__ void __launch_bounds__(THREADS) copy_pairs(const __grid_constant__ pair_list list)
{
    int i = 0;
    while (i + 1 < list.count && blockIdx.x >= list.pairs[i + 1].first_block)
        i++;
    const pair &p = list.pairs[i];
    uint32_t block = blockIdx.x - p.first_block;
    switch (p.unit) {
    case 16: copy_block<uint4>(p, block); break;
    case 8: copy_block<uint2>(p, block); break;
    case 4: copy_block<uint32_t>(p, block); break;
    case 2: copy_block<uint16_t>(p, block); break;
    default: copy_block<uint8_t>(p, block);
    }
}

/* ---- The list of pairs ----------------------------------------------------------------------------------------- */

static divisor divisor_of(int64_t by)
{
    const int64_t most = INT32_MAX;
    divisor d = {by, 0, 0};
    if (by > most) /* every n < 2^31 has the quotient 0, as for 2^31 */
        by = most + 1;
    while (((int64_t)1 << d.shift) < by)
        d.shift++;
    d.factor = (uint32_t)((((((uint64_t)1 << d.shift) - (uint64_t)by) << 32) / (uint64_t)by) + 1);
    return d;
}

/* Joins runs that follow one another in memory, so that a region with fewer runs has the same bytes. */
static ith_region join_runs(ith_region region)
{
    for (int turn = 0; turn < 2; turn++)
        if (region.count[1] == 1 || region.stride[1] == region.bytes) {
            region.bytes *= region.count[1];
            region.count[1] = region.count[0];
            region.stride[1] = region.stride[0];
            region.count[0] = 1;
        }
    for (int i = 0; i < 2; i++)
        if (region.count[i] == 1)
            region.stride[i] = 0;
    return region;
}

static side side_of(const ith_region *region, int unit)
{
    side s = {(char *)region->data,
              {region->stride[0], region->stride[1]},
              divisor_of(region->bytes / unit),
              divisor_of(region->count[1])};
    return s;
}

static uint64_t bits_of(const ith_region *region)
{
    return (uint64_t)(uintptr_t)region->data | (uint64_t)region->stride[0] | (uint64_t)region->stride[1] |
           (uint64_t)region->bytes;
}

/* The bytes of a region; -1 if a size is negative or the product does not fit. */
static int64_t bytes_of(const ith_region *region)
{
    int64_t bytes = 0;
    if (!ith_size_mul(region->count[0], region->count[1], &bytes) || !ith_size_mul(bytes, region->bytes, &bytes))
        return -1;
    return bytes;
}

/* Makes a pair of two regions of `bytes` bytes, which are more than 0. */
static pair pair_of(const ith_region_pair *copy, int64_t bytes)
{
    ith_region target = join_runs(copy->target), source = join_runs(copy->source);
    int unit = cuda_unit(bits_of(&target) | bits_of(&source));
    pair p = {side_of(&target, unit), side_of(&source, unit), bytes / unit, 0, unit};
    return p;
}

/* Copies the pairs of the list and empties it. */
static ith_status copy_list(struct ith_device_stream *stream, pair_list *list, const char *doing, char *said)
{
    if (list->count == 0)
        return ITH_OK;
    copy_pairs<<<list->blocks, THREADS, 0, stream->stream>>>(*list);
    list->count = 0;
    list->blocks = 0;
    return ith_cuda_check_launch(doing, said);
}

/* Adds a pair of regions to the list. Starts a copy of the pairs in it if it has no room. */
static ith_status add_pair(struct ith_device_stream *stream, pair_list *list, const ith_region_pair *copy,
                           const char *doing, char *said)
{
    int64_t bytes = bytes_of(&copy->target);
    if (bytes < 0 || bytes != bytes_of(&copy->source)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: source and target need the same number of bytes", doing);
        return ITH_ERR_ARGUMENT;
    }
    if (bytes == 0)
        return ITH_OK;
    pair p = pair_of(copy, bytes);
    unsigned blocks;
    ith_status status = cuda_grid(ith_div_up(p.units, BLOCK_UNITS), 1, 1, &blocks, doing, said);
    if (!status && (list->count == PAIRS || blocks > INT32_MAX - list->blocks))
        status = copy_list(stream, list, doing, said);
    if (status)
        return status;
    p.first_block = list->blocks;
    list->pairs[list->count++] = p;
    list->blocks += blocks;
    return ITH_OK;
}

ith_status ith_cuda_copy_regions(struct ith_device_stream *stream, const ith_region_pair *copies, int64_t count,
                                 char *said)
{
    static const char doing[] = "copying regions on the GPU";
    pair_list list;
    list.count = 0;
    list.blocks = 0;
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    for (int64_t i = 0; !status && i < count; i++)
        status = add_pair(stream, &list, &copies[i], doing, said);
    return status ? status : copy_list(stream, &list, doing, said);
}
