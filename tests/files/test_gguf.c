/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: one that the package gguf wrote (tools/make_gguf_golden.py), and wrong files, each of which is refused
 * with the right status and a sentence. */
#include "base/context.h"
#include "files/gguf.h"
#include "files/store.h"
#include "files/tensor.h"
#include "support/engine/probe_files.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/other_locale.h"
#include "support/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char golden[] = "golden/small.gguf";

/* ---- A file of other people's code ----------------------------------------------------------------------------- */

static void check_numbers(const ith_tensor_file *file, const char *name, ith_dtype type, int64_t rows, int64_t columns,
                          float (*wanted)(int64_t row, int64_t column))
{
    const ith_tensor *tensor = ith_tensor_file_find(file, name);
    float numbers[128];
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, type);
    assert_int_equal(ith_tensor_elements(tensor), rows * columns);
    assert_int_equal(tensor->shape[tensor->dims - 1], columns);
    assert_int_equal(ith_tensor_to_f32(context, tensor, numbers), ITH_OK);
    for (int64_t i = 0; i < rows * columns; i++)
        assert_true(numbers[i] == wanted(i / columns, i % columns));
}

static float whole(int64_t row, int64_t column)
{
    return (float)(3 * row + column);
}

static float half(int64_t row, int64_t column)
{
    return (float)(row + column) / 4;
}

static float eight(int64_t row, int64_t column)
{
    return (float)(row == 0 ? column % 32 - 127 : 127 - column % 32);
}

static float four(int64_t row, int64_t column)
{
    return (float)((row + column) % 16 - 8);
}

static void numbers_are_read(void **state)
{
    (void)state;
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, golden, &file), ITH_OK);
    assert_int_equal(ith_tensor_file_count(file), 5);
    assert_true(ith_gguf_is(file));
    check_numbers(file, "whole", ITH_F32, 2, 3, whole);
    check_numbers(file, "half", ITH_F16, 1, 5, half);
    check_numbers(file, "eight", ITH_Q8_0, 2, 64, eight);
    check_numbers(file, "four", ITH_Q4_0, 1, 64, four);
    assert_string_equal(ith_shape_print(5, ith_tensor_file_find(file, "filter")->shape).text, "[3, 2, 1, 2, 2]");
    ith_tensor_file_close(&file);
}

static void metadata_are_read(void **state)
{
    (void)state;
    static const char *const wanted[][2] = {{"general.architecture", "wan"},
                                            {"a.u32", "4000000000"},
                                            {"a.i8", "-5"},
                                            {"a.u64", "9223372036854775808"},
                                            {"a.f32", "0.5"},
                                            {"a.bool", "true"},
                                            {"a.string", "Grüße"},
                                            {"a.f64", "9.9999999999999995e-07"}};
    ith_tensor_file *file = NULL;
    ith_gguf_array tokens, scores, none;
    assert_int_equal(ith_tensor_file_open(context, golden, &file), ITH_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_string_equal(ith_tensor_file_metadata(file, wanted[i][0]), wanted[i][1]);
    assert_null(ith_tensor_file_metadata(file, "tokenizer.ggml.tokens"));
    assert_int_equal(ith_gguf_array_read(context, file, "tokenizer.ggml.tokens", &tokens), ITH_OK);
    assert_int_equal(ith_gguf_array_read(context, file, "tokenizer.ggml.scores", &scores), ITH_OK);
    assert_int_equal(ith_gguf_array_read(context, file, "a.u32", &none), ITH_OK);
    assert_null(none.data);
    int64_t at = 0, bytes = 0;
    static const char *const words[] = {"<pad>", "", "▁wan"};
    for (int i = 0; i < 3; i++) {
        const char *text = ith_gguf_array_string(&tokens, &at, &bytes);
        assert_int_equal(bytes, strlen(words[i]));
        assert_memory_equal(text, words[i], (size_t)bytes);
    }
    assert_null(ith_gguf_array_string(&tokens, &at, &bytes));
    assert_true(tokens.type == ITH_GGUF_STRING && tokens.count == 3);
    assert_true(scores.type == ITH_GGUF_F32 && scores.count == 3 && scores.bytes == 12);
    assert_memory_equal(scores.data, ((const float[]){0, -1.5f, -2}), 12);
    ith_free(context, tokens.data);
    ith_free(context, scores.data);
    ith_tensor_file_close(&file);
    assert_int_equal(memory_of(context).current_bytes, 0);
}

/* A string is taken only from an array of strings, and if all of it lies in the array: the file may have changed since
 * its header was checked. */
static void strings_end_in_their_array(void **state)
{
    (void)state;
    char data[] = "\4\0\0\0\0\0\0\0word";
    ith_gguf_array array = {.type = ITH_GGUF_STRING, .count = 1, .bytes = 12, .data = data};
    int64_t at = 0, bytes = 0;
    assert_ptr_equal(ith_gguf_array_string(&array, &at, &bytes), data + 8);
    assert_true(at == 12 && bytes == 4);
    for (array.bytes = 0; array.bytes < 12; array.bytes++)
        assert_null(ith_gguf_array_string(&array, &(int64_t){0}, &bytes));
    array.bytes = 12, array.type = ITH_GGUF_I8;
    assert_null(ith_gguf_array_string(&array, &(int64_t){0}, &bytes));
}

static void metadata_are_read_in_every_locale(void **state)
{
    in_other_locale("tr_TR.UTF-8", metadata_are_read, state);
}

/* ggml has at most four dimensions, and drops sizes of 1 at the end. So writers flatten filters, and leave out
 * sizes. */
static void stores_take_flattened_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int dims;
        int64_t shape[6];
        ith_status status;
    } cases[] = {{"whole", 2, {2, 3}, ITH_OK},
                 {"whole", 3, {1, 2, 3}, ITH_OK},
                 {"whole", 4, {1, 1, 2, 3}, ITH_OK},
                 {"whole", 2, {3, 2}, ITH_ERR_FORMAT},
                 {"whole", 1, {6}, ITH_ERR_FORMAT},
                 {"whole", 3, {2, 1, 3}, ITH_ERR_FORMAT},
                 {"filter", 5, {3, 2, 1, 2, 2}, ITH_OK},
                 {"filter", 5, {2, 3, 1, 2, 2}, ITH_ERR_FORMAT},
                 {"flat", 5, {3, 2, 1, 2, 2}, ITH_OK},
                 {"flat", 5, {2, 3, 1, 2, 2}, ITH_OK},
                 {"flat", 5, {3, 1, 2, 2, 2}, ITH_ERR_FORMAT},
                 {"eight", 2, {2, 64}, ITH_OK}};
    static const char flat_header[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                      "\4\0\0\0\0\0\0\0flat\4\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                                      "\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    unsigned char flat[96 + 96] = {0};
    memcpy(flat, flat_header, sizeof flat_header - 1);
    const char *const paths[] = {golden, temporary_path(folder, "flat.gguf")};
    temporary_write(paths[1], flat, sizeof flat);
    ith_store *store = NULL;
    if (ith_store_open_files(context, paths, 2, NULL, &store))
        fail_msg("%s", ith_context_error(context));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ith_tensor *tensor = NULL;
        if (ith_store_take(context, store, cases[i].name, cases[i].dims, cases[i].shape, &tensor) != cases[i].status)
            fail_msg("case %zu: %s", i, ith_context_error(context));
    }
    ith_store_close(&store);
}

/* ---- Files that lie -------------------------------------------------------------------------------------------- */

/* Writes the file that a text describes, a word for each part: "iN" a number of 32 bits, "lN" of 64 bits, "bN" a byte,
 * "sTEXT" a string after its length, "zN" N zero bytes, "p" zeros up to a multiple of 32; any other word stands for
 * itself. */
static size_t build(const char *description, unsigned char *file, size_t most)
{
    char text[1024], *rest = NULL;
    size_t bytes = 0;
    assert_true(strlen(description) < sizeof text);
    strcpy(text, description);
    memset(file, 0, most);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        const bool digits = strspn(word + 1, "0123456789") == strlen(word + 1);
        const uint64_t number = digits ? strtoull(word + 1, NULL, 10) : 0, length = strlen(word + 1);
        const size_t width = *word == 'i' ? 4 : *word == 'l' ? 8 : *word == 'b' ? 1 : 0;
        assert_true(bytes + strlen(word) + 32 < most && (*word != 'z' || bytes + number < most));
        if (digits && width) {
            memcpy(file + bytes, &number, width);
            bytes += width;
        } else if (*word == 's') {
            memcpy(file + bytes, &length, 8);
            memcpy(file + bytes + 8, word + 1, length);
            bytes += 8 + length;
        } else if (digits && *word == 'z') {
            bytes += number;
        } else if (!strcmp(word, "p")) {
            bytes = (bytes + 31) / 32 * 32;
        } else {
            memcpy(file + bytes, word, strlen(word));
            bytes += strlen(word);
        }
    }
    return bytes;
}

static ith_status probe_description(const char *description)
{
    unsigned char file[2048];
    const char *path = temporary_path(folder, "lie.gguf");
    const size_t bytes = build(description, file, sizeof file);
    temporary_write(path, file, bytes);
    return probe_file(context, path);
}

#define F ITH_ERR_FORMAT
#define U ITH_ERR_UNSUPPORTED
#define HEAD "GGUF i3 l1 l0 " /* one tensor, no metadata */

static const struct {
    const char *description;
    ith_status status;
    const char *word;
} lies[] = {
    /* the beginning */
    {"GGUF", F, "it is cut"},
    {"GGUF i3 l0", F, "it is cut"},
    {"GGUF i0 l0 l0", U, "version 0;"},
    {"GGUF i1 l0 l0", U, "version 1"},
    {"GGUF i2 l0 l0", U, "version 2"},
    {"GGUF i4 l0 l0", U, "version 4"},
    {"GGUF i50331648 l0 l0", U, "version 3 with big-endian numbers"},
    {"GGUF i3 l1 l0", F, "it is cut"},
    {"GGUF i3 l0 l1", F, "it is cut"},
    {"GGUF i3 l1048577 l0", F, "claims 1048577 tensors"},
    {"GGUF i3 l18446744073709551615 l0", F, "1048576 is the most"},
    {"GGUF i3 l0 l9223372036854775808", F, "1048576 is the most"},
    {"GGUF i3 l0 l0 p z1", F, "holds 1 bytes of data"},
    /* metadata */
    {"GGUF i3 l0 l1 sk i13 l0", F, "unknown type"},
    {"GGUF i3 l0 l1 sk i4294967295 l0", F, "unknown type"},
    {"GGUF i3 l0 l1 sk i4 b0", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i10 i0", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i7 b2", F, "neither 0 nor 1"},
    {"GGUF i3 l0 l1 sk i8 l5 abc", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i8 l18446744073709551615 abc", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i8 l9223372036854775807 abc", F, "it is cut"},
    {"GGUF i3 l0 l1 l18446744073709551608 i4 i1", F, "it is cut"},
    {"GGUF i3 l0 l1 l2 b107 b0 i4 i1", F, "zero byte"},
    {"GGUF i3 l0 l1 sk i8 l1 b0", F, "zero byte"},
    {"GGUF i3 l0 l2 sk i4 i1 sk i4 i2", F, "the metadata have 'k' twice"},
    {"GGUF i3 l0 l2 sk i9 i4 l0 sk i9 i4 l0", F, "the metadata have 'k' twice"},
    {"GGUF i3 l0 l1 sk i9 i9 l1 i4 l1 i7", F, "an array of arrays"},
    {"GGUF i3 l0 l1 sk i9 i13 l0", F, "array of an unknown type"},
    {"GGUF i3 l0 l1 sk i9 i4 l3 i1 i2", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i9 i0 l18446744073709551615", F, "more items"},
    {"GGUF i3 l0 l1 sk i9 i12 l2305843009213693952", F, "more items"},
    {"GGUF i3 l0 l1 sk i9 i8 l100000000", F, "it is cut"},
    {"GGUF i3 l0 l1 sk i9 i8 l2 l1 a l9223372036854775807", F, "it is cut"},
    {"GGUF i3 l0 l2 sk i4 i1 sk i9 i4 l0", F, "the metadata have 'k' twice"},
    {"GGUF i3 l0 l1 sgeneral.alignment i4 i0", F, "power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i8 s64", F, "is 64; it must be a power of two up to 1048576, of type u32"},
    {"GGUF i3 l0 l1 sgeneral.alignment i8 s64x", F, "is 64x; it must be a power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i6 i1115776614", F, "is 64.6999969; it must be a power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i9 i4 l1 i64", F, "is an array; it must be a power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i4 i24", F, "power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i5 i4294967264", F, "power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i4 i2147483648", F, "power of two"},
    {"GGUF i3 l0 l1 sgeneral.alignment i8 sbig", F, "is big"},
    {"GGUF i3 l0 l1 sgeneral.alignment i10 l18446744073709551615", F, "power of two"},
    /* a tensor */
    {HEAD "sx i1 l4 i0", F, "it is cut"},
    {HEAD "sx i0 i0 l0 p z4", U, "'x': has 0 sizes"},
    {HEAD "sx i9 l1 l1 l1 l1 l1 l1 l1 l1 l4 i0 l0 p z16", U, "has 9 sizes"},
    {HEAD "sx i4294967295 l4 i0 l0 p z16", U, "has 4294967295 sizes"},
    {HEAD "sx i1 l4 i4 l0 p z16", U, "'x': is of the unknown kind 4"},
    {HEAD "sx i1 l256 i23 l0 p z136", U, "'x': is of the kind IQ4_XS, which is not read; F32"},
    {HEAD "sx i1 l256 i41 l0 p z136", U, "'x': is of the kind Q1_0, which is not read; F32"},
    {HEAD "sx i1 l32 i39 l0 p z17", U, "the kind MXFP4"},
    {HEAD "sx i1 l4 i31 l0 p z16", U, "unknown kind 31"},
    {HEAD "sx i1 l4 i4294967295 l0 p z16", U, "unknown kind"},
    {HEAD "sx i1 l18446744073709551615 i0 l0 p z16", F, "has a size of 18446744073709551615"},
    {HEAD "sx i2 l4294967296 l4294967296 i0 l0 p z16", F, "more than a size can hold"},
    {HEAD "sx i2 l9223372036854775776 l32 i8 l0 p z34", F, "more than a size can hold"},
    {HEAD "sx i1 l4611686018427387905 i0 l0 p z16", F, "more than a size can hold"},
    {HEAD "sx i1 l33 i8 l0 p z68", F, "rows of 33 numbers of type q8_0"},
    {HEAD "sx i2 l16 l16 i12 l0 p z144", F, "rows of 16 numbers of type q4_k"},
    {HEAD "l2 b120 b0 i1 l4 i0 l0 p z16", F, "zero byte"},
    {"GGUF i3 l2 l0 sx i1 l4 i0 l0 sx i1 l4 i0 l32 p z48", F, "'x' is there twice"},
    /* places of tensors */
    {HEAD "sx i1 l4 i0 l0", F, "it is cut"},
    {HEAD "sx i1 l4 i0 l0 p z15", F, "ends beyond the file"},
    {HEAD "sx i1 l5 i0 l0 p z16", F, "ends beyond the file"},
    {HEAD "sx i1 l4 i0 l1 p z17", F, "no multiple of 32"},
    {HEAD "sx i1 l4 i0 l32 p z48", F, "leaves a gap"},
    {HEAD "sx i1 l4 i0 l64 p z16", F, "begins beyond"},
    {HEAD "sx i1 l4 i0 l18446744073709551584 p z16", F, "beyond the end"},
    {HEAD "sx i1 l4 i0 l9223372036854775776 p z16", F, "beyond the end"},
    {HEAD "sx i1 l4 i0 l0 p z33", F, "its tensors take 32"},
    {"GGUF i3 l2 l0 sx i1 l16 i0 l0 sy i1 l4 i0 l32 p z64", F, "overlaps"},
    {"GGUF i3 l2 l0 sx i1 l4 i0 l0 sy i1 l4 i0 l0 p z64", F, "overlaps"},
    {"GGUF i3 l2 l0 sx i1 l4 i0 l0 sy i1 l4 i0 l64 p z80", F, "'y' starts at byte 64 of the data, and leaves a gap"},
    {"GGUF i3 l2 l1 sgeneral.alignment i4 i64 sx i1 l4 i0 l0 sy i1 l4 i0 l32 p z64", F, "no multiple of 64"},
    /* names with characters that a terminal would obey */
    {"GGUF i3 l1 l0 s\033[2J\r i1 l4 i99 l0 p z16", U, "'?[2J?'"},
    {"GGUF i3 l1 l0 s\x9b"
     "2J\xff\xc3\xa4\xe2\x82 i1 l4 i99 l0 p z16",
     U,
     "'?2J?\xc3\xa4?"
     "?'"},
};

static void lies_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (probe_description(lies[i].description) != lies[i].status)
            fail_msg("%s: %s", lies[i].description, ith_context_error(context));
        const char *sentence = ith_context_error(context);
        if (!strstr(sentence, lies[i].word) || !strstr(sentence, "/lie.gguf"))
            fail_msg("%s: '%s' is not in: %s", lies[i].description, lies[i].word, sentence);
        const char *named = strstr(sentence, "/lie.gguf");
        if (named && strstr(named + 1, "/lie.gguf"))
            fail_msg("the file is named twice: %s", sentence);
        for (const char *p = sentence; *p; p++)
            assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
    }
}

static void odd_but_legal_files_are_read(void **state)
{
    (void)state;
    static const char *const legal[] = {
        "GGUF i3 l0 l0",
        "GGUF i3 l0 l0 p",
        HEAD "sx i1 l4 i0 l0 p z16",
        HEAD "sx i1 l4 i0 l0 p z32",
        HEAD "s i8 l1 l1 l1 l1 l1 l1 l1 l4 i0 l0 p z16",
        "GGUF i3 l2 l0 sb i1 l4 i0 l32 sa i1 l5 i0 l0 p z48",
        "GGUF i3 l2 l0 se i2 l0 l9223372036854775807 i0 l0 sa i1 l32 i8 l0 p z34",
        "GGUF i3 l1 l2 sgeneral.alignment i4 i8 sk i9 i8 l2 sa s sx i1 l1 i0 l0 z4 i1",
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        if (probe_description(legal[i]))
            fail_msg("%s: %s", legal[i], ith_context_error(context));
}

/* ComfyUI-GGUF records the shape of a tensor that it has stored in another one. */
static void shapes_are_restored(void **state)
{
    (void)state;
#define KEY "GGUF i3 l1 l1 scomfy.gguf.orig_shape."
    static const struct {
        const char *description, *shape;
    } rows[] = {
        {KEY "x i9 i5 l5 i3 i1 i1 i2 i2 sx i2 l4 l3 i0 l0 p z48", "[3, 1, 1, 2, 2]"},
        {KEY "x i9 i5 l2 i2 i64 sx i2 l32 l4 i8 l0 p z136", "[2, 64]"},
        {KEY "x i9 i5 l2 i8 i16 sx i2 l32 l4 i8 l0 p z136", "[4, 32]"}, /* no whole blocks in a row */
        {KEY "x i9 i5 l2 i3 i8 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},     /* other numbers of elements */
        {KEY "x i9 i5 l2 i4294967293 i4294967292 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
        {KEY "x i9 i5 l0 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
        {KEY "x i9 i5 l0 sx i1 l1 i0 l0 p z4", "[1]"},
        {KEY "x i9 i5 l9 i12 i1 i1 i1 i1 i1 i1 i1 i1 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
        {KEY "x i9 i6 l1 i12 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
        {KEY "y i9 i5 l1 i12 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
        {KEY "x i5 i12 sx i2 l4 l3 i0 l0 p z48", "[3, 4]"},
    };
#undef KEY
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[2048];
        const char *path = temporary_path(folder, "shape.gguf");
        ith_tensor_file *file = NULL;
        temporary_write(path, bytes, build(rows[i].description, bytes, sizeof bytes));
        if (ith_tensor_file_open(context, path, &file))
            fail_msg("case %zu: %s", i, ith_context_error(context));
        const ith_tensor *tensor = ith_tensor_file_find(file, "x");
        assert_string_equal(ith_shape_print(tensor->dims, tensor->shape).text, rows[i].shape);
        assert_true(ith_tensor_elements(tensor) > 0);
        ith_tensor_file_close(&file);
    }
}

static void a_cut_is_found_wherever_it_is(void **state)
{
    (void)state;
    size_t bytes = 0;
    char *whole_file = temporary_read(golden, &bytes);
    const char *path = temporary_path(folder, "cut.gguf");
    int64_t read = 0;
    for (size_t cut = 0; cut < bytes; cut++) {
        temporary_write(path, whole_file, cut);
        read += probe_file(context, path) == ITH_OK;
    }
    assert_int_equal(read, 0); /* the last tensor ends with the file */
    free(whole_file);
}

/* Reads the golden file. For refuse_every_allocation. */
static ith_status read_golden(ith_context *ctx, void *user)
{
    (void)user;
    ith_tensor_file *file = NULL;
    ith_gguf_array array = {.data = NULL};
    ith_status status = ith_tensor_file_open(ctx, golden, &file);
    if (!status)
        status = ith_gguf_array_read(ctx, file, "tokenizer.ggml.tokens", &array);
    ith_free(ctx, array.data);
    ith_tensor_file_close(&file);
    return status;
}

static void memory_runs_out(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(read_golden, NULL, 1) >= 7);
}

/* Writes a sparse file with a header of nearly 100 MB, zeros after its beginning. Returns the seconds to open it. */
static double seconds_to_open(const char *description, int64_t bytes, ith_status wanted)
{
    unsigned char head[256];
    const char *path = temporary_path(folder, "large.gguf");
    temporary_write(path, head, build(description, head, sizeof head));
    assert_int_equal(truncate(path, bytes), 0);
    ith_tensor_file *file = NULL;
    const double begin = process_seconds();
    const ith_status status = ith_tensor_file_open(context, path, &file);
    const double seconds = process_seconds() - begin;
    if (status != wanted)
        fail_msg("%s: %s", description, ith_context_error(context));
    ith_tensor_file_close(&file);
    return seconds;
}

static void headers_of_100_megabytes_take_little_time(void **state)
{
    (void)state;
    /* arrays of empty strings and of bytes, a long string, and a claim of a million tensors */
    assert_true(seconds_to_open("GGUF i3 l0 l1 sk i9 i8 l12000000", 49 + 96000000, ITH_OK) < 2);
    assert_true(seconds_to_open("GGUF i3 l0 l1 sk i9 i0 l99000000", 49 + 99000000, ITH_OK) < 2);
    assert_true(seconds_to_open("GGUF i3 l0 l1 sk i8 l99000000", 45 + 99000000, F) < 1);
    assert_true(seconds_to_open("GGUF i3 l1048576 l0", 100000000, U) < 1);
    assert_true(seconds_to_open("GGUF i3 l0 l1048576", 100000000, F) < 1);
    assert_true(seconds_to_open("GGUF i3 l0 l1 sk i9 i8 l12600000", 49 + 12600000 * 8, F) < 2);
    assert_non_null(strstr(ith_context_error(context), "more than 100000000 bytes"));
}

/* The file is cut after it was opened. */
static void a_file_cut_while_it_is_used(void **state)
{
    (void)state;
    size_t bytes = 0;
    char *whole_file = temporary_read(golden, &bytes);
    const char *path = temporary_path(folder, "cut.gguf");
    temporary_write(path, whole_file, bytes);
    ith_tensor_file *file = NULL;
    ith_gguf_array array;
    float numbers[6];
    assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(ith_gguf_array_read(context, file, "tokenizer.ggml.tokens", &array), ITH_ERR_IO);
    assert_null(array.data);
    assert_int_equal(ith_tensor_to_f32(context, ith_tensor_file_find(file, "whole"), numbers), ITH_ERR_IO);
    ith_tensor_file_close(&file);
    free(whole_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_are_read, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(metadata_are_read, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(metadata_are_read_in_every_locale, folder_set_up, folder_tear_down),
        cmocka_unit_test(strings_end_in_their_array),
        cmocka_unit_test_setup_teardown(stores_take_flattened_shapes, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(lies_are_refused, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(odd_but_legal_files_are_read, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(shapes_are_restored, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_cut_is_found_wherever_it_is, folder_set_up, folder_tear_down),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test_setup_teardown(headers_of_100_megabytes_take_little_time, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_file_cut_while_it_is_used, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
