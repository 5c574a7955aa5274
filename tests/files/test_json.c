/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: every kind of value, and a sentence with file and key for every kind of mistake. */
#include "files/json.h"
#include "support/folder_fixture.h"
#include "support/other_locale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ith_status read_text(const char *text, size_t bytes, ith_json **out)
{
    const char *path = temporary_path(folder, "config.json");
    temporary_write(path, text, bytes);
    return ith_json_read(context, path, out);
}

static const char all_kinds[] =
    "{\"layers\": 30, \"eps\": 1e-6, \"on\": true, \"off\": false, \"nothing\": null, \"name\": \"W\\u00e4n\",\n"
    " \"mean\": [1, -2.5, 3e0], \"up\": [true, false], \"patch\": [1, 2, 2], \"class\": [null, \"W\"],\n"
    " \"map\": {\"z\": \"1\", \"a\": \"2\"}, \"whole\": 3.0, \"huge\": 1000000000000000000}";

static void all_kinds_are_read(void **state)
{
    (void)state;
    ith_json *json = NULL;
    assert_int_equal(read_text(all_kinds, strlen(all_kinds), &json), ITH_OK);
    int64_t integer = 0, count = 0, integers[3];
    double number = 0, numbers[3];
    bool truth = false, truths[2];
    const char *text = NULL, *names[2], *values[2];
    assert_int_equal(ith_json_int(context, json, "layers", 1, 100, 0, &integer), ITH_OK);
    assert_int_equal(integer, 30);
    assert_int_equal(ith_json_double(context, json, "eps", NAN, &number), ITH_OK);
    assert_true(number == 1e-6);
    assert_int_equal(ith_json_double(context, json, "layers", NAN, &number), ITH_OK);
    assert_true(number == 30);
    assert_int_equal(ith_json_bool(context, json, "on", false, &truth), ITH_OK);
    assert_true(truth);
    assert_int_equal(ith_json_bool(context, json, "off", true, &truth), ITH_OK);
    assert_false(truth);
    assert_int_equal(ith_json_string(context, json, "name", true, &text), ITH_OK);
    assert_string_equal(text, "Wän");
    assert_int_equal(ith_json_doubles(context, json, "mean", 3, numbers, &count), ITH_OK);
    assert_true(count == 3 && numbers[0] == 1 && numbers[1] == -2.5 && numbers[2] == 3);
    assert_int_equal(ith_json_bools(context, json, "up", 2, truths, &count), ITH_OK);
    assert_true(count == 2 && truths[0] && !truths[1]);
    assert_int_equal(ith_json_ints(context, json, "patch", 1, 2, 3, integers, &count), ITH_OK);
    assert_true(count == 3 && integers[0] == 1 && integers[2] == 2);
    assert_null(ith_json_string_at(json, "class", 0));
    assert_string_equal(ith_json_string_at(json, "class", 1), "W");
    assert_null(ith_json_string_at(json, "class", 2));
    assert_null(ith_json_string_at(json, "class", -1));
    assert_null(ith_json_string_at(json, "layers", 0));
    assert_int_equal(ith_json_map_count(context, json, "map", &count), ITH_OK);
    assert_int_equal(count, 2);
    ith_json_map(json, "map", names, values);
    assert_string_equal(names[0], "z");
    assert_string_equal(values[1], "2");
    ith_json_close(&json);
    assert_null(json);
    ith_json_close(&json);
}

/* Python writes numbers that JSON does not have. They are read as strings: a field without effect, such as
 * lambda_min_clipped, may be one. Texts with these letters stay as they are. */
static void numbers_of_python_are_strings(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": -Infinity, \"b\": [1, NaN,Infinity], \"NaN\": \"Infinity \\\" NaN\", \"c\": 1}";
    ith_json *json = NULL;
    double number = 0;
    assert_int_equal(read_text(text, strlen(text), &json), ITH_OK);
    assert_string_equal(ith_json_print(json, "a").text, "\"-Infinity\"");
    assert_string_equal(ith_json_print(json, "b").text, "[1,\"NaN\",\"Infinity\"]");
    assert_string_equal(ith_json_print(json, "NaN").text, "\"Infinity \\\" NaN\"");
    assert_int_equal(ith_json_double(context, json, "c", 0, &number), ITH_OK);
    assert_true(number == 1);
    assert_int_equal(ith_json_double(context, json, "a", 0, &number), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "\"a\" must be a number, not the string \"-Infinity\""));
    ith_json_close(&json);
    static const char *const wrong[] = {"{\"a\": NaNs}",
                                        "{\"a\": - Infinity}",
                                        "{\"a\": Inf",
                                        "{\"a\": -Infinity",
                                        "{\"a\": \"NaN\\",
                                        "{NaN: 1}",
                                        "{\"a\": 1, -Infinity \t\r\n: 2}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(read_text(wrong[i], strlen(wrong[i]), &json), ITH_ERR_FORMAT);
}

/* Jansson alone aborts the process in this locale. */
static void all_kinds_are_read_in_every_locale(void **state)
{
    in_other_locale("ps_AF.UTF-8", all_kinds_are_read, state);
}

/* An absent key and null both give the default. */
static void what_is_absent_has_a_default(void **state)
{
    (void)state;
    ith_json *json = NULL;
    assert_int_equal(read_text(all_kinds, strlen(all_kinds), &json), ITH_OK);
    const char *keys[] = {"nothing", "never"};
    for (int i = 0; i < 2; i++) {
        int64_t integer = 0, count = 9;
        double number = 0, numbers[1];
        bool truth = false, truths[1];
        const char *text = "";
        assert_false(ith_json_has(json, keys[i]));
        assert_int_equal(ith_json_int(context, json, keys[i], 1, 9, 5, &integer), ITH_OK);
        assert_int_equal(integer, 5);
        assert_int_equal(ith_json_double(context, json, keys[i], 0.5, &number), ITH_OK);
        assert_true(number == 0.5);
        assert_int_equal(ith_json_bool(context, json, keys[i], true, &truth), ITH_OK);
        assert_true(truth);
        assert_int_equal(ith_json_string(context, json, keys[i], false, &text), ITH_OK);
        assert_null(text);
        assert_int_equal(ith_json_doubles(context, json, keys[i], 1, numbers, &count), ITH_OK);
        assert_int_equal(count, 0);
        assert_int_equal(ith_json_bools(context, json, keys[i], 1, truths, &count), ITH_OK);
        assert_int_equal(ith_json_ints(context, json, keys[i], 0, 1, 1, &integer, &count), ITH_OK);
        assert_null(ith_json_string_at(json, keys[i], 0));
        assert_int_equal(ith_json_int(context, json, keys[i], 1, 9, 0, &integer), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), keys[i]));
        assert_int_equal(ith_json_double(context, json, keys[i], NAN, &number), ITH_ERR_FORMAT);
        assert_int_equal(ith_json_string(context, json, keys[i], true, &text), ITH_ERR_FORMAT);
        assert_int_equal(ith_json_map_count(context, json, keys[i], &count), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), keys[i]));
    }
    assert_true(ith_json_has(json, "off"));
    ith_json_close(&json);
}

/* Checks that the last failure has this status, and names the file, this key and this word. */
static void assert_refused(ith_status status, const char *key, const char *word)
{
    const char *sentence = ith_context_error(context);
    assert_int_equal(status, ITH_ERR_FORMAT);
    assert_non_null(strstr(sentence, "config.json"));
    assert_non_null(strstr(sentence, key));
    assert_non_null(strstr(sentence, word));
}

/* A value whose text is longer than any sentence is named by its kind. */
static void long_values_are_described(void **state)
{
    (void)state;
    enum { ZEROS = 20000 };
    ith_json *json = NULL;
    char *text = malloc(2 * ZEROS + 16), *end = text + sprintf(text, "{\"l\": [0");
    for (int i = 1; i < ZEROS; i++)
        end += sprintf(end, ",0");
    end += sprintf(end, "]}");
    assert_int_equal(read_text(text, (size_t)(end - text), &json), ITH_OK);
    assert_string_equal(ith_json_print(json, "l").text, "an array");
    ith_json_close(&json);
    free(text);
}

static void wrong_kinds_are_named(void **state)
{
    (void)state;
    ith_json *json = NULL;
    assert_int_equal(read_text(all_kinds, strlen(all_kinds), &json), ITH_OK);
    int64_t integer = 0, count = 0, integers[3];
    double number = 0, numbers[3];
    bool truth = false;
    const char *text = NULL;
    assert_refused(ith_json_int(context, json, "layers", 1, 29, 0, &integer), "layers", "from 1 to 29, not 30");
    assert_refused(ith_json_int(context, json, "layers", 31, 99, 40, &integer), "layers", "from 31 to 99");
    assert_refused(ith_json_int(context, json, "eps", 0, 9, 0, &integer), "eps", "the real number 1e-06");
    assert_refused(ith_json_int(context, json, "whole", 0, 9, 0, &integer), "whole", "integer");
    assert_refused(ith_json_int(context, json, "huge", 0, 1 << 20, 0, &integer), "huge", "1000000000000000000");
    assert_refused(ith_json_int(context, json, "name", 0, 9, 0, &integer), "name", "the string \"Wän\"");
    assert_refused(ith_json_int(context, json, "on", 0, 9, 0, &integer), "on", "true");
    assert_refused(ith_json_double(context, json, "map", 0, &number), "map", "an object");
    assert_refused(ith_json_bool(context, json, "layers", true, &truth), "layers", "true or false, not 30");
    assert_refused(ith_json_string(context, json, "mean", false, &text), "mean", "a string, not an array");
    assert_refused(ith_json_doubles(context, json, "mean", 2, numbers, &count), "mean", "3 values");
    assert_refused(ith_json_doubles(context, json, "up", 3, numbers, &count), "up", "true");
    assert_refused(ith_json_doubles(context, json, "eps", 3, numbers, &count), "eps", "an array");
    assert_refused(ith_json_bools(context, json, "mean", 3, &truth, &count), "mean", "true and false");
    assert_refused(ith_json_ints(context, json, "mean", -9, 9, 3, integers, &count), "mean", "the real number -2.5");
    assert_refused(ith_json_ints(context, json, "patch", 2, 9, 3, integers, &count), "patch", "from 2 to 9");
    assert_refused(ith_json_map_count(context, json, "mean", &count), "mean", "an object");
    ith_json_close(&json);
}

/* A name in a file may be of any length, and leaves room in the sentence for the mistake. */
static void long_names_are_cut(void **state)
{
    (void)state;
    char text[5000];
    ith_json *json = NULL;
    const char *member = NULL;
    double number = 0;
    snprintf(text, sizeof text, "{\"ranks\": {\"%04000d\": \"four\"}}", 0);
    assert_int_equal(read_text(text, strlen(text), &json), ITH_OK);
    assert_refused(ith_json_next_number(context, json, "ranks", &member, &number), "000...", "must be a number");
    ith_json_close(&json);
}

static void what_is_not_json_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *word;
        size_t bytes; /* 0: as long as the text */
    } cases[] = {
        {"", "line 1", 0},
        {"{", "JSON", 0},
        {"{\"a\": 1,\n \"a\": 2}", "line 2", 0},
        {"{\"m\": {\"a\": \"1\", \"a\": \"2\"}}", "duplicate", 0},
        {"[1]", "object", 0},
        {"3", "JSON", 0},
        {"{\"a\": 1} x", "JSON", 0},
        {"{\"a\": 99999999999999999999}", "integer", 0},
        {"{\"a\": 1e999}", "real", 0},
        {"{\"a\": nan}", "JSON", 0},
        {"{'a': 1}", "JSON", 0},
        {"{\"a\": \"\xff\"}", "0xff", 0},
        {"{\"a\\u0000b\": 1}", "u0000", 0},
        {"{\"a\0b\": 1}", "JSON", 10},
        {"{\"\x1b[31m\": }", "control", 0},
        {"\xef\xbb\xbf{}", "JSON", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ith_json *json = (ith_json *)folder;
        assert_refused(read_text(cases[i].text, cases[i].bytes ? cases[i].bytes : strlen(cases[i].text), &json),
                       "config.json", cases[i].word);
        assert_null(json);
        assert_null(strchr(ith_context_error(context), '\x1b'));
    }
}

static void what_nests_too_deep_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 6);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    ith_json *json = NULL;
    assert_int_equal(read_text(text, DEPTH + 5, &json), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "depth"));
    free(text);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    ith_json *json = NULL;
    const char *pipe = temporary_path(folder, "pipe.json"), *large = temporary_path(folder, "large.json");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    temporary_write(large, "{}", 2);
    assert_int_equal(truncate(large, (65 << 20)), 0);
    const struct {
        const char *path, *word;
        ith_status status;
    } cases[] = {{temporary_path(folder, "none.json"), "No such file", ITH_ERR_IO},
                 {folder, "folder", ITH_ERR_IO},
                 {pipe, "pipe", ITH_ERR_IO},
                 {large, "at most", ITH_ERR_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ith_json_read(context, cases[i].path, &json), cases[i].status);
        assert_null(json);
        assert_non_null(strstr(ith_context_error(context), cases[i].path));
        assert_non_null(strstr(ith_context_error(context), cases[i].word));
    }
}

static void values_are_printed(void **state)
{
    (void)state;
    ith_json *json = NULL;
    char text[600];
    snprintf(text, sizeof text,
             "{\"s\": \"a\\n\", \"l\": [1, null, {\"b\": 0.5}], \"f\": false, \"n\": null, \"long\": \"%0500d\"}", 0);
    assert_int_equal(read_text(text, strlen(text), &json), ITH_OK);
    assert_string_equal(ith_json_print(json, "s").text, "\"a\\n\"");
    assert_string_equal(ith_json_print(json, "l").text, "[1,null,{\"b\":0.5}]");
    assert_string_equal(ith_json_print(json, "f").text, "false");
    assert_string_equal(ith_json_print(json, "n").text, "null");
    assert_string_equal(ith_json_print(json, "none").text, "absent");
    const ith_json_text cut = ith_json_print(json, "long");
    assert_true(strlen(cut.text) < 192 && strstr(cut.text, "..."));
    const char *keys[] = {"s", "l", "f", "n", "long"}, *key = NULL;
    for (int i = 0; i < 5; i++) {
        key = ith_json_next_key(json, key);
        assert_string_equal(key, keys[i]);
    }
    assert_null(ith_json_next_key(json, key));
    ith_json_close(&json);
    assert_int_equal(read_text("{}", 2, &json), ITH_OK);
    assert_null(ith_json_next_key(json, NULL));
    ith_json_close(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_are_read),
        cmocka_unit_test(all_kinds_are_read_in_every_locale),
        cmocka_unit_test(numbers_of_python_are_strings),
        cmocka_unit_test(what_is_absent_has_a_default),
        cmocka_unit_test(values_are_printed),
        cmocka_unit_test(wrong_kinds_are_named),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(long_values_are_described),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(what_nests_too_deep_is_refused),
        cmocka_unit_test(what_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
