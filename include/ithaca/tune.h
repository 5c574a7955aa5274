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
 * All rates are of typical times: work is cut into slices of about half a millisecond, and the median of each slice
 * over several repeats counts. Other programs that interrupt the work now and then do not change the rates. Programs
 * that use caches and memory all the time lower them, as they will slow the run that is predicted. Latencies, and
 * copies between ranks of one process, count by their fastest slice; links between processes by the mean of the middle
 * half of the times of long messages.
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
    double seconds;  /* time that the measurement takes, about; 0: 1. A slow machine or link may take longer, because
                      * each rate needs a few repeats */
    int64_t threads; /* compute units that work at the same time, because they share caches, memory and power; 0:
                      * ith_processor_count */
    /* should_stop is called by one thread at a time, which need not be the caller's; on_progress by the caller's
     * thread. NULL: not called. */
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
 * and the level of ranks that are threads of one process, unless its limits allow one thread alone. *machine is yours
 * and is freed by ith_machine_free; its arrays live as long as it does.
 *
 * comm is NULL, or a group of ranks. The call is then collective, and every rank gets the same description. It also has
 * the levels between processes of one host and between hosts, if the group has several; host_units and unit_hosts count
 * the cores that the ranks may use. Rank 0 measures the kernels; the other ranks wait for it. options may be NULL.
 *
 * ITH_ERR_ARGUMENT for a case that no kernel takes, ITH_ERR_MEMORY, ITH_ERR_INTERRUPTED after should_stop returned
 * true, or the failure of the group. */
ITH_API ith_status ith_machine_measure(ith_context *context, const ith_measure_options *options, ith_comm *comm,
                                       ith_machine **machine);
/* Measures the fixed cost of an execution on `ranks` ranks of this process (start_seconds of ith_machine) in about
 * `seconds`. With more ranks than processors it is longer. ITH_ERR_ARGUMENT for fewer than 2 ranks, ITH_ERR_MEMORY, or
 * the failure of the group. */
ITH_API ith_status ith_machine_start_measure(ith_context *context, int ranks, double seconds, double *start_seconds);
/* Frees a description that ith_machine_measure made, and no other. */
ITH_API void ith_machine_free(ith_machine **machine);

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

/* The sizes of tiles, as in ith_attn_options, and the rate of a kernel with them. This struct has no struct_size and
 * never gets new members, because other structs hold arrays of it. */
typedef struct ith_tile_choice {
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
    double gflops; /* 10^9 operations a second of one thread; 0: not measured */
} ith_tile_choice;

/* The attention whose tiles are looked for, and how. */
typedef struct ith_tile_search {
    size_t struct_size;
    const char *kernel;  /* NULL: the kernel that a plan of this context takes */
    ith_dtype dtype;     /* F32, BF16 or F16 */
    ith_softmax softmax; /* ONLINE or FIXED_M; AUTO: ONLINE */
    int64_t head_dim;
    int64_t keys;   /* keys of the whole problem. The result serves all numbers of keys of a class: between 1/sqrt(2)
                     * and sqrt(2) times a power of two from 256 to 1,048,576 */
    double seconds; /* the search ends after about this time; 0: 5 */
    /* Called by the thread that called ith_tiles_search. `known` returns the rate that an earlier search has measured
     * with these tiles, or 0; `measured` is called with each new rate. Either may be NULL. */
    double (*known)(void *user, const ith_tile_choice *tiles);
    void (*measured)(void *user, const ith_tile_choice *tiles);
    bool (*should_stop)(void *user);
    void *user;
} ith_tile_search;
#define ITH_TILE_SEARCH_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(ith_tile_search), NULL, ITH_BF16, ITH_SOFTMAX_ONLINE, 128, 8192, 0, NULL, NULL, NULL, NULL              \
    }

#define ITH_TILE_CHOICES 8

typedef struct ith_tile_report {
    size_t struct_size;
    char kernel[64];
    int64_t complete; /* 1: the search came to its end; 0: the time ended first, or should_stop returned true */
    int64_t tried;    /* number of tiles whose rates are known now */
    /* best[0]: the kernel's usual tiles. The tiles that were faster follow, the fastest first. count is 0 if the search
     * ended before the usual tiles were measured. */
    int64_t count;
    ith_tile_choice best[ITH_TILE_CHOICES];
} ith_tile_report;
#define ITH_TILE_REPORT_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(ith_tile_report), {0}, 0, 0, 0,                                                                         \
        {                                                                                                              \
            {                                                                                                          \
                0, 0, 0, 0, 0                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Looks for the fastest tiles of a kernel: one size after the other, from coarse steps to fine ones, each candidate for
 * a few milliseconds; then the fastest few and the usual tiles in turn. Only calls of the kernel are timed, on one
 * thread. A set of tiles that wins here can lose in a whole model, where other data wants the caches: try the best few
 * there before they are used. ITH_ERR_ARGUMENT for a type, size or kernel that does not exist, ITH_ERR_UNSUPPORTED for
 * a kernel that does not take them, ITH_ERR_MEMORY. */
ITH_API ith_status ith_tiles_search(ith_context *context, const ith_tile_search *search, ith_tile_report *report);

/* Makes tiles wisdom: plans take them for this kernel, type, head size, softmax and class of keys if their options set
 * no tiles. search->kernel may not be NULL. usual_gflops: the rate with the usual tiles. ITH_ERR_ARGUMENT if the kernel
 * does not take the tiles. */
ITH_API ith_status ith_wisdom_put_tiles(ith_context *context, const ith_tile_search *search,
                                        const ith_tile_choice *tiles, double usual_gflops);
/* Sets *tiles to the tiles that wisdom knows; if it knows none, all members become 0. search->kernel may not be
 * NULL. */
ITH_API ith_status ith_wisdom_get_tiles(ith_context *context, const ith_tile_search *search, ith_tile_choice *tiles);

/* ---- Strategies ------------------------------------------------------------------------------------------------- */

/* Makes the strategy, mesh, direction and chunks of *info wisdom. A plan takes these choices if its options leave all
 * of them open, and its problem has this type, batch, heads, head size, softmax and classes of lengths. Its group must
 * have info->ranks ranks, in each process and on each host the same number as here. process_ranks: ranks of each
 * process; 0: all ranks of a host. host_ranks: ranks of each host; 0: all ranks. seconds: the time of an execution with
 * these choices; usual_seconds: the time of an execution with the choices that the library makes by its rules.
 * ITH_ERR_ARGUMENT for choices that no plan of the problem has (a plan that takes them folds the batch: the number of
 * chunks must be possible then), for replicated_kv, with which nothing is exchanged, and for times that are not finite
 * and above 0. */
ITH_API ith_status ith_wisdom_put_strategy(ith_context *context, const ith_attn_problem *problem,
                                           const ith_plan_info *info, int process_ranks, int host_ranks, double seconds,
                                           double usual_seconds);
/* Sets *known to 1 if wisdom knows the strategy for a problem with this softmax on `ranks` ranks, otherwise to 0. */
ITH_API ith_status ith_wisdom_has_strategy(ith_context *context, const ith_attn_problem *problem, ith_softmax softmax,
                                           int ranks, int process_ranks, int host_ranks, int *known);

#ifdef __cplusplus
}
#endif
#endif
