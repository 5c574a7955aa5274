/* Every allocation of readers, writer and store fails in turn: a status, a sentence, nothing lost, no half file. */
#include "base/context.h"
#include "files/json.h"
#include "files/store.h"
#include "support/failing.h"
#include "support/temporary.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static failing_allocator memory;
static ith_context *context;
static char *folder;

static const char component[] = "../models/shapes/transformer", stem[] = "diffusion_pytorch_model";

static int set_up(void **state)
{
    (void)state;
    folder = temporary_folder();
    context = failing_context(&memory, -1);
    return context == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    ith_context_destroy(&context);
    return atomic_load(&memory.held) != 0;
}

/* Calls act with none and then with each of its allocations failing, and once more with none: it must make at least
 * `least` of them, fail with a sentence when one is refused, and hold no more memory afterwards than before. */
static void fail_each(ith_status (*act)(ith_context *), long least)
{
    const long held = atomic_load(&memory.held), before = atomic_load(&memory.calls);
    memory.refuse = -1;
    assert_int_equal(act(context), ITH_OK);
    const long allocations = atomic_load(&memory.calls) - before;
    assert_true(allocations >= least);
    for (long i = 0; i < allocations; i++) {
        memory.refuse = atomic_load(&memory.calls) + i;
        assert_int_equal(act(context), ITH_ERR_MEMORY);
        const char *sentence = ith_context_error(context);
        assert_true(strstr(sentence, "out of memory for") || strstr(sentence, strerror(ENOMEM)));
        assert_int_equal(atomic_load(&memory.held), held);
    }
    memory.refuse = -1;
    assert_int_equal(act(context), ITH_OK);
    assert_int_equal(atomic_load(&memory.held), held);
}

static ith_status read_file(ith_context *ctx)
{
    ith_tensor_file *file = NULL;
    ith_status status = ith_tensor_file_open(ctx, "golden/shapes/text.safetensors", &file);
    ith_tensor_file_close(&file);
    return status;
}

static void reading_a_file(void **state)
{
    (void)state;
    fail_each(read_file, 5);
}

static ith_status read_json(ith_context *ctx)
{
    ith_json *json = NULL;
    ith_status status = ith_json_read(ctx, "../models/shapes/vae/config.json", &json);
    ith_json_close(&json);
    return status;
}

static void reading_json(void **state)
{
    (void)state;
    fail_each(read_json, 2);
}

static ith_status take_all(ith_context *ctx)
{
    ith_store *store = NULL;
    float *bias = NULL;
    const ith_tensor *weight = NULL;
    ith_status status = ith_store_open(ctx, component, stem, &store);
    if (!status)
        status = ith_store_take_f32(ctx, store, "proj_out.bias", 1, (int64_t[]){64}, &bias);
    if (!status)
        status = ith_store_take(ctx, store, "proj_out.weight", 2, (int64_t[]){64, 192}, &weight);
    ith_free(ctx, bias);
    ith_store_close(&store);
    return status;
}

static void taking_weights(void **state)
{
    (void)state;
    fail_each(take_all, 20);
}

static ith_status write_over(ith_context *ctx)
{
    static const float values[] = {1, 2};
    const ith_tensor tensor = {.name = "x", .dtype = ITH_F32, .dims = 1, .shape = {2}, .data = values, .bytes = 8};
    return ith_tensor_file_write(ctx, temporary_path(folder, "x.safetensors"), &tensor, 1, NULL, NULL, 0);
}

static void writing_a_file(void **state)
{
    (void)state;
    fail_each(write_over, 3);
    assert_int_equal(temporary_count(folder), 1); /* the whole one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reading_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(taking_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writing_a_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
