/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that use a device and the memory of devices, with the processor and with the fake device (gpu/fake), whose
 * own attention is compared with float64. */
#include "support/fixture.h"
#include "support/kernel_problem.h"
#include "support/random.h"
#include "support/refused.h"

#include "base/dtype.h"
#include "gpu/fake/fake_device.h"
#include "kernels/device_use.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1000 };

/* ---- Contexts -------------------------------------------------------------------------------------------------- */

static void names_of_another_form_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",        ":",          ":0",  "cuda:", "cuda:x", "cuda:-1", "cuda:1x",
        "cuda: 1", "cuda:99999", "CPU", "gpu",   "Cuda:0", "cuda ",   "a name that is far too long"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        REFUSED(context, "none of cpu, cuda and cuda:N", ith_context_use_device(context, names[i]));
    REFUSED(context, "name", ith_context_use_device(context, NULL));
    REFUSED(NULL, "context", ith_context_use_device(NULL, "cpu"));
}

static void devices_that_are_absent_are_refused(void **state)
{
    (void)state;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "ithaca_device_cuda.so", ith_context_use_device(context, "cuda"));
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "ithaca_device_cuda.so", ith_context_use_device(context, "cuda:3"));
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "no fake device number 7", ith_context_use_device(context, "fake:7"));
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    check(context, ith_device_describe(context, &info));
    assert_string_equal(info.name, "cpu"); /* after a refusal the context is as before */
}

static void a_context_tells_its_device(void **state)
{
    (void)state;
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    ith_context *clone = NULL;
    check(context, ith_context_use_device(context, "fake"));
    check(context, ith_device_describe(context, &info));
    assert_string_equal(info.name, "fake:0");
    assert_true(strlen(info.description) > 0 && info.processors == 1 && info.memory_bytes == (int64_t)1 << 30);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.memory_bytes);
    check(context, ith_context_clone(context, &clone)); /* a clone uses the same device */
    check(context, ith_context_use_device(context, "fake:1"));
    check(clone, ith_device_describe(clone, &info));
    assert_string_equal(info.name, "fake:0");
    check(context, ith_device_describe(context, &info));
    assert_string_equal(info.name, "fake:1");
    check(context, ith_context_use_device(context, "cpu"));
    check(context, ith_device_describe(context, &info));
    assert_string_equal(info.name, "cpu");
    assert_true(info.capability == 0 && info.memory_bytes == 0 && info.description[0] == 0);
    ith_context_destroy(&clone);
    REFUSED(context, "info", ith_device_describe(context, NULL));
    REFUSED(NULL, "context", ith_device_describe(NULL, &info));
    REFUSED_SIZES(context, info, "struct_size", ith_device_describe(context, &info));
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void memory_can_be_filled_and_read_back(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "fake:0", "fake:1", "fake:2", "fake:3"};
    for (int i = 0; i < 5; i++) {
        char there[BYTES], back[BYTES];
        void *memory[2] = {NULL, NULL}, *none = NULL;
        for (int at = 0; at < BYTES; at++)
            there[at] = (char)(at * 7 + i);
        check(context, ith_context_use_device(context, devices[i]));
        check(context, ith_device_allocate(context, BYTES, &memory[0]));
        check(context, ith_device_allocate(context, BYTES, &memory[1]));
        assert_int_equal((uintptr_t)memory[0] % (i ? 256 : 64), 0);
        check(context, ith_device_copy(context, memory[0], there, BYTES));
        check(context, ith_device_copy(context, memory[1], memory[0], BYTES));
        check(context, ith_device_copy(context, (char *)memory[1] + 5, there, 3));
        memcpy(there + 5, (char[]){there[0], there[1], there[2]}, 3);
        check(context, ith_device_copy(context, back, memory[1], BYTES));
        assert_memory_equal(back, there, BYTES);
        check(context, ith_device_copy(context, NULL, NULL, 0));
        check(context, ith_device_allocate(context, 0, &none));
        for (int block = 0; block < 2; block++)
            ith_device_release(context, memory[block]);
        ith_device_release(context, none);
        ith_device_release(context, NULL);
    }
    ith_device_release(NULL, NULL);
}

static void wrong_calls_on_memory_are_refused(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "fake"};
    char here[8] = {0};
    for (int i = 0; i < 2; i++) {
        void *memory = here;
        check(context, ith_context_use_device(context, devices[i]));
        REFUSED(context, "bytes is -1", ith_device_allocate(context, -1, &memory));
        assert_null(memory);
        REFUSED(context, "out", ith_device_allocate(context, 1, NULL));
        REFUSED(NULL, "context", ith_device_allocate(NULL, 1, &memory));
        REFUSED_AS(ITH_ERR_MEMORY, context, i ? "are free" : "tensor",
                   ith_device_allocate(context, INT64_MAX - 8, &memory));
        assert_null(memory);
        REFUSED(context, "bytes is -1", ith_device_copy(context, here, here, -1));
        REFUSED(context, "target", ith_device_copy(context, NULL, here, 1));
        REFUSED(context, "source", ith_device_copy(context, here, NULL, 1));
        REFUSED(NULL, "context", ith_device_copy(NULL, here, here, 1));
    }
    check(context, ith_context_use_device(context, "cpu"));
}

/* ---- The fake device ------------------------------------------------------------------------------------------- */

/* The processor cannot read memory of the fake device, so that tests see every attempt. */
static void the_processor_cannot_read_memory_of_the_fake_device(void **state)
{
    (void)state;
    void *memory = NULL;
    check(context, ith_context_use_device(context, "fake"));
    check(context, ith_device_allocate(context, BYTES, &memory));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);           /* without a sanitizer's report */
        signal(SIGSEGV, SIG_DFL); /* without cmocka's handler */
        _exit(*(volatile char *)memory & 0);
    }
    int ending = 0;
    waitpid(child, &ending, 0);
    assert_true(WIFSIGNALED(ending) || WEXITSTATUS(ending) != 0);
    ith_device_release(context, memory);
    check(context, ith_context_use_device(context, "cpu"));
}

static const ith_device_module *module;
static struct ith_device *device;
static struct ith_device_stream *stream;
static char said[ITH_DEVICE_SENTENCE];

static void finish(void)
{
    for (bool done = false; !done;)
        assert_int_equal(module->query(stream, &done, said), ITH_OK);
}

static void *upload(const void *data, int64_t bytes)
{
    void *memory = NULL;
    assert_int_equal(module->allocate(device, bytes, &memory, said), ITH_OK);
    if (data)
        assert_int_equal(module->copy(stream, memory, data, bytes, said), ITH_OK);
    return memory;
}

/* Numbers of the problem's type on the device. */
static void *upload_rows(const problem *p, const float *x, int64_t rows)
{
    void *stored = allocate(rows * p->D, sizeof(float));
    ith_from_f32(stored, p->dtype, x, rows * p->D);
    void *memory = upload(stored, rows * p->D * ith_dtype_bytes(p->dtype));
    free(stored);
    return memory;
}

/* Keys or values of a shard: rows [from, from + rows), and then zeros up to a multiple of ITH_DEVICE_KEYS. */
static void *upload_shard(const problem *p, const float *x, int64_t from, int64_t rows)
{
    const int64_t padded = (rows + ITH_DEVICE_KEYS - 1) / ITH_DEVICE_KEYS * ITH_DEVICE_KEYS;
    float *shard = allocate(padded * p->D, sizeof *shard);
    memcpy(shard, x + from * p->D, (size_t)(rows * p->D) * sizeof *shard);
    void *memory = upload_rows(p, shard, padded);
    free(shard);
    return memory;
}

/* The fake device's result, with a call for each shard of the problem. */
static answer fake_answer(const problem *p)
{
    answer a = make_answer(p);
    const int64_t floats = p->rows * (int64_t)sizeof(float), size = ith_dtype_bytes(p->dtype);
    ith_device_attend call = {.dtype = p->dtype,
                              .head_dim = p->D,
                              .scale = p->scale,
                              .softmax = p->softmax,
                              .count = 1,
                              .heads = 1,
                              .per_kv = 1,
                              .q_rows = p->rows,
                              .mask_kind = p->mask_kind,
                              .mask_row_stride = p->keys,
                              .lse_stride = p->rows};
    void *rows[2] = {upload_rows(p, p->q, p->rows), upload(NULL, p->rows * p->D * size)};
    call.q = (ith_device_rows){.data = rows[0], .heads = 1, .row_stride = p->D};
    call.o = (ith_device_rows){.data = rows[1], .heads = 1, .row_stride = p->D};
    call.m = upload(p->m, floats), call.l = upload(NULL, floats), call.o_sum = upload(NULL, floats * p->D);
    call.lse = upload(NULL, floats);
    const char *mask = p->shown   ? upload(p->shown, p->rows * p->keys)
                       : p->added ? upload(p->added, floats * p->keys)
                                  : NULL;
    float *bias = p->bias ? upload(p->bias, p->keys * (int64_t)sizeof(float)) : NULL;
    for (int i = 0; i < p->cuts; i++) {
        const int32_t keys = (int32_t)(p->cut[i + 1] - p->cut[i]);
        void *k = upload_shard(p, p->k, p->cut[i], keys), *v = upload_shard(p, p->v, p->cut[i], keys);
        int32_t *count = upload(&keys, sizeof keys);
        call.k = (ith_device_rows){.data = k, .heads = 1, .row_stride = p->D};
        call.v = (ith_device_rows){.data = v, .heads = 1, .row_stride = p->D};
        call.kv_rows = keys, call.keys = i % 2 ? NULL : count;
        call.mask = mask ? mask + p->cut[i] * (p->shown ? 1 : (int64_t)sizeof(float)) : NULL;
        call.key_bias = bias ? bias + p->cut[i] : NULL;
        call.first_shard = i == 0, call.last_shard = i == p->cuts - 1;
        assert_int_equal(module->kernels[1]->attend(stream, &call, said), ITH_OK);
        finish();
        module->release(device, k), module->release(device, v), module->release(device, count);
    }
    void *stored = allocate(p->rows * p->D, sizeof(float));
    assert_int_equal(module->copy(stream, stored, rows[1], p->rows * p->D * size, said), ITH_OK);
    assert_int_equal(module->copy(stream, a.lse, call.lse, floats, said), ITH_OK);
    finish();
    ith_to_f32(a.o, stored, p->dtype, p->rows * p->D);
    free(stored);
    void *all[] = {rows[0], rows[1], call.m, call.l, call.o_sum, call.lse, (void *)(uintptr_t)mask, bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
    return a;
}

static void check_fake_attention(ith_dtype dtype, ith_mask mask, ith_softmax softmax, bool biased, bool cut)
{
    const int64_t rows = random_between(&random_state, 1, 9), keys = random_between(&random_state, 0, 300);
    problem p =
        make_problem(ith_attn_kernel_named("f32_ref"), dtype, rows, keys, random_between(&random_state, 1, 70), 3);
    add_mask(&p, mask);
    if (biased)
        p.bias = random_array(ITH_F32, keys, 1);
    for (int64_t j = 0; biased && j < keys; j += 3)
        p.bias[j] = -INFINITY;
    set_softmax(&p, softmax);
    if (cut)
        cut_somewhere(&p);
    answer truth = exact(&p), mine = fake_answer(&p);
    const double error = relative_error(&p, &mine, &truth);
    if (!(error <= 1e-6 + 2 * unit(dtype)))
        fail_msg("%s, mask %d, softmax %d, bias %d, %d cuts, %d x %d x %d: error %g", ith_dtype_name(dtype), (int)mask,
                 (int)softmax, biased, p.cuts, (int)rows, (int)keys, (int)p.D, error);
    check_lse(&p, mine.lse, truth.lse);
    free_answer(&truth), free_answer(&mine);
    free_problem(&p);
}

static void attention_of_the_fake_device_is_right(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    static const char *const devices[] = {"fake:0", "fake:1", "fake:2", "fake:3"};
    for (int index = 0; index < 4; index++) {
        check(context, ith_context_use_device(context, devices[index]));
        ith_device_use *use = ith_context_device_use(context);
        module = use->module, device = use->device;
        assert_non_null(ith_device_kernel_named(use, "f32_fake"));
        assert_null(ith_device_kernel_named(use, "f32_ref"));
        assert_int_equal(module->create_stream(device, &stream, said), ITH_OK);
        for (int i = 0; i < 3 * 3 * 2 * 2 * 2; i++)
            check_fake_attention(types[i % 3], (ith_mask)(i / 3 % 3),
                                 i / 9 % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE, i / 18 % 2, i / 36);
        module->destroy_stream(stream);
    }
    check(context, ith_context_use_device(context, "cpu"));
}

int main(void)
{
    setenv("ITHACA_PLUGIN_PATH", DEVICES, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_another_form_are_refused),
        cmocka_unit_test(devices_that_are_absent_are_refused),
        cmocka_unit_test(a_context_tells_its_device),
        cmocka_unit_test(memory_can_be_filled_and_read_back),
        cmocka_unit_test(wrong_calls_on_memory_are_refused),
        cmocka_unit_test(the_processor_cannot_read_memory_of_the_fake_device),
        cmocka_unit_test(attention_of_the_fake_device_is_right),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
