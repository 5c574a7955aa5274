/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers in shared memory and Hopper's copies of tiles (TMA), as functions. Addresses are of shared memory, as 32-bit
 * numbers. A barrier (mbarrier) counts arrivals of threads and bytes of copies; its phases are numbered 0, 1, 0, 1, ...
 * PTX ISA 9.7.13.15 and 9.7.9.25. */
#ifndef ITH_KERNELS_CUDA_TMA_SM90_H
#define ITH_KERNELS_CUDA_TMA_SM90_H

#include <cuda.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes barriers that this thread initialised visible to copies. */
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and adds `bytes` to the bytes of copies that the phase waits for. */
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase with this parity has ended. A new barrier counts as if a phase 1 had ended. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Copies a box of a tensor to shared memory, and counts its bytes at the barrier. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int x, int head, int row, int batch,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
                 "%5}], [%6];" ::"r"(to),
                 "l"(map), "r"(x), "r"(head), "r"(row), "r"(batch), "r"(barrier)
                 : "memory");
}

/* Barriers of a block's threads, by number: COUNT threads take part. */
template <int COUNT> __device__ __forceinline__ void threads_sync(int number)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(COUNT) : "memory");
}

/* Whether a condition holds for any of COUNT threads, which all call this. */
template <int COUNT> __device__ __forceinline__ bool threads_any(int number, bool condition)
{
    uint32_t any;
    asm volatile("{.reg .pred mine, all; setp.ne.u32 mine, %1, 0; bar.red.or.pred all, %2, %3, mine;"
                 " selp.u32 %0, 1, 0, all;}"
                 : "=r"(any)
                 : "r"((uint32_t)condition), "r"(number), "n"(COUNT)
                 : "memory");
    return any != 0;
}

#endif
