/* SPDX-License-Identifier: Apache-2.0 */
/* The cleaning of prompts compared with the results of Python's ftfy and html.unescape (golden/prompts.json). */
#include "support/fixture.h"
#include "support/memory.h"
#include "wan/text/prompt.h"
#include "wan/text/text_codepoints.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *text, const char *clean)
{
    char *out = NULL;
    assert_int_equal(ith_prompt_clean(context, text, &out), ITH_OK);
    assert_string_equal(out, clean);
    ith_free(context, out);
}

static void pairs_of_the_reference(void **state)
{
    (void)state;
    json_t *pairs = json_load_file("golden/prompts.json", 0, NULL);
    assert_true(json_array_size(pairs) >= 400);
    size_t index;
    json_t *pair;
    json_array_foreach(pairs, index, pair)
        expect(json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1)));
    json_decref(pairs);
    pairs = json_load_file("golden/shapes/tokenizer.json", 0, NULL);
    assert_true(json_array_size(pairs) > 0);
    json_array_foreach(pairs, index, pair)
        expect(json_string_value(json_object_get(pair, "text")), json_string_value(json_object_get(pair, "clean")));
    json_decref(pairs);
}

static void entities_end_with_the_first_tag(void **state)
{
    (void)state;
    expect("&EACUTE;", "\u00c9");
    expect("a<\n&EACUTE;", "a< &EACUTE;");           /* a tag also counts for later lines */
    expect("&EACUTE;\na<", "\u00c9 a<");             /* but not for earlier lines */
    expect("&lt;&EACUTE;", "<\u00c9");               /* a '<' that was an entity begins no tag */
    expect("<&eacute &notit;", "<\u00e9 \u00acit;"); /* html.unescape comes later, with a tag or without */
    expect("&amp;amp;amp;amp;amp;lt;", "<");
    expect("<&amp;amp;amp;amp;lt;", "<&amp;amp;lt;");
}

/* Python's html.unescape has given the expected texts. */
static void numbers_of_no_character_are_replaced_or_dropped(void **state)
{
    (void)state;
    expect("a&#0;b", "a\ufffdb");
    expect("a&#xd800;b&#xdfff;c", "a\ufffdb\ufffdc"); /* the first and the last surrogate */
    expect("a&#xd7ff;b&#xe000;c", "a\ud7ffb\ue000c");
    expect("a&#x10ffff;b&#x10fffd;c", "ab\U0010fffdc"); /* the first is no character, and the last one of Unicode */
    expect("a&#x110000;b", "a\ufffdb");
    expect("a&#4294967361;b&#x100000041;c", "a\ufffdb\ufffdc"); /* 2^32 + 'A' */
    expect("a&#xfdd0;b&#xfdef;c&#xfdf0;d", "abc\ufdf0d");
    expect("a&#1;b&#x1f;c&#127;d", "abcd");
    expect("a&#13;b&#9;c&#12;d", "a b c d");
}

static void white_space_is_single(void **state)
{
    (void)state;
    expect("", "");
    expect(" \t\r\n\u00a0\u3000\u2028 ", "");
    expect("\u2003a \u00a0\n b\u1680", "a b");
    expect("a\u200bb\ufeffc", "a\u200bbc"); /* neither is white space; U+FEFF is dropped as a control character */
}

static void hangul_is_composed(void **state)
{
    (void)state;
    expect("\u1100\u1161", "\uac00");
    expect("\u1100\u1161\u11a8", "\uac01");
    expect("\uac00\u11c2", "\uac1b");
    expect("\uac00\u11c3", "\uac00\u11c3"); /* an old final consonant, which no composed syllable has */
    /* U+11A7 is a vowel, but utf8proc takes it for "no final consonant" and drops it. */
    expect("\uac00\u11a7", "\uac00\u11a7");
    expect("\u1100\u1161\u11a7\u11a7\u11a8", "\uac00\u11a7\u11a7\u11a8");
    expect("\u11a7 e\u0301\u11a7\u0301", "\u11a7 \u00e9\u11a7\u0301");
}

/* A letter beyond ASCII is in no name, though its lower 8 bits may be a letter of ASCII. */
static void names_have_letters_of_ascii(void **state)
{
    (void)state;
    expect("&\u0161mp; &\u0161mp", "&\u0161mp; &\u0161mp"); /* U+0161 and 'a', U+0061 */
    expect("&l\u0174;", "&l\u0174;");                       /* U+0174 and 't' */
    expect("\u0126amp;", "\u0126amp;");                     /* U+0126 and '&' */
}

/* Texts that end where their memory does, within what may be a reference, a line break or a terminal escape. */
static void no_character_is_read_behind_the_last(void **state)
{
    (void)state;
    static const char *const ends[][2] = {{"&#65", "A"},    {"&#x", "&#x"},  {"&amp", "&"},
                                          {"&amp;", "&"},   {"&", "&"},      {"&#", "&#"},
                                          {"\r", ""},       {"\x1b[", "["},  {"\x1b", ""},
                                          {"\x1b[1", "[1"}, {"\x1b[1m", ""}, {"\uac00\u11a7", "\uac00\u11a7"}};
    char text[512], wanted[512];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int count = 60; count <= 130; count++) { /* memory for 64 or 128 characters is full with one of these */
            memset(text, 'x', (size_t)count), memset(wanted, 'x', (size_t)count);
            strcpy(text + count, ends[i][0]), strcpy(wanted + count, ends[i][1]);
            expect(text, wanted);
        }
}

/* A prompt has 256 KiB at most. */
static void the_longest_prompt_is_taken(void **state)
{
    (void)state;
    enum { MOST = 256 << 10 };
    char *text = malloc(MOST + 2);
    memset(text, 'x', MOST + 1);
    text[MOST + 1] = '\0';
    assert_int_equal(ith_text_check(context, "it", text), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "has 262145 bytes"));
    text[MOST] = '\0';
    assert_int_equal(ith_text_check(context, "it", text), ITH_OK);
    free(text);
}

static void expect_refused(const char *bytes, const char *where)
{
    char *out = (char *)bytes;
    assert_int_equal(ith_prompt_clean(context, bytes, &out), ITH_ERR_ARGUMENT);
    assert_null(out);
    assert_non_null(strstr(ith_context_error(context), where));
}

static void what_is_not_utf8_is_refused(void **state)
{
    (void)state;
    expect_refused("\xff", "0xFF at offset 0");
    expect_refused("ab\x80", "offset 2");
    expect_refused("caf\xe9", "offset 3");
    expect_refused("\u00e9\xc3", "offset 2");          /* cut short */
    expect_refused("\xc0\xaf", "offset 0");            /* overlong */
    expect_refused("a\xe0\x80\xaf", "offset 1");       /* overlong */
    expect_refused("a\xed\xa0\x80", "offset 1");       /* a surrogate */
    expect_refused("abc\xf4\x90\x80\x80", "offset 3"); /* beyond U+10FFFF */
    expect_refused("\xf0\x9f\x8e", "offset 0");        /* three bytes of four */
    expect_refused("\xf0\x9f\x8e x", "offset 0");
}

static void long_prompts_are_taken(void **state)
{
    (void)state;
    const size_t length = 2500000;
    char *text = malloc(length + 1), *clean = NULL;
    assert_non_null(text);
    memset(text, 'x', length);
    memcpy(text + 999998, "&lt;", 4);
    text[length] = '\0';
    assert_int_equal(ith_prompt_clean(context, text, &clean), ITH_OK);
    assert_int_equal(strlen(clean), length - 3);
    assert_int_equal(clean[999998], '<');
    ith_free(context, clean);
    free(text);
}

static ith_status clean_one(ith_context *poor, void *user)
{
    (void)user;
    const char *text = "&amp;amp;eacute; \u201cﬁ\u201d e\u0301\r\n\x1b[1m&#x26;lt;";
    char *clean = NULL;
    ith_status status = ith_prompt_clean(poor, text, &clean);
    if (!status)
        assert_string_equal(clean, "\u00e9 \"fi\" \u00e9 <");
    ith_free(poor, clean);
    return status;
}

/* A text of nested entities is repaired once for each level: a long one takes minutes. */
static void a_repair_of_many_rounds_can_be_stopped(void **state)
{
    (void)state;
    char *out = NULL;
    ith_context_interrupt(context);
    assert_int_equal(ith_prompt_clean(context, "&amp;amp;amp;lt;", &out), ITH_ERR_INTERRUPTED);
    assert_null(out);
    expect("one round", "one round");
    ith_context_end_interruption(context);
    expect("&amp;amp;amp;lt;", "<");
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(clean_one, NULL, 1) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_the_reference),
        cmocka_unit_test(entities_end_with_the_first_tag),
        cmocka_unit_test(numbers_of_no_character_are_replaced_or_dropped),
        cmocka_unit_test(white_space_is_single),
        cmocka_unit_test(hangul_is_composed),
        cmocka_unit_test(names_have_letters_of_ascii),
        cmocka_unit_test(no_character_is_read_behind_the_last),
        cmocka_unit_test(the_longest_prompt_is_taken),
        cmocka_unit_test(what_is_not_utf8_is_refused),
        cmocka_unit_test(long_prompts_are_taken),
        cmocka_unit_test(a_repair_of_many_rounds_can_be_stopped),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
