/* Measures peak rates: the operations of all threads over the time that the slowest took. */
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

static bool usable(const ith_peak *peak, uint32_t cpu)
{
    return (peak->cpu & ~cpu) == 0;
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
    int candidates = 0;
    for (int i = 0; i < PEAKS; i++)
        candidates += peaks[i]->counts && usable(peaks[i], cpu);
    for (int i = 0; i < PEAKS; i++) {
        if (!peaks[i]->counts || !usable(peaks[i], cpu))
            continue;
        double rate = rate_of(peaks[i], threads, seconds / candidates);
        best = rate > best ? rate : best;
    }
    return best;
}

bool ith_peak_rate(const ith_context *context, int index, int threads, double seconds, const char **name, bool *counts,
                   double *rate)
{
    uint32_t cpu = ith_context_cpu(context);
    for (int i = 0; i < PEAKS && index >= 0; i++) {
        if (!usable(peaks[i], cpu))
            continue;
        if (index-- > 0)
            continue;
        *name = peaks[i]->name;
        *counts = peaks[i]->counts;
        *rate = rate_of(peaks[i], threads > 0 ? threads : 1, seconds);
        return true;
    }
    return false;
}
