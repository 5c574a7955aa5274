/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of this machine: its description for the cost model (ithaca/cost.h), and the fastest tiles of a kernel.
 * Part of libithaca.
 *
 *     ith_machine_case wanted = ITH_MACHINE_CASE_INIT;
 *     ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
 *     ith_machine *machine = NULL;
 *     options.cases = &wanted, options.case_count = 1;
 *     if (!ith_machine_measure(context, &options, NULL, &machine))
 *         printf("%g GFLOP/s on one core\n", machine->attention[0].gflops);
 *     ith_machine_free(&machine);
 *
 * All rates are quiet figures: work is cut into slices of about half a millisecond, and the fastest time of each slice
 * in any repeat counts. So other programs that use the machine now and then do not change them.
 *
 * The rules of ithaca/ithaca.h on errors, ownership, threads and structs hold here too. */
#ifndef ITHACA_TUNE_H
#define ITHACA_TUNE_H

#include <ithaca/cost.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attention whose kernels are measured. In an array all elements have the struct_size of the first one. */
typedef struct ith_machine_case {
    size_t struct_size;
    ith_dtype dtype;     /* type of q, k, v and o: F32, BF16 or F16 */
    ith_softmax softmax; /* ONLINE or FIXED_M; AUTO: both */
    int64_t head_dim;
} ith_machine_case;
#define ITH_MACHINE_CASE_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(ith_machine_case), ITH_BF16, ITH_SOFTMAX_AUTO, 128                                                      \
    }

typedef struct ith_measure_options {
    size_t struct_size;
    const ith_machine_case *cases; /* [case_count]; NULL: F32 and BF16 with a head size of 128 and both softmaxes */
    int64_t case_count;
    double seconds;  /* time that the measurement takes, about; 0: 1. A slow machine may take longer, because each rate
                      * needs three repeats */
    int64_t threads; /* compute units that work at the same time, because they share caches, memory and power; 0: as
                      * many as the process has processors */
    /* Called by the thread that called, between repeats. NULL: not called. */
    bool (*should_stop)(void *user);
    void (*on_progress)(void *user, int64_t done, int64_t total); /* parts of the measurement */
    void *user;
} ith_measure_options;
#define ITH_MEASURE_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(ith_measure_options), NULL, 0, 0, 0, NULL, NULL, NULL                                                   \
    }

/* Measures this machine and describes it: a row of attention for each case and each kernel that a plan may choose for
 * it, with the kernel's default tiles; the rate of operations on rows; the fixed cost of an execution on several ranks;
 * and the level of ranks that are threads of one process. *machine is yours and is freed by ith_machine_free; its
 * arrays live as long as it does.
 *
 * comm is NULL, or a group of ranks. The call is then collective, every rank gets the same description, and it also has
 * the levels between processes of one host and between hosts, as far as the group has any. Rank 0 measures the kernels;
 * the other ranks wait for it. options may be NULL.
 *
 * ITH_ERR_ARGUMENT for a case that no kernel takes, ITH_ERR_MEMORY, ITH_ERR_INTERRUPTED after should_stop returned
 * true, or the failure of the group. */
ITH_API ith_status ith_machine_measure(ith_context *context, const ith_measure_options *options, ith_comm *comm,
                                       ith_machine **machine);
/* Frees a description that ith_machine_measure made, and no other. */
ITH_API void ith_machine_free(ith_machine **machine);

#ifdef __cplusplus
}
#endif
#endif
