/* SPDX-License-Identifier: Apache-2.0 */
/* Ithaca: exact context-parallel attention.
 *
 *   o = softmax(scale * q k^T + bias) v
 *
 * is computed by one rank or by many, each of which holds a share of the sequence. Describe the problem, create a plan,
 * and execute it as often as you like. This program computes attention with four ranks, each of which is a thread
 * (cc program.c -lithaca):
 *
 *     #include <ithaca/ithaca.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     enum { HEADS = 8, DIM = 64, LENGTH = 1000 };
 *
 *     // Every rank runs this function. `tensors` are the whole tensors; a rank's share begins at its first row.
 *     static ith_status attend(ith_context *context, ith_comm *comm, void *tensors)
 *     {
 *         float *const *whole = tensors;
 *         ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
 *         problem.heads = HEADS, problem.head_dim = DIM;
 *         problem.q_len = problem.kv_len = LENGTH, problem.dtype = ITH_F32;
 *         int64_t first, rows;
 *         ith_share(LENGTH, ith_comm_size(comm), ith_comm_rank(comm), &first, &rows);
 *         int64_t at = first * HEADS * DIM;
 *         ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
 *         share.q = whole[0] + at, share.k = whole[1] + at, share.v = whole[2] + at, share.o = whole[3] + at;
 *         ith_plan *plan = NULL;
 *         ith_status status = ith_plan_create(context, &problem, NULL, comm, &plan);
 *         if (!status)
 *             status = ith_plan_execute(plan, &share);
 *         ith_plan_destroy(&plan);
 *         return status;
 *     }
 *
 *     int main(void)
 *     {
 *         float *whole[4];
 *         for (int i = 0; i < 4; i++)
 *             whole[i] = calloc(LENGTH * HEADS * DIM, sizeof(float));
 *         ith_context *context = NULL;
 *         ith_status status = ith_context_create(NULL, &context);
 *         if (!status)
 *             status = ith_run_ranks(context, 4, 0, attend, whole);
 *         if (status)
 *             fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
 *         ith_context_destroy(&context);
 *         for (int i = 0; i < 4; i++)
 *             free(whole[i]);
 *         return status ? 1 : 0;
 *     }
 *
 * Rules that hold everywhere
 *   Errors     Functions return ITH_OK (0) or a negative status; ith_context_error() then gives one sentence for a
 *              person. The library never exits, aborts or prints. NULL where something is needed, a number out of range
 *              and an unknown value of an enum give ITH_ERR_ARGUMENT. If the argument that is NULL is the context, or
 *              an object that was made with it (a plan, a pipeline), the sentence is in ith_context_error(NULL). In all
 *              these cases functions that return no status do nothing, or return the value that their comment names.
 *   Ownership  A constructor fills its last argument, with NULL on failure. The new object is yours. Its destructor
 *              takes the address of your pointer, frees the object and sets the pointer to NULL. A destructor accepts
 *              NULL and pointers to NULL. A pointer that you pass in stays yours and must outlive only the call, unless
 *              a comment says more. Contexts, communicators and plans are destroyed in any order: each keeps the parts
 *              of the others that it still needs. The functions of an allocator must work until the last is destroyed.
 *   Threads    A context, and everything made with it, is used by one thread at a time. Ranks in one process have a
 *              context each (ith_run_ranks makes them). Functions that any thread may call say so.
 *              OpenMP's threads spin while they wait for one another, which is slow where other programs want the same
 *              processors. The library leaves this to you: set OMP_WAIT_POLICY=passive (or, for GNU's runtime,
 *              GOMP_SPINCOUNT=1000) in the environment before the process starts if the machine is shared. The program
 *              ithaca adapts by itself.
 *              A thread that calls functions of this header, and each thread of OpenMP (OMP_STACKSIZE), needs a stack
 *              of 32 KB, besides the needs of your own functions and of a transport's library. For functions of
 *              Ithaca's other headers it is 512 KB. OpenMP ends the process if the system refuses it a thread.
 *              A function of yours that the library calls returns to it: it is not left by longjmp, by an exception of
 *              C++ or by pthread_exit. A thread in a call of the library may not be cancelled with pthread_cancel.
 *   Floating   Plans compute in the state of a C program at its start (fesetenv(FE_DFL_ENV)), in every thread, and
 *   point      leave each thread's state as it was. Functions of Ithaca's other headers need this state, in the thread
 *              that calls and in OpenMP's threads. Otherwise results are less exact, their bits may differ from run to
 *              run, and a trap for an exception may end the process. If subnormal numbers are flushed to zero (FTZ and
 *              DAZ of x86), they may count as zeros.
 *   Processes  After fork the child may use nothing that its parent made; functions that compute return
 *              ITH_ERR_UNSUPPORTED there. If the parent has computed on several threads, a new context in the child
 *              can compute on one thread only. Start other processes with exec or posix_spawn.
 *   Locale     Results, files and the names of this header are the same in every locale. Numbers in sentences and in
 *              the log may follow the locale that the program has set.
 *   Structs    Every struct begins with its size. Set it with its ..._INIT, which gives every field its default; then
 *              set the fields that you care about. 0 or NULL in a field of options means "choose for me". Later
 *              versions only add fields at the end, so that a program which was compiled against this header runs with
 *              them. The library fills only the fields that your struct has. It accepts a struct that is longer than
 *              its own if the bytes that it does not know are zero.
 *   Sizes      int64_t, in elements unless the name says bytes. Tensors are row-major, the last index fastest.
 */
#ifndef ITHACA_H
#define ITHACA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ITH_VERSION_MAJOR 0
#define ITH_VERSION_MINOR 2
#define ITH_VERSION_PATCH 0

#if defined(__GNUC__)
#define ITH_API __attribute__((visibility("default")))
#else
#define ITH_API
#endif

/* ---- Status ---------------------------------------------------------------------------------------------------- */

typedef enum ith_status {
    ITH_OK = 0,
    ITH_ERR_ARGUMENT = -1,    /* an argument is wrong; the sentence names it */
    ITH_ERR_UNSUPPORTED = -2, /* legal, but not built in or not possible on this machine; names an alternative */
    ITH_ERR_MEMORY = -3,      /* an allocation failed */
    ITH_ERR_IO = -4,          /* the operating system refused to open, read or write */
    ITH_ERR_FORMAT = -5,      /* the contents of a file are wrong */
    ITH_ERR_TIMEOUT = -6,     /* a peer did not answer in time */
    ITH_ERR_ABORTED = -7,     /* another rank failed, left, or ended the group */
    ITH_ERR_INTERRUPTED = -8, /* the caller asked to stop */
    ITH_ERR_NUMERIC = -9,     /* NaN or infinity where there must be none */
    ITH_ERR_INTERNAL = -10    /* an unexpected error of a library that Ithaca uses, or a defect of Ithaca */
} ith_status;

/* The name of a status, such as "ITH_ERR_MEMORY"; "unknown status" for any other number. Never NULL; static storage. */
ITH_API const char *ith_status_name(ith_status status);

/* The version of the library that runs, such as "0.2.0". It may be later than this header. Static storage. */
ITH_API const char *ith_version(void);

/* ---- Context: allocator, log, last error ----------------------------------------------------------------------- */

/* Element types. Attention takes F32, BF16 and F16; files may hold all of them. F8_E4M3 has no infinities ("fn"). The
 * types from Q4_0 on occur in GGUF files: their numbers lie in quantisation blocks, which have their own scales. */
typedef enum ith_dtype {
    ITH_DTYPE_NONE = 0,
    ITH_F32,
    ITH_BF16,
    ITH_F16,
    ITH_F64,
    ITH_BOOL,
    ITH_U8,
    ITH_I8,
    ITH_I16,
    ITH_I32,
    ITH_I64,
    ITH_F8_E4M3,
    ITH_F8_E5M2,
    ITH_Q4_0,
    ITH_Q4_1,
    ITH_Q5_0,
    ITH_Q5_1,
    ITH_Q8_0,
    ITH_Q2_K,
    ITH_Q3_K,
    ITH_Q4_K,
    ITH_Q5_K,
    ITH_Q6_K,
    ITH_IQ4_NL
} ith_dtype;

/* The bytes of one element, or of one quantisation block; 0 for ITH_DTYPE_NONE and any unknown type. */
ITH_API int64_t ith_dtype_bytes(ith_dtype type);
/* The number of elements of a quantisation block; 1 for types without blocks, and for any unknown type. */
ITH_API int64_t ith_dtype_run(ith_dtype type);
/* The bytes of `count` contiguous elements; -1 if `count` is negative or not a multiple of ith_dtype_run(type), or if
 * the bytes do not fit into int64_t. */
ITH_API int64_t ith_dtype_row_bytes(ith_dtype type, int64_t count);
/* The name of an element type: "f32", "bf16", ...; "none" for any unknown type. */
ITH_API const char *ith_dtype_name(ith_dtype type);

/* The functions with which the library allocates its memory. Both must be safe to call from several threads. Memory
 * that is not aligned as asked for is released, and the call fails with ITH_ERR_MEMORY. The list of modules, modules
 * themselves, the C library, OpenMP and drivers of devices have memory of their own. */
typedef struct ith_allocator {
    size_t struct_size;
    void *(*allocate)(void *user, size_t bytes, size_t alignment); /* NULL: no memory; alignment is a power of two */
    void (*release)(void *user, void *pointer);                    /* never called with NULL */
    void *user;
} ith_allocator;
#define ITH_ALLOCATOR_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_allocator), NULL, NULL, NULL                                                                        \
    }

/* The importance of a line of the log, from the most important to the least. */
typedef enum ith_log_level { ITH_LOG_ERROR = 0, ITH_LOG_WARNING, ITH_LOG_INFO, ITH_LOG_DEBUG } ith_log_level;
/* Receives one line of the log, without a line break at its end. May be called from several ranks' threads at once. */
typedef void (*ith_log_fn)(void *user, ith_log_level level, const char *line);

/* One task of a parallel loop. thread: the number of the task. */
typedef void (*ith_task_fn)(void *user, int thread);
/* Runs task(task_user, 0), ..., task(task_user, threads - 1), each once, and returns when all have ended. The tasks
 * need not run at the same time: a pool with fewer threads may run some after others. May be called from several ranks'
 * threads at once. The bits of a result do not depend on the pool. */
typedef void (*ith_parallel_fn)(void *user, int threads, ith_task_fn task, void *task_user);

typedef struct ith_context_options {
    size_t struct_size;
    const ith_allocator *allocator; /* NULL: the C library's; the struct is copied */
    ith_log_fn log;                 /* NULL: no log */
    void *log_user;                 /* the first argument of log */
    ith_log_level log_level;        /* lines that are less important than this level are left out */
    uint32_t cpu_mask;        /* instruction sets (ith_cpu_feature) that may be used; 0: all that the machine has. Each
                               * bit counts as it is: name the sets that a set needs too (AVX512 needs AVX2) */
    ith_parallel_fn parallel; /* runs the loops of attention on a pool of yours; NULL: OpenMP does. libithaca_wan's
                               * other loops stay with OpenMP */
    void *parallel_user;      /* the first argument of parallel */
} ith_context_options;
#define ITH_CONTEXT_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(ith_context_options), NULL, NULL, NULL, ITH_LOG_WARNING, 0, NULL, NULL                                  \
    }

typedef struct ith_context ith_context;

/* Makes a context. options may be NULL. The environment variable ITHACA_CPU (see ith_cpu_feature) is read here.
 * ITH_ERR_ARGUMENT also if a function of the allocator is NULL. On failure there is no context: ith_context_error(NULL)
 * has the sentence, for the thread that called. */
ITH_API ith_status ith_context_create(const ith_context_options *options, ith_context **out);
/* Makes a context with the same allocator, log, instruction sets and pool, for another thread. The parent and the clone
 * share one count of memory, one wisdom and one trace. Either may be destroyed first. */
ITH_API ith_status ith_context_clone(ith_context *parent, ith_context **out);
ITH_API void ith_context_destroy(ith_context **context);

/* The sentence of the context's last failure; "" if there was none. Valid until the next call with the context. For
 * NULL: the sentence of this thread's last call that failed without a context, such as ith_context_create. */
ITH_API const char *ith_context_error(const ith_context *context);

/* Bytes held now, and the most that were ever held, by everything made with this context and its clones. Contexts,
 * traces, wisdom and flight records are not counted. */
typedef struct ith_memory_use {
    size_t struct_size;
    int64_t current_bytes;
    int64_t peak_bytes;
} ith_memory_use;
#define ITH_MEMORY_USE_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_memory_use), 0, 0                                                                                   \
    }
/* Fills in the memory that everything made with the context and its clones holds. */
ITH_API ith_status ith_context_memory(ith_context *context, ith_memory_use *use);

/* Instruction sets, as bits. The environment variable ITHACA_CPU limits them from outside, for every context of the
 * process: a list of names, separated by commas or spaces ("baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16",
 * "neon", "amx_bf16"), each of which also allows the sets that it needs. "avx2" allows AVX2 and the baseline. A set
 * that the machine lacks stays absent. An unknown name makes ith_context_create fail with ITH_ERR_ARGUMENT. */
typedef enum ith_cpu_feature {
    ITH_CPU_BASELINE = 1u << 0,    /* plain C: always there */
    ITH_CPU_AVX2 = 1u << 1,        /* AVX2, FMA and F16C */
    ITH_CPU_AVX512 = 1u << 2,      /* AVX-512 F, BW, DQ, VL */
    ITH_CPU_AVX512_BF16 = 1u << 3, /* VDPBF16PS */
    ITH_CPU_AVX512_FP16 = 1u << 4,
    ITH_CPU_NEON = 1u << 5,
    ITH_CPU_AMX_BF16 = 1u << 6 /* TDPBF16PS, where the system lets a process use tiles */
} ith_cpu_feature;
/* The instruction sets that this machine has and that the context may use; 0 for NULL. */
ITH_API uint32_t ith_context_cpu(const ith_context *context);
/* Writes the names of the instruction sets in `features` to text, separated by spaces and cut to text_bytes. Returns
 * text, which may be NULL. */
ITH_API const char *ith_cpu_describe(uint32_t features, char *text, size_t text_bytes);

/* ---- Devices --------------------------------------------------------------------------------------------------- */

/* A device is a GPU that computes in place of the processor. A context computes on the processor at first. After
 * ith_context_use_device its plans compute on the device: q, k, v, o, lse and mask of ith_attn_tensors then lie in
 * memory that the device can address, such as memory of ith_device_allocate or of the GPU's own allocator; kv_lengths
 * and key_bias stay in the host's memory. Everything else is the same: strategies, ranks, masks, errors, cancellation.
 * Several ranks may share a device; a cancelled execution then ends within a second. On a device rows of other ranks
 * always arrive as messages (ITH_EXCHANGE_COPY), and messages are not compressed.
 *
 * Modules called ithaca_device_NAME.so serve devices (ith_module_list). The library itself links no library of a GPU.
 */

/* Makes the plans of a context, and of clones that are made later, compute on a device: "cpu", "cuda" (the first GPU)
 * or "cuda:N". Plans that exist stay where they are. ITH_ERR_ARGUMENT for another name, unless a module has it;
 * ITH_ERR_UNSUPPORTED if there is no module, no driver or no such device, or if driver or device are too old: the
 * sentence says which. A device stays open as long as the process. Loading a driver takes about a second. */
ITH_API ith_status ith_context_use_device(ith_context *context, const char *name);

typedef struct ith_device_info {
    size_t struct_size;
    char name[32];                    /* "cpu", "cuda:0", ... */
    char description[64];             /* the maker's name, such as "NVIDIA H100 80GB HBM3"; "" for the processor */
    int64_t capability;               /* CUDA's compute capability times 10, such as 90; 0 for the processor */
    int64_t processors;               /* streaming multiprocessors; 0 for the processor */
    int64_t memory_bytes, free_bytes; /* memory of the device, and how much of it is free; 0 for the processor */
} ith_device_info;
#define ITH_DEVICE_INFO_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(ith_device_info), {0}, {0}, 0, 0, 0, 0                                                                  \
    }
/* Tells on which device the context computes. */
ITH_API ith_status ith_device_describe(ith_context *context, ith_device_info *info);

/* Takes memory of the context's device, aligned to 256 bytes; on the processor, memory of the context's allocator,
 * aligned to 64 bytes. ITH_ERR_MEMORY if there is too little; the sentence says how much is free. ith_device_release
 * accepts NULL, and is called with the context, or another one that uses the same device. */
ITH_API ith_status ith_device_allocate(ith_context *context, int64_t bytes, void **out);
ITH_API void ith_device_release(ith_context *context, void *pointer);
/* Copies bytes between memories of the host and of the context's device, in any direction, and returns when they are
 * copied. Executions of plans that have returned are complete before the copy begins. The copy does not wait for work
 * in streams of the caller. */
ITH_API ith_status ith_device_copy(ith_context *context, void *target, const void *source, int64_t bytes);

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

/* A communicator: one rank's view of a group of ranks. Calls on it are collective: every rank makes the same calls in
 * the same order, one after the other.
 *
 * ith_plan_create and ith_plan_execute first compare the calls of all ranks, before anything is computed, sent or
 * written. If ranks are in calls on different plans, or one of them refuses its arguments or was cancelled, the call
 * returns on all ranks with the same status and a sentence that names the rank: by its number in the whole group, in
 * plans of a sub-group (ith_comm_split) too, and with its host if the ranks run on several. The group and its plans
 * then work as before. A failure after that ends the group: a rank that left or gave no sign of life, ith_comm_abort,
 * or ranks whose calls do not belong together. The sentence says so; all later calls fail in the same way, and the
 * communicators and plans must be made anew. */
typedef struct ith_comm ith_comm;

ITH_API int ith_comm_rank(const ith_comm *comm); /* this rank's number, 0 .. size-1; 0 for NULL */
ITH_API int ith_comm_size(const ith_comm *comm); /* the number of ranks; 1 for NULL */

/* Computes the share of `length` items that falls to `rank` of `ranks`. Shares are contiguous and in the order of
 * ranks; their sizes differ by at most one, and the longer shares come first. Sequences and heads are divided by this
 * rule everywhere. For a negative length, and for a rank that is not from 0 to ranks - 1, *begin and *count become 0.
 * If begin or count is NULL, nothing is written. */
ITH_API void ith_share(int64_t length, int ranks, int rank, int64_t *begin, int64_t *count);

/* The number of processors that this thread may use, at least 1. The system may let the thread run on some processors
 * only. A control group may limit the process to the time of fewer processors, as in a container that was started with
 * "docker run --cpus 4". This limit is rounded up, and is read once. May be called from any thread. */
ITH_API int ith_processor_count(void);

/* The function that each rank runs. If it returns a failure, the whole group ends; so it does if the function returns
 * while another rank still waits for this one. No rank waits for ever. A number that is no ith_status counts as
 * ITH_ERR_ABORTED. context and comm belong to the run, which destroys them; a plan that is made with them may outlive
 * it, and can then only be destroyed. */
typedef ith_status (*ith_rank_fn)(ith_context *context, ith_comm *comm, void *user);

/* Runs fn as `ranks` ranks. Each has its own thread, a context cloned from `context`, and an OpenMP team with its
 * share of `threads`, at least one thread (threads 0: as many as OpenMP would use here, which is all cores unless the
 * user limits it). Returns when all ranks have ended: ITH_OK if all returned it, otherwise the status of the rank that
 * failed first, whose sentence is then in `context`. ITH_ERR_ARGUMENT for more ranks or threads than the process may
 * have: the limit of the system, and at most 64 for each processor (or 1,024 in all, if that is more). */
ITH_API ith_status ith_run_ranks(ith_context *context, int ranks, int threads, ith_rank_fn fn, void *user);

/* Makes a group as ith_run_ranks does, for threads of your own. comms[i] is the communicator of rank i and is used with
 * contexts[i]; no two contexts are the same. On failure the sentence is in contexts[0] (in ith_context_error(NULL) if
 * there is none), and the comms are NULL. ITH_ERR_ARGUMENT for less than one rank, and for more ranks than the process
 * may have threads (see ith_run_ranks): comms is then left unchanged. */
ITH_API ith_status ith_comm_create_local(ith_context *const *contexts, int ranks, ith_comm **comms);
/* Ends the group. On every rank the call under way ends within a tenth of a second, and every later call fails, with
 * `status` and the sentence that this rank's context holds. A number that is no failure counts as ITH_ERR_ABORTED. If a
 * group is ended more than once, the first time counts. May be called from any thread while another thread is in a call
 * on the communicator. NULL does nothing.
 *
 * A rank in an execution with ITH_EXCHANGE_IN_PLACE or MIXED returns only when the other ranks of its process no longer
 * use its memory. So a rank that is stuck there, for example in an ith_parallel_fn of yours, holds them. With
 * ITH_EXCHANGE_COPY it does not. */
ITH_API void ith_comm_abort(ith_comm *comm, ith_status status);
/* Sets the time limit of waits. If another rank gives no sign of life for this many seconds, a wait for it ends the
 * group with ITH_ERR_TIMEOUT; 0 or less waits for ever. The limit is 600 at first. A rank gives signs of life in calls
 * on this communicator, on its sub-groups, and on plans and pipelines of them; other calls of the library give none. */
ITH_API void ith_comm_set_timeout(ith_comm *comm, double seconds);
/* Gives a sign of life: the time limit of waits for this rank begins anew. A rank calls this if it does something else
 * for long while others wait for it; the calls that ith_comm_set_timeout names give signs of life themselves. May be
 * called from any thread. comm may be NULL. */
ITH_API void ith_comm_alive(ith_comm *comm);
/* Writes the flight records of the ranks that have worked with this context and its clones, as JSON lines: one line of
 * the process (library, host, pid, the time of this call); then for each rank one line (place, the computation under
 * way, the last sign of life, the failure of its group) and one line for each of its last 256 operations, oldest first
 * (number and group, name, bytes that it sends and receives, peers, times, and whether it is done). Exchange `number`
 * of a `group` is the same on all its ranks, so that records of several ranks can be compared. Times are seconds since
 * 1970, by the clock of the host. A group's records are kept until the next group is made, so this may be called after
 * a failure, when the ranks are gone. May be called from any thread. The file is written beside `path` and then
 * renamed. ITH_ERR_IO if it cannot be written. */
ITH_API ith_status ith_flight_save(ith_context *context, const char *path);
/* Leaves the group. May be called from any thread while another thread is in a call on the communicator: the call ends
 * with an error, and the rank leaves then. Ranks that wait for this rank, now or later, get ITH_ERR_ABORTED. Plans made
 * with the communicator can only be destroyed. */
ITH_API void ith_comm_destroy(ith_comm **comm);

/* ---- Attention ------------------------------------------------------------------------------------------------- */

/* The kinds of masks, which hide keys from some queries. */
typedef enum ith_mask {
    ITH_MASK_NONE = 0,
    ITH_MASK_BOOL,    /* uint8_t; not 0: the query attends to the key */
    ITH_MASK_ADDITIVE /* float, added to the scaled logit; -INFINITY hides the key from the query */
} ith_mask;

/* The whole attention to be computed. A rank holds its ith_share of q_len and kv_len. */
typedef struct ith_attn_problem {
    size_t struct_size;
    int64_t batch;       /* B, the number of batch entries, 1 or more */
    int64_t heads;       /* H, the number of heads of q and o, 1 or more */
    int64_t kv_heads;    /* Hkv, the number of heads of k and v; divides H (grouped queries); 0: H */
    int64_t head_dim;    /* D, the size of a head, 1 to 65536 */
    int64_t q_len;       /* Sq, the number of queries, 0 or more; ranks may be without any */
    int64_t kv_len;      /* Skv, the number of keys, 0 or more */
    ith_dtype dtype;     /* type of q, k, v and o */
    float scale;         /* factor of the logits, from -2.35e38 to 2.35e38; 0: 1/sqrt(D) */
    bool has_kv_lengths; /* ith_attn_tensors.kv_lengths will be given */
    bool has_key_bias;   /* ith_attn_tensors.key_bias will be given */
    ith_mask mask;       /* the kind of ith_attn_tensors.mask, if one will be given */
    int64_t mask_batch;  /* batch entries of the mask, 1 or B; 0: 1 */
    int64_t mask_heads;  /* heads of the mask, 1 or H; 0: 1 */
    bool replicated_kv;  /* every rank holds all of k and v (cross attention): only queries are divided, and nothing is
                            sent (with fixed_m, a few norms). The plan's strategy is then SINGLE on every rank */
    /* Strides of this rank's tensors: elements from one row of the sequence to the next, and from one batch entry to
     * the next. 0: this rank's share is contiguous, [B, S share, H, D]. If a batch of several entries lies whole in one
     * tensor, of which a rank's share is a part, set the batch strides to the elements of a whole entry. Heads are
     * always contiguous, [H, D]; see ith_attn_tensors for [B, H, S, D]. */
    int64_t q_row_stride, q_batch_stride;
    int64_t k_row_stride, k_batch_stride;
    int64_t v_row_stride, v_batch_stride;
    int64_t o_row_stride, o_batch_stride;
} ith_attn_problem;
#define ITH_ATTN_PROBLEM_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(ith_attn_problem), 1, 0, 0, 0, 0, 0, ITH_F32, 0, false, false, ITH_MASK_NONE, 0, 0, false, 0, 0, 0, 0,  \
            0, 0, 0, 0                                                                                                 \
    }

/* A choice between on and off that may be left to the library. */
typedef enum ith_choice { ITH_CHOICE_AUTO = 0, ITH_CHOICE_ON, ITH_CHOICE_OFF } ith_choice;
/* The name of a choice: "auto", "on" or "off"; "unknown" for any other number. */
ITH_API const char *ith_choice_name(ith_choice choice);

/* The division of the work among ranks. AUTO: the library chooses. */
typedef enum ith_strategy {
    ITH_STRATEGY_AUTO = 0,
    ITH_STRATEGY_SINGLE,      /* one rank */
    ITH_STRATEGY_ULYSSES,     /* all-to-all: sequence shards for head shards and back (arXiv:2309.14509) */
    ITH_STRATEGY_RING,        /* keys and values travel round the ranks (arXiv:2310.01889) */
    ITH_STRATEGY_ULYSSES_RING /* ulysses within groups of ranks, ring between groups (arXiv:2405.07719) */
} ith_strategy;
/* The name of a strategy: "ulysses", ...; "unknown" for any other number. */
ITH_API const char *ith_strategy_name(ith_strategy strategy);

/* The softmax, by the offset that is subtracted from a row's logits. AUTO: the library chooses. */
typedef enum ith_softmax {
    ITH_SOFTMAX_AUTO = 0,
    ITH_SOFTMAX_ONLINE, /* the running maximum of the row (arXiv:1805.02867) */
    ITH_SOFTMAX_FIXED_M /* a bound of the row's logits, from norms of q and k (maxdiffusion #436); heads whose norms are
                           too large for it, and heads with an additive bias or mask, use ONLINE in the same call */
} ith_softmax;
/* The name of a softmax: "auto", "online" or "fixed_m"; "unknown" for any other number. */
ITH_API const char *ith_softmax_name(ith_softmax softmax);

/* The direction in which keys and values travel along a ring. */
typedef enum ith_direction {
    ITH_DIRECTION_AUTO = 0,
    ITH_DIRECTION_UNI,  /* around the ring: every shard passes every rank, the last rank sends to the first */
    ITH_DIRECTION_BIDIR /* both ways along a line, without a hop from its end to its beginning (maxdiffusion #430) */
} ith_direction;
/* The name of a direction: "auto", "uni" or "bidir"; "unknown" for any other number. */
ITH_API const char *ith_direction_name(ith_direction direction);

/* How a rank gets the rows that other ranks hold. */
typedef enum ith_exchange_mode {
    ITH_EXCHANGE_AUTO = 0,
    ITH_EXCHANGE_IN_PLACE, /* ranks of one process read and write one another's tensors where they lie */
    ITH_EXCHANGE_COPY,     /* ranks send messages, which arrive in buffers of the plan */
    ITH_EXCHANGE_MIXED /* the ranks of each ulysses axis, threads of one process, use one another's tensors where they
                          lie; keys and values travel along the ring as messages. A mesh with one axis is not mixed:
                          ulysses then gets IN_PLACE, and a ring COPY */
} ith_exchange_mode;
/* The name of an exchange: "auto", "in_place", "copy" or "mixed"; "unknown" for any other number. */
ITH_API const char *ith_exchange_mode_name(ith_exchange_mode mode);

/* Rounding of messages, for slow links. It changes results: ith_plan_counters.compression_error says how much is lost.
 * Rows that stay on a rank, rows that are used in place, and lse are never rounded. */
typedef enum ith_compress {
    ITH_COMPRESS_OFF = 0,
    ITH_COMPRESS_BF16, /* q, k, v and o of f32 travel as bf16 */
    ITH_COMPRESS_8BIT  /* v travels as 8 bits with a scale for each row and head; q, k and o of f32 as bf16. k and q are
                          kept finer, because the softmax enlarges their errors */
} ith_compress;
/* The name of a compression: "off", "bf16" or "8bit"; "unknown" for any other number. */
ITH_API const char *ith_compress_name(ith_compress compress);

/* The effort that planning spends on finding the fastest kernel, like the effort of FFTW's planner. */
typedef enum ith_effort {
    ITH_EFFORT_ESTIMATE = 0, /* wisdom if there is any, otherwise a fixed rule: nothing is timed */
    ITH_EFFORT_MEASURE       /* wisdom if there is any, otherwise kernels are timed, and the answer becomes wisdom. If
                                only one kernel is possible, nothing is timed, as with ESTIMATE */
} ith_effort;
/* The name of an effort: "estimate" or "measure"; "unknown" for any other number. */
ITH_API const char *ith_effort_name(ith_effort effort);

/* The choices of a plan. 0 or NULL in a field leaves the choice to the library. */
typedef struct ith_attn_options {
    size_t struct_size;
    ith_strategy strategy;
    int ulysses, ring; /* the mesh, ulysses * ring = ranks; rank = ring index * ulysses + ulysses index */
    ith_direction direction;
    int chunks; /* parts of the heads that are exchanged one after the other, so that the exchange of one chunk hides
                   behind the computing of another (maxdiffusion #428); 0: the library chooses; too large a number is
                   lowered */
    ith_choice fold; /* exchange batch * heads as one list (the default), or the entries of a batch one by one */
    ith_softmax softmax;
    ith_choice smooth; /* fixed_m subtracts the mean key first (the default), so that fewer heads go online;
                          off: cheaper */
    ith_exchange_mode exchange;
    int threads; /* threads of this rank; 0: as many as OpenMP would use in the calling thread now. Their number does
                    not change the bits of a result, and may differ between ranks */
    ith_effort effort;
    const char *kernel; /* a name from ith_kernel_list; NULL: the fastest, by `effort` (see Wisdom) */
    /* Sizes of the loops, from the outermost level of memory to the registers; 0: the library chooses. A kernel takes
     * multiples of its step, and no tile of keys is longer than the tile around it. The tiles of keys change
     * the bits of a result, block_q does not. */
    int64_t block_q;             /* queries that are computed together */
    int64_t block_kv;            /* keys that a block of queries attends to before the next block */
    int64_t block_kv_compute;    /* keys whose logits are held at a time */
    int64_t block_kv_compute_in; /* keys of a tile in registers */
    ith_compress compress;       /* in force only where messages are sent; BF16 is refused for other tensors than f32 */
    /* Where ranks run, for ith_plan_predict; ith_plan_create asks the communicator. Every process_ranks consecutive
     * ranks, counted from rank 0, share memory, and every host_ranks run on one host. Both divide the number of ranks,
     * and process_ranks divides host_ranks. host_ranks 0: all ranks run on one host. process_ranks 0: shared_memory of
     * ith_plan_predict says whether the ranks of a host share memory. */
    int64_t process_ranks, host_ranks;
    /* An ith_choice. AUTO and ON: messages travel while ranks compute. OFF: every exchange ends before the rank goes
     * on, so that nothing is hidden; for comparison. The bits are the same. In force only where messages are sent. */
    int64_t overlap;
} ith_attn_options;
#define ITH_ATTN_OPTIONS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(ith_attn_options), ITH_STRATEGY_AUTO, 0, 0, ITH_DIRECTION_AUTO, 0, ITH_CHOICE_AUTO, ITH_SOFTMAX_AUTO,   \
            ITH_CHOICE_AUTO, ITH_EXCHANGE_AUTO, 0, ITH_EFFORT_ESTIMATE, NULL, 0, 0, 0, 0, ITH_COMPRESS_OFF, 0, 0,      \
            ITH_CHOICE_AUTO                                                                                            \
    }

/* Sets options->strategy by a name, and also direction and softmax if the name tells them: "auto", "single", "ulysses",
 * "ring", "ulysses_ring", each with or without "_bidir" (if there can be a ring) and "_fixed_m" at its end; or a name
 * of maxdiffusion (dot_product, flash, ulysses_custom_fixed_m, ulysses_ring_custom_bidir, tokamax_ring_custom, ...).
 * All other fields stay as they are. ITH_ERR_ARGUMENT for any other name, and nothing is set. */
ITH_API ith_status ith_strategy_parse(ith_context *context, const char *name, ith_attn_options *options);

typedef struct ith_plan ith_plan;

/* Makes a plan: resolves every choice, checks that it is legal, and allocates all memory that execution needs. options
 * may be NULL: the library chooses everything. Collective over comm (NULL: one rank): all ranks succeed, or all fail
 * with the same status and sentence, and the group works as before. Only a context of NULL ends the group. The ranks
 * must agree in everything except strides and threads. ITH_ERR_ARGUMENT names the rule that was broken and the nearest
 * choice that is legal; ITH_ERR_UNSUPPORTED names the ability that this machine lacks. */
ITH_API ith_status ith_plan_create(ith_context *context, const ith_attn_problem *problem,
                                   const ith_attn_options *options, ith_comm *comm, ith_plan **out);

/* The tensors of one rank: q [B, Sq share, H, D], k and v [B, Skv share, Hkv, D] (all of Skv if replicated_kv), o in
 * the shape of q. Neither o nor lse may overlap another tensor of this rank, or of another rank in the same process,
 * except that o may be this rank's q: with the same address and the same strides, o overwrites q. q, k, v and o may lie
 * in one buffer, each in its own columns: their row strides are then equal, and their batch strides are multiples of
 * the row stride. The ranks' tensors may be parts of larger ones. All are aligned to their elements; a tensor of which
 * this rank has no rows may be NULL. |v| times the number of keys must stay below 3e38: beyond it, o may be infinite.
 *
 * Tensors [B, H, S, D], heads before rows: describe them as batch = B * H entries of one head each (heads = kv_heads =
 * 1, lse is [B * H, 1, Sq share]). k and v must then have as many heads as q. Repeat each length in kv_lengths, and the
 * key_bias of each entry, for its H heads. A mask [1, 1, Sq, Skv] and a mask [B, H, Sq, Skv] stay as they are, the
 * second one with mask_batch = B * H and mask_heads = 1; repeat any other mask to one of the two. */
typedef struct ith_attn_tensors {
    size_t struct_size;
    const void *q, *k, *v;
    void *o;
    float *lse; /* [B, H, Sq share], the natural logarithm of the sum of exponentials. NULL: not computed; it is NULL on
                   every rank or on none */
    /* kv_lengths, key_bias and mask cover the whole sequence and are the same on every rank. */
    const int32_t *kv_lengths; /* [B], each 0..Skv: keys from this number on are masked, and their k and v may be
                                * anything. Only with has_kv_lengths */
    /* [B, Skv]: added to the scaled logits of a key; -INFINITY masks the key, whose k and v may then be anything.
     * Finite numbers beyond +-2.35e38 count as +-2.35e38. NaN and +INFINITY make o and lse NaN in the rows that attend
     * to the key, and change nothing in others; on a device lse may also be +INFINITY there. Only with has_key_bias */
    const float *key_bias;
    /* [mask_batch, mask_heads, Sq, Skv]. Only if the problem has a mask. Even keys that it hides must be finite. In
     * ITH_MASK_ADDITIVE, finite numbers beyond +-2.35e38, NaN and +INFINITY count as in key_bias. A scaled logit with
     * its key_bias and mask must not exceed 2.35e38; it may be as low as you like */
    const void *mask;
    /* On a device: the caller's stream, a cudaStream_t. The execution begins when the work that the stream has now has
     * ended. NULL: the device's default stream. Not used on the processor. */
    void *stream;
} ith_attn_tensors;
#define ITH_ATTN_TENSORS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(ith_attn_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                 \
    }

/* Computes o and lse of this rank's queries. Collective. Allocates nothing. A row with no key to attend to gives o = 0
 * and lse = -INFINITY. The same inputs give the same bits on every run, and ulysses the same bits as single. Without
 * compression the error of o (relative L2) is at most twice the error of the plain computation: logits and sums in f32,
 * probabilities rounded to the tensors' type before they are multiplied by v.
 *
 * ITH_ERR_ARGUMENT on all ranks, with nothing written: a tensor that is missing, misaligned, overlapping or not the
 * same on every rank where it must be (the sentence names the tensor and the rank); or ranks that execute different
 * plans of their communicator. ITH_ERR_ARGUMENT on this rank alone: the plan, or another call on its communicator, is
 * under way in another thread; or the communicator was destroyed. ITH_ERR_INTERRUPTED on all ranks: ith_plan_cancel was
 * called. Other failures end the group (see Ranks). */
ITH_API ith_status ith_plan_execute(ith_plan *plan, const ith_attn_tensors *tensors);

/* Cancels the plan's execution that is under way. If none is under way, or if it has just ended, the next execution is
 * cancelled. Once every rank is in its call of ith_plan_execute, the execution ends within a tenth of a second on all
 * ranks, with ITH_ERR_INTERRUPTED and a sentence that names the cancelled rank. Before that, a rank goes on waiting for
 * the others. The contents of o and lse are then undefined; the group and the plan work as before. May be called from
 * any thread, and from a signal handler. NULL does nothing. The plan must not be destroyed meanwhile. */
ITH_API void ith_plan_cancel(ith_plan *plan);

/* How the kernel of a plan was chosen. */
typedef enum ith_kernel_origin {
    ITH_KERNEL_NAMED = 0, /* ith_attn_options.kernel names it */
    ITH_KERNEL_ESTIMATED, /* by the fixed rule of ITH_EFFORT_ESTIMATE */
    ITH_KERNEL_RECALLED,  /* by wisdom, which knew the fastest */
    ITH_KERNEL_MEASURED   /* kernels were timed while this plan was created */
} ith_kernel_origin;
/* The name of an origin: "named", "estimate", "wisdom" or "measured"; "unknown" for any other number. */
ITH_API const char *ith_kernel_origin_name(ith_kernel_origin origin);

/* The choices of a plan, and its predicted cost for this rank. */
typedef struct ith_plan_info {
    size_t struct_size;
    ith_strategy strategy;
    int ranks, ulysses, ring;
    ith_direction direction;
    int chunks;  /* number of chunks over the whole batch */
    bool folded; /* false: the entries of the batch are exchanged one by one; true where heads are not exchanged */
    ith_softmax softmax;
    bool smoothed;              /* the mean key is subtracted; false unless the softmax is fixed_m */
    ith_exchange_mode exchange; /* IN_PLACE, COPY or MIXED; AUTO where nothing is exchanged */
    const char *kernel;         /* name of the kernel; valid as long as the plan */
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in; /* sizes of the loops, as in ith_attn_options */
    int threads;
    ith_kernel_origin kernel_origin;
    int64_t sent_bytes;   /* bytes sent to other ranks in one execution, without lse and the norms of fixed_m */
    int64_t memory_bytes; /* bytes that the plan holds from its creation on; docs/attention.md has the formula */
    int64_t compress;     /* the ith_compress that is in force; OFF where no messages are sent */
    int64_t unhidden;     /* 1: every exchange ends before the rank goes on (ith_attn_options.overlap); otherwise 0 */
    int64_t device_bytes; /* bytes that the plan holds in the memory of the context's device; 0 on the processor */
} ith_plan_info;
#define ITH_PLAN_INFO_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_plan_info), ITH_STRATEGY_AUTO, 0, 0, 0, ITH_DIRECTION_AUTO, 0, false, ITH_SOFTMAX_AUTO, false,      \
            ITH_EXCHANGE_AUTO, NULL, 0, 0, 0, 0, 0, ITH_KERNEL_NAMED, 0, 0, 0, 0, 0                                    \
    }
/* Fills in the choices of a plan and its predicted cost for this rank. */
ITH_API ith_status ith_plan_describe(const ith_plan *plan, ith_plan_info *info);

/* Predicts the plan that ith_plan_create would make for rank `rank` of `ranks`. shared_memory: whether the ranks of a
 * host share memory; options->process_ranks and host_ranks may say more about where they run. Set options->threads to
 * the threads that the rank will have: 0 means as many as OpenMP would use in the calling thread now, but each rank of
 * ith_run_ranks has a share of these threads. The number of threads changes memory_bytes. Nothing is allocated for
 * execution, nothing is sent, and nothing is measured: with ITH_EFFORT_MEASURE too, a kernel that wisdom does not know
 * is estimated. info->kernel is valid as long as the process. Returns the same errors as ith_plan_create. */
ITH_API ith_status ith_plan_predict(ith_context *context, const ith_attn_problem *problem,
                                    const ith_attn_options *options, int ranks, int rank, bool shared_memory,
                                    ith_plan_info *info);

/* Counts and times of a plan on this rank since the plan was created. */
typedef struct ith_plan_counters {
    size_t struct_size;
    int64_t executions;
    int64_t sent_bytes; /* bytes sent to other ranks, without lse and the norms of fixed_m. For exchanges in place:
                           bytes that other ranks read from this rank's memory (no keys beyond kv_lengths), and bytes
                           that this rank writes into their memory */
    int64_t fixed_m_heads, online_heads; /* query heads that were computed with each softmax */
    double seconds;                      /* time in ith_plan_execute */
    double exchange_seconds;             /* time in which keys, values, queries or outputs were exchanged */
    double waiting_seconds;              /* part of exchange_seconds that was not hidden behind computing */
    /* The relative L2 error that compression has caused, |x - x'| / |x|, over all numbers x that this rank has sent and
     * that arrive as x'; 0 without compression */
    double compression_error;
} ith_plan_counters;
#define ITH_PLAN_COUNTERS_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(ith_plan_counters), 0, 0, 0, 0, 0, 0, 0, 0                                                              \
    }
/* Fills in the counts and times of a plan on this rank. */
ITH_API ith_status ith_plan_count(const ith_plan *plan, ith_plan_counters *counters);

/* Writes the plan's choices to text as lines, cut to text_bytes (512 suffice); "" if plan is NULL. Returns text, which
 * may be NULL. */
ITH_API const char *ith_plan_print(const ith_plan *plan, char *text, size_t text_bytes);
/* Frees a plan. May be called from any thread while another thread executes the plan, which is then freed when that
 * execution ends. */
ITH_API void ith_plan_destroy(ith_plan **plan);

/* Lists the kernels of attention: returns the name of kernel number `index`, 0, 1, ..., and NULL behind the last.
 * *usable becomes true if this context may run the kernel, and false for a context of NULL. usable may be NULL. Names
 * are valid as long as the process. */
ITH_API const char *ith_kernel_list(const ith_context *context, int index, bool *usable);
/* Lists the kernels of the matrix products of linear layers and convolutions, in the same way. For each number type the
 * first usable kernel in the list is used. */
ITH_API const char *ith_product_list(const ith_context *context, int index, bool *usable);

/* Lists the shared modules that were found: returns the path of module number `index`, 0, 1, ..., and NULL behind the
 * last. Modules are files with the names ithaca_kernel_NAME.so, which hold kernels, ithaca_transport_NAME.so, which
 * hold transports (ithaca/transport.h), and ithaca_device_NAME.so, which serve devices (ith_context_use_device). They
 * are looked for in the folder that the environment variable ITHACA_PLUGIN_PATH names (empty: nowhere); without the
 * variable, in ithaca/ beside the library and beside the library itself. *refusal becomes the reason why the module
 * cannot be used, or "" if it can. refusal may be NULL. Both strings are valid as long as the process. May be called
 * from any thread. */
ITH_API const char *ith_module_list(int index, const char **refusal);

/* ---- Wisdom ---------------------------------------------------------------------------------------------------- */

/* Wisdom is a text with results of measurements on this machine: for a type, a head size and a softmax the rates of
 * kernels; for a kernel and a number of keys its fastest tiles; for a problem on some ranks the fastest strategy, mesh,
 * direction and number of chunks. Rates and strategies that were measured on the processor count on the processor only;
 * rates and strategies that were measured on a device count on devices of the same model only. Kernels of devices have
 * tiles of their own, about which there is no wisdom. A context and its clones share wisdom, and rank 0's wisdom
 * decides for all ranks.
 *
 * A plan asks wisdom for the choices that its options leave open: for the kernel if they name none, for the tiles if
 * they set none of the four, and for the strategy if they leave strategy, mesh, direction, chunks, fold, exchange and
 * overlap open and compress nothing. If wisdom does not know the problem, fixed rules decide. For the kernel this is
 * ITH_EFFORT_ESTIMATE: a rule takes a kernel that every rank's machine runs; docs/attention.md has the rule and the
 * measurements on which it rests. With ITH_EFFORT_MEASURE the kernels are timed instead, which takes milliseconds, and
 * the result becomes wisdom. Tiles and strategies become wisdom by the functions of ithaca/tune.h only. A context and a
 * file hold 256 results: a further one replaces the oldest.
 *
 * So the same calls give the same bits, run after run, as long as nothing is measured and no wisdom is loaded. The bits
 * of a result are a function of the printed plan. A program that measures, and wants the same bits later, keeps its
 * wisdom, or names its kernel, tiles and strategy. */

/* Adds the wisdom of a file, which replaces earlier wisdom about the same subject. Kernels are known by name; a name
 * that this library does not have is kept and not used. A file changes nothing and gives ITH_ERR_FORMAT, with the line,
 * if it is not wisdom or is damaged (its last line is a checksum), if it has tiles that are illegal for their kernel,
 * or if another version of the library or another machine (processor or instruction sets) wrote it. ITH_ERR_IO if the
 * file cannot be read. */
ITH_API ith_status ith_wisdom_load(ith_context *context, const char *path);
/* Adds all wisdom to a file, which holds 256 results: further ones replace the oldest. A result that this process
 * measured replaces the file's result on the same subject; a result that it only loaded does not. The file is written
 * anew beside `path` and renamed, while the file `path`.lock is locked: processes that save to one file at the same
 * time lose nothing. The empty file `path`.lock stays. A file of another machine or version is replaced. ITH_ERR_FORMAT
 * with the line if the file is damaged or is no wisdom: it stays as it is. ITH_ERR_IO if the system refuses to read or
 * write. ITH_ERR_TIMEOUT if another process holds the lock for ten seconds. */
ITH_API ith_status ith_wisdom_save(ith_context *context, const char *path);

/* ---- Peaks ----------------------------------------------------------------------------------------------------- */

/* The highest measured rate of some instructions of this machine. */
typedef struct ith_peak {
    size_t struct_size;
    char name[64]; /* name of the instructions; "" if there are none */
    double gflops; /* 10^9 operations a second, of all threads together */
} ith_peak;
#define ITH_PEAK_INIT                                                                                                  \
    {                                                                                                                  \
        sizeof(ith_peak), {0}, 0                                                                                       \
    }

/* Measures the peak of instruction set number `index` in the list of the sets that the context may use, on `threads`
 * threads at once (0: 1) for about `seconds` (0 to 3600). index is 0, 1, ...; behind the last set the name is "". */
ITH_API ith_status ith_peak_rate(ith_context *context, int index, int threads, double seconds, ith_peak *peak);
/* Measures the peak of the instructions with which a kernel multiplies: the rate of attention if the kernel did nothing
 * else. The name is "f32_avx512" for example; "bf16_amx/6" if six products of bf16 make one of f32;
 * "f32_avx512+f16_avx512fp16" if logits and outputs use different instructions. For a kernel of the context's device,
 * the peak is the rate of large matrix products there, of the type that the kernel multiplies, such as "bf16 products
 * on cuda:0"; `threads` does not matter. ITH_ERR_ARGUMENT for an unknown name, ITH_ERR_UNSUPPORTED for a kernel that
 * does not run here, and for a device without matrix products. */
ITH_API ith_status ith_kernel_peak(ith_context *context, const char *name, int threads, double seconds, ith_peak *peak);

/* ---- Trace ----------------------------------------------------------------------------------------------------- */

/* Starts to record up to `events` spans (computing, exchanges, waits) of everything that is done with this context and
 * its clones; further spans are counted but lost. Spans that were recorded before are dropped. 0 events ends the
 * recording. Recording allocates nothing. No rank may be computing during this call. ITH_ERR_MEMORY if there is no
 * memory for the spans. */
ITH_API ith_status ith_trace_start(ith_context *context, int64_t events);
/* Writes the recorded spans as a Chrome / Perfetto trace (JSON). Each rank has rows for computing, waiting and
 * exchanges, and a counter of the share of the exchanges that was hidden behind computing. The file is written beside
 * `path` and then renamed. No rank may be computing during this call. ITH_ERR_ARGUMENT if nothing is recorded,
 * ITH_ERR_IO if the file cannot be written. */
ITH_API ith_status ith_trace_save(ith_context *context, const char *path);

/* One trace of several processes, in one file with one clock, the clock of rank 0's process:
 *
 *     each process  ith_trace_start
 *     every rank    ith_trace_align when the run begins, ith_trace_gather when it ends
 *     rank 0        ith_trace_save: the spans of all processes
 *
 * If the run fails, ith_trace_gather cannot be called. Each process then saves its own spans in a separate file, with
 * times as ith_trace_align has corrected them.
 *
 * Both functions are collective. ith_trace_align compares the clock of each process with rank 0's by messages to and
 * fro; the file says how far the times of each process may be wrong. ith_trace_gather compares the clocks again,
 * spreads the difference between the two comparisons evenly over the time between them, and sends all spans to rank 0's
 * process. Ranks of one process need neither. ITH_ERR_ARGUMENT if rank 0 records no trace, ITH_ERR_MEMORY, or the
 * failure of the group. comm may be NULL. */
ITH_API ith_status ith_trace_align(ith_comm *comm);
ITH_API ith_status ith_trace_gather(ith_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
