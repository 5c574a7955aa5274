/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the rows of some kv heads to contiguous rows (ith_device_pack in kernels/device.h):
 *     to[n - first, s, d] = from[n, s, d], or 0 if key s is absent or padding.
 * A block copies some rows of one head, in the widest units of 2 to 16 bytes that divide all addresses and rows. */
#include "cuda_rows.h"

enum {
    THREADS = 256,
    TOGETHER = 4, /* units that a thread loads before it stores the first */
    BLOCK_UNITS = THREADS * TOGETHER
};

/* Number: an unsigned integer of the size of a number of the rows. row_units: units of a row. Block number i copies
 * `block_rows` rows of head first + i % count. */
template <typename Unit, typename Number>
static __global__ void __launch_bounds__(THREADS)
    pack_block(const __grid_constant__ ith_device_pack call, uint32_t row_units, uint32_t block_rows)
{
    const uint32_t head = blockIdx.x % (uint32_t)call.count;
    const int64_t first = (int64_t)(blockIdx.x / (uint32_t)call.count) * block_rows;
    const int64_t left = call.padded_rows - first;
    const uint32_t units = (uint32_t)(left < block_rows ? left : block_rows) * row_units;
    const cuda_keys keys = cuda_keys_of(call, call.first + head);
    const Number *from = (const Number *)call.from.data +
                         cuda_head_offset(call.from, call.first + head, call.head_dim) + first * call.from.row_stride;
    Unit *to = (Unit *)((Number *)call.to + ((int64_t)head * call.padded_rows + first) * call.head_dim);
    for (uint32_t n = threadIdx.x; n < units; n += BLOCK_UNITS) {
        Unit loaded[TOGETHER] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            uint32_t unit = n + i * THREADS, row = unit / row_units;
            if (unit < units && cuda_has_key(keys, first + row))
                loaded[i] = ((const Unit *)(from + row * call.from.row_stride))[unit - row * row_units];
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (n + i * THREADS < units)
                to[n + i * THREADS] = loaded[i];
    }
}

/* Starts the kernel with units of `unit` bytes. */
template <typename Number>
static void start(cudaStream_t stream, const ith_device_pack *pack, int unit, unsigned blocks, uint32_t row_units,
                  uint32_t block_rows)
{
    if (unit == 16)
        pack_block<uint4, Number><<<blocks, THREADS, 0, stream>>>(*pack, row_units, block_rows);
    else if (unit == 8)
        pack_block<uint2, Number><<<blocks, THREADS, 0, stream>>>(*pack, row_units, block_rows);
    else
        pack_block<Number, Number><<<blocks, THREADS, 0, stream>>>(*pack, row_units, block_rows);
}

/* The widest unit of a copy: 8 or 16 bytes, or one number. */
static int unit_of(const ith_device_pack *pack, int64_t number)
{
    const ith_device_rows *from = &pack->from;
    uint64_t bits = (uint64_t)(uintptr_t)from->data | (uint64_t)(uintptr_t)pack->to;
    bits |= (uint64_t)(from->row_stride * number) | (uint64_t)(from->batch_stride * number);
    int unit = cuda_unit(bits | (uint64_t)(pack->head_dim * number));
    return unit >= 8 ? unit : (int)number;
}

ith_status ith_cuda_pack(struct ith_device_stream *stream, const ith_device_pack *pack, char *said)
{
    static const char doing[] = "packing keys on the GPU";
    ith_status status = cuda_check_rows(pack->dtype, pack->head_dim, pack->first, pack->count, pack->kv_heads,
                                        &pack->from, doing, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status || pack->count == 0 || pack->padded_rows <= 0)
        return status;
    const int64_t number = pack->dtype == ITH_F32 ? 4 : 2;
    const int unit = unit_of(pack, number);
    const int64_t row_units = pack->head_dim * number / unit;
    const int64_t block_rows = ith_max64(BLOCK_UNITS / row_units, 1);
    unsigned blocks;
    status = cuda_grid(pack->count, ith_div_up(pack->padded_rows, block_rows), 1, &blocks, doing, said);
    if (status)
        return status;
    if (number == 4)
        start<uint32_t>(stream->stream, pack, unit, blocks, (uint32_t)row_units, (uint32_t)block_rows);
    else
        start<uint16_t>(stream->stream, pack, unit, blocks, (uint32_t)row_units, (uint32_t)block_rows);
    return ith_cuda_check_launch(doing, said);
}
