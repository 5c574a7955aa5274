/* SPDX-License-Identifier: Apache-2.0 */
/* The module's devices, memory and streams. Without a GPU: opening one fails with a sentence that says why. With a GPU:
 * facts, memory of the device and of the host, streams that wait for one another, copies, fills, and requests for more
 * memory than there is. After these everything still works. */
#include "gpu_test.h"

#include <pthread.h>

#define MEGABYTE ((int64_t)1 << 20)

enum { THREADS = 8, ROUNDS = 50 };

static void check(bool holds, const char *what)
{
    if (!holds)
        gpu_fail("%s", what);
}

/* Checks that opening device `index` fails with ITH_ERR_UNSUPPORTED and a sentence that contains `word`. */
static void check_refusal(int index, const char *word)
{
    struct ith_device *device = (struct ith_device *)gpu_said;
    gpu_said[0] = 0;
    ith_status status = gpu_module->open(index, &device, gpu_said);
    printf("device %d: status %d: %s\n", index, (int)status, gpu_said);
    check(status == ITH_ERR_UNSUPPORTED, "a device that is not there is refused as unsupported");
    check(device == NULL, "a device that is not there is NULL");
    check(strstr(gpu_said, word) != NULL, "the sentence says why");
}

static void check_table(void)
{
    check(gpu_module->kernels[0] != NULL, "there is a kernel");
    for (int i = 0; gpu_module->kernels[i]; i++)
        check(gpu_module->kernels[i]->name[0] != 0, "every kernel has a name");
    check(gpu_module->key_stats_scratch_bytes(10, 75600, 128) > 0, "key_stats needs scratch memory");
    check(gpu_module->key_stats_scratch_bytes(INT64_MAX / 2, INT64_MAX / 2, 65536) == -1, "sizes that do not fit");
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void check_facts(void)
{
    ith_device_facts facts;
    GPU_OK(gpu_module->facts(gpu_device, &facts, gpu_said));
    printf("%s: %.1f GB, %.1f GB free\n", facts.name, (double)facts.memory_bytes / 1e9, (double)facts.free_bytes / 1e9);
    check(facts.name[0] && memchr(facts.name, 0, sizeof facts.name), "the device has a name");
    check(facts.capability >= 80 && facts.processors > 0, "capability and processors");
    check(facts.free_bytes > 0 && facts.free_bytes <= facts.memory_bytes, "memory");
}

static void check_addresses(void)
{
    void *own, *pinned, *host = malloc((size_t)MEGABYTE);
    GPU_OK(gpu_module->allocate(gpu_device, MEGABYTE, &own, gpu_said));
    GPU_OK(gpu_module->allocate_pinned(gpu_device, MEGABYTE, &pinned, gpu_said));
    check(gpu_module->addresses(gpu_device, own), "memory of the device is addressed");
    check(gpu_module->addresses(gpu_device, (char *)own + 4321), "memory of the device is addressed inside");
    check(gpu_module->addresses(gpu_device, pinned), "pinned memory is addressed");
    check(gpu_module->addresses(gpu_device, (char *)pinned + 4321), "pinned memory is addressed inside");
    check(!gpu_module->addresses(gpu_device, host), "memory of malloc is not addressed");
    check(!gpu_module->addresses(gpu_device, &gpu_failures), "static memory is not addressed");
    check(!gpu_module->addresses(gpu_device, NULL), "NULL is not addressed");
    gpu_module->release(gpu_device, own);
    gpu_module->release_pinned(gpu_device, pinned);
    gpu_module->release(gpu_device, NULL);
    gpu_module->release_pinned(gpu_device, NULL);
    free(host);
}

/* Fills, and copies between the memory of the device, pinned memory and memory of malloc. */
static void check_copies(void)
{
    unsigned char *host = malloc((size_t)MEGABYTE);
    void *pinned;
    GPU_OK(gpu_module->allocate_pinned(gpu_device, MEGABYTE, &pinned, gpu_said));
    for (int64_t i = 0; i < MEGABYTE; i++)
        host[i] = (unsigned char)(i * 7 + i / 256);
    gpu_buffer a = gpu_upload(host, MEGABYTE), b = gpu_poisoned(MEGABYTE);
    GPU_OK(gpu_module->copy(gpu_stream, b.data, a.data, MEGABYTE, gpu_said));
    GPU_OK(gpu_module->fill(gpu_stream, b.data + 100, 0x5a, 1001, gpu_said));
    GPU_OK(gpu_module->fill(gpu_stream, b.data, 0, 0, gpu_said));
    GPU_OK(gpu_module->copy(gpu_stream, b.data, a.data + 9, 0, gpu_said));
    GPU_OK(gpu_module->copy(gpu_stream, pinned, b.data, MEGABYTE, gpu_said));
    gpu_wait();
    memset(host + 100, 0x5a, 1001);
    check(!memcmp(host, pinned, (size_t)MEGABYTE), "copies and fills");
    check(gpu_is_guarded(&a) && gpu_is_guarded(&b), "nothing is written outside");
    gpu_free(&a);
    gpu_free(&b);
    gpu_module->release_pinned(gpu_device, pinned);
    free(host);
}

/* Starts a kernel. Its launch would fail if an earlier failure were still CUDA's last error. */
static void check_launch(void)
{
    gpu_buffer a = gpu_filled(64, 3), b = gpu_poisoned(64);
    const ith_region_pair pair = {{b.data, {1, 1}, {0, 0}, 64}, {a.data, {1, 1}, {0, 0}, 64}};
    char bytes[64];
    GPU_OK(gpu_module->copy_regions(gpu_stream, &pair, 1, gpu_said));
    gpu_download(bytes, b.data, 64);
    check(bytes[0] == 3 && bytes[63] == 3, "a kernel runs");
    gpu_free(&a);
    gpu_free(&b);
}

/* Requests for more memory than there is fail with sentences that name sizes, and everything still works. */
static void check_no_memory(void)
{
    void *memory = &memory;
    ith_status status = gpu_module->allocate(gpu_device, (int64_t)10 << 40, &memory, gpu_said);
    printf("10 TB of the device: status %d: %s\n", (int)status, gpu_said);
    check(status == ITH_ERR_MEMORY && memory == NULL, "10 TB of the device");
    check(strstr(gpu_said, "10995116.3 MB") && strstr(gpu_said, "free"), "the sentence names sizes");
    check_launch();
    memory = &memory;
    status = gpu_module->allocate_pinned(gpu_device, (int64_t)1 << 60, &memory, gpu_said);
    printf("1 EB of pinned memory: status %d: %s\n", (int)status, gpu_said);
    check(status != ITH_OK && memory == NULL, "1 EB of pinned memory");
    check_launch();
    check_copies();
}

/* ---- Streams --------------------------------------------------------------------------------------------------- */

/* Work of a stream that waits for another begins after the work of the other. */
static void check_order(void)
{
    const int64_t bytes = 64 * MEGABYTE;
    struct ith_device_stream *other;
    unsigned char last = 0;
    GPU_OK(gpu_module->create_stream(gpu_device, &other, gpu_said));
    check(gpu_module->raw_stream(other) != NULL, "a stream of CUDA");
    gpu_buffer a = gpu_filled(bytes, 0), b = gpu_filled(bytes, 0);
    gpu_wait();
    for (int round = 1; round <= ROUNDS; round++) {
        GPU_OK(gpu_module->fill(other, a.data, round, bytes, gpu_said));
        GPU_OK(gpu_module->wait_for(gpu_stream, other, gpu_said));
        GPU_OK(gpu_module->copy(gpu_stream, b.data, a.data, bytes, gpu_said));
        gpu_download(&last, b.data + bytes - 1, 1);
        check(last == round, "a copy comes after the fill of another stream");
        GPU_OK(gpu_module->copy(gpu_stream, b.data, a.data, bytes, gpu_said));
        GPU_OK(gpu_module->wait_for(other, gpu_stream, gpu_said));
        GPU_OK(gpu_module->fill(other, b.data, 255, bytes, gpu_said));
        GPU_OK(gpu_module->wait_for(gpu_stream, other, gpu_said));
        gpu_download(&last, b.data + bytes - 1, 1);
        check(last == 255, "a fill comes after the copy of another stream");
    }
    GPU_OK(gpu_module->wait_for_foreign(gpu_stream, NULL, gpu_said));
    gpu_wait();
    gpu_module->destroy_stream(other);
    gpu_module->destroy_stream(NULL);
    gpu_free(&a);
    gpu_free(&b);
}

/* A stream is not done while it works, and a launch after such a query does not fail. */
static void check_query(void)
{
    const int64_t bytes = 512 * MEGABYTE;
    bool done = true;
    gpu_buffer a = gpu_filled(bytes, 1), b = gpu_filled(bytes, 2);
    const ith_region_pair pair = {{b.data, {1, 1}, {0, 0}, 64}, {a.data, {1, 1}, {0, 0}, 64}};
    gpu_wait();
    for (int i = 0; i < 20; i++)
        GPU_OK(gpu_module->copy(gpu_stream, i % 2 ? a.data : b.data, i % 2 ? b.data : a.data, bytes, gpu_said));
    GPU_OK(gpu_module->query(gpu_stream, &done, gpu_said));
    GPU_OK(gpu_module->copy_regions(gpu_stream, &pair, 1, gpu_said));
    check(!done, "a stream with work is not done");
    gpu_wait();
    gpu_free(&a);
    gpu_free(&b);
}

/* A thread with a stream of its own, and the number of its failures. */
typedef struct worker {
    pthread_t thread;
    int number, failures;
} worker;

/* Allocates, fills, copies and waits, and counts failures and wrong bytes. */
static int work_once(struct ith_device *device, struct ith_device_stream *stream, int byte, char *said)
{
    int failures = 0;
    bool done = false;
    void *memory = NULL, *pinned = NULL;
    failures += gpu_module->allocate(device, MEGABYTE, &memory, said) != ITH_OK;
    failures += gpu_module->allocate_pinned(device, 4096, &pinned, said) != ITH_OK;
    failures += gpu_module->fill(stream, memory, byte, MEGABYTE, said) != ITH_OK;
    failures += gpu_module->copy(stream, pinned, (char *)memory + MEGABYTE - 4096, 4096, said) != ITH_OK;
    failures += gpu_module->wait_for(stream, gpu_stream, said) != ITH_OK;
    while (!done && !failures)
        failures += gpu_module->query(stream, &done, said) != ITH_OK;
    for (int i = 0; !failures && i < 4096; i++)
        failures += ((unsigned char *)pinned)[i] != byte;
    gpu_module->release(device, memory);
    gpu_module->release_pinned(device, pinned);
    return failures;
}

static void *work(void *user)
{
    worker *w = user;
    char said[ITH_DEVICE_SENTENCE] = "";
    struct ith_device *device = NULL;
    struct ith_device_stream *stream = NULL;
    w->failures = gpu_module->open(0, &device, said) || gpu_module->create_stream(device, &stream, said);
    for (int round = 0; round < ROUNDS && !w->failures; round++)
        w->failures += work_once(device, stream, w->number + round, said);
    gpu_module->destroy_stream(stream);
    gpu_module->close(device);
    return NULL;
}

static void check_threads(void)
{
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        check(workers[i].failures == 0, "threads with streams of their own");
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    gpu_load();
    check_table();
    if (gpu_module->open(0, &gpu_device, gpu_said) == ITH_ERR_UNSUPPORTED) {
        check_refusal(0, "NVIDIA driver");
        check_refusal(-1, "NVIDIA driver");
        printf(gpu_failures ? "FAILED: %d failures\n" : "passed, on a machine without a GPU\n", gpu_failures);
        return gpu_failures ? 1 : 0;
    }
    if (gpu_device)
        gpu_module->close(gpu_device);
    gpu_begin();
    check_refusal(-1, "there is no GPU number -1");
    check_refusal(99, "there is no GPU number 99");
    check_facts();
    check_addresses();
    check_copies();
    check_no_memory();
    check_order();
    check_query();
    check_threads();
    return gpu_end();
}
