/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom is kept in memory, written to files and read back. Damaged and foreign files are refused. */
#include "base/hash.h"
#include "kernels/kernel.h"
#include "plan/wisdom.h"
#include "support/corpus.h"
#include "support/memory.h"
#include "support/probe_wisdom.h"
#include "support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/plan_trial.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder, path[300];

static ith_context *masked_context(uint32_t cpu_mask)
{
    ith_context *context = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = cpu_mask;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    return context;
}

/* An entry about attention with head size `head_dim`, for a kernel that any machine runs. */
static ith_wisdom_entry entry_of(int64_t head_dim, int32_t rate)
{
    ith_wisdom_entry entry = {.count = 1, .figures = {{"f32_ref", rate}}};
    snprintf(entry.subject, sizeof entry.subject, "attention f32 head_dim=%lld softmax=online", (long long)head_dim);
    return entry;
}

static void put(ith_context *context, ith_wisdom_entry entry)
{
    ith_wisdom *wisdom = NULL;
    assert_int_equal(ith_wisdom_open(context, &wisdom), ITH_OK);
    ith_wisdom_put(wisdom, &entry);
    ith_wisdom_close(context);
}

static int64_t count_of(ith_context *context)
{
    ith_wisdom *wisdom = NULL;
    int64_t count = 0;
    assert_int_equal(ith_wisdom_open(context, &wisdom), ITH_OK);
    while (ith_wisdom_at(wisdom, count))
        count++;
    ith_wisdom_close(context);
    return count;
}

/* ---- In memory ------------------------------------------------------------------------------------------------- */

static void every_kernel_can_be_kept(void **state)
{
    (void)state;
    const ith_attn_kernel *kernel;
    assert_null(ith_attn_kernel_at(ITH_WISDOM_FIGURES)); /* an entry could not hold the figures of more kernels */
    for (int i = 0; (kernel = ith_attn_kernel_at(i)); i++) {
        assert_true(strlen(kernel->name) < ITH_ATTN_NAME_BYTES);
        assert_null(strchr(kernel->name, ' '));
    }
}

static void the_oldest_gives_way(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    for (int i = 1; i <= ITH_WISDOM_ENTRIES + 5; i++)
        put(context, entry_of(i, i));
    put(context, entry_of(20, 777)); /* replaces the entry with this subject */
    assert_int_equal(count_of(context), ITH_WISDOM_ENTRIES);
    ith_wisdom *wisdom = NULL;
    assert_int_equal(ith_wisdom_open(context, &wisdom), ITH_OK);
    for (int i = 1; i <= ITH_WISDOM_ENTRIES + 5; i++)
        assert_int_equal(ith_wisdom_find(wisdom, entry_of(i, 1).subject) != NULL, i > 5);
    assert_null(ith_wisdom_find(wisdom, "attention bf16 head_dim=20 softmax=online"));
    assert_null(ith_wisdom_find(wisdom, "attention f32 head_dim=20 softmax=fixed_m"));
    assert_string_equal(ith_wisdom_at(wisdom, 14)->subject, "attention f32 head_dim=20 softmax=online");
    assert_int_equal(ith_wisdom_at(wisdom, 14)->figures[0].value, 777);
    ith_wisdom_close(context);
    ith_context_destroy(&context);
}

/* Contexts that are clones of one another share wisdom, whichever of them adds it. */
static void clones_share_it(void **state)
{
    (void)state;
    ith_context *context = masked_context(0), *clone = NULL, *second = NULL;
    assert_int_equal(ith_context_clone(context, &clone), ITH_OK);
    assert_int_equal(ith_context_clone(clone, &second), ITH_OK);
    put(clone, entry_of(8, 5));
    ith_context_destroy(&clone);
    assert_int_equal(count_of(second), 1);
    assert_int_equal(count_of(context), 1);
    ith_context_destroy(&second);
    ith_context_destroy(&context);
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
    (void)state;
    folder = temporary_folder();
    snprintf(path, sizeof path, "%s/wisdom", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

static void write_text(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Every test of files begins without a file. */
static int no_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* The text of the file; static storage. */
static const char *read_text(void)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    return text;
}

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    ith_context *one = masked_context(0), *two = masked_context(0);
    trial t = new_trial();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(run_trial_in(one, &t, 2), ITH_OK);
    t.options.softmax = ITH_SOFTMAX_FIXED_M;
    assert_int_equal(run_trial_in(one, &t, 2), ITH_OK);
    put(one, entry_of(65536, ITH_WISDOM_MOST));
    put(one, entry_of(1, 1));
    assert_int_equal(ith_wisdom_save(one, path), ITH_OK);
    assert_int_equal(ith_wisdom_load(two, path), ITH_OK);
    assert_int_equal(count_of(two), count_of(one));
    assert_true(count_of(two) >= 2);
    ith_wisdom *a = NULL, *b = NULL;
    assert_int_equal(ith_wisdom_open(one, &a), ITH_OK);
    assert_int_equal(ith_wisdom_open(two, &b), ITH_OK);
    const ith_wisdom_entry *x;
    for (int64_t i = 0; (x = ith_wisdom_at(a, i)); i++) {
        ith_wisdom_entry read = *ith_wisdom_at(b, i);
        assert_false(read.own); /* when saved, an entry from a file must not replace a newer entry of another process */
        read.own = x->own;
        assert_memory_equal(x, &read, sizeof *x);
    }
    ith_wisdom_close(two);
    ith_wisdom_close(one);
    assert_int_equal(ith_plan_predict(two, &t.problem, &t.options, 2, 0, true, &info), ITH_OK);
    assert_ptr_equal(info.kernel, t.info.kernel);
    char before[65536];
    snprintf(before, sizeof before, "%s", read_text());
    assert_int_equal(ith_wisdom_save(two, path), ITH_OK); /* onto the file that is there */
    assert_string_equal(before, read_text());
    ith_context_destroy(&one);
    ith_context_destroy(&two);
}

/* Appends the checksum of the lines of a text. */
static void seal(char *text, size_t bytes)
{
    uint64_t hash = 0;
    char *end;
    for (char *line = text; (end = strchr(line, '\n')); line = end + 1)
        hash = ith_hash(hash, line, end - line);
    size_t length = strlen(text);
    assert_true(snprintf(text + length, bytes - length, "checksum %016" PRIx64 "\n", hash) < (int)(bytes - length));
}

/* The length of the first two lines of the text. */
static int header_length(const char *text)
{
    return (int)(strchr(strchr(text, '\n') + 1, '\n') + 1 - text);
}

/* Writes a file with these entries, with the header that `context` writes. */
static void write_entries(ith_context *context, const char *entries)
{
    char text[4096];
    unlink(path);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    const char *saved = read_text();
    snprintf(text, sizeof text, "%.*s%s", header_length(saved), saved, entries);
    seal(text, sizeof text);
    write_text(text, strlen(text));
}

/* Wisdom from a file decides, whatever a measurement would find, unless the options name a kernel. Of the kernels in a
 * line, the first that this machine runs is taken, in whatever order the table of kernels has them. */
static void wisdom_decides(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    const ith_attn_kernel *kernel;
    trial t = new_trial();
    int tried = 0;
    for (int i = 0; (kernel = ith_attn_kernel_at(i)); i++) {
        if ((kernel->cpu & ~ith_context_cpu(context)) || kernel->cpu == ITH_CPU_BASELINE ||
            !kernel->supports(ITH_F32, 8, ITH_SOFTMAX_ONLINE))
            continue;
        char line[256];
        snprintf(line, sizeof line, "attention f32 head_dim=8 softmax=online: %s 1 f32_ref 1000\n", kernel->name);
        write_entries(context, line);
        assert_int_equal(ith_wisdom_load(context, path), ITH_OK);
        assert_int_equal(run_trial_in(context, &t, 3), ITH_OK);
        assert_ptr_equal(t.info.kernel, kernel->name);
        assert_int_equal(t.info.kernel_origin, ITH_KERNEL_RECALLED);
        tried++;
    }
    t.options.softmax = ITH_SOFTMAX_FIXED_M; /* wisdom has no entry for this softmax */
    assert_int_equal(run_trial_in(context, &t, 3), ITH_OK);
    assert_int_not_equal(t.info.kernel_origin, ITH_KERNEL_RECALLED);
    t.options.kernel = "f32_ref";
    assert_int_equal(run_trial_in(context, &t, 3), ITH_OK);
    assert_string_equal(t.info.kernel, "f32_ref");
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_NAMED);
    ith_context_destroy(&context);
    if (!tried) {
        fprintf(stderr, "skipped: a choice between kernels: this machine runs plain C alone\n");
        skip();
    }
}

/* Entries about unknown operations, and rates of kernels in plugins that are not loaded, have no effect, but are kept
 * when the file is saved. */
static void what_is_unknown_is_kept(void **state)
{
    (void)state;
    static const char entries[] =
        "linear bf16 1536x8960 tiles=64x32: panels_amx 812000\n"
        "attention f32 head_dim=8 softmax=online: of_a_plugin 999999999 f32_ref 1 another 5\n";
    ith_context *context = masked_context(ITH_CPU_BASELINE);
    trial t = new_trial();
    write_entries(context, entries);
    assert_int_equal(ith_wisdom_load(context, path), ITH_OK);
    assert_int_equal(run_trial_in(context, &t, 2), ITH_OK);
    assert_string_equal(t.info.kernel, "f32_ref");
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_RECALLED);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    assert_non_null(strstr(read_text(), entries));
    ith_context_destroy(&context);
}

/* Of the kernels that were measured together, the preferred one that this machine runs is taken. Here the machine lacks
 * instructions that the fastest needs. */
static void the_preferred_of_what_runs_is_taken(void **state)
{
    (void)state;
    ith_context *plain = masked_context(ITH_CPU_BASELINE);
    ith_wisdom_entry entry = entry_of(8, 5);
    trial t = new_trial();
    entry.figures[entry.count++] = (ith_wisdom_figure){"f32_avx2", 900};
    put(plain, entry);
    assert_int_equal(run_trial_in(plain, &t, 2), ITH_OK);
    assert_string_equal(t.info.kernel, "f32_ref");
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_RECALLED);
    ith_context_destroy(&plain);
}

/* A plan that only estimates adds no wisdom; a plan that measures does. */
static void wisdom_comes_from_measuring(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    trial t = new_trial();
    assert_int_equal(run_trial_in(context, &t, 2), ITH_OK);
    assert_int_equal(count_of(context), 0);
    t.options.effort = ITH_EFFORT_MEASURE;
    assert_int_equal(run_trial_in(context, &t, 2), ITH_OK);
    assert_int_equal(count_of(context), t.info.kernel_origin == ITH_KERNEL_MEASURED);
    t.options.effort = ITH_EFFORT_ESTIMATE;
    const char *measured = t.info.kernel;
    assert_int_equal(run_trial_in(context, &t, 2), ITH_OK);
    assert_ptr_equal(t.info.kernel, measured);
    ith_context_destroy(&context);
}

static void expect_hostile(ith_context *context, const char *text, size_t bytes, const char *word)
{
    int64_t before = count_of(context);
    write_text(text, bytes);
    ith_status status = ith_wisdom_load(context, path);
    if (status != ITH_ERR_FORMAT || !strstr(ith_context_error(context), word))
        print_error("expected '%s': %s (%s)\n", word, ith_context_error(context), ith_status_name(status));
    assert_int_equal(status, ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), word));
    assert_int_equal(count_of(context), before);
    assert_int_equal(memory_of(context).current_bytes, 0);
}

#define TEN "k 1 k 1 k 1 k 1 k 1 k 1 k 1 k 1 k 1 k 1 "

static void hostile_lines_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *line, *word;
    } rows[] = {
        {"", "line 4: a line must be SUBJECT: NAME NUMBER ..., or the checksum, and not "},
        {"attention", "or the checksum, and not attention"},
        {"attention f32 head_dim=8 softmax=online f32_ref 5", "and not attention f32"},
        {": f32_ref 5", "and not : f32_ref 5"},
        {"end of it", "and not end of it"},
        {"a subject of more than two hundred and fifty-five letters, which no kernel of ours can be about, whatever "
         "its type, its head size and its softmax, however many keys it has, and on whatever device of whatever maker "
         "it computes, since no maker's name of a device has so many letters: f32_ref 5",
         "a subject must be shorter than 256 letters"},
        {"attention f32 head_dim=8 softmax=online:", "no number follows the subject attention f32 head_dim=8"},
        {"attention: f32_ref", "a number must be from 1 to 1000000000, not missing"},
        {"attention: f32_ref 0", "not 0"},
        {"attention: f32_ref -8", "not -8"},
        {"attention: f32_ref 1000000001", "not 1000000001"},
        {"attention: f32_ref 99999999999999999999999", "not 999"},
        {"attention: f32_ref 1e9", "not 1e9"},
        {"attention: f32_ref 5x", "not 5x"},
        {"attention: f32_ref 5 7", "not missing"},
        {"attention: f32_ref 5\r", "plain ASCII"},
        {"attention:\tf32_ref 5", "plain ASCII"},
        {"attention: a_kernel_whose_name_is_as_long_as_forty_eight_letters_ 5", "must be shorter than 48 letters"},
        {"attention: " TEN TEN TEN "k 1 k 1 k 1", "more numbers than an entry can hold"},
        {"end", "and not end"},
        {"checksum 0000000000000000", "line 4: the file was changed or damaged: its contents have the checksum "},
        {"checksum ", "line 4: the file was changed or damaged"},
        {"tiles f32_ref f32 head_dim=8 softmax=online keys=512: block_q 5000 block_kv 8 block_kv_compute 8 "
         "block_kv_compute_in 1",
         "line 4: block_q is 5000, and must be a multiple of 1 up to 4096 with kernel f32_ref"},
        {"tiles f32_ref f32 head_dim=8 softmax=online keys=512: block_q 5 block_kv 8 block_kv_compute 16 "
         "block_kv_compute_in 1",
         "line 4: block_kv is 8, and must be at least block_kv_compute, which is 16"},
        {"tiles f32_ref f32 head_dim=8 softmax=online keys=512: block_q 5 block_kv 8 block_kv_compute 8",
         "line 4: block_kv_compute_in is 0, and must be"},
        {"tiles f32_ref f32 head_dim=65537 softmax=online keys=512: block_q 5 block_kv 8", "head_dim is 65537"},
        {"tiles f32_ref f32 head_dim=0 softmax=online keys=512: block_q 5 block_kv 8", "line 4: head_dim is 0"},
    };
    ith_context *context = masked_context(0);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    static char empty[65536];
    char text[8192];
    snprintf(empty, sizeof empty, "%s", read_text());
    int header = header_length(empty);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* the line before is right, and must not count either */
        snprintf(text, sizeof text, "%.*sattention f32 head_dim=7 softmax=online: f32_ref 5\n%s\n", header, empty,
                 rows[i].line);
        expect_hostile(context, text, strlen(text), rows[i].word);
    }
    ith_context_destroy(&context);
}

/* The longest subject and the longest name, with the zeros behind them, fill their memory. */
static void the_longest_words_are_read(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    char subject[ITH_WISDOM_SUBJECT_BYTES + 1], name[ITH_ATTN_NAME_BYTES + 1], line[512];
    for (int longer = 0; longer < 4; longer++) {
        memset(subject, 's', sizeof subject);
        memset(name, 'n', sizeof name);
        subject[ITH_WISDOM_SUBJECT_BYTES - 1 + longer % 2] = name[ITH_ATTN_NAME_BYTES - 1 + longer / 2] = '\0';
        snprintf(line, sizeof line, "%s: %s 5\n", subject, name);
        const int64_t before = count_of(context);
        write_entries(context, line);
        assert_int_equal(ith_wisdom_load(context, path), longer ? ITH_ERR_FORMAT : ITH_OK);
        assert_int_equal(count_of(context), before + !longer);
    }
    ith_context_destroy(&context);
}

static void hostile_files_change_nothing(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    static char good[65536], text[300000];
    int header = header_length(read_text());
    snprintf(good, sizeof good, "%.*sattention f32 head_dim=7 softmax=online: f32_ref 5\n", header, read_text());
    int entries = (int)strlen(good);
    seal(good, sizeof good);
    int length = (int)strlen(good);
    write_text(good, (size_t)length);
    ith_context *other = masked_context(0);
    assert_int_equal(ith_wisdom_load(other, path), ITH_OK);
    ith_context_destroy(&other);
    for (int cut = 0; cut < length; cut++) /* the file is cut off at every place */
        expect_hostile(context, good, (size_t)cut, "line ");
    for (int i = 0; i < length; i++) { /* each character is spoilt in turn */
        memcpy(text, good, (size_t)length);
        text[i] = (char)(text[i] ^ 0x80);
        expect_hostile(context, text, (size_t)length, "line ");
        text[i] = '\0';
        expect_hostile(context, text, (size_t)length, "line ");
        text[i] = (char)(good[i] ^ 1); /* may become another number, or another name */
        expect_hostile(context, text, (size_t)length, "line ");
    }
    int longer = snprintf(text, sizeof text, "%s\n", good);
    expect_hostile(context, text, (size_t)longer, "the file goes on after its end");
    memset(text, 'x', sizeof text);
    expect_hostile(context, text, sizeof text, "line 1: the line is too long or cut off");
    memset(text, 0, sizeof text);
    expect_hostile(context, text, sizeof text, "line 1");
    int at = snprintf(text, sizeof text, "%.*s", entries, good);
    memset(text + at, ' ', 100000);
    expect_hostile(context, text, (size_t)at + 100000, "too long");
    for (int i = 0; i <= ITH_WISDOM_ENTRIES; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "attention %d: f32_ref 1\n", i);
    expect_hostile(context, text, (size_t)at, "more lines than wisdom can hold");
    static const char *const others[] = {"ithaca wisdom 2, library 0.2.0\n", "ithaca wisdom 3, library 99.0.0\n",
                                         "ithaca wisdom 4, library 0.1.0\n"};
    for (int i = 0; i < 3; i++)
        expect_hostile(context, others[i], strlen(others[i]),
                       "line 1: this wisdom is of another format or version: measure again, to get one that begins "
                       "with ithaca wisdom 3, library ");
    expect_hostile(context, "safetensors\n", 12, "line 1: this is not wisdom");
    ith_context_destroy(&context);
}

/* Wisdom of another machine, here of one with fewer instruction sets, is refused. */
static void wisdom_of_another_machine_is_refused(void **state)
{
    (void)state;
    ith_context *context = masked_context(0), *plain = masked_context(ITH_CPU_BASELINE);
    put(plain, entry_of(8, 5));
    assert_int_equal(ith_wisdom_save(plain, path), ITH_OK);
    bool differ = ith_context_cpu(context) != ITH_CPU_BASELINE;
    if (differ) {
        assert_int_equal(ith_wisdom_load(context, path), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), "line 2: this wisdom is of another machine"));
        assert_int_equal(count_of(context), 0);
    }
    ith_context_destroy(&context);
    ith_context_destroy(&plain);
    if (!differ) {
        fprintf(stderr, "skipped: a machine that has less than this one\n");
        skip();
    }
}

static void files_that_cannot_be_had(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    char missing[300];
    snprintf(missing, sizeof missing, "%s/none/wisdom", folder);
    assert_int_equal(ith_wisdom_load(context, missing), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), missing));
    assert_int_equal(ith_wisdom_save(context, missing), ITH_ERR_IO);
    assert_int_equal(ith_wisdom_load(context, folder), ITH_ERR_IO);
    assert_int_equal(ith_wisdom_save(context, folder), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "it is a folder"));
    assert_int_equal(ith_wisdom_save(context, "/dev/full"), ITH_ERR_IO);
    assert_int_equal(ith_wisdom_load(context, "/dev/null"), ITH_ERR_IO);
    assert_int_equal(ith_wisdom_load(context, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_wisdom_save(context, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_wisdom_load(NULL, path), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_wisdom_save(NULL, path), ITH_ERR_ARGUMENT);
    ith_context_destroy(&context);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    ith_context_destroy(&context);
    bool passed = false;
    for (long refuse = 1; !passed; refuse++) {
        failing_allocator allocator;
        context = failing_context(&allocator, refuse);
        ith_status loaded = ith_wisdom_load(context, path), saved = ith_wisdom_save(context, path);
        passed = atomic_load(&allocator.calls) <= refuse;
        assert_true(loaded == ITH_OK || loaded == ITH_ERR_MEMORY);
        assert_true(saved == ITH_OK || saved == ITH_ERR_MEMORY);
        assert_int_equal(loaded == ITH_OK && saved == ITH_OK, passed);
        assert_int_equal(memory_of(context).current_bytes, 0);
        ith_context_destroy(&context);
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
}

/* ---- Merging --------------------------------------------------------------------------------------------------- */

/* An entry that this process has measured. */
static ith_wisdom_entry own_entry(int64_t head_dim, int32_t rate)
{
    ith_wisdom_entry entry = entry_of(head_dim, rate);
    entry.own = true;
    return entry;
}

static int32_t rate_in_file(ith_context *like, int64_t head_dim)
{
    ith_context *reader = masked_context(ith_context_cpu(like));
    ith_wisdom *wisdom = NULL;
    assert_int_equal(ith_wisdom_load(reader, path), ITH_OK);
    assert_int_equal(ith_wisdom_open(reader, &wisdom), ITH_OK);
    int64_t rate = ith_wisdom_value(ith_wisdom_find(wisdom, entry_of(head_dim, 1).subject), "f32_ref");
    ith_wisdom_close(reader);
    ith_context_destroy(&reader);
    return (int32_t)rate;
}

/* Two processes read the same file. Entries that one of them measures and saves stay when the other saves the older
 * entries that it has read. */
static void what_was_measured_last_stays(void **state)
{
    (void)state;
    ith_context *one = masked_context(0), *two = masked_context(0);
    put(one, own_entry(8, 100));
    put(one, own_entry(16, 200));
    assert_int_equal(ith_wisdom_save(one, path), ITH_OK);
    assert_int_equal(ith_wisdom_load(two, path), ITH_OK);
    put(one, own_entry(8, 111));
    put(one, own_entry(32, 300));
    assert_int_equal(ith_wisdom_save(one, path), ITH_OK);
    put(two, own_entry(16, 222));
    assert_int_equal(ith_wisdom_save(two, path), ITH_OK);
    assert_int_equal(rate_in_file(one, 8), 111);
    assert_int_equal(rate_in_file(one, 16), 222);
    assert_int_equal(rate_in_file(one, 32), 300);
    ith_context_destroy(&one);
    ith_context_destroy(&two);
}

/* Saving replaces wisdom of an earlier version, which is of no use. It does not replace a file that is damaged or is no
 * wisdom. */
static void only_wisdom_is_replaced(void **state)
{
    (void)state;
    static const char old[] = "ithaca wisdom 2, library 0.1.0\nmachine avx2; A\nend\n", other[] = "a letter\n";
    ith_context *context = masked_context(0);
    put(context, own_entry(8, 5));
    write_text(old, strlen(old));
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    assert_int_equal(rate_in_file(context, 8), 5);
    write_text(other, strlen(other));
    assert_int_equal(ith_wisdom_save(context, path), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "line 1: this is not wisdom"));
    assert_string_equal(read_text(), other);
    unlink(path);
    assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
    char cut[1024];
    snprintf(cut, sizeof cut, "%.*s", (int)(strchr(read_text(), '\n') + 1 - read_text()), read_text());
    write_text(cut, strlen(cut)); /* a file of this version, of which only the first line is left */
    assert_int_equal(ith_wisdom_save(context, path), ITH_ERR_FORMAT);
    assert_string_equal(read_text(), cut);
    ith_context_destroy(&context);
}

enum { SAVERS = 8, SUBJECTS = 12 };

/* Saves SUBJECTS entries one after the other, as if each were measured. Process 0 is killed at any moment. */
static void save_many(int process)
{
    for (int i = 0; i < SUBJECTS; i++) {
        ith_context *context = masked_context(0);
        put(context, own_entry(1 + process * SUBJECTS + i, 7));
        if (ith_wisdom_save(context, path))
            _exit(1);
        ith_context_destroy(&context);
    }
    _exit(0);
}

/* Eight processes save to one file at the same time, and one of them is killed. The file has all entries of the other
 * seven, and the entries that the killed process had saved. */
static void processes_lose_nothing(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    pid_t pids[SAVERS];
    for (int turn = 0; turn < 3; turn++) {
        unlink(path);
        for (int i = 0; i < SAVERS; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (!pids[i])
                save_many(i);
        }
        usleep((useconds_t)(2000 + 7000 * turn));
        kill(pids[0], SIGKILL);
        for (int i = 0; i < SAVERS; i++) {
            int ended = 0;
            assert_int_equal(waitpid(pids[i], &ended, 0), pids[i]);
            assert_true(i == 0 || (WIFEXITED(ended) && WEXITSTATUS(ended) == 0));
        }
        for (int i = SUBJECTS; i < SAVERS * SUBJECTS; i++)
            assert_int_equal(rate_in_file(context, 1 + i), 7);
        for (int i = 1; i < SUBJECTS; i++) /* an entry is there if a later entry is */
            assert_true(rate_in_file(context, i) == 7 || rate_in_file(context, i + 1) == 0);
    }
    ith_context_destroy(&context);
}

/* Good and bad files are closed after loading. */
static void files_are_closed(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    put(context, entry_of(8, 100));
    const int before = temporary_count("/proc/self/fd");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ith_wisdom_save(context, path), ITH_OK);
        assert_int_equal(ith_wisdom_load(context, path), ITH_OK);
        assert_int_equal(ith_wisdom_load(context, "/dev/null"), ITH_ERR_IO);
    }
    assert_int_equal(temporary_count("/proc/self/fd"), before);
    ith_context_destroy(&context);
}

/* The corpus of tools/fuzz_wisdom.c. */
static void entries_of_the_corpus(void **state)
{
    (void)state;
    corpus_replay("attention/corpus_wisdom", probe_wisdom_file, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_can_be_kept),
        cmocka_unit_test(the_oldest_gives_way),
        cmocka_unit_test(clones_share_it),
        cmocka_unit_test_setup(what_is_saved_is_loaded, no_file),
        cmocka_unit_test_setup(wisdom_decides, no_file),
        cmocka_unit_test_setup(what_is_unknown_is_kept, no_file),
        cmocka_unit_test(the_preferred_of_what_runs_is_taken),
        cmocka_unit_test(wisdom_comes_from_measuring),
        cmocka_unit_test_setup(hostile_lines_change_nothing, no_file),
        cmocka_unit_test_setup(the_longest_words_are_read, no_file),
        cmocka_unit_test_setup(hostile_files_change_nothing, no_file),
        cmocka_unit_test_setup(wisdom_of_another_machine_is_refused, no_file),
        cmocka_unit_test_setup(files_that_cannot_be_had, no_file),
        cmocka_unit_test_setup(what_was_measured_last_stays, no_file),
        cmocka_unit_test_setup(only_wisdom_is_replaced, no_file),
        cmocka_unit_test_setup(processes_lose_nothing, no_file),
        cmocka_unit_test_setup(files_are_closed, no_file),
        cmocka_unit_test(entries_of_the_corpus),
        cmocka_unit_test_setup(every_allocation_may_fail, no_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
