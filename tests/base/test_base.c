/* SPDX-License-Identifier: Apache-2.0 */
/* Status names, contexts, memory accounting, 16-bit conversions, shares. */
#include "base/clock.h"
#include "base/context.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/size.h"

#include "support/in_range.h"
#include "support/memory.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(ith_status_name(ITH_ERR_INTERNAL), "ITH_ERR_INTERNAL");
    assert_string_equal(ith_status_name((ith_status)12), "unknown status");
    assert_int_equal(ith_dtype_bytes(ITH_BF16), 2);
    assert_int_equal(ith_dtype_bytes((ith_dtype)99), 0);
    assert_int_equal(ith_dtype_run((ith_dtype)99), 1);
    assert_int_equal(ith_dtype_run(ITH_Q8_0), 32);
    assert_int_equal(ith_dtype_row_bytes(ITH_F16, 3), 6);
    assert_int_equal(ith_dtype_row_bytes(ITH_Q6_K, 512), 420);
    assert_int_equal(ith_dtype_row_bytes(ITH_Q6_K, 500), -1);
    assert_int_equal(ith_dtype_row_bytes(ITH_F64, INT64_MAX / 4), -1);
    assert_int_equal(ith_dtype_row_bytes(ITH_U8, -1), -1);
    assert_string_equal(ith_dtype_name((ith_dtype)-1), "none");
    assert_string_equal(ith_version(), "0.2.0");
}

/* The sentence about a long path has the beginning of the path, its end and the reason, and room for a rank's name. */
static void long_sentences_lose_their_middle(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t shift = 0; shift < 2; shift++) { /* the cut may fall into a character */
        char path[PATH_MAX] = "/first/";
        for (size_t i = strlen(path) + shift; i + 16 < sizeof path; i += 2)
            memcpy(path + i, "\xc3\xa4", 3);
        memset(path + strlen("/first/"), 'x', shift);
        strcat(path, "/last");
        for (int within = 0; within < 2; within++) {
            if (within) {
                ith_fail(context, ITH_ERR_IO, "no disk");
                ith_fail_in(context, ITH_ERR_IO, "%s", path);
            } else {
                ith_fail(context, ITH_ERR_IO, "%s: %s", path, "no disk");
            }
            const char *sentence = ith_context_error(context), *end = strstr(sentence, "/last: no disk");
            assert_true(end && !end[strlen("/last: no disk")]);
            assert_ptr_equal(strstr(sentence, "/first/"), sentence);
            assert_non_null(strstr(sentence, "\xa4 ... \xc3"));
            assert_null(strchr(sentence, '?'));
            assert_true(in_range((int64_t)strlen(sentence), 800, 900));
        }
    }
    ith_context_destroy(&context);
}

/* A sentence with a path that is no UTF-8 is shortened, too, even if each byte would continue a character. */
static void long_sentences_may_be_no_text(void **state)
{
    (void)state;
    ith_context *context = NULL;
    char path[2 * ITH_ERROR_BYTES];
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t bytes = 880; bytes < sizeof path; bytes++) {
        memset(path, 0x80, bytes);
        path[bytes] = '\0';
        ith_fail(context, ITH_ERR_IO, "%s", path);
        assert_true(in_range((int64_t)strlen(ith_context_error(context)), 880, 900));
        ith_fail(context, ITH_ERR_IO, "no disk");
        ith_fail_in(context, ITH_ERR_IO, "%s", path);
        assert_non_null(strstr(ith_context_error(context), ": no disk"));
    }
    ith_context_destroy(&context);
}

/* If both the place of a failure and its reason are long, the message has the ends of both. */
static void long_places_and_reasons_keep_their_ends(void **state)
{
    (void)state;
    ith_context *context = NULL;
    char place[ITH_ERROR_BYTES * 2], reason[ITH_ERROR_BYTES];
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    memset(place, 'p', sizeof place);
    memset(reason, 'r', sizeof reason);
    strcpy(place + sizeof place - sizeof "/last", "/last");
    for (size_t bytes = 500; bytes < 900; bytes++) {
        strcpy(reason + bytes - strlen("no disk"), "no disk");
        ith_fail(context, ITH_ERR_IO, "%s", reason);
        ith_fail_in(context, ITH_ERR_IO, "%s", place);
        const char *sentence = ith_context_error(context);
        assert_non_null(strstr(sentence, "/last ... "));
        assert_string_equal(sentence + strlen(sentence) - strlen("rno disk"), "rno disk");
        assert_int_equal(strlen(sentence), 900);
        memset(reason + bytes - strlen("no disk"), 'r', strlen("no disk") + 1);
    }
    ith_context_destroy(&context);
}

/* A sentence may be made from the one before. */
static void a_sentence_continues_the_one_before(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_fail(context, ITH_ERR_IO, "no disk");
    ith_fail(context, ITH_ERR_IO, "step %d: %s, %s", 7, ith_context_error(context), ith_context_error(context));
    assert_string_equal(ith_context_error(context), "step 7: no disk, no disk");
    ith_context_destroy(&context);
}

/* The lines of a log. */
typedef struct log_lines {
    int count;
    ith_log_level level;
    char last[ITH_ERROR_BYTES];
} log_lines;

static void take_line(void *user, ith_log_level level, const char *line)
{
    log_lines *lines = user;
    lines->count++;
    lines->level = level;
    strcpy(lines->last, line);
}

/* The log has the lines of its level and of more important levels, without characters that a terminal obeys. */
static void the_log_has_lines_of_its_level(void **state)
{
    (void)state;
    for (int most = ITH_LOG_ERROR; most <= ITH_LOG_DEBUG; most++) {
        log_lines lines = {.count = 0};
        ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
        ith_context *context = NULL;
        options.log = take_line, options.log_user = &lines, options.log_level = (ith_log_level)most;
        assert_int_equal(ith_context_create(&options, &context), ITH_OK);
        lines.count = 0;
        for (int level = ITH_LOG_DEBUG; level >= ITH_LOG_ERROR; level--)
            ith_log(context, (ith_log_level)level, "line %d of a\x1b[b", level);
        assert_int_equal(lines.count, most + 1);
        assert_int_equal(lines.level, ITH_LOG_ERROR);
        assert_string_equal(lines.last, "line 0 of a?[b");
        ith_context_destroy(&context);
    }
}

/* A line about a long path has the beginning of the path, its end and the reason. */
static void long_lines_of_the_log_lose_their_middle(void **state)
{
    (void)state;
    log_lines lines = {.count = 0};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *context = NULL;
    char path[PATH_MAX] = "/first";
    options.log = take_line, options.log_user = &lines;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    memset(path + strlen(path), 'x', sizeof path - strlen(path) - 1);
    strcpy(path + sizeof path - sizeof "/last", "/last");
    ith_log(context, ITH_LOG_ERROR, "%s: %s", path, "no disk");
    assert_ptr_equal(strstr(lines.last, "/first"), lines.last);
    assert_non_null(strstr(lines.last, " ... "));
    assert_non_null(strstr(lines.last, "/last: no disk"));
    assert_int_equal(strlen(lines.last), ITH_ERROR_BYTES - 1);
    ith_context_destroy(&context);
}

static void failures_keep_their_sentence(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_string_equal(ith_context_error(context), "");
    assert_int_equal(ith_fail(context, ITH_ERR_IO, "no %s", "disk"), ITH_ERR_IO);
    assert_int_equal(ith_fail_in(context, ITH_ERR_IO, "writing %d", 7), ITH_ERR_IO);
    assert_string_equal(ith_context_error(context), "writing 7: no disk");
    /* Messages show '?' for control characters, which a terminal may obey, and for bytes that are not UTF-8. */
    ith_fail(context, ITH_ERR_IO,
             "a\x1b[b\xc2\x9b\x9b\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xc0\x80\xed\xa0\x80\xe2\x82");
    assert_string_equal(ith_context_error(context), "a?[b??\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80???????");
    ith_context_destroy(&context);
    assert_null(context);
    ith_context_destroy(&context);
}

static void memory_is_counted_over_clones(void **state)
{
    (void)state;
    ith_context *parent = NULL, *clone = NULL;
    ith_context_create(NULL, &parent);
    assert_int_equal(ith_context_clone(parent, &clone), ITH_OK);
    void *a = ith_alloc(parent, 10, 100, "a"), *b = ith_alloc_zero(clone, 5, 200, "b");
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal(((char *)b)[999], 0);
    ith_memory_use use = memory_of(parent);
    assert_true(use.current_bytes >= 2000 && use.peak_bytes == use.current_bytes);
    ith_free(parent, a);
    ith_free(clone, b);
    ith_free(clone, NULL);
    assert_int_equal(memory_of(parent).current_bytes, 0);
    assert_int_equal(memory_of(clone).peak_bytes, use.peak_bytes);
    assert_null(ith_alloc(parent, INT64_MAX / 2, 4, "the moon"));
    assert_non_null(strstr(ith_context_error(parent), "the moon"));
    assert_null(ith_alloc(parent, -1, 4, "less"));
    ith_context_destroy(&clone);
    ith_context_destroy(&parent);
}

static void *refuse(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)bytes, (void)alignment;
    return NULL;
}

static void release_nothing(void *user, void *pointer)
{
    (void)user, (void)pointer;
}

static void an_allocator_may_refuse(void **state)
{
    (void)state;
    ith_allocator allocator = {sizeof allocator, refuse, release_nothing, NULL};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    ith_context *context = (ith_context *)&options;
    assert_int_equal(ith_context_create(&options, &context), ITH_ERR_MEMORY);
    assert_null(context);
}

static void sixteen_bits_round_to_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every value survives conversion to f32 and back */
        float f16 = ith_f32_from_f16((uint16_t)bits), bf16 = ith_f32_from_bf16((uint16_t)bits);
        if (isnan(f16))
            assert_true(isnan(ith_f32_from_f16(ith_f16_from_f32(f16))));
        else
            assert_int_equal(ith_f16_from_f32(f16), bits);
        if (isnan(bf16))
            assert_true(isnan(ith_f32_from_bf16(ith_bf16_from_f32(bf16))));
        else
            assert_int_equal(ith_bf16_from_f32(bf16), bits);
    }
    for (uint32_t bits = 0; bits < 0x7bff; bits++) { /* halfway between neighbours goes to the even one */
        float low = ith_f32_from_f16((uint16_t)bits), high = ith_f32_from_f16((uint16_t)(bits + 1));
        assert_int_equal(ith_f16_from_f32(0.5f * (low + high)), bits % 2 ? bits + 1 : bits);
    }
    assert_int_equal(ith_f16_from_f32(65519.9f), 0x7bff);
    assert_int_equal(ith_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(ith_bf16_from_f32(ith_f32_from_bits(0x3f808000)), 0x3f80);
    assert_int_equal(ith_bf16_from_f32(ith_f32_from_bits(0x3f818000)), 0x3f82);
}

static void shares_cover_everything_once(void **state)
{
    (void)state;
    for (int ranks = 1; ranks < 9; ranks++)
        for (int64_t length = 0; length < 30; length++) {
            int64_t next = 0, longest = 0;
            for (int rank = 0; rank < ranks; rank++) {
                int64_t begin = -1, count = -1;
                ith_share(length, ranks, rank, &begin, &count);
                assert_int_equal(begin, next);
                assert_true(rank == 0 || count <= longest);
                longest = rank == 0 ? count : longest;
                assert_true(count >= longest - 1);
                next += count;
            }
            assert_int_equal(next, length);
        }
}

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    int64_t out = 0;
    assert_true(ith_size_mul(1 << 20, 1 << 20, &out) && out == (int64_t)1 << 40);
    assert_false(ith_size_mul((int64_t)1 << 40, (int64_t)1 << 40, &out));
    assert_false(ith_size_mul(-1, 1, &out));
    assert_false(ith_size_add(INT64_MAX, 1, &out));
    assert_int_equal(ith_round_up(65, 64), 128);
}

static void masks_hide_instruction_sets(void **state)
{
    (void)state;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = ITH_CPU_AVX2;
    ith_context *context = NULL;
    ith_context_create(&options, &context);
    assert_false(ith_context_cpu(context) & ITH_CPU_AVX512);
    assert_true(ith_context_cpu(context) & ITH_CPU_BASELINE);
    char text[64];
    assert_string_equal(ith_cpu_describe(ITH_CPU_BASELINE | ITH_CPU_AVX2, text, sizeof text), "baseline avx2");
    assert_int_equal(strlen(ith_cpu_describe(0x3f, text, 10)), 9);
    ith_context_destroy(&context);
}

/* The instruction sets that ITHACA_CPU=`names` leaves of a machine that has all sets. */
static uint32_t limit_of(const char *names)
{
    uint32_t allowed = 0;
    char sentence[ITH_ERROR_BYTES] = "";
    setenv("ITHACA_CPU", names, 1);
    assert_true(ith_cpu_limit(&allowed, sentence, sizeof sentence));
    assert_string_equal(sentence, "");
    return allowed;
}

static void the_environment_names_instruction_sets(void **state)
{
    (void)state;
    uint32_t avx512 = ITH_CPU_BASELINE | ITH_CPU_AVX2 | ITH_CPU_AVX512;
    assert_int_equal(limit_of("baseline"), ITH_CPU_BASELINE);
    assert_int_equal(limit_of("avx2"), ITH_CPU_BASELINE | ITH_CPU_AVX2);
    assert_int_equal(limit_of(" avx2,\tbaseline, "), ITH_CPU_BASELINE | ITH_CPU_AVX2);
    assert_int_equal(limit_of("avx512"), avx512);
    assert_int_equal(limit_of("avx512_bf16"), avx512 | ITH_CPU_AVX512_BF16);
    assert_int_equal(limit_of("avx512_fp16"), avx512 | ITH_CPU_AVX512_FP16);
    assert_int_equal(limit_of("neon avx2"), ITH_CPU_BASELINE | ITH_CPU_AVX2 | ITH_CPU_NEON);
    assert_int_equal(limit_of("amx_bf16"), avx512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16);
    assert_int_equal(limit_of("amx_bf16,avx512_fp16,neon"), ITH_CPU_ALL);
    assert_int_equal(limit_of(""), ITH_CPU_ALL);
    assert_int_equal(limit_of(", "), ITH_CPU_ALL);
}

static void contexts_keep_within_the_environment(void **state)
{
    (void)state;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *context = NULL;
    setenv("ITHACA_CPU", "baseline", 1);
    options.cpu_mask = ITH_CPU_ALL;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    assert_int_equal(ith_context_cpu(context), ITH_CPU_BASELINE);
    ith_context_destroy(&context);
    setenv("ITHACA_CPU", "avx2 avx3", 1);
    assert_int_equal(ith_context_create(&options, &context), ITH_ERR_ARGUMENT);
    assert_null(context);
    assert_string_equal(ith_context_error(NULL),
                        "ITHACA_CPU names 'avx3', which is no instruction set; the known ones are baseline avx2 avx512 "
                        "avx512_bf16 avx512_fp16 neon amx_bf16");
    setenv("ITHACA_CPU", "AVX2", 1);
    assert_int_equal(ith_context_create(NULL, &context), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(NULL), "'AVX2'"));
    unsetenv("ITHACA_CPU");
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_string_equal(ith_context_error(context), "");
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(failures_keep_their_sentence),
        cmocka_unit_test(long_sentences_lose_their_middle),
        cmocka_unit_test(long_sentences_may_be_no_text),
        cmocka_unit_test(long_places_and_reasons_keep_their_ends),
        cmocka_unit_test(a_sentence_continues_the_one_before),
        cmocka_unit_test(the_log_has_lines_of_its_level),
        cmocka_unit_test(long_lines_of_the_log_lose_their_middle),
        cmocka_unit_test(memory_is_counted_over_clones),
        cmocka_unit_test(an_allocator_may_refuse),
        cmocka_unit_test(sixteen_bits_round_to_even),
        cmocka_unit_test(shares_cover_everything_once),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(masks_hide_instruction_sets),
        cmocka_unit_test(the_environment_names_instruction_sets),
        cmocka_unit_test(contexts_keep_within_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
