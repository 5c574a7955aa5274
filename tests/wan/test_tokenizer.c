/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer against ids that SentencePiece itself gave (golden/shapes/tokenizer.json), and damaged model files. */
#include "support/fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/text/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "../models/shapes/tokenizer"
#define BYTE_0 4 /* the model's id of <0x00> */

static unsigned char *model;
static size_t model_bytes;

static int set_up(void **state)
{
    FILE *file = fopen(MODEL "/spiece.model", "rb");
    model = malloc(1 << 20);
    if (!file || !model)
        return 1;
    model_bytes = fread(model, 1, 1 << 20, file);
    fclose(file);
    return context_set_up(state);
}

static int tear_down(void **state)
{
    free(model);
    return context_tear_down(state);
}

static void ids_of_the_reference(void **state)
{
    (void)state;
    ith_tokenizer *tokenizer = NULL;
    assert_int_equal(ith_tokenizer_load(context, MODEL, &tokenizer), ITH_OK);
    assert_int_equal(ith_tokenizer_vocab(tokenizer), 1536);
    json_t *cases = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 20);
    size_t index, longest = 0;
    json_array_foreach(cases, index, one)
    {
        int32_t ids[ITH_TEXT_LEN];
        int64_t count = 0;
        json_t *wanted = json_object_get(one, "ids");
        const char *text = json_string_value(json_object_get(one, "text"));
        assert_int_equal(ith_tokenizer_encode(context, tokenizer, text, ids, &count), ITH_OK);
        assert_int_equal(count, json_array_size(wanted));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(ids[i], json_integer_value(json_array_get(wanted, (size_t)i)));
        longest = count > (int64_t)longest ? (size_t)count : longest;
    }
    assert_int_equal(longest, ITH_TEXT_LEN); /* one of them was cut */
    json_decref(cases);
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 7;
    assert_int_equal(ith_tokenizer_encode(context, tokenizer, "caf\xe9", ids, &count), ITH_ERR_ARGUMENT);
    assert_int_equal(count, 0);
    ith_tokenizer_free(context, &tokenizer);
    assert_null(tokenizer);
    ith_tokenizer_free(context, &tokenizer);
}

/* A folder with the model, changed or not, and a tokenizer.json, if any. */
static char *folder_with(const void *bytes, size_t count, const char *json)
{
    char *folder = temporary_folder();
    temporary_write(temporary_path(folder, "spiece.model"), bytes, count);
    if (json)
        temporary_write(temporary_path(folder, "tokenizer.json"), json, strlen(json));
    return folder;
}

static void expect_unknown(const char *json, const int32_t *wanted, int64_t wanted_count)
{
    char *folder = folder_with(model, model_bytes, json);
    ith_tokenizer *tokenizer = NULL;
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), ITH_OK);
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    assert_int_equal(ith_tokenizer_encode(context, tokenizer, "\u732b\u72ac red \u00e9\u0416", ids, &count), ITH_OK);
    assert_int_equal(count, wanted_count);
    assert_memory_equal(ids, wanted, (size_t)wanted_count * sizeof *wanted);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
}

/* What the fast tokenizer of transformers, made of the same model with and without byte_fallback, gives as well. */
static void tokenizer_json_decides_what_is_unknown(void **state)
{
    (void)state;
    enum { B = BYTE_0, SPACE = 263, RED = 296 };
    const int32_t bytes[] = {SPACE, B + 0xe7, B + 0x8c, B + 0xab, B + 0xe7, B + 0x8a, B + 0xac,
                             RED,   SPACE,    B + 0xc3, B + 0xa9, B + 0xd0, B + 0x96, 1};
    const int32_t unknown[] = {SPACE, 3, RED, SPACE, 3, 1};
    const int64_t byte_count = sizeof bytes / sizeof *bytes, unknown_count = sizeof unknown / sizeof *unknown;
    expect_unknown(NULL, bytes, byte_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\", \"byte_fallback\": true}}", bytes, byte_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\", \"byte_fallback\": false}}", unknown, unknown_count);
    expect_unknown("{\"model\": {\"type\": \"Unigram\"}}", unknown, unknown_count);
}

static void expect_refused(char *folder, ith_status wanted, const char *words)
{
    ith_tokenizer *tokenizer = (ith_tokenizer *)folder;
    assert_int_equal(ith_tokenizer_load(context, folder, &tokenizer), wanted);
    assert_null(tokenizer);
    assert_non_null(strstr(ith_context_error(context), words));
    temporary_remove(folder);
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    expect_refused(temporary_folder(), ITH_ERR_IO, "spiece.model");
    expect_refused(folder_with("", 0, NULL), ITH_ERR_FORMAT, "spiece.model");
    expect_refused(folder_with("not a model", 11, NULL), ITH_ERR_FORMAT, "spiece.model");
    expect_refused(folder_with(model, model_bytes - 1, NULL), ITH_ERR_FORMAT, "cut short");
    expect_refused(folder_with(model, model_bytes / 2, NULL), ITH_ERR_FORMAT, "cut short");
    expect_refused(folder_with("\x12\x02\x18\x02", 4, NULL), ITH_ERR_UNSUPPORTED, "type 2"); /* BPE */
    expect_refused(folder_with(model, model_bytes, "{"), ITH_ERR_FORMAT, "tokenizer.json");
    expect_refused(folder_with(model, model_bytes, "{\"model\": 3}"), ITH_ERR_FORMAT, "model");
    expect_refused(folder_with(model, model_bytes, "{\"model\": {\"byte_fallback\": 1}}"), ITH_ERR_FORMAT, "fallback");
}

/* Where the model's table of replacements begins: a size of 0x2bc00 bytes is in front of it. */
static size_t find_table(void)
{
    for (size_t i = 0; i + 4 < model_bytes; i++)
        if (!memcmp(model + i, "\x00\xbc\x02\x00", 4))
            return i;
    fail_msg("no table in " MODEL);
    return 0;
}

/* Loads whatever it is given, and if it loads, encodes: the test is that nothing worse than a status comes of it. */
static bool survives(const unsigned char *bytes, size_t count, const char *text)
{
    char *folder = folder_with(bytes, count, NULL);
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t id_count = 0;
    ith_status status = ith_tokenizer_load(context, folder, &tokenizer);
    assert_true(!status || status == ITH_ERR_FORMAT || status == ITH_ERR_UNSUPPORTED);
    if (!status && !ith_tokenizer_encode(context, tokenizer, text, ids, &id_count))
        assert_true(id_count >= 1 && id_count <= ITH_TEXT_LEN);
    ith_tokenizer_free(context, &tokenizer);
    temporary_remove(folder);
    return !status;
}

static void damaged_models_are_survived(void **state)
{
    (void)state;
    const size_t table = find_table(), table_bytes = 0x2bc00;
    char text[3 * 3000 + 1] = "";
    size_t length = 0;
    for (unsigned c = 0xa0; c < 0xa0 + 3000; c++) { /* every two-byte character and some with three */
        if (c < 0x800)
            text[length++] = (char)(0xc0 | c >> 6);
        else
            text[length++] = (char)0xe0, text[length++] = (char)(0x80 | (c >> 6 & 0x3f));
        text[length++] = (char)(0x80 | (c & 0x3f));
    }
    srand(7);
    unsigned char *copy = malloc(model_bytes);
    int loaded = 0, refused = 0;
    for (int round = 0; round < 240; round++) {
        memcpy(copy, model, model_bytes);
        for (int change = rand() % 8; change >= 0; change--) {
            size_t random = (size_t)rand();
            size_t at = round % 2 ? table + 4 + random % table_bytes : random % model_bytes;
            copy[at] = (unsigned char)rand();
        }
        if (survives(copy, model_bytes - (round % 5 ? 0 : (size_t)rand() % model_bytes), text))
            loaded++;
        else
            refused++;
    }
    free(copy);
    assert_true(loaded > 10 && refused > 10);
}

/* user: the model's folder. */
static ith_status load_and_tokenize(ith_context *poor, void *user)
{
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    ith_status status = ith_tokenizer_load(poor, user, &tokenizer);
    if (!status)
        status = ith_tokenizer_encode(poor, tokenizer, "red &amp; \u00e9", ids, &count);
    ith_tokenizer_free(poor, &tokenizer);
    return status;
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    char *folder = folder_with(model, model_bytes, "{\"model\": {}}");
    assert_true(refuse_every_allocation(load_and_tokenize, folder, 1) > 8);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_reference),
        cmocka_unit_test(tokenizer_json_decides_what_is_unknown),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(damaged_models_are_survived),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
