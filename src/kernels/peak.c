/* Measures the machine's peak rate: the operations of all threads over the time that the slowest took. */
#include "peak.h"

#include "../base/clock.h"

#define ITH_PEAK(type, isa, symbol) extern const ith_peak symbol;
#include "kernels.inc"

static const ith_peak *const peaks[] = {
#define ITH_PEAK(type, isa, symbol) &symbol,
#include "kernels.inc"
};
enum { PEAKS = sizeof peaks / sizeof *peaks };

const ith_peak *ith_peak_at(int index)
{
    return index >= 0 && index < PEAKS ? peaks[index] : NULL;
}

/* Sustained: everything done over all the time it took. */
static double rate_of(const ith_peak *peak, int threads, double seconds)
{
    double operations = 0.0, start = ith_clock_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
    do
        operations += peak->work(200);
    while (ith_clock_seconds() - start < seconds);
    return operations / (ith_clock_seconds() - start) * 1e-9;
}

double ith_peak_measure(uint32_t cpu, int threads, double seconds)
{
    double best = 0.0;
    int usable = 0;
    for (int i = 0; i < PEAKS; i++)
        usable += (peaks[i]->cpu & ~cpu) == 0;
    for (int i = 0; i < PEAKS; i++) {
        if ((peaks[i]->cpu & ~cpu) != 0)
            continue;
        double rate = rate_of(peaks[i], threads, seconds / usable);
        best = rate > best ? rate : best;
    }
    return best;
}
