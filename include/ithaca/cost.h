/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the cost of attention on a machine from the machine's description: which plans are legal, how long each
 * takes, how much it sends and holds, and how much of the exchange is hidden. Nothing is executed, so the machine need
 * not be at hand. docs/cost.md has the model with its equations. Part of libithaca.
 *
 *     ith_machine_level link = ITH_MACHINE_LEVEL_INIT;       // one host with 8 devices on one switch
 *     link.bytes_per_second = 400e9, link.latency_seconds = 10e-6, link.overlap = 0.9;
 *     ith_machine_attention rate = ITH_MACHINE_ATTENTION_INIT;
 *     strcpy(rate.kernel, "flash"), rate.dtype = ITH_BF16, rate.head_dim = 128, rate.gflops = 600e3;
 *     ith_machine machine = ITH_MACHINE_INIT;
 *     machine.host_units = 8, machine.rank_units = 1;
 *     machine.levels = &link, machine.level_count = 1;
 *     machine.attention = &rate, machine.attention_count = 1;
 *     ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
 *     problem.heads = 40, problem.head_dim = 128, problem.q_len = problem.kv_len = 75600, problem.dtype = ITH_BF16;
 *     status = ith_plan_list(context, &problem, NULL, &machine, 8, print_candidate, NULL);
 *
 * The rules of ithaca/ithaca.h on errors, ownership, threads and structs hold here too. In an array of structs all
 * elements have the struct_size of the first one, which is the distance in bytes from one element to the next. */
#ifndef ITHACA_COST_H
#define ITHACA_COST_H

#include <ithaca/ithaca.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Machines --------------------------------------------------------------------------------------------------- */

/* The rates of one attention kernel, for one type, head size, softmax and set of tiles, on one compute unit. */
typedef struct ith_machine_attention {
    size_t struct_size;
    char kernel[64];     /* its name: one of ith_kernel_list, or any other for a machine that has other kernels */
    ith_dtype dtype;     /* type of q, k, v and o */
    ith_softmax softmax; /* ONLINE or FIXED_M */
    int64_t head_dim;
    /* The tiles with which the rates were measured; 0: not known. A kernel that this library lacks runs with these
     * tiles unless the options of a plan set others. */
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
    double gflops; /* 10^9 operations a second without the overhead of calls; a head takes 4 Sq Skv D operations */
    /* overhead of each call of the kernel, which takes a block of queries and a KV block. A block with fewer queries
     * takes its part. */
    double call_seconds;
    /* bytes of k and v, as the caller has them, that are packed in a second; 0: packing takes no time */
    double pack_bytes_per_second;
    /* bytes of q, k and v that are read in a second for the offsets of fixed_m; 0: they take no time */
    double offset_bytes_per_second;
} ith_machine_attention;
#define ITH_MACHINE_ATTENTION_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(ith_machine_attention), {0}, ITH_BF16, ITH_SOFTMAX_ONLINE, 0, 0, 0, 0, 0, 0, 0, 0, 0                    \
    }

/* Kinds of products. */
typedef enum ith_machine_work { ITH_WORK_LINEAR = 0, ITH_WORK_CONVOLUTION } ith_machine_work;
/* The rate of the products of linear layers or of convolutions on one compute unit. */
typedef struct ith_machine_product {
    size_t struct_size;
    ith_machine_work work;
    ith_dtype dtype; /* type of the operands, F32 or BF16 */
    /* the size that was measured: rows of x (pixels), and the smaller number of input and output features (channels) */
    int64_t rows, features;
    double gflops; /* without call_seconds */
    /* the fixed time of a product, the same for any number of rows and of threads: threads start and wait for one
     * another, and weights come from memory */
    double call_seconds;
} ith_machine_product;
#define ITH_MACHINE_PRODUCT_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(ith_machine_product), ITH_WORK_LINEAR, ITH_BF16, 0, 0, 0, 0                                             \
    }

/* One level of the hierarchy in which ranks reach one another: threads of a process, processes of a host, hosts; or
 * devices of a chip, chips of a host, hosts. Two ranks exchange data over the first level that joins them. */
typedef struct ith_machine_level {
    size_t struct_size;
    char name[32];
    /* Every `ranks` consecutive ranks, counted from rank 0, are joined by this level. 0: as many as the options of a
     * plan say (process_ranks if the level shares memory, host_ranks if it lies within a host), all if they say
     * nothing. */
    int64_t ranks;
    bool shares_memory; /* the ranks can use one another's rows where they lie */
    bool between_hosts; /* the level joins hosts; otherwise its ranks run on one host */
    /* bytes that a rank sends in a second at the most to ranks that this level joins, while it receives as many; 0: no
     * limit besides the copies */
    double bytes_per_second;
    /* bytes that the ranks of one group of the level before (one host, for a network) send out of the group in a second
     * at the most, all together; 0: no further limit */
    double group_bytes_per_second;
    double latency_seconds; /* from the post of an empty message to the end of the receiver's wait */
    /* bytes of an exchange that a rank's own thread copies in a second. Only received bytes count, once each. This
     * time is never hidden. 0: copies take no time */
    double copy_bytes_per_second;
    double overlap; /* share of a transfer's time on the link that passes while the rank computes, 0 to 1 */
    /* the time of an exchange besides latency_seconds and the transfer of its bytes: the ranks announce long messages
     * to one another and ask for them, which takes further latencies */
    double setup_seconds;
} ith_machine_level;
#define ITH_MACHINE_LEVEL_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(ith_machine_level), {0}, 0, false, false, 0, 0, 0, 0, 1, 0                                              \
    }
#define ITH_MACHINE_LEVELS 8 /* the most levels of a machine */

/* A machine. Its arrays belong to the caller and must outlive only the call. */
typedef struct ith_machine {
    size_t struct_size;
    char name[64];
    char source[256]; /* where the figures come from */
    int64_t ranks;    /* the most ranks that it has; 0: any number */
    /* Compute units (cores or devices) of a host, and of a rank, at most 1,000,000. rank_units 0: a rank has as many as
     * its plan has threads, which are by default its share of the host's. If the ranks of a host want more units than
     * there are, they take turns. */
    int64_t host_units, rank_units;
    /* the rate of a unit while all units of its host compute, as a share of its rate while it computes alone; 0: 1 */
    double busy_share;
    double memory_bytes;         /* memory of a host, which its ranks share; 0: not known */
    double row_bytes_per_second; /* bytes that one unit reads and writes in a second in operations on rows (norms,
                                    gates); 0: they take no time */
    double start_seconds;        /* overhead of one execution on several ranks: their agreement */
    int64_t level_count, attention_count, product_count;
    const ith_machine_level *levels; /* the innermost first */
    const ith_machine_attention *attention;
    const ith_machine_product *products;
    /* 1: the engine on the machine exchanges the same number of heads with every rank. A plan is then legal only if its
     * ulysses axis divides the heads that are exchanged together; a mesh that its options leave open is chosen so. 0:
     * any number of heads */
    int64_t even_heads;
    /* hosts that share the units of one machine, as containers on it do; they are consecutive. 0: 1 */
    int64_t unit_hosts;
} ith_machine;
#define ITH_MACHINE_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(ith_machine), {0}, {0}, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0                            \
    }

/* Checks a description: ITH_ERR_ARGUMENT with the field and the rule if it makes no sense. */
ITH_API ith_status ith_machine_check(ith_context *context, const ith_machine *machine);

/* ---- Cost of a plan --------------------------------------------------------------------------------------------- */

/* The predicted cost of one execution of a plan. Times are seconds of wall time, of the rank that takes longest:
 * seconds = compute + pack + offset + copy + waiting + start. */
typedef struct ith_cost {
    size_t struct_size;
    double seconds;          /* the whole execution */
    double compute_seconds;  /* calls of the kernel */
    double pack_seconds;     /* packing of keys and values */
    double offset_seconds;   /* statistics and offsets of fixed_m */
    double copy_seconds;     /* copies of messages by the rank's own threads */
    double waiting_seconds;  /* the rank waits for data, for other ranks, or for a compute unit */
    double start_seconds;    /* agreement of the ranks */
    double exchange_seconds; /* time in which exchanges are under way (ith_plan_counters.exchange_seconds) */
    /* the part of exchange_seconds in which the rank computes; 1 if nothing is exchanged */
    double hidden_share;
    double imbalance; /* work of the busiest rank over the mean of all ranks */
    /* as in ith_plan_info, of the rank that sends most among the ranks that are walked: all in a simulation and of
     * up to 64 ranks, otherwise a few (docs/cost.md). With uneven shares another rank may send more */
    int64_t sent_bytes;
    int64_t memory_bytes; /* as in ith_plan_info, of the rank that holds most */
    /* Messages of the busiest rank over each level of the machine: bytes sent, and time on the link without latency,
     * hidden or not. Rows that are used in place are in sent_bytes alone. */
    double level_bytes[ITH_MACHINE_LEVELS], level_seconds[ITH_MACHINE_LEVELS];
} ith_cost;
#define ITH_COST_INIT                                                                                                  \
    {                                                                                                                  \
        sizeof(ith_cost), 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, {0},                                                     \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

/* Predicts the plan that ith_plan_create would make on `ranks` ranks of the machine, as ith_plan_predict does, and its
 * cost. options may be NULL; process_ranks and host_ranks in it say how the ranks are started. The kernel is the kernel
 * that the options name; otherwise the kernel that the library would choose among the kernels of which the machine has
 * rates; or the fastest of them, if the library knows none. In the last case info->kernel is the machine's name of the
 * kernel, valid as long as machine->attention. info and cost may be NULL. The same errors as ith_plan_predict and
 * ith_machine_check, ITH_ERR_MEMORY, ITH_ERR_UNSUPPORTED if the machine has no rate for the type, or no level that
 * joins two of the ranks, and ITH_ERR_INTERRUPTED after ith_pipeline_cancel (ithaca/wan.h) of a pipeline of this
 * context. */
ITH_API ith_status ith_plan_cost(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                                 const ith_machine *machine, int ranks, ith_plan_info *info, ith_cost *cost);

/* One plan of a list. The pointers are valid during the call that receives the candidate. */
typedef struct ith_plan_candidate {
    size_t struct_size;
    bool legal;
    char rule[256];                  /* the rule that forbids the plan; "" if it is legal */
    const ith_attn_options *options; /* strategy, mesh, direction, chunks and softmax are set */
    const ith_plan_info *info;       /* NULL if the plan is not legal */
    const ith_cost *cost;            /* NULL if the plan is not legal */
} ith_plan_candidate;
/* Receives one plan of a list. A status other than ITH_OK ends the list; a number that is no ith_status counts as
 * ITH_ERR_ABORTED. */
typedef ith_status (*ith_plan_candidate_fn)(void *user, const ith_plan_candidate *candidate);

/* Calls `take` for every plan of a problem on `ranks` ranks: first the legal ones, the fastest first, then the illegal
 * ones with the rule that forbids them. A field that `options` sets is fixed. Fields that it leaves open are varied:
 * strategy and mesh (every way to write ranks as ulysses times ring in which no rank is without heads), direction,
 * chunks (1, 2, 4, 8, as far as there are heads) and softmax. Returns the status of `take` if that was not ITH_OK, and
 * the errors of ith_plan_cost that concern the problem, the machine or an interruption rather than one plan. */
ITH_API ith_status ith_plan_list(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                                 const ith_machine *machine, int ranks, ith_plan_candidate_fn take, void *user);

/* ---- Simulation ------------------------------------------------------------------------------------------------- */

typedef struct ith_simulation {
    size_t struct_size;
    int64_t seed;       /* of the jitter: the same seed gives the same times */
    double jitter;      /* standard deviation of the time of each piece of work, as a share of it, 0 to 1 */
    int64_t slow_rank;  /* a rank whose work takes slow_factor times as long; -1: none */
    double slow_factor; /* at least 1 */
    int64_t executions; /* executions, one after the other; 0: 1 */
    /* other work of a rank before each execution, such as the linear layers of a transformer: jitter and a slow rank
     * stretch it too, and the execution begins when the last rank has done it */
    double work_seconds;
    /* Called about 20 times a second by the thread that called ith_plan_simulate. NULL: not called. */
    bool (*should_stop)(void *user);
    void *user;
} ith_simulation;
#define ITH_SIMULATION_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_simulation), 0, 0, -1, 1, 0, 0, NULL, NULL                                                          \
    }

/* Simulates executions of the plan of ith_plan_cost on all ranks, by discrete events with the prices of the cost model.
 * Unlike the model, it follows every rank, hop by hop: ranks wait for their own peers only, compute units of a host are
 * taken in turn, and a link that several ranks share transfers one exchange after another. simulation may be NULL.
 *
 * *cost is the mean over the executions, of the rank that works longest; its seconds include the other work. If the
 * context records a trace, the work, waits and exchanges of all ranks are added to it, with simulated times from the
 * beginning of the trace on. info and cost may be NULL. The same errors as ith_plan_cost, ITH_ERR_ARGUMENT for
 * a simulation that makes no sense, and ITH_ERR_INTERRUPTED after should_stop returned true. */
ITH_API ith_status ith_plan_simulate(ith_context *context, const ith_attn_problem *problem,
                                     const ith_attn_options *options, const ith_machine *machine, int ranks,
                                     const ith_simulation *simulation, ith_plan_info *info, ith_cost *cost);

#ifdef __cplusplus
}
#endif
#endif
