/* SPDX-License-Identifier: Apache-2.0 */
/* Flight records: the file is right about known operations, after a failure when the group is gone, while ranks work,
 * and in several processes. Error messages name hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/observer.h"
#include "comm/comm.h"
#include "support/in_range.h"
#include "support/memory.h"
#include "support/rank_group.h"
#include "support/refused.h"
#include "support/socket_group.h"
#include "support/temporary.h"
#include "support/times.h"
#include "support/told_group.h"

#include "socket_meeting.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Reading the file ------------------------------------------------------------------------------------------ */

/* Skips a JSON value (RFC 8259) without white space. Returns its end; NULL if there is none. */
static const char *skip_value(const char *at);

static const char *skip_string(const char *at)
{
    if (!at || *at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at == '\\' && !strchr("\"\\/bfnrtu", *++at))
            return NULL;
    }
    return at + 1;
}

static const char *skip_list(const char *at, char last)
{
    if (*++at == last)
        return at + 1;
    for (;; at++) {
        if (last == '}' && ((at = skip_string(at)) == NULL || *at++ != ':'))
            return NULL;
        if ((at = skip_value(at)) == NULL || (*at != ',' && *at != last))
            return NULL;
        if (*at == last)
            return at + 1;
    }
}

static const char *skip_value(const char *at)
{
    if (*at == '"')
        return skip_string(at);
    if (*at == '{')
        return skip_list(at, '}');
    if (*at == '[')
        return skip_list(at, ']');
    const char *begin = at += *at == '-';
    while (isdigit((unsigned char)*at))
        at++;
    bool fraction = at > begin && *at == '.';
    if (fraction)
        for (begin = ++at; isdigit((unsigned char)*at); at++)
            ;
    return at > begin ? at : NULL;
}

typedef struct record {
    char *text, *lines[1024];
    int count;
} record;

static record read_record(const char *path)
{
    record r = {.text = temporary_read(path, NULL)};
    for (char *line = strtok(r.text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *end = skip_value(line);
        assert_true(*line == '{' && end && !*end);
        assert_true(r.count < 1024);
        r.lines[r.count++] = line;
    }
    assert_true(r.count > 0 && strstr(r.lines[0], "{\"library\":\"ithaca "));
    return r;
}

static record save(ith_context *context)
{
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "flight");
    assert_int_equal(ith_flight_save(context, path), ITH_OK);
    assert_int_equal(temporary_count(folder), 1);
    record r = read_record(path);
    temporary_remove(folder);
    return r;
}

/* The text of a key's value in the line; "" if there is no such key. The memory is used again after eight calls. */
static const char *value(const char *line, const char *key)
{
    static char values[8][2048], quoted[64];
    static int turn;
    char *out = values[turn = (turn + 1) % 8];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted), *end = at ? skip_value(at + strlen(quoted)) : NULL;
    snprintf(out, sizeof values[0], "%.*s", end ? (int)(end - at - (long)strlen(quoted)) : 0,
             at ? at + strlen(quoted) : "");
    return out;
}

static double number(const char *line, const char *key)
{
    return strtod(value(line, key), NULL);
}

/* With n < 0 the line about a rank; otherwise the line about its n-th operation in the file. NULL if there is none. */
static const char *line_of(const record *r, int rank, int n)
{
    for (int i = 1; i < r->count; i++)
        if ((int)number(r->lines[i], "rank") == rank && (*value(r->lines[i], "ranks") ? n < 0 : n-- == 0))
            return r->lines[i];
    return NULL;
}

static void expect(const char *line, const char *const (*pairs)[2])
{
    assert_non_null(line);
    for (; (*pairs)[0]; pairs++)
        if (strcmp(value(line, (*pairs)[0]), (*pairs)[1]))
            fail_msg("%s is not %s: %s", (*pairs)[0], (*pairs)[1], line);
}

#define EXPECT(line, ...) expect(line, (const char *const[][2]){__VA_ARGS__, {NULL, NULL}})

/* ---- What is in it --------------------------------------------------------------------------------------------- */

/* Rank r sends 3 x 2 runs of 4 bytes to each later rank. Ranks 0 and 2 of 3 are a sub-group. */
static ith_status work(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int rank = ith_comm_rank(comm), size = ith_comm_size(comm), sends = 0, receives = 0;
    char memory[256] = {0}, all[30];
    float one = 1;
    ith_comm *part = NULL;
    ith_transfer out[4], in[4];
    for (int peer = 0; peer < size; peer++) {
        ith_region region = {.data = memory, .count = {3, 2}, .stride = {16, 8}, .bytes = 4};
        if (peer > rank)
            out[sends++] = (ith_transfer){peer, region};
        region.data = memory + 64 * (peer + 1);
        if (peer < rank)
            in[receives++] = (ith_transfer){peer, region};
    }
    ith_status status = ith_comm_barrier(comm);
    if (!status)
        status = ith_comm_allgather(comm, memory, 10, all);
    if (!status)
        status = ith_comm_exchange(comm, out, sends, in, receives);
    if (!status)
        status = ith_comm_split(comm, rank % 2, 0, &part);
    if (!status)
        status = ith_comm_allreduce(part, &one, 1, ITH_REDUCE_SUM);
    ith_observer_set_activity(context, "counting \"%d\" things", rank);
    ith_observer_set_part(context, rank + 3, 30);
    ith_comm_destroy(&part);
    return status;
}

static void operations_are_written(void **state)
{
    (void)state;
    ith_context *context = NULL;
    time_t before = time(NULL);
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 3, 3, work, NULL), ITH_OK);
    record r = save(context);
    EXPECT(line_of(&r, 1, -1), {"ranks", "3"}, {"doing", "\"counting \\\"1\\\" things\""}, {"part", "4"},
           {"parts", "30"}, {"status", "\"ITH_OK\""}, {"failure", "\"\""}, {"process", "0"});
    for (int rank = 0; rank < 3; rank++) {
        char sends[8], receives[8];
        const char *const peers[] = {"[1,2]", "[2,0]", "[0,1]"};
        snprintf(sends, sizeof sends, "%d", 24 * (2 - rank));
        snprintf(receives, sizeof receives, "%d", 24 * rank);
        EXPECT(line_of(&r, rank, 0), {"name", "\"a barrier\""}, {"number", "0"}, {"group", "0"}, {"group_size", "3"},
               {"group_first", "0"}, {"state", "\"done\""}, {"sends", "0"}, {"peer_count", "2"});
        EXPECT(line_of(&r, rank, 1), {"name", "\"an all-gather\""}, {"number", "1"}, {"sends", "20"},
               {"receives", "20"});
        EXPECT(line_of(&r, rank, 2), {"name", "\"an exchange\""}, {"number", "2"}, {"sends", sends},
               {"receives", receives}, {"peers", peers[rank]});
        const char *last = line_of(&r, rank, (int)number(line_of(&r, rank, -1), "operations") - 1);
        EXPECT(last, {"name", "\"an all-reduce\""}, {"number", "0"}, {"group", "1"},
               {"group_size", rank == 1 ? "1" : "2"}, {"group_first", rank == 1 ? "1" : "0"},
               {"peers", rank == 1 ? "[]"
                         : rank    ? "[0]"
                                   : "[2]"},
               {"sends", rank == 1 ? "0" : "4"});
        assert_true(number(last, "posted") <= number(last, "ended"));
        assert_true(number(last, "ended") <= number(r.lines[0], "saved"));
        assert_true(number(line_of(&r, rank, 0), "posted") > (double)before - 1);
    }
    free(r.text);
    ith_context_destroy(&context);
}

static ith_status many_barriers(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    ith_status status = ITH_OK;
    for (int i = 0; i < *(int *)user && !status; i++)
        status = ith_comm_barrier(comm);
    return status;
}

static void the_last_operations_are_kept(void **state)
{
    (void)state;
    ith_context *context = NULL;
    int barriers = 700;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 2, 2, many_barriers, &barriers), ITH_OK);
    record r = save(context);
    assert_int_equal(r.count, 1 + 2 * (1 + 256));
    for (int rank = 0; rank < 2; rank++) {
        EXPECT(line_of(&r, rank, -1), {"operations", "700"});
        EXPECT(line_of(&r, rank, 0), {"number", "444"});
        EXPECT(line_of(&r, rank, 255), {"number", "699"});
    }
    free(r.text);
    ith_context_destroy(&context);
}

/* An operation may end after a newer operation has taken its place in the record. Then its end does not change the
 * record. */
static void a_late_end_changes_no_newer_operation(void **state)
{
    (void)state;
    ith_context *context = NULL;
    const ith_flight_operation operation = {.name = "a barrier", .group_size = 1};
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_flight *flight = ith_flight_open(context, 0, 1);
    for (int i = 0; i <= 256; i++)
        assert_int_equal(ith_flight_post(flight, &operation), i);
    ith_flight_end(flight, 0, ITH_FLIGHT_FAILED);
    ith_flight_end(flight, 1, ITH_FLIGHT_FAILED);
    ith_observer_set_activity(context, "%s", "reading \xff\xc3\xa4 \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80");
    record r = save(context);
    EXPECT(line_of(&r, 0, -1), {"doing", "\"reading ?\xc3\xa4 ??? ??? ????\""});
    EXPECT(line_of(&r, 0, 0), {"state", "\"failed\""});
    EXPECT(line_of(&r, 0, 255), {"state", "\"posted\""}, {"ended", ""});
    assert_true(number(line_of(&r, 0, 0), "ended") >= number(line_of(&r, 0, 0), "posted"));
    free(r.text);
    ith_flight_close(flight, context);
    assert_null(ith_context_activity(context)); /* a later group may free the record, so nothing points to it */
    ith_context_destroy(&context);
}

/* A record takes an operation with more peers than it names, a host whose name has a control character, two failures,
 * and a late sign of life. */
static void a_record_holds_what_it_is_told(void **state)
{
    (void)state;
    ith_context *context = NULL;
    const ith_flight_operation operation = {
        .name = "an exchange", .group_size = 99, .peer_count = 98, .peers = {4, 3, 2, 1}};
    ith_place place = ITH_PLACE_INIT;
    snprintf(place.name, sizeof place.name, "a\x1fz\x01");
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_flight *flight = ith_flight_open(context, 7, 99);
    ith_flight_set_place(flight, &place);
    ith_flight_post(flight, &operation);
    record r = save(context);
    const double opened = number(line_of(&r, 7, -1), "alive");
    EXPECT(line_of(&r, 7, 0), {"peer_count", "98"}, {"peers", "[4,3,2,1]"});
    EXPECT(line_of(&r, 7, -1), {"host", "\"a\\u001fz\\u0001\""});
    free(r.text);
    nap(0.01);
    ith_flight_alive(flight);
    ith_flight_fail(flight, ITH_ERR_IO, "the first failure");
    ith_flight_fail(flight, ITH_ERR_MEMORY, "the second failure");
    r = save(context);
    assert_true(number(line_of(&r, 7, -1), "alive") > opened + 0.005);
    EXPECT(line_of(&r, 7, -1), {"status", "\"ITH_ERR_IO\""}, {"failure", "\"the first failure\""});
    free(r.text);
    ith_flight_close(flight, context);
    ith_context_destroy(&context);
}

/* ---- Failures -------------------------------------------------------------------------------------------------- */

static ith_status fail_in_rank_1(ith_context *context, ith_comm *comm, void *user)
{
    ith_status status = ith_comm_barrier(comm);
    if (!status && ith_comm_rank(comm) == 1)
        return ith_fail(context, ITH_ERR_IO, "%s", (const char *)user);
    for (int i = 0; i < 3 && !status; i++)
        status = ith_comm_barrier(comm);
    ith_comm_barrier(comm); /* the record does not get operations after the failure */
    return status;
}

/* A record can be saved after its group is gone. The record of the next group then replaces it. */
static void a_failure_is_written(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    /* Control characters become '?'. So do bytes that are no UTF-8 (RFC 3629), here at the end: an overlong form, a
     * surrogate, and a number past U+10FFFF. */
    char sentence[] =
        "rank 1: \"C:\\x\"\n\x01 \xff\xc3\xa4\xc3 lost \xe2\x82\xac \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80";
    assert_int_equal(ith_run_ranks(context, 3, 3, fail_in_rank_1, sentence), ITH_ERR_IO);
    record r = save(context);
    for (int rank = 0; rank < 3; rank += 2) {
        EXPECT(line_of(&r, rank, -1), {"status", "\"ITH_ERR_IO\""},
               {"failure", "\"rank 1: \\\"C:\\\\x\\\"?? ?\xc3\xa4? lost \xe2\x82\xac ??? ??? ????\""});
        int last = (int)number(line_of(&r, rank, -1), "operations") - 1; /* may be the first barrier already */
        assert_true(in_range(last, 0, 1));
        EXPECT(line_of(&r, rank, last), {"name", "\"a barrier\""}, {"state", "\"failed\""}, {"peer_count", "2"});
    }
    EXPECT(line_of(&r, 1, -1), {"operations", "1"});
    assert_null(line_of(&r, 1, 1));
    free(r.text);
    long held = atomic_load(&allocator.held);
    for (int round = 0; round < 3; round++) {
        int barriers = 1;
        assert_int_equal(ith_run_ranks(context, 3 - round, 3, many_barriers, &barriers), ITH_OK);
        r = save(context);
        assert_int_equal(r.count, 1 + 2 * (3 - round));
        free(r.text);
        assert_int_equal(atomic_load(&allocator.held), held - round);
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    assert_int_equal(atomic_load(&allocator.held), 0);
}

/* A group that lives on keeps its records, however many groups come and go beside it. */
static void living_groups_keep_their_records(void **state)
{
    (void)state;
    failing_allocator allocator;
    rank_group g;
    assert_int_equal(group_create(&g, failing_context(&allocator, -1), 2), ITH_OK);
    long held = 0;
    int barriers = 2;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ith_run_ranks(g.contexts[0], 3, 3, many_barriers, &barriers), ITH_OK);
        assert_true(i < 1 || atomic_load(&allocator.held) == held);
        held = atomic_load(&allocator.held);
    }
    record r = save(g.contexts[0]);
    assert_int_equal(r.count, 1 + 2 + 3 * (1 + barriers));
    free(r.text);
    assert_int_equal(ith_run_ranks(g.contexts[0], 2, 2, many_barriers, &barriers), ITH_OK);
    r = save(g.contexts[0]);
    assert_int_equal(r.count, 1 + 2 + 3 * (1 + barriers)); /* rank 2 of the last group of three is still there */
    EXPECT(line_of(&r, 2, -1), {"ranks", "3"});
    free(r.text);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
    assert_int_equal(atomic_load(&allocator.held), 0);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    REFUSED(NULL, "context is NULL", ith_flight_save(NULL, "x"));
    REFUSED(context, "path is NULL", ith_flight_save(context, NULL));
    assert_int_equal(ith_flight_save(context, "/nowhere/flight"), ITH_ERR_IO);
    record r = save(context); /* before there are ranks */
    assert_int_equal(r.count, 1);
    free(r.text);
    ith_context_destroy(&context);
}

static atomic_bool saving;

static void *save_often(void *context)
{
    while (atomic_load(&saving))
        assert_int_equal(ith_flight_save(context, "/dev/null"), ITH_OK);
    return NULL;
}

static void records_are_saved_while_ranks_work(void **state)
{
    (void)state;
    ith_context *root = NULL, *own = NULL;
    pthread_t thread;
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    assert_int_equal(ith_context_clone(root, &own), ITH_OK);
    atomic_store(&saving, true);
    assert_int_equal(pthread_create(&thread, NULL, save_often, own), 0);
    for (int i = 0; i < 30; i++)
        assert_int_equal(ith_run_ranks(root, 3, 3, work, NULL), ITH_OK);
    atomic_store(&saving, false);
    pthread_join(thread, NULL);
    ith_context_destroy(&own);
    ith_context_destroy(&root);
}

/* ---- Hosts ----------------------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 on host a, all others on b; two ranks are a process. */
static void tell_place(void *state, int rank, ith_place *place)
{
    int there = told_world_rank(state, rank);
    place->process = there / 2, place->host = there > 1;
    snprintf(place->name, sizeof place->name, "%s", there > 1 ? "b" : "a");
}

/* Each rank on a host of its own. The name of the host fills its array, without a zero at the end. */
static void tell_endless_name(void *state, int rank, ith_place *place)
{
    (void)state;
    place->process = place->host = rank;
    memset(place->name, 'x', sizeof place->name);
}

/* A failure in the sub-group of ranks 1 and 3 of a group of 4 ranks. `fn` runs in rank 3. Rank 1 gets a sentence that
 * has these parts. */
typedef struct mishap {
    ith_status (*fn)(ith_context *context, ith_comm *part);
    const char *parts[2];
    char told[1024];
} mishap;

static void suffer(rank_group *g, int rank, void *user)
{
    mishap *m = user;
    ith_comm *part = NULL;
    ith_status status = ith_comm_split(g->comms[rank], rank % 2, 0, &part);
    if (!status)
        status = ith_comm_barrier(part);
    ith_comm_set_timeout(part, 0.3);
    if (!status && rank == 3)
        m->fn(g->contexts[rank], part);
    else if (rank == 1 && (status || ith_comm_barrier(part)))
        strcpy(m->told, ith_context_error(g->contexts[1]));
    ith_comm_destroy(&part);
}

static ith_status stay_away(ith_context *context, ith_comm *part)
{
    (void)context;
    nap(0.9);
    return ith_comm_barrier(part);
}

static ith_status end_it(ith_context *context, ith_comm *part)
{
    ith_status status = ith_fail(context, ITH_ERR_IO, "the disk is full");
    ith_comm_abort(part, status);
    return status;
}

static ith_status call_wrongly(ith_context *context, ith_comm *part)
{
    (void)context;
    return ith_comm_broadcast(part, NULL, 4, 0);
}

/* Whether rank 1 gets the expected status and sentence. */
static bool tells(mishap *m)
{
    rank_group g;
    ith_context *root = NULL;
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    group_connect = told_group_create, told_place = tell_place;
    assert_int_equal(group_create(&g, root, 4), ITH_OK);
    group_connect = ith_comm_create_local;
    group_run(&g, suffer, m);
    record r = save(root);
    EXPECT(line_of(&r, 2, -1), {"host", "\"b\""}, {"process", "1"});
    free(r.text);
    group_destroy(&g);
    ith_context_destroy(&root);
    return strstr(m->told, m->parts[0]) && strstr(m->told, m->parts[1]);
}

static void sentences_name_hosts(void **state)
{
    (void)state;
    mishap mishaps[] = {{stay_away,
                         {"rank 1 (host a) waited 0.3",
                          "for rank 3 (host b) in a barrier (exchange 1 of group 1): no sign of life for 0.3 s"},
                         ""},
                        {end_it, {"rank 3 (host b): the disk is full", ""}, ""},
                        {call_wrongly,
                         {"rank 3 (host b), in a broadcast (exchange 1 of group 1): data is NULL, and bytes is 4", ""},
                         ""}};
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) {
        bool right = tells(&mishaps[i]);
        for (int n = 0; n < 8 && !right && mishaps[i].fn == stay_away; n++) /* a busy machine lets rank 1 wait longer */
            right = tells(&mishaps[i]);
        if (!right)
            fail_msg("%s, %s: %s", mishaps[i].parts[0], mishaps[i].parts[1], mishaps[i].told);
    }
}

static void a_long_name_of_a_host_is_cut(void **state)
{
    (void)state;
    rank_group g;
    ith_context *root = NULL;
    ith_place place = ITH_PLACE_INIT;
    char cut[ITH_PLACE_NAME] = "", quoted[80], named[128];
    memset(cut, 'x', sizeof cut - 1);
    snprintf(quoted, sizeof quoted, "\"%s\"", cut);
    snprintf(named, sizeof named, "rank 1 (host %s): ", cut);
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    group_connect = told_group_create, told_place = tell_endless_name;
    assert_int_equal(group_create(&g, root, 2), ITH_OK);
    group_connect = ith_comm_create_local;
    assert_int_equal(ith_comm_place(g.comms[0], 1, &place), ITH_OK);
    assert_memory_equal(place.name, cut, sizeof cut);
    end_it(g.contexts[1], g.comms[1]);
    assert_int_equal(ith_comm_barrier(g.comms[0]), ITH_ERR_IO);
    assert_memory_equal(ith_context_error(g.contexts[0]), named, strlen(named));
    record r = save(root);
    EXPECT(line_of(&r, 1, -1), {"host", quoted});
    free(r.text);
    group_destroy(&g);
    ith_context_destroy(&root);
}

/* ---- Processes ------------------------------------------------------------------------------------------------- */

#define PROCESSES 3

/* Each process writes its record to a file of its own. */
static int be_process(int rank, const char *folder, void *user)
{
    ith_context *context = NULL;
    ith_status status = ith_context_create(NULL, &context);
    ith_comm *comm = status ? NULL : socket_group_join(context, folder, rank, PROCESSES);
    char name[32];
    snprintf(name, sizeof name, "flight.%d", rank);
    status = comm ? work(context, comm, NULL) : ITH_ERR_INTERNAL;
    if (!status)
        status = ith_comm_barrier(comm); /* all ranks have finished the earlier operations */
    if (!status && rank == 2)
        status = ith_fail(context, ITH_ERR_NUMERIC, "a number is infinite"), ith_comm_abort(comm, status);
    else if (!status)
        status = ith_comm_barrier(comm);
    ith_comm_destroy(&comm);
    bool saved = !ith_flight_save(context, temporary_path(user, name));
    ith_context_destroy(&context);
    return !(saved && status == ITH_ERR_NUMERIC);
}

/* The records of processes agree about the operations of the whole group, and about the end. */
static void records_of_processes_agree(void **state)
{
    (void)state;
    char *folder = temporary_folder(), name[32];
    int statuses[PROCESSES];
    record records[PROCESSES];
    assert_int_equal(socket_run_processes(PROCESSES, be_process, folder, statuses), 0);
    for (int rank = 0; rank < PROCESSES; rank++) {
        snprintf(name, sizeof name, "flight.%d", rank);
        records[rank] = read_record(temporary_path(folder, name));
        for (int n = 0; n < 6; n++) {
            const char *mine = line_of(&records[rank], rank, n), *first = line_of(&records[0], 0, n);
            EXPECT(mine, {"number", value(first, "number")}, {"group", value(first, "group")},
                   {"name", value(first, "name")}, {"state", "\"done\""});
        }
        EXPECT(line_of(&records[rank], rank, -1), {"ranks", "3"});
        if (rank < 2)
            EXPECT(line_of(&records[rank], rank, -1), {"status", "\"ITH_ERR_NUMERIC\""},
                   {"failure", "\"rank 2: a number is infinite\""});
    }
    for (int rank = 0; rank < PROCESSES; rank++)
        free(records[rank].text);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_processes_agree), /* first: it forks */
        cmocka_unit_test(operations_are_written),         cmocka_unit_test(the_last_operations_are_kept),
        cmocka_unit_test(a_record_holds_what_it_is_told), cmocka_unit_test(a_late_end_changes_no_newer_operation),
        cmocka_unit_test(a_failure_is_written),           cmocka_unit_test(living_groups_keep_their_records),
        cmocka_unit_test(wrong_arguments_are_named),      cmocka_unit_test(records_are_saved_while_ranks_work),
        cmocka_unit_test(sentences_name_hosts),           cmocka_unit_test(a_long_name_of_a_host_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
