/* SPDX-License-Identifier: Apache-2.0 */
/* Random damage: files with bytes changed, cut, doubled or swapped are valid or refused, and no byte outside of them is
 * read. The random numbers are the same every time. Under AddressSanitizer this is a small fuzzer. */
#include "base/context.h"
#include "files/store.h"
#include "support/engine/probe_files.h"
#include "support/fixture.h"
#include "support/memory_file.h"
#include "support/random.h"
#include "support/temporary.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES 4096
#define ROUNDS 20000

static uint64_t seed;

static int set_up(void **state)
{
    seed = 1;
    return context_set_up(state);
}

static size_t chance(size_t limit)
{
    return random_below(&seed, (uint32_t)limit);
}

/* Words that stand in such files, and some that should not. */
static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "\"F32\"",
                                    "\"BF16\"",
                                    "\"I64\"",
                                    "\"F8_E5M2\"",
                                    "\"dtype\"",
                                    "\"shape\"",
                                    "\"data_offsets\"",
                                    "\"__metadata__\"",
                                    "0",
                                    "1",
                                    "-1",
                                    "8",
                                    "16",
                                    "1e9",
                                    "4611686018427387904",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "true",
                                    "null",
                                    "\\u0000",
                                    "\xff",
                                    "[0,0]",
                                    "{}",
                                    "\"\"",
                                    "\"weight_map\"",
                                    "\"../a\"",
                                    "\"a\"",
                                    " "};

/* Changes bytes [from, *bytes) of text in one of several ways; text has room for MOST_BYTES. */
static void damage(unsigned char *text, size_t from, size_t *bytes)
{
    size_t left = *bytes - from;
    if (left == 0)
        return;
    size_t at = from + chance(left), span = 1 + chance(*bytes - at < 12 ? *bytes - at : 12);
    const char *word = words[chance(sizeof words / sizeof words[0])];
    size_t length = strlen(word);
    switch (chance(5)) {
    case 0: text[at] = (unsigned char)(text[at] ^ (1u << chance(8))); break;
    case 1: text[at] = (unsigned char)('0' + chance(10)); break;
    case 2: /* leave out */
        memmove(text + at, text + at + span, *bytes - at - span);
        *bytes -= span;
        break;
    case 3: /* double */
        if (*bytes + span > MOST_BYTES)
            return;
        memmove(text + at + span, text + at, *bytes - at);
        *bytes += span;
        break;
    default: /* write a word over the bytes there, or insert it */
        if (chance(2) && at + length <= *bytes) {
            memcpy(text + at, word, length);
        } else if (*bytes + length <= MOST_BYTES) {
            memmove(text + at + length, text + at, *bytes - at);
            memcpy(text + at, word, length);
            *bytes += length;
        }
    }
}

/* A small file with several types and metadata. */
static size_t valid_file(unsigned char *out)
{
    static const char data[64];
    const ith_tensor tensors[] = {
        {.struct_size = sizeof(ith_tensor),
         .name = "a",
         .dtype = ITH_F32,
         .dims = 2,
         .shape = {2, 3},
         .data = data,
         .bytes = 24},
        {.struct_size = sizeof(ith_tensor),
         .name = "blocks.0.weight",
         .dtype = ITH_BF16,
         .dims = 1,
         .shape = {8},
         .data = data,
         .bytes = 16},
        {.struct_size = sizeof(ith_tensor),
         .name = "empty",
         .dtype = ITH_F16,
         .dims = 3,
         .shape = {2, 0, 4},
         .data = data,
         .bytes = 0},
        {.struct_size = sizeof(ith_tensor), .name = "scalar", .dtype = ITH_I64, .dims = 0, .data = data, .bytes = 8},
        {.struct_size = sizeof(ith_tensor),
         .name = "bytes",
         .dtype = ITH_U8,
         .dims = 1,
         .shape = {5},
         .data = data,
         .bytes = 5},
    };
    const char *keys[] = {"format", "prompt"}, *values[] = {"pt", "a circle"};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "valid.safetensors");
    assert_int_equal(ith_tensor_file_write(context, path, tensors, 5, keys, values, 2), ITH_OK);
    size_t bytes = 0;
    char *text = temporary_read(path, &bytes);
    assert_true(bytes < MOST_BYTES / 2);
    memcpy(out, text, bytes);
    free(text);
    temporary_remove(folder);
    return bytes;
}

typedef struct outcome {
    int64_t valid, refused;
} outcome;

static void count(outcome *seen, ith_status status)
{
    if (status == ITH_OK)
        seen->valid++;
    else if (status == ITH_ERR_FORMAT || status == ITH_ERR_UNSUPPORTED)
        seen->refused++;
    else
        fail_msg("%s", ith_context_error(context));
}

static void files_with_changed_bytes(void **state)
{
    (void)state;
    unsigned char valid[MOST_BYTES], text[MOST_BYTES];
    const size_t valid_bytes = valid_file(valid);
    memory_file file = memory_file_create();
    outcome seen = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, valid, valid_bytes);
        size_t bytes = valid_bytes;
        for (size_t changes = 1 + chance(4); changes > 0; changes--)
            damage(text, 0, &bytes);
        if (chance(4) == 0)
            bytes = chance(bytes + 1);
        memory_file_fill(&file, text, bytes);
        count(&seen, probe_file(context, file.path));
    }
    close(file.file);
    assert_true(seen.valid > ROUNDS / 100 && seen.refused > ROUNDS / 2); /* both were seen */
}

/* A GGUF file with changed bytes, cut or not. Most changes are of its header, which is most of the file. */
static void gguf_files_with_changed_bytes(void **state)
{
    (void)state;
    size_t valid_bytes = 0;
    unsigned char text[MOST_BYTES], *valid = (unsigned char *)temporary_read("golden/small.gguf", &valid_bytes);
    assert_true(valid_bytes < MOST_BYTES / 2);
    memory_file file = memory_file_create();
    outcome seen = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, valid, valid_bytes);
        size_t bytes = valid_bytes;
        for (size_t changes = 1 + chance(3); changes > 0; changes--) {
            if (chance(3))
                text[chance(bytes)] = (unsigned char)(chance(2) ? chance(256) : chance(16));
            else
                damage(text, 0, &bytes);
        }
        if (chance(8) == 0)
            bytes = chance(bytes + 1);
        memory_file_fill(&file, text, bytes);
        count(&seen, probe_file(context, file.path));
    }
    close(file.file);
    free(valid);
    assert_true(seen.valid > ROUNDS / 100 && seen.refused > ROUNDS / 4);
}

/* Changes only the header, and corrects its length, so that the checks after the first ones are reached. */
static void files_with_changed_headers(void **state)
{
    (void)state;
    unsigned char valid[MOST_BYTES], text[MOST_BYTES], whole[2 * MOST_BYTES];
    const size_t valid_bytes = valid_file(valid), data_bytes = 53, header_bytes = valid_bytes - 8 - data_bytes;
    memory_file file = memory_file_create();
    outcome seen = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, valid + 8, header_bytes);
        size_t bytes = header_bytes;
        for (size_t changes = 1 + chance(3); changes > 0; changes--)
            damage(text, 0, &bytes);
        memcpy(whole, &(uint64_t){bytes}, 8);
        memcpy(whole + 8, text, bytes);
        memset(whole + 8 + bytes, 1, data_bytes);
        memory_file_fill(&file, whole, 8 + bytes + data_bytes);
        count(&seen, probe_file(context, file.path));
    }
    close(file.file);
    assert_true(seen.valid > ROUNDS / 100 && seen.refused > ROUNDS / 2);
}

static void configurations_with_changed_bytes(void **state)
{
    (void)state;
    static const char valid[] =
        "{\"layers\": 30, \"eps\": 1e-6, \"name\": \"Wan\", \"mean\": [1, -2.5, 3], \"up\": [true],"
        "\"weight_map\": {\"a\": \"b\"}, \"class\": [null, \"W\"]}";
    unsigned char text[MOST_BYTES];
    memory_file file = memory_file_create();
    outcome seen = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = sizeof valid - 1;
        memcpy(text, valid, bytes);
        for (size_t changes = 1 + chance(3); changes > 0; changes--)
            damage(text, 0, &bytes);
        memory_file_fill(&file, text, bytes);
        count(&seen, probe_json(context, file.path));
    }
    close(file.file);
    assert_true(seen.valid > ROUNDS / 100 && seen.refused > ROUNDS / 4);
}

/* An index with changed bytes, over shards that are whole. */
static void indexes_with_changed_bytes(void **state)
{
    (void)state;
    static const char valid[] = "{\"weight_map\": {\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"}}";
    const float value = 1;
    char *folder = temporary_folder();
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b" : "a", *path = temporary_path(folder, i ? "b.safetensors" : "a.safetensors");
        const ith_tensor tensor = {
            .struct_size = sizeof(ith_tensor), .name = name, .dtype = ITH_F32, .dims = 0, .data = &value, .bytes = 4};
        assert_int_equal(ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, 0), ITH_OK);
    }
    int64_t refused = 0;
    unsigned char text[MOST_BYTES];
    for (int round = 0; round < ROUNDS / 10; round++) {
        size_t bytes = sizeof valid - 1;
        memcpy(text, valid, bytes);
        damage(text, 0, &bytes);
        temporary_write(temporary_path(folder, "x.safetensors.index.json"), text, bytes);
        ith_store *store = NULL;
        const ith_tensor *taken = NULL;
        ith_status status = ith_store_open(context, folder, "x", ITH_STORE_INDEX_FIRST, &store);
        if (!status && ith_store_has(store, "a")) {
            assert_int_equal(ith_store_take(context, store, "a", 0, NULL, &taken), ITH_OK);
            assert_true(*(const float *)taken->data == 1);
        }
        refused += status != ITH_OK;
        assert_true(!status == (store != NULL));
        assert_true(!status || strstr(ith_context_error(context), folder));
        ith_store_close(&store);
    }
    temporary_remove(folder);
    assert_true(refused > ROUNDS / 40 && refused < ROUNDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_with_changed_bytes, set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(gguf_files_with_changed_bytes, set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(files_with_changed_headers, set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(configurations_with_changed_bytes, set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(indexes_with_changed_bytes, set_up, context_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
