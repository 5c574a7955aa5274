/* What the machine can do at most: loops of independent multiply-adds in registers, one per instruction set. Rates of
 * kernels are quoted as a share of the best of those that count. */
#ifndef ITH_KERNELS_PEAK_H
#define ITH_KERNELS_PEAK_H

#include "../base/context.h"

typedef struct ith_peak {
    const char *name;
    uint32_t cpu;                   /* ith_cpu_feature bits that it needs */
    bool counts;                    /* for the machine's peak: f32 multiply-adds and bf16 dot products on vectors */
    double (*work)(int64_t rounds); /* does some and returns how many floating-point operations it was */
} ith_peak;

/* The rows of kernels.inc: index 0, 1, ... until NULL. */
ITH_PRIVATE const ith_peak *ith_peak_at(int index);

/* 10^9 operations a second, by the best of the rows that `cpu` runs and that count, on `threads` threads at once,
 * measured for about `seconds`. */
ITH_PRIVATE double ith_peak_measure(uint32_t cpu, int threads, double seconds);

#endif
