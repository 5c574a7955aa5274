/* SPDX-License-Identifier: Apache-2.0 */
/* The context: allocator, log, last error, and the state that a family of contexts (a root and its clones) shares.
 *
 * Contexts are counted by reference. The caller holds one reference, each object that was made with the context holds
 * one, and each clone holds one on the root. So contexts and objects may be destroyed in any order. */
#include "context.h"

#include "control.h"
#include "cpu.h"
#include "lent_files.h"
#include "observer.h"
#include "size.h"
#include "sized.h"
#include "spin_lock.h"
#include "trace.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 64

/* Bytes that a context and all its clones hold now, and the most that they held at any time. */
typedef struct memory_count {
    atomic_int_fast64_t current_bytes, peak_bytes;
} memory_count;

/* The state that a context and all its clones share. It lies in the first context, the root. Memory of contexts and of
 * this state is not counted. */
typedef struct family {
    memory_count count;
    _Atomic(struct ith_trace *) trace;
    atomic_int interruptions;  /* requests to stop that were not withdrawn */
    pid_t process;             /* the process that created the root */
    atomic_long *team_process; /* team_process below, of the library that created the root */
    pthread_mutex_t wisdom_lock;
    void *wisdom; /* measured rates of kernels (ith_wisdom), protected by wisdom_lock; NULL: none yet */
    pthread_mutex_t flights_lock;
    ith_kept *flights;             /* records of ranks, protected by flights_lock */
    _Atomic(ith_lent_file *) lent; /* files that other processes have sent (lent_files.h); NULL: none */
} family;

struct ith_context {
    ith_allocator allocator;
    ith_log_fn log;
    void *log_user;
    ith_log_level log_level;
    ith_parallel_fn parallel;
    void *parallel_user;
    uint32_t cpu;                  /* the instruction sets that kernels may use, as bits of ith_cpu_feature */
    int rank;                      /* the rank's number in the trace */
    double connect_limit;          /* seconds; 0: none was set */
    struct ith_device_use *device; /* NULL: the processor */
    ith_observer *observer;
    ith_activity *activity;
    atomic_int holders;  /* number of references; the last release frees the context */
    atomic_flag writing; /* set while a thread writes to `error` */
    /* the first context, from which this one is cloned directly or indirectly; a context that is no clone points to
     * itself */
    ith_context *root;
    family *family;
    family own; /* the state that this context shares with its clones; used only if it is no clone */
    char error[ITH_ERROR_BYTES];
};

#define LARGE_PAGE_BYTES ((size_t)1 << 21)

/* Allocations of at least 2 MiB ask for huge pages. Attention reads all packed keys once for each block of queries, and
 * with small pages TLB misses would slow these reads. The system may ignore the request. */
static void *system_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    void *pointer = NULL;
    bool large = bytes >= LARGE_PAGE_BYTES && bytes <= SIZE_MAX - LARGE_PAGE_BYTES;
    if (large) {
        bytes = (bytes + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        alignment = alignment > LARGE_PAGE_BYTES ? alignment : LARGE_PAGE_BYTES;
    }
    if (posix_memalign(&pointer, alignment, bytes))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (large)
        madvise(pointer, bytes, MADV_HUGEPAGE);
#endif
    return pointer;
}

static void system_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

static const ith_allocator system_allocator = {sizeof(ith_allocator), system_allocate, system_release, NULL};

/* The process that has used a team of OpenMP's threads first; 0: none yet. libithaca creates all roots, so that
 * libithaca_wan, which has a variable of its own, knows of libithaca's teams. */
static atomic_long team_process;

static ith_context *context_new(const ith_allocator *allocator)
{
    ith_context *context = allocator->allocate(allocator->user, sizeof *context, ALIGNMENT);
    if (!context)
        return NULL;
    memset(context, 0, sizeof *context);
    context->allocator = *allocator;
    atomic_init(&context->holders, 1);
    atomic_flag_clear(&context->writing);
    return context;
}

static ith_status read_options(const ith_context_options *given, ith_context_options *options, ith_allocator *allocator)
{
    ith_status status =
        given ? ITH_SIZED_READ(NULL, ith_context_options, ITH_CONTEXT_OPTIONS_INIT, given, options) : ITH_OK;
    if (!status && (unsigned)options->log_level > ITH_LOG_DEBUG)
        status = ith_fail(NULL, ITH_ERR_ARGUMENT, "log_level %d is no ith_log_level", (int)options->log_level);
    if (status || !options->allocator)
        return status;
    *allocator = (ith_allocator)ITH_ALLOCATOR_INIT;
    status = ITH_SIZED_READ(NULL, ith_allocator, ITH_ALLOCATOR_INIT, options->allocator, allocator);
    if (!status && (!allocator->allocate || !allocator->release))
        status = ith_fail(NULL, ITH_ERR_ARGUMENT, "the ith_allocator has no function to %s",
                          allocator->allocate ? "release" : "allocate");
    return status;
}

ith_status ith_context_create(const ith_context_options *options, ith_context **out)
{
    if (!out)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    ith_context_options o = ITH_CONTEXT_OPTIONS_INIT;
    ith_allocator allocator = system_allocator;
    uint32_t allowed;
    char sentence[ITH_ERROR_BYTES];
    ith_status status = read_options(options, &o, &allocator);
    if (status)
        return status;
    if (!ith_cpu_limit(&allowed, sentence, sizeof sentence))
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "%s", sentence);
    ith_context *context = context_new(&allocator);
    if (!context)
        return ith_fail(NULL, ITH_ERR_MEMORY, "out of memory for a context");
    context->own.process = getpid();
    context->own.team_process = &team_process;
    context->root = context;
    context->own.wisdom_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->own.flights_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->family = &context->own;
    context->log = o.log;
    context->log_user = o.log_user;
    context->log_level = o.log_level;
    context->parallel = o.parallel;
    context->parallel_user = o.parallel_user;
    context->cpu = ith_cpu_detect(o.cpu_mask ? allowed & o.cpu_mask : allowed);
    *out = context;
    return ITH_OK;
}

ith_status ith_context_clone(ith_context *parent, ith_context **out)
{
    if (out)
        *out = NULL;
    if (!parent || !out)
        return ith_fail(parent, ITH_ERR_ARGUMENT, "%s is NULL", parent ? "out" : "parent");
    ith_context *context = context_new(&parent->allocator);
    if (!context)
        return ith_fail(parent, ITH_ERR_MEMORY, "out of memory for a rank's context");
    context->log = parent->log;
    context->log_user = parent->log_user;
    context->log_level = parent->log_level;
    context->parallel = parent->parallel;
    context->parallel_user = parent->parallel_user;
    context->cpu = parent->cpu;
    context->rank = parent->rank;
    context->connect_limit = parent->connect_limit;
    context->observer = parent->observer;
    context->device = parent->device;
    context->family = parent->family;
    context->root = ith_context_hold(parent->root);
    *out = context;
    return ITH_OK;
}

static void family_release(ith_context *root)
{
    ith_trace_drop(root, ith_context_set_trace(root, NULL));
    ith_context_drop(root, root->own.wisdom);
    for (ith_kept *kept = root->own.flights, *next; kept; kept = next) {
        next = kept->next;
        ith_context_drop(root, kept);
    }
    pthread_mutex_destroy(&root->own.flights_lock);
    pthread_mutex_destroy(&root->own.wisdom_lock);
    ith_lent_files_free(root, atomic_load(&root->own.lent));
}

ith_context *ith_context_hold(ith_context *context)
{
    atomic_fetch_add_explicit(&context->holders, 1, memory_order_relaxed);
    return context;
}

void ith_context_release(ith_context *context)
{
    if (atomic_fetch_sub(&context->holders, 1) > 1)
        return;
    ith_context *root = context->root;
    ith_allocator allocator = context->allocator;
    if (root == context)
        family_release(context);
    allocator.release(allocator.user, context);
    if (root != context)
        ith_context_release(root);
}

void ith_context_destroy(ith_context **context)
{
    if (!context || !*context)
        return;
    ith_context_release(*context);
    *context = NULL;
}

ith_status ith_context_check_process(ith_context *context)
{
    long long made = (long long)context->family->process, here = (long long)getpid();
    if (made == here)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "the context was made in process %lld and is used in its child %lld: threads do not survive a "
                    "fork; make contexts in the child, after exec or posix_spawn",
                    made, here);
}

long ith_context_note_team(const ith_context *context, long process)
{
    long noted = 0;
    return atomic_compare_exchange_strong(context->family->team_process, &noted, process) ? process : noted;
}

const char *ith_context_sentence(const ith_context *context)
{
    return context->error;
}

uint32_t ith_context_cpu(const ith_context *context)
{
    return context ? context->cpu : 0;
}

bool ith_context_is_family(const ith_context *context, const ith_context *other)
{
    return context->family == other->family;
}

int ith_context_rank(const ith_context *context)
{
    return context->rank;
}

void ith_context_set_rank(ith_context *context, int rank)
{
    context->rank = rank;
}

double ith_context_connect_limit(const ith_context *context)
{
    return context->connect_limit;
}

void ith_context_set_connect_limit(ith_context *context, double seconds)
{
    context->connect_limit = seconds;
}

ith_parallel_fn ith_context_parallel(const ith_context *context, void **user)
{
    *user = context->parallel_user;
    return context->parallel;
}

int64_t ith_context_bytes(const ith_context *context)
{
    return atomic_load(&context->family->count.current_bytes);
}

int64_t ith_context_peak_bytes(const ith_context *context)
{
    return atomic_load(&context->family->count.peak_bytes);
}

static void raise_peak(memory_count *count, int64_t bytes)
{
    int_fast64_t peak = atomic_load(&count->peak_bytes);
    while (bytes > peak && !atomic_compare_exchange_weak(&count->peak_bytes, &peak, bytes))
        ;
}

int64_t ith_context_restart_peak(ith_context *context)
{
    memory_count *count = &context->family->count;
    return atomic_exchange(&count->peak_bytes, atomic_load(&count->current_bytes));
}

void ith_context_raise_peak(ith_context *context, int64_t bytes)
{
    raise_peak(&context->family->count, bytes);
}

ith_status ith_context_memory(ith_context *context, ith_memory_use *use)
{
    if (!context)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "the context is NULL");
    const ith_memory_use now = {sizeof now, ith_context_bytes(context), ith_context_peak_bytes(context)};
    return ITH_SIZED_FILL(context, ith_memory_use, ITH_MEMORY_USE_INIT, use, &now);
}

/* The buffer for an error sentence: the context's or, without a context, the calling thread's. Only libithaca has a
 * buffer for threads (thread_sentence.c). */
static char *error_of(ith_context *context)
{
    return context ? context->error : (char *)ith_context_error(NULL);
}

/* Locks the error sentence of a context. Two threads may write it at once: a call that finds its plan in use by another
 * thread also records an error sentence. */
static void lock_error(ith_context *context)
{
    if (context)
        ith_spin_lock(&context->writing);
}

static void unlock_error(ith_context *context)
{
    if (context)
        ith_spin_unlock(&context->writing);
}

void ith_context_copy_sentence(ith_context *context, char sentence[ITH_ERROR_BYTES])
{
    lock_error(context);
    memcpy(sentence, error_of(context), ITH_ERROR_BYTES);
    unlock_error(context);
}

ith_status ith_fail(ith_context *context, ith_status status, const char *format, ...)
{
    /* the sentence is first written here, since an argument may point to the previous error sentence in the context */
    char sentence[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    ith_replace_controls(sentence); /* a path may have some */
    lock_error(context);
    memcpy(error_of(context), sentence, strlen(sentence) + 1);
    unlock_error(context);
    return status;
}

ith_status ith_need(ith_context *context, const void *pointer, const char *name)
{
    return pointer ? ITH_OK : ith_fail(context, ITH_ERR_ARGUMENT, "%s is NULL", name);
}

ith_status ith_fail_in(ith_context *context, ith_status status, const char *format, ...)
{
    char prefix[ITH_ERROR_BYTES], reason[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    lock_error(context);
    memcpy(reason, error_of(context), sizeof reason);
    unlock_error(context);
    int room = ITH_ERROR_BYTES - length - (int)sizeof ": ";
    if (length < 0 || room <= 0)
        return ith_fail(context, status, "%s", prefix);
    return ith_fail(context, status, "%s: %.*s", prefix, room, reason);
}

void ith_log(ith_context *context, ith_log_level level, const char *format, ...)
{
    if (!context->log || level > context->log_level)
        return;
    char line[ITH_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ith_replace_controls(line);
    context->log(context->log_user, level, line);
}

/* ---- State of the family --------------------------------------------------------------------------------------- */

void *ith_context_keep(ith_context *context, int64_t bytes, const char *what)
{
    void *block = NULL;
    if (bytes >= 0)
        block = context->allocator.allocate(context->allocator.user, (size_t)bytes, ALIGNMENT);
    if (!block) {
        ith_fail(context, ITH_ERR_MEMORY, "out of memory for %s: %.1f MiB asked for", what, (double)bytes / 1048576.0);
        return NULL;
    }
    return memset(block, 0, (size_t)bytes);
}

void ith_context_drop(ith_context *context, void *block)
{
    if (block)
        context->allocator.release(context->allocator.user, block);
}

struct ith_trace *ith_context_trace(const ith_context *context)
{
    return atomic_load_explicit(&context->family->trace, memory_order_acquire);
}

struct ith_trace *ith_context_set_trace(ith_context *context, struct ith_trace *trace)
{
    return atomic_exchange(&context->family->trace, trace);
}

void ith_context_interrupt(ith_context *context)
{
    atomic_fetch_add(&context->family->interruptions, 1);
}

void ith_context_end_interruption(ith_context *context)
{
    atomic_fetch_sub(&context->family->interruptions, 1);
}

bool ith_context_interrupted(const ith_context *context)
{
    return atomic_load_explicit(&context->family->interruptions, memory_order_relaxed) > 0 ||
           (context->observer && ith_observer_stops(context->observer));
}

ith_status ith_fail_interrupted(ith_context *context)
{
    return ith_fail(context, ITH_ERR_INTERRUPTED, "stopped on request");
}

ith_status ith_context_check(ith_context *context)
{
    return ith_context_interrupted(context) ? ith_fail_interrupted(context) : ITH_OK;
}

struct ith_device_use *ith_context_device_use(const ith_context *context)
{
    return context->device;
}

void ith_context_set_device_use(ith_context *context, struct ith_device_use *device)
{
    context->device = device;
}

ith_observer *ith_context_observer(const ith_context *context)
{
    return context->observer;
}

void ith_context_set_observer(ith_context *context, ith_observer *observer)
{
    context->observer = observer;
}

ith_activity *ith_context_activity(const ith_context *context)
{
    return context->activity;
}

void ith_context_set_activity(ith_context *context, ith_activity *activity)
{
    context->activity = activity;
}

ith_kept **ith_context_lock_flights(ith_context *context)
{
    pthread_mutex_lock(&context->family->flights_lock);
    return &context->family->flights;
}

void ith_context_unlock_flights(ith_context *context)
{
    pthread_mutex_unlock(&context->family->flights_lock);
}

_Atomic(ith_lent_file *) *ith_context_lent(const ith_context *context)
{
    return &context->family->lent;
}

void *ith_context_lock_wisdom(ith_context *context, int64_t bytes)
{
    family *shared = context->family;
    pthread_mutex_lock(&shared->wisdom_lock);
    if (!shared->wisdom)
        shared->wisdom = ith_context_keep(context, bytes, "wisdom");
    if (!shared->wisdom)
        pthread_mutex_unlock(&shared->wisdom_lock);
    return shared->wisdom;
}

void ith_context_unlock_wisdom(ith_context *context)
{
    pthread_mutex_unlock(&context->family->wisdom_lock);
}

/* ---- Memory: a block is preceded by one aligned header that holds its size ------------------------------------- */

static void count_add(memory_count *count, int64_t bytes)
{
    raise_peak(count, atomic_fetch_add(&count->current_bytes, bytes) + bytes);
}

void ith_context_count(ith_context *context, int64_t bytes)
{
    count_add(&context->family->count, bytes);
}

void *ith_alloc(ith_context *context, int64_t count, int64_t size_bytes, const char *what)
{
    int64_t bytes = 0, total = 0;
    if (!ith_size_mul(count, size_bytes, &bytes) || !ith_size_add(bytes, ITH_ALLOC_HEADER, &total)) {
        ith_fail(context, ITH_ERR_MEMORY, "%s: %lld times %lld bytes is more than a size can hold", what,
                 (long long)count, (long long)size_bytes);
        return NULL;
    }
    char *block = context->allocator.allocate(context->allocator.user, (size_t)total, ALIGNMENT);
    if (!block) {
        ith_fail(context, ITH_ERR_MEMORY, "out of memory for %s: %.1f MiB asked for, %.1f MiB in use", what,
                 (double)bytes / 1048576.0, (double)atomic_load(&context->family->count.current_bytes) / 1048576.0);
        return NULL;
    }
    memcpy(block, &total, sizeof total);
    count_add(&context->family->count, total);
    return block + ITH_ALLOC_HEADER;
}

void *ith_alloc_zero(ith_context *context, int64_t count, int64_t size_bytes, const char *what)
{
    void *pointer = ith_alloc(context, count, size_bytes, what);
    if (pointer)
        memset(pointer, 0, (size_t)(count * size_bytes));
    return pointer;
}

int64_t ith_alloc_bytes(const void *pointer)
{
    int64_t total = 0;
    if (pointer)
        memcpy(&total, (const char *)pointer - ITH_ALLOC_HEADER, sizeof total);
    return total;
}

void ith_free(ith_context *context, void *pointer)
{
    if (!pointer)
        return;
    atomic_fetch_sub(&context->family->count.current_bytes, ith_alloc_bytes(pointer));
    context->allocator.release(context->allocator.user, (char *)pointer - ITH_ALLOC_HEADER);
}

char *ith_strdup(ith_context *context, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ith_alloc(context, (int64_t)bytes, 1, "a string");
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *ith_format(ith_context *context, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : ith_alloc(context, length + 1, 1, "a string");
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
