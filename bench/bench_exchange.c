/* SPDX-License-Identifier: Apache-2.0 */
/* Measures barriers and exchanges between two ranks.
 *
 *     bench_exchange                        two threads of this process
 *     bench_exchange TRANSPORT [WHERE]      two processes, on the transport of a module:
 *     mpirun.openmpi -n 2 bench_exchange openmpi
 *     mpirun.mpich -n 2 bench_exchange mpich
 *
 * Both ranks send and receive at once: contiguous bytes, or rows of 512 bytes that lie 1024 bytes apart. Rank 0 prints
 * the median and the fastest time, the rate of each direction at the fastest, and the processor time of a rank. */
#include <ithaca/transport.h>

#include "../src/base/clock.h"
#include "../src/base/median.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 400, ROW = 512, STRIDE = 1024 };
static const int64_t MOST_BYTES = 16 << 20;
static const double MOST_SECONDS = 1; /* of each line */

/* A barrier (bytes 0), or an exchange of `bytes` bytes each way. */
static ith_status once(ith_comm *comm, char *const data[2], int64_t bytes, bool strided)
{
    int peer = 1 - ith_comm_rank(comm);
    ith_transfer both[2];
    if (bytes == 0)
        return ith_comm_barrier(comm);
    for (int i = 0; i < 2; i++) {
        both[i] = (ith_transfer){peer, {.data = data[i], .count = {1, 1}, .bytes = bytes}};
        if (strided)
            both[i].region = (ith_region){.data = data[i], .count = {bytes / ROW, 1}, .stride = {STRIDE}, .bytes = ROW};
    }
    return ith_comm_exchange(comm, &both[0], 1, &both[1], 1);
}

/* Measures one line. All ranks stop after the same number of repeats, which rank 0 chooses after the first. */
static ith_status measure(ith_comm *comm, char *const data[2], int64_t bytes, bool strided)
{
    double times[REPEATS], first = ith_clock_seconds();
    ith_status status = once(comm, data, bytes, strided);
    if (!status)
        status = once(comm, data, bytes, strided);
    float repeats = (float)(MOST_SECONDS / ((ith_clock_seconds() - first) / 2 + 1e-9));
    repeats = repeats > REPEATS ? REPEATS : repeats < 5 ? 5 : repeats;
    if (!status)
        status = ith_comm_broadcast(comm, &repeats, sizeof repeats, 0);
    int count = (int)repeats;
    double cpu = ith_clock_thread_seconds();
    for (int i = 0; i < count && !status; i++) {
        double begin = ith_clock_seconds();
        status = once(comm, data, bytes, strided);
        times[i] = ith_clock_seconds() - begin;
    }
    cpu = (ith_clock_thread_seconds() - cpu) / count;
    if (status || ith_comm_rank(comm))
        return status;
    const double median = ith_median(times, count); /* sorts the times */
    char name[64] = "barrier", rate[32] = "";
    if (bytes) {
        snprintf(name, sizeof name, "exchange of %lld KB, %s", (long long)(bytes >> 10),
                 strided ? "strided" : "contiguous");
        snprintf(rate, sizeof rate, "%.2f GB/s", (double)bytes / times[0] * 1e-9);
    }
    printf("%-36s median %10.1f us, fastest %10.1f us %12s, cpu %10.1f us\n", name, median * 1e6, times[0] * 1e6, rate,
           cpu * 1e6);
    return ITH_OK;
}

static ith_status measure_all(ith_context *context, ith_comm *comm, void *user)
{
    static const int64_t sizes[] = {1 << 10, 64 << 10, 16 << 20};
    char *data[2] = {malloc((size_t)(2 * MOST_BYTES)), malloc((size_t)(2 * MOST_BYTES))};
    ith_status status = !data[0] || !data[1] ? ITH_ERR_MEMORY : ith_comm_size(comm) != 2 ? ITH_ERR_ARGUMENT : ITH_OK;
    if (status == ITH_ERR_ARGUMENT)
        fprintf(stderr, "there are %d ranks, and two are needed\n", ith_comm_size(comm));
    for (int i = 0; i < 2 && !status; i++)
        memset(data[i], 1, (size_t)(2 * MOST_BYTES));
    if (!status)
        status = measure(comm, data, 0, false);
    for (int i = 0; i < 6 && !status; i++)
        status = measure(comm, data, sizes[i % 3], i >= 3);
    free(data[0]);
    free(data[1]);
    (void)context;
    (void)user;
    return status;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    ith_status status = ith_context_create(NULL, &context);
    if (!status && argc < 2)
        status = ith_run_ranks(context, 2, 2, measure_all, NULL);
    else if (!status)
        status = ith_run_ranks_connected(context, argv[1], argc > 2 ? argv[2] : NULL, 1, 1, measure_all, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    ith_context_destroy(&context);
    return status != ITH_OK;
}
