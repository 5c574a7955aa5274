/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong safetensors files: each is refused with the right status and a sentence that names file, tensor and mistake. */
#include "base/context.h"
#include "support/engine/probe_files.h"
#include "support/folder_fixture.h"
#include "support/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a file: a claimed length of the header, the header, and data of data_bytes bytes. */
static void write_raw(const char *path, uint64_t claimed, const char *header, size_t header_bytes, size_t data_bytes)
{
    unsigned char *file = calloc(1, 8 + header_bytes + data_bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(claimed >> 8 * i);
    memcpy(file + 8, header, header_bytes);
    temporary_write(path, file, 8 + header_bytes + data_bytes);
    free(file);
}

static void assert_refused(const char *path, ith_status status, const char *tensor, const char *word)
{
    if (probe_file(context, path) != status)
        fail_msg("for \"%s\": %s", word, ith_context_error(context));
    const char *sentence = ith_context_error(context);
    if (!strstr(sentence, path) || !strstr(sentence, tensor) || !strstr(sentence, word))
        fail_msg("'%s' and '%s' are not both in: %s", tensor, word, sentence);
    for (const char *p = sentence; *p; p++)
        assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
}

#define T(type, shape, offsets) "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F ITH_ERR_FORMAT

/* All have 16 bytes of data. */
static const struct {
    const char *header;
    ith_status status;
    const char *tensor, *word;
} headers[] = {
    /* JSON */
    {"{\"x\":" T("F32", "[4]", "[0,16]"), F, "", "not valid JSON"},
    {"{\"x\":" T("F32", "[4]", "[0,16]") ",\"x\":" T("F32", "[4]", "[0,16]") "}", F, "x", "duplicate"},
    {"{\"x\":" T("F32", "[2]", "[0,8]") ",\"x\":" T("F32", "[2]", "[8,16]") "}", F, "x", "duplicate"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"},\"x\":" T("F32", "[4]", "[0,16]") "}", F, "k", "duplicate"},
    {"{\"x\":" T("F32", "[04]", "[0,16]") "}", F, "", "not valid JSON"},
    {"{\"x\":" T("F32", "[4]", "[0,016]") "}", F, "", "not valid JSON"},
    {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", F, "dtype", "duplicate"},
    {"[]", F, "", "not a JSON object"},
    {"\"x\"", F, "", "not a JSON object"},
    {" {}", F, "", "not a JSON object"},
    {" {\"x\":" T("F32", "[4]", "[0,16]") "}", F, "", "not a JSON object"},
    {"{}garbage", F, "", "not valid JSON"},
    {"{", F, "", "not a JSON object"},
    {"", F, "", "not a JSON object"},
    {"{\"a\\u0000b\":" T("F32", "[4]", "[0,16]") "}", F, "", "u0000"},
    {"{\"\xc3\x28\":" T("F32", "[4]", "[0,16]") "}", F, "", "0xc3"},
    {"{\"\xed\xa0\x80\":" T("F32", "[4]", "[0,16]") "}", F, "", "0xed"},
    {"{\"\x01\":" T("F32", "[4]", "[0,16]") "}", F, "", "control"},
    /* the description of a tensor */
    {"{\"x\":3}", F, "'x'", "not described"},
    {"{\"x\":{}}", F, "'x'", "no dtype"},
    {"{\"x\":null}", F, "'x'", "not described"},
    {"{\"x\":" T("F8_E8M0", "[16]", "[0,16]") "}", ITH_ERR_UNSUPPORTED, "'x'", "F8_E8M0"},
    {"{\"x\":" T("f32", "[4]", "[0,16]") "}", ITH_ERR_UNSUPPORTED, "'x'", "unknown dtype 'f32'"},
    {"{\"x\":{\"dtype\":7,\"shape\":[4],\"data_offsets\":[0,16]}}", F, "'x'", "no dtype"},
    {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", F, "'x'", "shape"},
    {"{\"x\":" T("F32", "4", "[0,16]") "}", F, "'x'", "no array as its shape"},
    {"{\"x\":" T("F32", "[4.0]", "[0,16]") "}", F, "'x'", "not a number of elements"},
    {"{\"x\":" T("F32", "[\"4\"]", "[0,16]") "}", F, "'x'", "not a number of elements"},
    {"{\"x\":" T("F32", "[2,true]", "[0,16]") "}", F, "'x'", "not a number of elements"},
    {"{\"x\":" T("F32", "[-4]", "[0,16]") "}", F, "'x'", "not a number of elements"},
    {"{\"x\":" T("F32", "[-2,-2]", "[0,16]") "}", F, "'x'", "not a number of elements"},
    {"{\"x\":" T("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]") "}", ITH_ERR_UNSUPPORTED, "'x'", "9 sizes"},
    {"{\"x\":" T("F32", "[4294967296,4294967296]", "[0,16]") "}", F, "'x'", "more than a size can hold"},
    {"{\"x\":" T("F32", "[4611686018427387904,4]", "[0,16]") "}", F, "'x'", "more than a size can hold"},
    {"{\"x\":" T("F32", "[4611686018427387905]", "[0,4]") "}", F, "'x'", "more than a size can hold"},
    {"{\"x\":" T("F32", "[9223372036854775808]", "[0,16]") "}", F, "", "too big integer"},
    {"{\"x\":" T("F32", "[3]", "[0,16]") "}", F, "'x'", "12 bytes"},
    {"{\"x\":" T("F32", "[0]", "[0,16]") "}", F, "'x'", "0 bytes"},
    {"{\"x\":" T("F32", "[]", "[0,16]") "}", F, "'x'", "4 bytes"},
    {"{\"x\":" T("F64", "[4]", "[0,16]") "}", F, "'x'", "32 bytes"},
    /* offsets */
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4]}}", F, "'x'", "data_offsets"},
    {"{\"x\":" T("F32", "[4]", "[0]") "}", F, "'x'", "data_offsets"},
    {"{\"x\":" T("F32", "[4]", "[0,16,32]") "}", F, "'x'", "data_offsets"},
    {"{\"x\":" T("F32", "[4]", "[0,16.0]") "}", F, "'x'", "data_offsets"},
    {"{\"x\":" T("F32", "[4]", "{\"0\":0}") "}", F, "'x'", "data_offsets"},
    {"{\"x\":" T("F32", "[4]", "[-16,0]") "}", F, "'x'", "negative"},
    {"{\"x\":" T("F32", "[4]", "[16,0]") "}", F, "'x'", "turned round"},
    {"{\"x\":" T("F32", "[8]", "[0,32]") "}", F, "'x'", "ends at byte 32"},
    {"{\"x\":" T("F32", "[4]", "[16,32]") "}", F, "'x'", "ends at byte 32"},
    {"{\"x\":" T("U8", "[16]", "[9223372036854775791,9223372036854775807]") "}", F, "'x'", "ends at byte"},
    /* the file as a whole */
    {"{\"x\":" T("F32", "[2]", "[0,8]") "}", F, "", "its tensors take 8"},
    {"{}", F, "", "its tensors take 0"},
    {"{\"x\":" T("F32", "[2]", "[8,16]") "}", F, "'x'", "gap"},
    {"{\"x\":" T("F32", "[1]", "[0,4]") ",\"y\":" T("F32", "[2]", "[8,16]") "}", F, "'y'", "gap"},
    {"{\"x\":" T("F32", "[3]", "[0,12]") ",\"y\":" T("F32", "[2]", "[8,16]") "}", F, "'y'", "overlaps"},
    {"{\"x\":" T("F32", "[4]", "[0,16]") ",\"y\":" T("F32", "[4]", "[0,16]") "}", F, "'", "overlaps"},
    {"{\"x\":" T("F32", "[4]", "[0,16]") ",\"y\":" T("F32", "[1]", "[4,8]") "}", F, "'y'", "overlaps"},
    {"{\"x\":" T("F32", "[4]", "[0,16]") ",\"y\":" T("F32", "[0]", "[8,8]") "}", F, "'y'", "overlaps"},
    /* metadata */
    {"{\"__metadata__\":3,\"x\":" T("F32", "[4]", "[0,16]") "}", F, "__metadata__", "not a JSON object"},
    {"{\"__metadata__\":{\"steps\":8},\"x\":" T("F32", "[4]", "[0,16]") "}", F, "steps", "not a string"},
    /* names with characters that a terminal would obey */
    {"{\"\\u001b[2J\\r\\u009b\":3}", F, "'?[2J?\?'", "not described"},
};

static void headers_that_lie_are_refused(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "lie.safetensors");
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        size_t bytes = strlen(headers[i].header);
        write_raw(path, bytes, headers[i].header, bytes, 16);
        assert_refused(path, headers[i].status, headers[i].tensor, headers[i].word);
    }
}

static void odd_but_legal_headers_are_read(void **state)
{
    (void)state;
    static const char *const legal[] = {
        "{\"x\":" T("F32", "[4]", "[0,16]") "}   \n",
        "{\"x\":{\"extra\":1,\"data_offsets\":[0,16],\"shape\":[2,2],\"dtype\":\"F32\"}}",
        "{\"b\":" T("U8", "[1]", "[15,16]") ",\"a\":" T("U8", "[3,5]", "[0,15]") "}",
        "{\"a\":" T("U8", "[1]", "[0,1]") ",\"f\":" T("F64", "[1]", "[1,9]") ",\"c\":" T("I8", "[7]", "[9,16]") "}",
        "{\"e\":" T("F32", "[0,9223372036854775807,9]", "[0,0]") ",\"s\":" T("F64", "[]", "[0,8]") ",\"t\":" T(
            "I64", "[1,1,1,1,1,1,1,1]", "[8,16]") ",\"z\":" T("F32", "[0]", "[16,16]") "}",
        "{\"x\":" T("F32", "[4]", "[0,16]") ",\"y\":" T("F32", "[0]", "[0,0]") "}",
        "{\"__metadata__\":{},\"\":" T("BOOL", "[16]", "[0,16]") "}",
    };
    const char *path = temporary_path(folder, "legal.safetensors");
    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
        write_raw(path, strlen(legal[i]), legal[i], strlen(legal[i]), 16);
        if (probe_file(context, path))
            fail_msg("%s", ith_context_error(context));
    }
}

static void lengths_that_lie_are_refused(void **state)
{
    (void)state;
    const char header[] = "{\"x\":" T("F32", "[4]", "[0,16]") "}";
    const size_t bytes = sizeof header - 1;
    const char *path = temporary_path(folder, "length.safetensors");
    const struct {
        uint64_t claimed;
        const char *word;
    } cases[] = {
        {0, "not a JSON object"},
        {1, "not a JSON object"},
        {bytes - 1, "not valid JSON"},
        {bytes + 1, "not valid JSON"},
        {bytes + 17, "the file is cut"},
        {99999999, "the file is cut"},
        {100000001, "100000000"},
        {UINT64_C(1) << 63, "9223372036854775808"},
        {UINT64_MAX, "18446744073709551615"},
        {UINT64_MAX - 7, "where 100000000 is the most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_raw(path, cases[i].claimed, header, bytes, 16);
        assert_refused(path, ITH_ERR_FORMAT, "", cases[i].word);
    }
    char *whole = calloc(1, 8 + bytes + 16);
    whole[0] = (char)bytes;
    memcpy(whole + 8, header, bytes);
    for (size_t cut = 0; cut < 8 + bytes + 16; cut++) { /* cut at every place */
        temporary_write(path, whole, cut);
        assert_refused(path, ITH_ERR_FORMAT, "", "");
    }
    temporary_write(path, whole, 8 + bytes + 16);
    assert_int_equal(probe_file(context, path), ITH_OK);
    free(whole);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    const char *pipe = temporary_path(folder, "pipe.safetensors"), *loop = temporary_path(folder, "loop.safetensors");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink(loop, loop), 0);
    assert_refused(temporary_path(folder, "none.safetensors"), ITH_ERR_IO, "", "No such file");
    assert_refused(folder, ITH_ERR_IO, "", "folder");
    assert_refused(pipe, ITH_ERR_IO, "", "pipe");
    assert_refused("/dev/zero", ITH_ERR_IO, "", "device");
    assert_refused(loop, ITH_ERR_IO, "", "symbolic");
    assert_refused("/dev/null/x", ITH_ERR_IO, "", "Not a directory");
}

/* Git LFS leaves a text in place of a file that was not fetched. */
static void lfs_pointers_are_recognised(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    static const char *const names[] = {"pointer.safetensors", "pointer.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *path = temporary_path(folder, names[i]);
        temporary_write(path, pointer, sizeof pointer - 1);
        assert_refused(path, ITH_ERR_FORMAT, "", "is a Git LFS pointer: 'git lfs pull' fetches the file");
        temporary_write(path, pointer, 15);
        assert_refused(path, ITH_ERR_FORMAT, "", "claims a header");
    }
}

/* Headers that claim 3 TB of data: in a file of a few bytes, and in a sparse file of this length. */
static void large_claims_cost_nothing(void **state)
{
    (void)state;
    const char header[] = "{\"x\":" T("F32", "[1000000000000]", "[0,4000000000000]") "}";
    const char *path = temporary_path(folder, "large.safetensors");
    write_raw(path, sizeof header - 1, header, sizeof header - 1, 16);
    assert_refused(path, ITH_ERR_FORMAT, "'x'", "ends at byte 4000000000000");
    if (truncate(path, 4000000000000 + 8 + (off_t)sizeof header - 1)) {
        fprintf(stderr, "skipped: the file system has no files of 4 TB\n");
        skip();
    }
    ith_tensor_file *file = NULL;
    if (ith_tensor_file_open(context, path, &file)) {
        assert_non_null(strstr(ith_context_error(context), "cannot map"));
        fprintf(stderr, "skipped: there is no address space for 4 TB\n");
        skip();
    }
    assert_int_equal(ith_tensor_file_at(file, 0)->bytes, 4000000000000);
    ith_tensor_file_close(&file);
}

static void long_names_are_cut_in_sentences(void **state)
{
    (void)state;
    enum { LENGTH = 3000 };
    char *header = malloc(LENGTH + 20);
    strcpy(header, "{\"");
    for (int i = 0; i < LENGTH / 3; i++)
        strcat(header, "☃");
    strcat(header, "\":3}");
    const char *path = temporary_path(folder, "name.safetensors");
    write_raw(path, strlen(header), header, strlen(header), 0);
    assert_int_equal(probe_file(context, path), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "☃...'"));
    assert_true(strlen(ith_context_error(context)) < 400);
    free(header);
}

/* The processor's time for opening a file whose header names `count` tensors, of `bytes` metadata. */
static double seconds_to_open(int count, int bytes)
{
    const char *path = temporary_path(folder, "long.safetensors");
    const size_t room = 200 + (size_t)bytes + 80 * (size_t)count;
    char *header = malloc(room), *end = header;
    assert_non_null(header);
    end += sprintf(end, "{\"__metadata__\":{\"a\":\"");
    memset(end, 'x', (size_t)bytes);
    end += bytes;
    end += sprintf(end, "\"}");
    for (int i = 0; i < count; i++)
        end += sprintf(end, ",\"t%07d\":" T("F32", "[0]", "[0,0]"), i);
    *end++ = '}';
    write_raw(path, (uint64_t)(end - header), header, (size_t)(end - header), 0);
    free(header);
    ith_tensor_file *file = NULL;
    const double begin = process_seconds();
    check(context, ith_tensor_file_open(context, path, &file));
    const double seconds = process_seconds() - begin;
    assert_int_equal(ith_tensor_file_count(file), count);
    ith_tensor_file_close(&file);
    return seconds;
}

static void headers_of_100_megabytes_take_little_time(void **state)
{
    (void)state;
    assert_true(seconds_to_open(1600000, 0) < 2);
    assert_true(seconds_to_open(1, 99000000) < 2);
}

/* A 0 takes two bytes in the file, and would take forty in a parser for all of JSON. */
static void headers_of_many_values_are_not_parsed(void **state)
{
    (void)state;
    enum { ZEROS = 40000000 };
    const char *path = temporary_path(folder, "many.safetensors");
    static const char begin[] = "{\"x\":[";
    char *header = malloc(sizeof begin + 2 * (size_t)ZEROS), *end = header;
    assert_non_null(header);
    end += sprintf(end, "%s", begin);
    for (int i = 0; i < ZEROS; i++, end += 2)
        memcpy(end, "0,", 2);
    memcpy(end - 1, "]}", 2);
    write_raw(path, (uint64_t)(end + 1 - header), header, (size_t)(end + 1 - header), 0);
    free(header);
    assert_refused(path, F, "", "more than 2097152 JSON values");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(odd_but_legal_headers_are_read),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(lfs_pointers_are_recognised),
        cmocka_unit_test(large_claims_cost_nothing),
        cmocka_unit_test(long_names_are_cut_in_sentences),
        cmocka_unit_test(headers_of_100_megabytes_take_little_time),
        cmocka_unit_test(headers_of_many_values_are_not_parsed),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
