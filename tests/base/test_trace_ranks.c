/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: every recorded span is in the file once, on a row where it overlaps no other; many threads record at
 * once. */
#include "base/clock.h"
#include "base/context.h"
#include "base/trace.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/temporary.h"
#include "support/trace_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static trace_file saved(ith_context *context)
{
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    assert_int_equal(ith_trace_save(context, path), ITH_OK);
    assert_int_equal(temporary_count(folder), 1);
    char *text = temporary_read(path, NULL);
    trace_file file;
    assert_true(trace_file_parse(text, &file));
    free(text);
    temporary_remove(folder);
    return file;
}

static int count_events(const trace_file *file, const char *ph, const char *name)
{
    int count = 0;
    for (int i = 0; i < file->count; i++)
        count += !strcmp(file->events[i].ph, ph) && (!name || !strcmp(file->events[i].name, name));
    return count;
}

static const trace_event *find_event(const trace_file *file, const char *ph, const char *name, int pid, double tid)
{
    for (int i = 0; i < file->count; i++) {
        const trace_event *e = &file->events[i];
        if (!strcmp(e->ph, ph) && !strcmp(e->name, name) && e->pid == pid && (isnan(tid) || e->tid == tid))
            return e;
    }
    return NULL;
}

/* Every row has a name, and its spans lie inside one another or apart. */
static void check_rows(const trace_file *file)
{
    for (int i = 0; i < file->count; i++) {
        const trace_event *a = &file->events[i];
        if (strcmp(a->ph, "X"))
            continue;
        const trace_event *process = find_event(file, "M", "process_name", (int)a->pid, NAN);
        const trace_event *row = find_event(file, "M", "thread_name", (int)a->pid, a->tid);
        char rank[32];
        snprintf(rank, sizeof rank, "rank %d", (int)a->pid);
        assert_non_null(process);
        assert_string_equal(process->arg_name, rank);
        assert_non_null(row);
        assert_int_equal(!strncmp(row->arg_name, "exchange", 8), !strcmp(a->cat, "exchange"));
        for (int j = 0; j < i; j++) {
            const trace_event *b = &file->events[j];
            if (strcmp(b->ph, "X") || b->pid != a->pid || b->tid != a->tid)
                continue;
            double a_end = a->ts + a->dur, b_end = b->ts + b->dur, slack = 1e-4; /* of the sums; times are in 1e-3 */
            bool apart = a_end <= b->ts + slack || b_end <= a->ts + slack;
            bool inside = (a->ts >= b->ts && a_end <= b_end + slack) || (b->ts >= a->ts && b_end <= a_end + slack);
            assert_true(apart || inside);
        }
    }
}

static ith_context *traced(int64_t events)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_trace_start(context, events), ITH_OK);
    return context;
}

/* ---- What is in the file --------------------------------------------------------------------------------------- */

#define SPANS 300

/* Spans with begin times in the past. They end in the order of the calls, and overlap earlier spans at random. */
static void spans_are_drawn_where_they_were(void **state)
{
    (void)state;
    static const char *const names[] = {"attend", "pack", "wait", "fetch"};
    static const char *const categories[] = {"compute", "exchange", "wait", "exchange"};
    ith_context *context = traced(10 * SPANS);
    double begin[SPANS], ends[2][SPANS]; /* the end lies between these times */
    uint64_t seed = 3;
    for (int i = 0; i < SPANS; i++) {
        int back = i < 12 ? 0 : (int)random_below(&seed, 12); /* so that at most six of a kind overlap */
        begin[i] = back ? ends[1][i - back] : ith_trace_begin(context);
        ith_context_set_rank(context, i / 20 % 3);
        ends[0][i] = ith_clock_seconds();
        ith_trace_end(context, begin[i], names[i % 4], categories[i % 4]);
        ends[1][i] = ith_clock_seconds();
    }
    trace_file file = saved(context);
    assert_int_equal(count_events(&file, "X", NULL), SPANS);
    assert_true(file.lost == 0);
    check_rows(&file);
    /* Times are compared relative to the first span's beginning, in microseconds. They are rounded to a thousandth. */
    double first = 0;
    for (int i = 0; i < SPANS; i++) {
        int found = 0;
        for (int k = 0; k < file.count; k++) {
            const trace_event *e = &file.events[k];
            if (strcmp(e->ph, "X") || e->pid != i / 20 % 3 || strcmp(e->name, names[i % 4]))
                continue;
            if (i == 0 && !found)
                first = e->ts;
            double ts = first + (begin[i] - begin[0]) * 1e6, end = first - begin[0] * 1e6;
            bool fits = fabs(e->ts - ts) < 0.01 && e->ts + e->dur > end + ends[0][i] * 1e6 - 0.01 &&
                        e->ts + e->dur < end + ends[1][i] * 1e6 + 0.01;
            found += fits && !strcmp(e->cat, categories[i % 4]);
        }
        assert_true(found >= 1);
    }
    free(file.events);
    ith_context_destroy(&context);
}

static void counters_keep_their_values(void **state)
{
    (void)state;
    static const double values[] = {0, 0.25, -1.5, 123456.789, 1e11, 2e15, -0.000001, NAN, INFINITY, -INFINITY};
    ith_context *context = traced(100);
    for (int i = 0; i < 10; i++)
        ith_trace_counter(context, "hidden", values[i]);
    trace_file file = saved(context);
    assert_int_equal(count_events(&file, "C", "hidden"), 7);
    double last = 0;
    for (int i = 0, next = 0; i < file.count; i++) {
        const trace_event *e = &file.events[i];
        if (strcmp(e->ph, "C"))
            continue;
        assert_true(fabs(e->value - values[next]) <= 1e-12 * fabs(values[next]));
        assert_true(e->ts >= last && e->pid == 0);
        last = e->ts;
        next++;
    }
    free(file.events);
    ith_context_destroy(&context);
}

/* ---- Many threads, and little room ----------------------------------------------------------------------------- */

#define THREADS 4
#define EACH 3000

static const char *const thread_names[THREADS] = {"a", "b", "c", "d"};

static void *record_many(void *argument)
{
    ith_context *context = argument;
    for (int i = 0; i < EACH; i++) {
        double begin = ith_trace_begin(context);
        if (i % 3 == 0)
            ith_trace_counter(context, thread_names[ith_context_rank(context)], ith_context_rank(context));
        else
            ith_trace_end(context, begin, thread_names[ith_context_rank(context)], "compute");
    }
    return NULL;
}

static void record_in_threads(int64_t room)
{
    ith_context *root = traced(room), *contexts[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(ith_context_clone(root, &contexts[i]), ITH_OK);
        ith_context_set_rank(contexts[i], i);
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, contexts[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ith_context_destroy(&contexts[i]);
    }
    trace_file file = saved(root);
    int64_t all = THREADS * EACH, kept = room < all ? room : all;
    assert_int_equal(count_events(&file, "X", NULL) + count_events(&file, "C", NULL), kept);
    assert_true(file.lost == (double)(all - kept));
    for (int i = 0; i < file.count; i++) {
        const trace_event *e = &file.events[i];
        if (strcmp(e->ph, "M"))
            assert_string_equal(e->name, thread_names[(int)e->pid]);
        if (!strcmp(e->ph, "C"))
            assert_true(e->value == e->pid);
    }
    free(file.events);
    ith_context_destroy(&root);
}

static void threads_record_at_once(void **state)
{
    (void)state;
    record_in_threads(THREADS * EACH);
    record_in_threads(1000); /* the other spans are lost, and counted */
    record_in_threads(1);
}

typedef struct tally {
    int64_t visits, twice;
} tally;

static void *visit_wisdom(void *argument)
{
    ith_context *context = argument;
    for (int i = 0; i < EACH; i++) {
        tally *t = ith_context_lock_wisdom(context, sizeof *t);
        t->visits++;
        t->twice += 2;
        ith_context_unlock_wisdom(context);
    }
    return NULL;
}

static void wisdom_is_one_for_the_family(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *root = failing_context(&allocator, -1), *contexts[THREADS];
    pthread_t threads[THREADS];
    allocator.refuse = 1;
    assert_null(ith_context_lock_wisdom(root, sizeof(tally)));
    assert_non_null(strstr(ith_context_error(root), "wisdom"));
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(ith_context_clone(root, &contexts[i]), ITH_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, visit_wisdom, contexts[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ith_context_destroy(&contexts[i]);
    }
    const tally *t = ith_context_lock_wisdom(root, sizeof *t);
    assert_int_equal(t->visits, THREADS * EACH);
    assert_int_equal(t->twice, 2 * THREADS * EACH);
    ith_context_unlock_wisdom(root);
    assert_int_equal(memory_of(root).peak_bytes, 0);
    ith_context_destroy(&root);
    assert_int_equal(atomic_load(&allocator.held), 0);
}

/* ---- On and off, and what may fail ----------------------------------------------------------------------------- */

static void recording_allocates_nothing(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    for (int64_t room = 0; room < 20; room += 10) {
        assert_int_equal(ith_trace_start(context, room), ITH_OK);
        long calls = atomic_load(&allocator.calls);
        double begin = ith_trace_begin(context);
        assert_int_equal(begin < 0, room == 0);
        for (int i = 0; i < 20; i++) {
            ith_trace_end(context, begin, "attend", "compute");
            ith_trace_counter(context, "hidden", 1);
        }
        assert_int_equal(atomic_load(&allocator.calls), calls);
    }
    assert_int_equal(memory_of(context).peak_bytes, 0);
    ith_context_destroy(&context);
    assert_int_equal(atomic_load(&allocator.held), 0);
}

static void a_trace_begins_anew(void **state)
{
    (void)state;
    ith_context *context = traced(10), *clone = NULL;
    double early = ith_trace_begin(context);
    ith_trace_end(context, early, "old", "compute");
    assert_int_equal(ith_context_clone(context, &clone), ITH_OK);
    assert_int_equal(ith_trace_start(clone, 3), ITH_OK);
    ith_trace_end(context, early, "begun too early", "compute");
    ith_trace_end(context, -1, "begun while nothing was traced", "compute");
    ith_trace_end(context, ith_trace_begin(clone), "new", "compute");
    ith_context_destroy(&clone);
    trace_file file = saved(context);
    assert_int_equal(count_events(&file, "X", NULL), 1);
    assert_int_equal(count_events(&file, "X", "new"), 1);
    free(file.events);
    assert_int_equal(ith_trace_start(context, 5), ITH_OK);
    file = saved(context); /* no events at all */
    assert_int_equal(file.count, 0);
    assert_true(file.lost == 0);
    free(file.events);
    assert_int_equal(ith_trace_start(context, 0), ITH_OK);
    assert_int_equal(ith_trace_save(context, "/nowhere"), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "ith_trace_start"));
    ith_context_destroy(&context);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    ith_context *context = traced(4);
    assert_int_equal(ith_trace_start(NULL, 4), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_trace_start(context, -1), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "events is -1"));
    assert_int_equal(ith_trace_start(context, INT64_MAX / 8), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_trace_save(NULL, "x"), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_trace_save(context, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "path"));
    ith_context_destroy(&context);
}

static void a_failed_save_leaves_what_was_there(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    temporary_write(path, "old", 3);
    bool passed = false;
    for (long refuse = 0; !passed; refuse++) {
        assert_true(refuse < 20);
        failing_allocator allocator;
        ith_context *context = failing_context(&allocator, -1);
        allocator.refuse = 1 + refuse;
        ith_status status = ith_trace_start(context, 8);
        assert_int_equal(status, refuse ? ITH_OK : ITH_ERR_MEMORY);
        ith_trace_counter(context, "hidden", 1);
        status = ith_trace_save(context, path);
        passed = !status;
        if (refuse && !passed)
            assert_int_equal(status, ITH_ERR_MEMORY);
        char *text = temporary_read(path, NULL);
        assert_int_equal(!strcmp(text, "old"), !passed);
        free(text);
        assert_int_equal(temporary_count(folder), 1);
        assert_int_equal(memory_of(context).current_bytes, 0);
        ith_context_destroy(&context);
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
    ith_context *context = traced(4);
    assert_int_equal(ith_trace_save(context, folder), ITH_ERR_IO);
    assert_int_equal(ith_trace_save(context, temporary_path(folder, "no/such/folder")), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "no/such/folder"));
    assert_int_equal(ith_trace_save(context, "/dev/full"), ITH_ERR_IO);
    assert_int_equal(temporary_count(folder), 1);
    ith_context_destroy(&context);
    temporary_remove(folder);
}

typedef struct heard {
    int intervals;
    double seconds;
} heard;

static void hear(void *user, const char *name, double begin, double end)
{
    heard *h = user;
    assert_string_equal(name, "heard");
    h->intervals++, h->seconds += end - begin;
}

/* A listener gets the intervals that begin after ith_trace_listen, of clones too. The trace does not get them. */
static void a_listener_takes_the_place_of_the_trace(void **state)
{
    (void)state;
    heard h = {0};
    struct ith_trace *before = NULL;
    ith_context *context = traced(4), *clone = NULL;
    assert_int_equal(ith_context_clone(context, &clone), ITH_OK);
    const double early = ith_trace_begin(context);
    assert_int_equal(ith_trace_listen(context, hear, &h, &before), ITH_OK);
    const double begin = ith_trace_begin(clone);
    ith_trace_end(context, early, "early", "compute");
    ith_trace_end(clone, begin, "heard", "compute");
    ith_trace_end(context, begin, "heard", "compute");
    const double lasted = ith_clock_seconds() - begin;
    ith_trace_stop_listening(context, before);
    assert_int_equal(h.intervals, 2);
    assert_true(h.seconds > 0 && h.seconds <= 2 * lasted);
    ith_trace_end(context, ith_trace_begin(context), "recorded", "compute");
    trace_file file = saved(context);
    assert_int_equal(count_events(&file, "X", NULL), 1);
    assert_int_equal(count_events(&file, "X", "recorded"), 1);
    free(file.events);
    ith_context_destroy(&clone);
    ith_context_destroy(&context);
}

/* An allocator that records an event whenever it is asked for memory, as another thread could at this moment, and that
 * keeps bytes behind each block whose change shows. */
enum { GUARD_BYTES = 4096, GUARD = 0xa5 };
typedef struct recording_allocator {
    ith_context *context; /* NULL: nothing is recorded yet */
    struct {
        unsigned char *data;
        size_t bytes;
    } blocks[64];
    int count;
} recording_allocator;

static void *recording_allocate(void *user, size_t bytes, size_t alignment)
{
    recording_allocator *a = user;
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, alignment, bytes + GUARD_BYTES), 0);
    assert_true(a->count < 64);
    memset((char *)block + bytes, GUARD, GUARD_BYTES);
    a->blocks[a->count].data = block;
    a->blocks[a->count++].bytes = bytes;
    for (int i = 0; a->context && i < 8; i++)
        ith_trace_end(a->context, ith_trace_begin(a->context), "late", "compute");
    return block;
}

static void recording_release(void *user, void *block)
{
    (void)user, (void)block; /* the test looks at the bytes behind all blocks at its end, and frees them then */
}

/* Events that are recorded while a trace is packed or saved are not written beyond the memory for earlier events. */
static void events_may_come_while_a_trace_is_written(void **state)
{
    (void)state;
    recording_allocator user = {.context = NULL};
    const ith_allocator allocator = {sizeof allocator, recording_allocate, recording_release, &user};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    ith_context *context = NULL;
    void *package = NULL;
    int64_t bytes = 0;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    assert_int_equal(ith_trace_start(context, 1000), ITH_OK);
    for (int i = 0; i < 3; i++)
        ith_trace_end(context, ith_trace_begin(context), "early", "compute");
    user.context = context;
    assert_int_equal(ith_trace_pack(context, &package, &bytes), ITH_OK);
    assert_int_equal(ith_trace_add(context, package, bytes), ITH_OK);
    char *folder = temporary_folder();
    assert_int_equal(ith_trace_save(context, temporary_path(folder, "trace.json")), ITH_OK);
    temporary_remove(folder);
    ith_free(context, package);
    ith_context_destroy(&context);
    for (int i = 0; i < user.count; i++) {
        for (int byte = 0; byte < GUARD_BYTES; byte++)
            assert_int_equal(user.blocks[i].data[user.blocks[i].bytes + (size_t)byte], GUARD);
        free(user.blocks[i].data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_drawn_where_they_were),
        cmocka_unit_test(counters_keep_their_values),
        cmocka_unit_test(threads_record_at_once),
        cmocka_unit_test(wisdom_is_one_for_the_family),
        cmocka_unit_test(recording_allocates_nothing),
        cmocka_unit_test(a_trace_begins_anew),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_failed_save_leaves_what_was_there),
        cmocka_unit_test(a_listener_takes_the_place_of_the_trace),
        cmocka_unit_test(events_may_come_while_a_trace_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
