/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of comm/wire over a link to a process that the test plays: signs of life, control messages, and the
 * beginning and the end of groups. If an allocation fails, nothing is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/wire/wire.h"
#include "comm/wire/wire_state.h"
#include "support/liar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Circles of waits -------------------------------------------------------------------------------------------- */

/* The message of wire_life.c that a rank lives, with the rank for which it waits (-1: none). */
typedef struct life_message {
    int32_t kind, rank, status, waits_for;
    int64_t group, number;
} life_message;

static life_message next_message;
static bool message_there;

static ith_watch_event hear_life(void *self, int *process, const void **data, size_t *bytes)
{
    (void)self;
    if (!message_there)
        return ITH_WATCH_NOTHING;
    message_there = false;
    *process = 1, *data = &next_message, *bytes = sizeof next_message;
    return ITH_WATCH_MESSAGE;
}

static void give_life(void *state, int rank, int waits_for)
{
    next_message = (life_message){.kind = 1, .rank = rank, .waits_for = waits_for};
    message_there = true;
    ith_wire_transport.alive(state);
    assert_false(message_there);
}

/* Rank 0 posts the receives of 100 bytes from each of ranks 2 and 3. */
static void receive_from_both(void *state)
{
    static char memory[200];
    static ith_transfer lists[2];
    ith_operation operation = ITH_OPERATION_INIT;
    for (int i = 0; i < 2; i++)
        lists[i] = (ith_transfer){2 + i, {.data = memory + 100 * i, .count = {1, 1}, .bytes = 100}};
    operation.what = "a test", operation.receives = lists, operation.receive_count = 2;
    assert_int_equal(ith_wire_transport.exchange(state, &operation), ITH_OK);
}

/* Rank 0 waits for ranks 2 and 3. Rank 2 has moved data later than rank 3, and then is silent; its last message said
 * that it waits for rank `last`. Rank 3 waits for rank `other`. The error must name rank 2, also with a short time
 * limit. */
static void name_silent_rank(int last, int other)
{
    static liar l;
    void *states[2];
    int named = -1;
    liar_init(&l, 1);
    l.link.hear = hear_life;
    liar_open(&l, states);
    receive_from_both(states[0]);
    give_life(states[0], 3, -1);
    ith_wire_transport.wait(states[0], 0, 0.05, &(bool){false});
    double silence = 0, begin = ith_watch_now();
    give_life(states[0], 2, -1);
    give_life(states[0], 2, last);
    for (int i = 0; i < 12; i++) {
        give_life(states[0], 3, other);
        ith_wire_transport.wait(states[0], 0, 0.05, &(bool){false});
        silence = ith_wire_transport.silence(states[0], 0, &named);
    }
    if (named != 2)
        fail_msg("rank 2 waited for %d, rank 3 waits for %d: rank %d is named", last, other, named);
    assert_true(silence > 0.5 && silence <= ith_watch_now() - begin);
    liar_end(states);
}

static void the_silent_rank_of_a_circle_is_named(void **state)
{
    (void)state;
    static const int lasts[] = {-1, 0, 3};
    for (int i = 0; i < 3; i++)
        for (int other = 0; other < 3; other += 2)
            name_silent_rank(lasts[i], other);
}

/* ---- Signs of life ----------------------------------------------------------------------------------------------- */

static int told_wait; /* the rank for which rank 0 said last that it waits */

static bool hear_sign(void *self, int process, const void *data, size_t bytes, bool droppable)
{
    life_message m = {0};
    (void)self, (void)process, (void)droppable;
    memcpy(&m, data, bytes < sizeof m ? bytes : sizeof m);
    if (m.kind == 1 && m.rank == 0)
        told_wait = m.waits_for;
    return true;
}

static void *reserve_always(void *self, int process, int64_t bytes)
{
    (void)process, (void)bytes;
    return ((liar *)self)->out;
}

static bool credit_comes;

/* Brings a right datagram of rank 2, which has taken no offer. */
static int64_t receive_credit(void *self, int *process, const void **data)
{
    static const wire_head credit = {.kind = WIRE_CREDIT, .from = 2, .tag = 7, .regions = 1, .sizes = 1};
    (void)self;
    if (!credit_comes)
        return 0;
    credit_comes = false;
    *process = 1, *data = &credit;
    return sizeof credit;
}

static void wait_for_both(void *state, double seconds)
{
    const double end = ith_watch_now() + seconds;
    while (ith_watch_now() < end)
        ith_wire_transport.wait(state, 0, 0.01, &(bool){false});
}

/* A datagram shows that its sender lives, has worked, and does not wait, also if none of its messages come. */
static void a_datagram_is_a_sign_of_life(void **state)
{
    static liar l;
    void *states[2];
    int named = -1;
    const char *said;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_life, l.link.reserve = reserve_always, l.link.receive = receive_credit;
    l.link.tell = hear_sign;
    liar_open(&l, states);
    receive_from_both(states[0]);
    give_life(states[0], 2, 3);
    wait_for_both(states[0], 0.3);
    give_life(states[0], 3, -1);
    wait_for_both(states[0], 0.1);
    const double before = ith_watch_now();
    credit_comes = true;
    ith_wire_transport.alive(states[0]);
    assert_false(credit_comes);
    assert_int_equal(ith_wire_transport.failure(states[0], &said), ITH_OK);
    const double after = ith_watch_now();
    wait_for_both(states[0], 0.1);
    assert_int_equal(told_wait, 3); /* neither is late, and rank 3 worked first */
    give_life(states[0], 3, -1);
    const double silence = ith_wire_transport.silence(states[0], 0, &named), now = ith_watch_now();
    assert_int_equal(named, 2);
    assert_true(silence > 0.1 && silence >= 0.99 * (now - after) - 1e-3 && silence <= now - before);
    liar_end(states);
}

/* ---- Processes that are not connected yet --------------------------------------------------------------------- */

static const ith_link_process three[3] = {{.pid = 1, .first_rank = 0, .ranks = 2, .name = "here"},
                                          {.host = 1, .pid = 2, .first_rank = 2, .ranks = 2, .name = "there"},
                                          {.host = 2, .pid = 3, .first_rank = 4, .ranks = 1, .name = "beyond"}};

static ith_watch_event hear_wait(void *self, int *process, const void **data, size_t *bytes)
{
    static const int32_t awaited = 2;
    liar *l = self;
    if (l->due-- <= 0)
        return ITH_WATCH_NOTHING;
    *process = 1, *data = &awaited, *bytes = sizeof awaited;
    return ITH_WATCH_AWAITS;
}

/* Rank 1 waits for rank 2. The process of rank 2 is not connected yet, because process 2 does not answer. The error
 * must name the rank of process 2. */
static void the_process_for_which_another_waits_at_the_start_is_named(void **state)
{
    static liar l;
    static char memory[100];
    void *states[2];
    int named = -1;
    double silence = 0;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_wait, l.link.processes = 3, l.link.all = three;
    liar_open(&l, states);
    const ith_transfer list = {2, {.data = memory, .count = {1, 1}, .bytes = 100}};
    ith_operation operation = ITH_OPERATION_INIT;
    operation.what = "a test", operation.receives = &list, operation.receive_count = 1;
    assert_int_equal(ith_wire_transport.exchange(states[1], &operation), ITH_OK);
    for (int i = 0; i < 8; i++) {
        l.due = 1;
        ith_wire_transport.wait(states[1], 0, 0.05, &(bool){false});
        silence = ith_wire_transport.silence(states[1], 0, &named);
    }
    assert_int_equal(named, 4);
    assert_true(silence > 0.3);
    liar_end(states);
}

/* ---- Processes that give up ------------------------------------------------------------------------------------ */

static ith_watch_event hear_failure(void *self, int *process, const void **data, size_t *bytes)
{
    (void)self;
    *process = 1, *data = "process 5 died before", *bytes = strlen(*data) + 1;
    return ITH_WATCH_FAILED;
}

/* A process gives up after this process has connected to it. Its sentence, which names the guilty process, ends the
 * group. */
static void the_sentence_of_a_process_that_gave_up_ends_the_group(void **state)
{
    static liar l;
    void *states[2];
    const char *said = "";
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_failure;
    liar_open(&l, states);
    ith_wire_transport.alive(states[0]);
    assert_int_equal(ith_wire_transport.failure(states[1], &said), ITH_ERR_ABORTED);
    assert_string_equal(said, "process 5 died before");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
}

/* ---- No memory ------------------------------------------------------------------------------------------------- */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

static int budget = -1; /* the number of allocations that succeed; -1: all */

void *__wrap_calloc(size_t count, size_t size)
{
    if (budget == 0)
        return NULL;
    budget -= budget > 0;
    return __real_calloc(count, size);
}

int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);

static int locks = -1; /* the number of locks that are made; -1: all */

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    if (locks == 0)
        return ENOMEM;
    locks -= locks > 0;
    return __real_pthread_mutex_init(mutex, attributes);
}

static void without_a_lock_no_group_is_made(void **state)
{
    static liar l;
    void *states[2];
    int numbers[2], size;
    char sentence[256] = "";
    (void)state;
    liar_init(&l, 1);
    locks = 0;
    ith_status status = ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence);
    locks = -1;
    assert_int_equal(status, ITH_ERR_MEMORY);
    assert_non_null(strstr(sentence, "out of memory"));
    assert_false(l.closed);
}

/* If an allocation fails, a group or sub-group is not made. No memory is lost, and the link and the group stay as they
 * were. */
static void without_memory_nothing_is_made(void **state)
{
    static liar l;
    void *states[2], *part = NULL;
    int numbers[2], size, opened = -1, split = -1;
    char sentence[256] = "";
    ith_subgroup pair = ITH_SUBGROUP_INIT;
    (void)state;
    pair.number = 1, pair.size = 2, pair.members = (const int[]){0, 2};
    for (int allocations = 0; opened < 0; allocations++) {
        liar_init(&l, 1);
        budget = allocations;
        ith_status status = ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence);
        budget = -1;
        opened = status == ITH_OK ? allocations : -1;
        assert_true(status == ITH_OK || (status == ITH_ERR_MEMORY && strstr(sentence, "out of memory") && !l.closed));
    }
    for (int allocations = 0; split < 0; allocations++) {
        budget = allocations;
        ith_status status = ith_wire_transport.split(states[0], &pair, &part);
        budget = -1;
        split = status == ITH_OK ? allocations : -1;
        assert_true(status == ITH_OK || (status == ITH_ERR_MEMORY && !part));
    }
    assert_true(opened > 10 && split > 5);
    ith_wire_transport.close(part), ith_wire_transport.close(states[0]), ith_wire_transport.close(states[1]);
}

static void processes_that_contradict_are_refused(void **state)
{
    static liar l;
    ith_link_process wrong[2] = {liar_processes[0], liar_processes[1]};
    void *states[2];
    int numbers[2], size;
    char sentence[256] = "";
    (void)state;
    liar_init(&l, 1);
    l.link.all = wrong;
    wrong[1].first_rank = 3;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(sentence, "contradict"));
    wrong[1] = liar_processes[1], wrong[1].ranks = 0;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    wrong[1].ranks = INT32_MAX;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    l.link.all = liar_processes, l.link.process = -1;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    l.link.process = 2;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
}

/* ---- Wrong control messages ------------------------------------------------------------------------------------- */

static ith_watch_event hear_loss(void *self, int *process, const void **data, size_t *bytes)
{
    (void)self;
    *process = 1, *data = "it said so", *bytes = 11;
    return ITH_WATCH_LOST;
}

/* Makes a group fail: its process 1, with ranks 2 and 3, sends next_message or is lost. Returns the sentence of the
 * failure. */
static const char *fail_group(ith_watch_event (*hear)(void *, int *, const void **, size_t *), ith_status *status)
{
    static liar l;
    static char said[1024];
    void *states[2];
    int numbers[2], size;
    const char *sentence = "";
    liar_init(&l, 1);
    l.link.hear = hear, message_there = true;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, said, sizeof said), ITH_OK);
    ith_wire_transport.alive(states[0]);
    *status = ith_wire_transport.failure(states[0], &sentence);
    snprintf(said, sizeof said, "%s", sentence);
    message_there = false;
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
    return said;
}

static void control_messages_are_checked(void **state)
{
    (void)state;
    static const struct {
        life_message message;
        const char *word; /* NULL: it must be accepted */
    } rows[] = {
        {{.kind = 1, .rank = 2, .waits_for = 3}, NULL},
        {{.kind = 1, .rank = 3, .waits_for = -1}, NULL},
        {{.kind = 1, .rank = 2, .waits_for = 4}, "of a wrong form from process 1"},
        {{.kind = 1, .rank = 2, .waits_for = INT32_MAX}, "of a wrong form from process 1"},
        {{.kind = 1, .rank = 2, .waits_for = -2}, "of a wrong form from process 1"},
        {{.kind = 1, .rank = 1}, "of a wrong form from process 1"},
        {{.kind = 1, .rank = 4}, "of a wrong form from process 1"},
        {{.kind = 1, .rank = -1}, "of a wrong form from process 1"},
        {{.kind = 3, .rank = 2, .status = 0}, "of a wrong form from process 1"},
        {{.kind = 3, .rank = 2, .status = INT32_MIN}, "of a wrong form from process 1"},
        {{.kind = 9, .rank = 2}, "of an unknown kind from process 1"},
        {{.kind = 0, .rank = 2}, "of an unknown kind from process 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ith_status status;
        next_message = rows[i].message;
        const char *sentence = fail_group(hear_life, &status);
        assert_int_equal(status, rows[i].word ? ITH_ERR_INTERNAL : ITH_OK);
        if (rows[i].word && (!strstr(sentence, rows[i].word) || strncmp(sentence, "rank 0 got a control message", 28)))
            fail_msg("message %zu: %s", i, sentence);
    }
}

static void a_lost_process_is_named_with_its_ranks(void **state)
{
    (void)state;
    ith_status status;
    const char *sentence = fail_group(hear_loss, &status);
    assert_int_equal(status, ITH_ERR_ABORTED);
    if (strncmp(sentence, "ranks 2 to 3 (host ", 19) || !strstr(sentence, ") died: it said so"))
        fail_msg("%s", sentence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_messages_are_checked),
        cmocka_unit_test(a_lost_process_is_named_with_its_ranks),
        cmocka_unit_test(the_silent_rank_of_a_circle_is_named),
        cmocka_unit_test(a_datagram_is_a_sign_of_life),
        cmocka_unit_test(the_process_for_which_another_waits_at_the_start_is_named),
        cmocka_unit_test(the_sentence_of_a_process_that_gave_up_ends_the_group),
        cmocka_unit_test(without_memory_nothing_is_made),
        cmocka_unit_test(without_a_lock_no_group_is_made),
        cmocka_unit_test(processes_that_contradict_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
