/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: the system's allocator, allocations that a family of contexts counts, and their peak. */
#include "context_state.h"
#include "size.h"
#include "sized.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

const ith_allocator ith_system_allocator = {sizeof(ith_allocator), system_allocate, system_release, NULL};

int64_t ith_context_bytes(const ith_context *context)
{
    return atomic_load(&context->family->count.current_bytes);
}

int64_t ith_context_peak_bytes(const ith_context *context)
{
    return atomic_load(&context->family->count.peak_bytes);
}

static void raise_peak(ith_memory_count *count, int64_t bytes)
{
    int_fast64_t peak = atomic_load(&count->peak_bytes);
    while (bytes > peak && !atomic_compare_exchange_weak(&count->peak_bytes, &peak, bytes))
        ;
}

int64_t ith_context_restart_peak(ith_context *context)
{
    ith_memory_count *count = &context->family->count;
    return atomic_exchange(&count->peak_bytes, atomic_load(&count->current_bytes));
}

void ith_context_raise_peak(ith_context *context, int64_t bytes)
{
    raise_peak(&context->family->count, bytes);
}

ith_status ith_context_memory(ith_context *context, ith_memory_use *use)
{
    if (!context)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "context is NULL");
    const ith_memory_use now = {sizeof now, ith_context_bytes(context), ith_context_peak_bytes(context)};
    return ITH_SIZED_FILL(context, ith_memory_use, ITH_MEMORY_USE_INIT, use, &now);
}

void *ith_allocator_take(const ith_allocator *allocator, size_t bytes, const char **reason)
{
    void *block = allocator->allocate(allocator->user, bytes, ITH_ALIGNMENT);
    *reason = "out of memory";
    if (!block || (uintptr_t)block % ITH_ALIGNMENT == 0)
        return block;
    *reason = "ith_allocator.allocate ignored the alignment of 64 bytes";
    allocator->release(allocator->user, block);
    return NULL;
}

/* ---- Memory: a block is preceded by one aligned header that holds its size ------------------------------------- */

static void count_add(ith_memory_count *count, int64_t bytes)
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
    const char *reason;
    char *block = ith_allocator_take(&context->allocator, (size_t)total, &reason);
    if (!block) {
        ith_fail(context, ITH_ERR_MEMORY, "%s for %s: %.1f MiB asked for, %.1f MiB in use", reason, what,
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
