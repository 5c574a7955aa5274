/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of readers, writer and store fails in turn. Each gives a status and a sentence, loses no memory, and
 * leaves no incomplete file. */
#include "base/context.h"
#include "files/json.h"
#include "files/store.h"
#include "support/folder_fixture.h"
#include "support/memory.h"

#include <stdio.h>

static const char component[] = "../models/shapes/transformer", stem[] = "diffusion_pytorch_model";

static ith_status read_file(ith_context *ctx, void *user)
{
    (void)user;
    ith_tensor_file *file = NULL;
    ith_status status = ith_tensor_file_open(ctx, "golden/shapes/text.safetensors", &file);
    ith_tensor_file_close(&file);
    return status;
}

static void reading_a_file(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(read_file, NULL, 1) >= 5);
}

static ith_status read_json(ith_context *ctx, void *path)
{
    ith_json *json = NULL;
    ith_status status = ith_json_read(ctx, path, &json);
    ith_json_close(&json);
    return status;
}

static void reading_json(void **state)
{
    (void)state;
    static char model[] = "../models/shapes/vae/config.json", infinite[4096];
    assert_true(refuse_every_allocation(read_json, model, 1) >= 2);
    snprintf(infinite, sizeof infinite, "%s", temporary_path(folder, "infinite.json"));
    temporary_write(infinite, "{\"a\": -Infinity}", 16);
    assert_true(refuse_every_allocation(read_json, infinite, 1) >= 3);
    assert_int_equal(remove(infinite), 0);
}

static ith_status take_all(ith_context *ctx, void *user)
{
    (void)user;
    ith_store *store = NULL;
    const ith_tensor *bias = NULL, *weight = NULL;
    ith_status status = ith_store_open(ctx, component, stem, ITH_STORE_INDEX_FIRST, &store);
    if (!status)
        status = ith_store_take(ctx, store, "proj_out.bias", 1, (int64_t[]){64}, &bias);
    if (!status)
        status = ith_store_take(ctx, store, "proj_out.weight", 2, (int64_t[]){64, 192}, &weight);
    ith_store_close(&store);
    return status;
}

static void taking_weights(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(take_all, NULL, 1) >= 20);
}

/* Gives every tensor another name. */
static const char *other_name(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    (void)user;
    snprintf(space, ITH_STORE_NAME_BYTES, "x.%s", name);
    return space;
}

static ith_status rename_all(ith_context *ctx, void *user)
{
    (void)user;
    const char *const path = "golden/shapes/text.safetensors";
    const ith_store_names names = {other_name, NULL};
    ith_store *store = NULL;
    ith_status status = ith_store_open_files(ctx, &path, 1, &names, &store);
    ith_store_close(&store);
    return status;
}

static void renaming_weights(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(rename_all, NULL, 1) >= 8);
}

static ith_status write_over(ith_context *ctx, void *user)
{
    (void)user;
    static const float values[] = {1, 2};
    const ith_tensor tensor = {.struct_size = sizeof(ith_tensor),
                               .name = "x",
                               .dtype = ITH_F32,
                               .dims = 1,
                               .shape = {2},
                               .data = values,
                               .bytes = 8};
    return ith_tensor_file_write(ctx, temporary_path(folder, "x.safetensors"), &tensor, 1, NULL, NULL, 0);
}

static void writing_a_file(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(write_over, NULL, 1) >= 3);
    assert_int_equal(temporary_count(folder), 1); /* the complete file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_a_file),   cmocka_unit_test(reading_json),   cmocka_unit_test(taking_weights),
        cmocka_unit_test(renaming_weights), cmocka_unit_test(writing_a_file),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
