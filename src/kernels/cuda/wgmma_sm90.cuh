/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix instructions of Hopper (wgmma.mma_async, PTX ISA 9.7.15), as functions. A warpgroup, which is four warps,
 * computes d += a b for a [64, 16], b [16, N] and d [64, N]: a and b of bf16 or f16, d of f32.
 *
 * Thread t of warp w of the group holds, for i = 0, 1 and e = 0, 1,
 *     d[4 j + 2 i + e] = element (16 w + t / 4 + 8 i, 8 j + 2 (t % 4) + e)
 * and, where a is in registers, the pair of columns 2 (t % 4) + {0, 1} + 8 j of the same rows in a[2 j + i], the lower
 * column in the lower half.
 *
 * Matrices in shared memory consist of strips. A strip holds 64 numbers (128 bytes) of each row. Its row r lies at byte
 * 128 r, and its 16-byte pieces are permuted: piece c lies at place c ^ (r % 8), as TMA writes it with the swizzle of
 * 128 bytes. Strips begin at multiples of 1024 bytes. */
#ifndef ITH_KERNELS_CUDA_WGMMA_SM90_H
#define ITH_KERNELS_CUDA_WGMMA_SM90_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

template <typename T> constexpr bool is_bf16 = false;
template <> inline constexpr bool is_bf16<__nv_bfloat16> = true;

/* The descriptor of a matrix in shared memory: bits 0 to 13 hold the address, 16 to 29 the leading offset, 32 to 45 the
 * stride offset, each in units of 16 bytes; bit 62 is the swizzle of 128 bytes. `stride` is the distance of groups of 8
 * rows. `leading` is the distance of strips, and matters only if rows count the dimension that is summed over (b of
 * wgmma_registers). */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t leading)
{
    const uint32_t stride = 1024;
    return (uint64_t)(address >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}

/* Registers that were written before the fence may be operands of matrix instructions after it. */
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a batch of matrix instructions. */
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until no more than PENDING batches are unfinished. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of these registers across this point. */
template <int COUNT> __device__ __forceinline__ void pin(float (&x)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

/* Operands %0, %1, ... of the assembler, and the registers that they stand for. */
#define NAMES_32                                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31}"
#define NAMES_64                                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define NAMES_88                                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "   \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87}"
#define REGISTERS_32(d, i)                                                                                             \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),             \
        "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15]), "+f"(d[i + 16]), "+f"(d[i + 17]), "+f"(d[i + 18]),          \
        "+f"(d[i + 19]), "+f"(d[i + 20]), "+f"(d[i + 21]), "+f"(d[i + 22]), "+f"(d[i + 23]), "+f"(d[i + 24]),          \
        "+f"(d[i + 25]), "+f"(d[i + 26]), "+f"(d[i + 27]), "+f"(d[i + 28]), "+f"(d[i + 29]), "+f"(d[i + 30]),          \
        "+f"(d[i + 31])
#define REGISTERS_8(d, i)                                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])

/* d = a b, or d += a b if ACCUMULATE. Rows of a count rows of d, rows of b count columns of d; 16 numbers of each. */
template <typename T, int N, bool ACCUMULATE>
__device__ __forceinline__ void wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b)
{
    static_assert(N == 128 || N == 176, "the widths that are written out");
#define CASE(TYPE)                                                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE             \
                 " " NAMES_64 ", %64, %65, p, 1, 1, 0, 0;}"                                                            \
                 : REGISTERS_32(d, 0), REGISTERS_32(d, 32)                                                             \
                 : "l"(a), "l"(b), "n"(ACCUMULATE ? 1 : 0))
    if constexpr (N == 128 && is_bf16<T>)
        CASE("bf16.bf16");
    else if constexpr (N == 128)
        CASE("f16.f16");
#undef CASE
#define CASE(TYPE)                                                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %90, 0; wgmma.mma_async.sync.aligned.m64n176k16.f32." TYPE             \
                 " " NAMES_88 ", %88, %89, p, 1, 1, 0, 0;}"                                                            \
                 : REGISTERS_32(d, 0), REGISTERS_32(d, 32), REGISTERS_8(d, 64), REGISTERS_8(d, 72), REGISTERS_8(d, 80) \
                 : "l"(a), "l"(b), "n"(ACCUMULATE ? 1 : 0))
    if constexpr (N == 176 && is_bf16<T>)
        CASE("bf16.bf16");
    else if constexpr (N == 176)
        CASE("f16.f16");
#undef CASE
}

/* d += a b with a in registers. Rows of b count the 16 products that are summed; their N numbers lie in N / 64 strips.
 */
template <typename T, int N>
__device__ __forceinline__ void wgmma_registers(float (&d)[N / 2], const uint32_t *a, uint64_t b)
{
    static_assert(N == 64 || N == 128, "the widths that are written out");
#define CASE(TYPE)                                                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE " " NAMES_32 \
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"                                                           \
                 : REGISTERS_32(d, 0)                                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1))
    if constexpr (N == 64 && is_bf16<T>)
        CASE("bf16.bf16");
    else if constexpr (N == 64)
        CASE("f16.f16");
#undef CASE
#define CASE(TYPE)                                                                                                     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE             \
                 " " NAMES_64 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"                                              \
                 : REGISTERS_32(d, 0), REGISTERS_32(d, 32)                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1))
    if constexpr (N == 128 && is_bf16<T>)
        CASE("bf16.bf16");
    else if constexpr (N == 128)
        CASE("f16.f16");
#undef CASE
}

#undef NAMES_32
#undef NAMES_64
#undef NAMES_88
#undef REGISTERS_32
#undef REGISTERS_8
#endif
