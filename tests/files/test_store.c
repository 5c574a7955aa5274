/* SPDX-License-Identifier: Apache-2.0 */
/* A component's tensors in one file or in shards. They are exactly the tensors that the index names, and each is taken,
 * or named as unknown. */
#include "base/context.h"
#include "base/dtype.h"
#include "files/store.h"
#include "support/folder_fixture.h"
#include "support/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a shard with f32 tensors. `tensors`: their names, separated by spaces. Each has [2] numbers: first and
 * first + 1. */
static void write_shard(const char *name, const char *tensors, float first)
{
    ith_tensor list[8];
    float values[] = {first, first + 1};
    char text[256], *rest = NULL;
    int count = 0;
    strcpy(text, tensors);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        list[count++] = (ith_tensor){.struct_size = sizeof(ith_tensor),
                                     .name = word,
                                     .dtype = ITH_F32,
                                     .dims = 1,
                                     .shape = {2},
                                     .data = values,
                                     .bytes = 8};
    assert_int_equal(ith_tensor_file_write(context, temporary_path(folder, name), list, count, NULL, NULL, 0), ITH_OK);
}

static void write_text(const char *name, const char *text)
{
    temporary_write(temporary_path(folder, name), text, strlen(text));
}

static ith_status open_here(ith_store **out)
{
    return ith_store_open(context, folder, "model", ITH_STORE_INDEX_FIRST, out);
}

static void assert_said(const char *word)
{
    if (!strstr(ith_context_error(context), word))
        fail_msg("'%s' is not in: %s", word, ith_context_error(context));
}

static void take(ith_store *store, const char *name, float first)
{
    const int64_t shape[] = {2};
    const ith_tensor *tensor = NULL;
    assert_int_equal(ith_store_take(context, store, name, 1, shape, NULL), ITH_OK);
    assert_int_equal(ith_store_take(context, store, name, 1, shape, &tensor), ITH_OK);
    assert_string_equal(tensor->name, name);
    assert_int_equal((uintptr_t)tensor->data % 4, 0);
    const float *values = tensor->data;
    assert_true(values[0] == first && values[1] == first + 1);
    ith_store_release(store, tensor);
}

static void one_file_is_taken(void **state)
{
    (void)state;
    ith_store *store = NULL;
    write_shard("model.safetensors", "b a c.d c.e", 5);
    assert_int_equal(open_here(&store), ITH_OK);
    assert_true(ith_store_has(store, "a"));
    assert_false(ith_store_has(store, "d"));
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    assert_said("'a' is unknown (4 such)");
    take(store, "a", 5);
    take(store, "a", 5);
    take(store, "b", 5);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    assert_said("'c.d' is unknown (2 such)");
    assert_said("model.safetensors");
    ith_store_skip(store, "c.");
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_release(store, NULL);
    ith_store_close(&store);
    assert_null(store);
    ith_store_close(&store);
}

static const char index_text[] = "{\"metadata\": {\"total_size\": 32}, \"weight_map\": {\"a\": \"one.safetensors\",\n"
                                 "\"b\": \"two.safetensors\", \"c\": \"one.safetensors\"}}";

static void shards_are_taken(void **state)
{
    (void)state;
    ith_store *store = NULL;
    write_text("model.safetensors.index.json", index_text);
    write_shard("one.safetensors", "c a", 1);
    write_shard("two.safetensors", "b", 2);
    assert_int_equal(open_here(&store), ITH_OK);
    take(store, "a", 1);
    take(store, "b", 2);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    assert_said("one.safetensors: tensor 'c' is unknown");
    take(store, "c", 1);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_close(&store);
    write_text("model.safetensors.index.json", "{\"weight_map\": {}}");
    assert_int_equal(open_here(&store), ITH_OK);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_close(&store);
}

/* The single file and the index of the tests above are both there. */
static void a_file_beside_an_index(void **state)
{
    (void)state;
    write_text("model.safetensors.index.json", index_text);
    write_shard("one.safetensors", "c a", 1);
    write_shard("two.safetensors", "b", 2);
    write_shard("model.safetensors", "a only", 5);
    ith_store *store = NULL;
    assert_int_equal(ith_store_open(context, folder, "model", ITH_STORE_INDEX_FIRST, &store), ITH_OK);
    assert_true(ith_store_has(store, "b") && !ith_store_has(store, "only"));
    ith_store_close(&store);
    assert_int_equal(ith_store_open(context, folder, "model", ITH_STORE_FILE_FIRST, &store), ITH_OK);
    assert_true(ith_store_has(store, "only") && !ith_store_has(store, "b"));
    ith_store_close(&store);
}

/* Every tensor of both shards of models/shapes is found, with the shape that its file gives. */
static void a_real_component_is_taken(void **state)
{
    (void)state;
    const char *parent = "../models/shapes/transformer", *stem = "diffusion_pytorch_model";
    ith_store *store = NULL;
    assert_int_equal(ith_store_open(context, parent, stem, ITH_STORE_INDEX_FIRST, &store), ITH_OK);
    int64_t elements = 0;
    for (int shard = 1; shard <= 2; shard++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s-%05d-of-00002.safetensors", parent, stem, shard);
        ith_tensor_file *file = NULL;
        assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
        assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
        for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
            const ith_tensor *wanted = ith_tensor_file_at(file, i), *got = NULL;
            assert_int_equal(ith_store_take(context, store, wanted->name, wanted->dims, wanted->shape, &got), ITH_OK);
            assert_memory_equal(got->data, wanted->data, (size_t)wanted->bytes);
            elements += ith_tensor_elements(got);
            ith_store_release(store, got);
        }
        ith_tensor_file_close(&file);
    }
    assert_int_equal(2 * elements, 7927040); /* bf16: total_size of the index */
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_close(&store);
}

static void what_was_not_asked_for_is_refused(void **state)
{
    (void)state;
    const int32_t ids[] = {1, 2};
    const float values[] = {1, 2};
    const ith_tensor list[] = {
        {.struct_size = sizeof(ith_tensor),
         .name = "ids",
         .dtype = ITH_I32,
         .dims = 1,
         .shape = {2},
         .data = ids,
         .bytes = 8},
        {.struct_size = sizeof(ith_tensor), .name = "wide", .dtype = ITH_F64, .dims = 0, .data = values, .bytes = 8},
        {.struct_size = sizeof(ith_tensor),
         .name = "w",
         .dtype = ITH_F32,
         .dims = 2,
         .shape = {1, 2},
         .data = values,
         .bytes = 8},
    };
    const char *path = temporary_path(folder, "model.safetensors");
    assert_int_equal(ith_tensor_file_write(context, path, list, 3, NULL, NULL, 0), ITH_OK);
    ith_store *store = NULL;
    assert_int_equal(open_here(&store), ITH_OK);
    const struct {
        const char *name, *word;
        ith_status status;
        int dims;
        int64_t shape[3];
    } cases[] = {
        {"v", "'v' is missing", ITH_ERR_FORMAT, 1, {2}},
        {"w", "has the shape [1, 2]", ITH_ERR_FORMAT, 2, {2, 1}},
        {"w", "asks for [1, 2, 1]", ITH_ERR_FORMAT, 3, {1, 2, 1}},
        {"w", "asks for [2]", ITH_ERR_FORMAT, 1, {2}},
        {"w", "asks for []", ITH_ERR_FORMAT, 0, {0}},
        {"ids", "'ids' is of type I32", ITH_ERR_UNSUPPORTED, 1, {2}},
        {"wide", "'wide' is of type F64", ITH_ERR_UNSUPPORTED, 0, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ith_tensor *tensor = list;
        assert_int_equal(ith_store_take(context, store, cases[i].name, cases[i].dims, cases[i].shape, &tensor),
                         cases[i].status);
        assert_null(tensor);
        assert_int_equal(ith_store_take(context, store, cases[i].name, cases[i].dims, cases[i].shape, NULL),
                         cases[i].status);
        assert_said(cases[i].word);
        assert_said(path);
    }
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    assert_said("(3 such)");
    ith_store_close(&store);
}

/* A byte before the data makes all data unaligned. The store gives aligned copies, which can be released. */
static void unaligned_data_is_taken(void **state)
{
    (void)state;
    char file[512];
    const char header[] = "{\"byte\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                          "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]},"
                          "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[9,13]}}";
    const float values[] = {7, 8};
    size_t length = sizeof header - 1;
    while ((8 + length) % 8) /* so that w stands at an odd address */
        length++;
    memset(file, ' ', sizeof file);
    memcpy(file, &(uint64_t){length}, 8);
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + length + 1, values, 8);
    uint16_t halves[2];
    ith_from_f32(halves, ITH_BF16, values, 2);
    memcpy(file + 8 + length + 9, halves, 4);
    temporary_write(temporary_path(folder, "model.safetensors"), file, 8 + length + 13);
    ith_store *store = NULL;
    assert_int_equal(open_here(&store), ITH_OK);
    int64_t before = memory_of(context).current_bytes;
    for (int round = 0; round < 2; round++) {
        take(store, "w", 7);
        const ith_tensor *tensor = NULL, *again = NULL;
        assert_int_equal(ith_store_take(context, store, "h", 1, (int64_t[]){2}, &tensor), ITH_OK);
        assert_int_equal(ith_store_take(context, store, "h", 1, (int64_t[]){2}, &again), ITH_OK);
        assert_ptr_equal(tensor, again);
        assert_int_equal((uintptr_t)tensor->data % 2, 0);
        assert_memory_equal(tensor->data, halves, 4);
        assert_true(memory_of(context).current_bytes > before); /* a copy, also after the first one was released */
        if (round == 0)
            ith_store_release(store, tensor);
        assert_true(round == 1 || memory_of(context).current_bytes == before);
    }
    ith_store_close(&store); /* although a tensor was not released */
}

static void indexes_that_lie_are_refused(void **state)
{
    (void)state;
    write_shard("one.safetensors", "c a", 1);
    write_shard("two.safetensors", "b", 2);
    write_shard("both.safetensors", "b x", 2);
    write_shard("again.safetensors", "a", 2);
    write_text("broken.safetensors", "not a tensor file");
    const struct {
        const char *map;
        ith_status status;
        const char *word, *other;
    } cases[] = {
        {"\"a\":\"one.safetensors\"", ITH_ERR_FORMAT, "one.safetensors: holds tensor 'c'", "does not name"},
        {"\"a\":\"one.safetensors\",\"c\":\"one.safetensors\",\"d\":\"two.safetensors\",\"b\":\"two.safetensors\"",
         ITH_ERR_FORMAT, "two.safetensors: tensor 'd' is missing", "index.json"},
        {"\"a\":\"one.safetensors\",\"c\":\"one.safetensors\",\"b\":\"again.safetensors\"", ITH_ERR_FORMAT,
         "again.safetensors: holds tensor 'a'", "one.safetensors"},
        {"\"b\":\"both.safetensors\",\"x\":\"two.safetensors\"", ITH_ERR_FORMAT, "both.safetensors: holds tensor 'x'",
         "places in"},
        {"\"a\":\"three.safetensors\"", ITH_ERR_IO, "three.safetensors: No such file", "index.json"},
        {"\"a\":\"broken.safetensors\"", ITH_ERR_FORMAT, "broken.safetensors: claims a header", "index.json"},
        {"\"a\":\"../one.safetensors\"", ITH_ERR_FORMAT, "'a'", "must be a file of the same folder"},
        {"\"a\":\"/etc/passwd\"", ITH_ERR_FORMAT, "'/etc/passwd'", "must be a file of the same folder"},
        {"\"a\":\"sub/one.safetensors\"", ITH_ERR_FORMAT, "sub/one", "must be a file of the same folder"},
        {"\"a\":\"..\"", ITH_ERR_FORMAT, "'..'", "must be a file of the same folder"},
        {"\"a\":\".\"", ITH_ERR_FORMAT, "'.'", "must be a file of the same folder"},
        {"\"a\":\"\"", ITH_ERR_FORMAT, "''", "must be a file of the same folder"},
        {"\"a\":3", ITH_ERR_FORMAT, "\"a\" must be a string", "weight_map"},
        {"\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"", ITH_ERR_FORMAT, "duplicate", "index.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"weight_map\":{%s}}", cases[i].map);
        write_text("model.safetensors.index.json", text);
        ith_store *store = (ith_store *)folder;
        ith_status status = open_here(&store);
        assert_said(cases[i].word);
        assert_said(cases[i].other);
        assert_int_equal(status, cases[i].status);
        assert_null(store);
    }
}

static void folders_that_hold_nothing_are_refused(void **state)
{
    (void)state;
    ith_store *store = NULL;
    assert_int_equal(open_here(&store), ITH_ERR_IO);
    assert_said("model.safetensors.index.json");
    assert_int_equal(ith_store_open(context, temporary_path(folder, "none"), "model", ITH_STORE_INDEX_FIRST, &store),
                     ITH_ERR_IO);
    assert_said("/none/model.safetensors");
    const struct {
        const char *text, *word;
    } cases[] = {{"{}", "\"weight_map\" is missing"}, {"{\"weight_map\": []}", "an object"}, {"{", "JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text("model.safetensors.index.json", cases[i].text);
        assert_int_equal(open_here(&store), ITH_ERR_FORMAT);
        assert_said(cases[i].word);
        assert_said("model.safetensors.index.json");
    }
    unlink(temporary_path(folder, "model.safetensors.index.json"));
    assert_int_equal(mkdir(temporary_path(folder, "model.safetensors"), 0700), 0);
    assert_int_equal(open_here(&store), ITH_ERR_IO);
    assert_said("it is a folder");
    assert_null(store);
}

/* Names of another origin: "m.NAME" becomes "NAME", "NAME.w" becomes "NAME.weight", and "freqs" is ignored. */
static const char *canonical(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES])
{
    const char *prefix = user;
    if (!strcmp(name, "freqs"))
        return NULL;
    if (!strncmp(name, prefix, strlen(prefix)))
        name += strlen(prefix);
    const size_t length = strlen(name);
    if (length < 2 || strcmp(name + length - 2, ".w"))
        return name;
    snprintf(space, ITH_STORE_NAME_BYTES, "%.*s.weight", (int)length - 2, name);
    return space;
}

static const ith_store_names other_names = {canonical, "m."};

static void files_are_taken_by_canonical_names(void **state)
{
    (void)state;
    write_shard("one.safetensors", "m.b.w freqs", 1);
    write_shard("two.safetensors", "a m.c", 2);
    const char *const paths[] = {temporary_path(folder, "one.safetensors"), temporary_path(folder, "two.safetensors")};
    const int64_t before = memory_of(context).current_bytes;
    ith_store *store = NULL;
    assert_int_equal(ith_store_open_files(context, paths, 2, &other_names, &store), ITH_OK);
    assert_int_equal(ith_store_held_bytes(store), memory_of(context).current_bytes - before);
    assert_false(ith_store_has(store, "m.b.w") || ith_store_has(store, "freqs"));
    assert_int_equal(ith_store_bytes(store), 24);
    take(store, "a", 2);
    take(store, "b.weight", 1);
    assert_int_equal(ith_store_take(context, store, "d", 1, (int64_t[]){2}, NULL), ITH_ERR_FORMAT);
    assert_said("one.safetensors and 1 more: tensor 'd' is missing");
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_ERR_UNSUPPORTED);
    assert_said("two.safetensors: tensor 'm.c' is unknown (1 such)");
    take(store, "c", 2);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_close(&store);
    assert_int_equal(memory_of(context).current_bytes, before);
}

static void an_index_is_one_of_the_files(void **state)
{
    (void)state;
    write_text("x.safetensors.index.json", "{\"weight_map\": {\"m.a\": \"one.safetensors\","
                                           " \"freqs\": \"two.safetensors\", \"m.c.w\": \"two.safetensors\"}}");
    write_shard("one.safetensors", "m.a", 1);
    write_shard("two.safetensors", "m.c.w freqs", 2);
    const char *const path = temporary_path(folder, "x.safetensors.index.json");
    ith_store *store = NULL;
    assert_int_equal(ith_store_open_files(context, &path, 1, &other_names, &store), ITH_OK);
    take(store, "a", 1);
    take(store, "c.weight", 2);
    assert_int_equal(ith_store_check_all_taken(context, store), ITH_OK);
    ith_store_close(&store);
}

static void files_of_two_models_are_refused(void **state)
{
    (void)state;
    write_shard("one.safetensors", "m.b.w freqs", 1);
    write_shard("two.safetensors", "b.weight", 2);
    write_shard("three.safetensors", "m.a a", 2);
    const char *const paths[] = {temporary_path(folder, "one.safetensors"), temporary_path(folder, "two.safetensors"),
                                 temporary_path(folder, "three.safetensors"), temporary_path(folder, "none")};
    const int64_t before = memory_of(context).current_bytes;
    ith_store *store = NULL;
    assert_int_equal(ith_store_open_files(context, paths, 2, &other_names, &store), ITH_ERR_FORMAT);
    assert_said("is the same weight as");
    assert_said("'m.b.w'");
    assert_said("two.safetensors");
    assert_int_equal(ith_store_open_files(context, paths, 2, NULL, &store), ITH_OK);
    ith_store_close(&store);
    assert_int_equal(ith_store_open_files(context, paths + 2, 1, &other_names, &store), ITH_ERR_FORMAT);
    assert_said("'a'");
    assert_int_equal(ith_store_open_files(context, paths + 2, 2, NULL, &store), ITH_ERR_IO);
    assert_said("/none");
    assert_int_equal(ith_store_open_files(context, paths, 0, NULL, &store), ITH_ERR_ARGUMENT);
    assert_null(store);
    assert_int_equal(memory_of(context).current_bytes, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_file_is_taken, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(shards_are_taken, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_file_beside_an_index, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_real_component_is_taken, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_asked_for_is_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(unaligned_data_is_taken, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(files_are_taken_by_canonical_names, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(an_index_is_one_of_the_files, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(files_of_two_models_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(indexes_that_lie_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(folders_that_hold_nothing_are_refused, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
