/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD, which makes one call of the program, or of a library that it uses, fail. REFUSE=memory:N:
 * the N-th allocation from the beginning of main, counted from 1, has no memory. REFUSE=files:N: the N-th call that
 * makes, opens, reads, writes or renames a file fails, with the error of a full or broken disk. With N = 0 nothing
 * fails, and the file that REFUSE_LIST names gets the numbers of calls of this kind, one from each place: a place is a
 * list of return addresses. Calls of libraries that are being loaded do not count, as before main. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE, MEMORY, FILES };
static int kind;
static long number;
static atomic_long calls;

/* ---- Places ------------------------------------------------------------------------------------------------------ */

#define DEPTH 24
#define SLOTS 65536

static uint64_t places[SLOTS]; /* a hash table of places */
static FILE *list;
/* backtrace and stdio call the functions below. With this model no access to the variable allocates memory. */
static _Thread_local int inside __attribute__((tls_model("initial-exec")));

/* Writes the number of a call if it is the first one from its place. */
static void note(long call)
{
    void *frames[DEPTH];
    uint64_t hash = 1;
    inside = 1;
    const int depth = backtrace(frames, DEPTH);
    for (int i = 2; i < depth; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * 0x9e3779b97f4a7c15u;
    uint64_t slot = hash >> 48;
    while (places[slot] && places[slot] != hash)
        slot = (slot + 1) % SLOTS;
    if (!places[slot]) {
        places[slot] = hash;
        fprintf(list, "%ld\n", call);
    }
    inside = 0;
}

/* Writes the place of the call that fails to standard error. */
static void trace(void)
{
    void *frames[DEPTH];
    inside = 1;
    backtrace_symbols_fd(frames, backtrace(frames, DEPTH), STDERR_FILENO);
    inside = 0;
}

/* Whether this call is the one that fails. */
static int refused(int of_kind, int error)
{
    if (kind != of_kind || inside)
        return 0;
    const long call = atomic_fetch_add(&calls, 1) + 1;
    if (list)
        note(call);
    if (call != number)
        return 0;
    if (getenv("REFUSE_TRACE"))
        trace();
    errno = error;
    return 1;
}

/* The function that this library replaces: the C library's. */
static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int (*real_main)(int, char **, char **);

static int counted_main(int count, char **words, char **environment)
{
    const char *asked = getenv("REFUSE"), *colon = asked ? strchr(asked, ':') : NULL;
    if (colon)
        number = atol(colon + 1);
    if (colon && !number && getenv("REFUSE_LIST"))
        list = fopen(getenv("REFUSE_LIST"), "w");
    if (colon)
        kind = asked[0] == 'm' ? MEMORY : FILES;
    return real_main(count, words, environment);
}

int __libc_start_main(int (*start)(int, char **, char **), int count, char **words, void (*init)(void),
                      void (*end)(void), void (*loader_end)(void), void *stack);
int __libc_start_main(int (*start)(int, char **, char **), int count, char **words, void (*init)(void),
                      void (*end)(void), void (*loader_end)(void), void *stack)
{
    int (*behind)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
                  void *) = next("__libc_start_main");
    real_main = start;
    return behind(counted_main, count, words, init, end, loader_end, stack);
}

void *dlopen(const char *file, int mode)
{
    void *(*behind)(const char *, int) = (void *(*)(const char *, int))next("dlopen");
    inside++;
    void *library = behind(file, mode);
    inside--;
    return library;
}

__attribute__((destructor)) static void end_list(void)
{
    kind = NONE;
    if (list)
        fclose(list);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    return refused(MEMORY, ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return refused(MEMORY, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return refused(MEMORY, ENOMEM) ? NULL : __libc_realloc(block, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return refused(MEMORY, ENOMEM) ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (block)
        *out = block;
    return block ? 0 : ENOMEM;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

#define WRAP(type, name, error, parameters, ...)                                                                       \
    type name parameters                                                                                               \
    {                                                                                                                  \
        type(*behind) parameters = (type(*) parameters)next(#name);                                                    \
        return refused(FILES, error) ? (type)-1 : behind(__VA_ARGS__);                                                 \
    }

WRAP(ssize_t, write, ENOSPC, (int file, const void *data, size_t bytes), file, data, bytes)
WRAP(ssize_t, read, EIO, (int file, void *data, size_t bytes), file, data, bytes)
WRAP(int, fsync, EIO, (int file), file)
WRAP(int, fdatasync, EIO, (int file), file)
WRAP(int, rename, EACCES, (const char *from, const char *to), from, to)
WRAP(int, renameat, EACCES, (int from_folder, const char *from, int to_folder, const char *to), from_folder, from,
     to_folder, to)
WRAP(int, mkdir, EACCES, (const char *path, mode_t mode), path, mode)
WRAP(int, fstat, EIO, (int file, struct stat *info), file, info)
WRAP(int, stat, EIO, (const char *path, struct stat *info), path, info)
WRAP(int, ftruncate, ENOSPC, (int file, off_t bytes), file, bytes)
WRAP(int, access, EIO, (const char *path, int mode), path, mode)

static int open_next(const char *name, const char *path, int flags, mode_t mode)
{
    int (*behind)(const char *, int, ...) = next(name);
    return refused(FILES, flags & O_CREAT ? ENOSPC : EMFILE) ? -1 : behind(path, flags, mode);
}

#define WRAP_OPEN(name)                                                                                                \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;                                                \
        va_end(more);                                                                                                  \
        return open_next(#name, path, flags, mode);                                                                    \
    }
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_FOPEN(name)                                                                                               \
    FILE *name(const char *path, const char *mode)                                                                     \
    {                                                                                                                  \
        FILE *(*behind)(const char *, const char *) = next(#name);                                                     \
        return refused(FILES, EMFILE) ? NULL : behind(path, mode);                                                     \
    }
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)

/* Writing of streams, which the C library does not do with write(). */
size_t fwrite(const void *data, size_t bytes, size_t count, FILE *file)
{
    size_t (*behind)(const void *, size_t, size_t, FILE *) = next("fwrite");
    if (file == stdout || file == stderr || !refused(FILES, ENOSPC))
        return behind(data, bytes, count, file);
    file->_flags |= 0x20; /* _IO_ERR_SEEN */
    return 0;
}

int fflush(FILE *file)
{
    int (*behind)(FILE *) = next("fflush");
    const int is_own = !file || file == stdout || file == stderr;
    return !is_own && refused(FILES, ENOSPC) ? EOF : behind(file);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *(*behind)(void *, size_t, int, int, int, off_t) = next("mmap");
    return file >= 0 && refused(FILES, ENODEV) ? MAP_FAILED : behind(at, bytes, protection, flags, file, offset);
}

DIR *opendir(const char *path)
{
    DIR *(*behind)(const char *) = next("opendir");
    return refused(FILES, EMFILE) ? NULL : behind(path);
}
