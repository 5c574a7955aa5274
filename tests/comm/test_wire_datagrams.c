/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of comm/wire over a link that brings wrong datagrams and messages. Whatever comes, the transport
 * touches no memory that is not its own and never waits for ever; a wrong datagram ends the group. Right datagrams fill
 * the regions of their flows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/wire/wire.h"
#include "comm/wire/wire_state.h"
#include "support/liar.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5000, STEPS = 40, MEMORY = 300000 };

/* ---- Lies ------------------------------------------------------------------------------------------------------ */

/* How the rounds ended. */
typedef struct tally {
    int argument, internal, aborted, other, whole, done;
} tally;

/* Posts an exchange of a rank with a far rank and with its neighbour. */
static ith_status post(void *state, int rank, int64_t request, int64_t bytes, char *memory, ith_transfer *lists)
{
    ith_operation operation = ITH_OPERATION_INIT;
    ith_region region = {.data = memory, .count = {1, 1}, .bytes = bytes};
    lists[0] = (ith_transfer){2 + rank, region};
    lists[1] = (ith_transfer){1 - rank, region};
    region.data = memory + MEMORY;
    lists[2] = (ith_transfer){2 + rank, region};
    lists[3] = (ith_transfer){1 - rank, region};
    operation.request = request, operation.tag = 7, operation.what = "a test";
    operation.sends = lists, operation.send_count = 2;
    operation.receives = lists + 2, operation.receive_count = 2;
    return ith_wire_transport.exchange(state, &operation);
}

/* Makes a transport whose peer sends wrong datagrams, posts exchanges, waits for them, and closes the transport. */
static void live(uint32_t seed, char *memory, tally *t)
{
    static liar l;
    static ith_transfer lists[2 * STEPS][4];
    const ith_transport *table = &ith_wire_transport;
    void *states[2], *part = NULL;
    const char *said = NULL;
    liar_init(&l, seed);
    liar_open(&l, states);
    ith_subgroup pair = ITH_SUBGROUP_INIT;
    pair.number = 1, pair.size = 2, pair.members = (const int[]){0, 2};
    assert_int_equal(table->split(states[0], &pair, &part), ITH_OK);
    ith_status status = ITH_OK;
    bool over[2] = {false, false};
    int64_t posted = 0, first = 0;
    for (int step = 0; step < STEPS && !status; step++) {
        l.due = (int)liar_draw(&l, 8);
        if (posted - first < 6) {
            for (int rank = 0; rank < 2 && !status; rank++)
                status = post(states[rank], rank, posted % WIRE_REQUESTS, liar_bytes(posted),
                              memory + 2 * rank * MEMORY, lists[2 * step + rank]);
            l.posted = posted += !status;
        }
        for (int rank = 0; rank < 2 && !status && first < posted; rank++)
            if (!over[rank])
                status = table->wait(states[rank], first % WIRE_REQUESTS, 0, &over[rank]);
        if (over[0] && over[1])
            first++, t->done++, over[0] = over[1] = false;
        table->alive(states[0]);
        table->notify(states[1], step);
    }
    status = table->failure(states[0], &said);
    assert_true(status == ITH_OK || strlen(said) > 10);
    t->argument += status == ITH_ERR_ARGUMENT, t->internal += status == ITH_ERR_INTERNAL;
    t->aborted += status == ITH_ERR_ABORTED, t->whole += status == ITH_OK;
    t->other += status && status != ITH_ERR_ARGUMENT && status != ITH_ERR_INTERNAL && status != ITH_ERR_ABORTED;
    table->abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    table->leave(states[0]), table->leave(states[1]);
    table->close(part), table->close(states[0]);
    assert_false(l.closed);
    table->close(states[1]);
    assert_true(l.closed);
}

/* The memory of the ranks is an allocation of the exact size, so that AddressSanitizer sees a write beyond its end. */
static void lies_end_the_group(void **state)
{
    tally t = {0};
    char *memory = calloc(4, MEMORY);
    (void)state;
    assert_non_null(memory);
    for (int round = 0; round < ROUNDS; round++)
        live((uint32_t)round * 2654435761u, memory, &t);
    free(memory);
    print_message("%d wrong arguments, %d wrong datagrams, %d deaths, %d others, %d lived on; %d exchanges were done\n",
                  t.argument, t.internal, t.aborted, t.other, t.whole, t.done);
    assert_true(t.argument > 100 && t.internal > 100 && t.aborted > 20 && t.whole > 100 && t.done > 5000);
}

/* ---- Wrong datagrams, one by one ------------------------------------------------------------------------------- */

/* A datagram from rank 2 to rank 0, as a correct process would send it, except for one field. */
typedef struct datagram {
    wire_kind kind;
    int64_t exchange, number, bytes, data; /* data: the bytes that follow the head */
    int64_t taken;
    enum {
        AS_IT_IS,
        FROM,
        TO,
        GROUP,
        TAG,
        REGIONS,
        SIZES,
        KIND,
        STRANGER,
        NEIGHBOUR,
        SENDER,
        LENGTH
    } wrong;               /* the wrong field */
    int64_t value;         /* of the wrong field; LENGTH: of the whole datagram */
    const wire_head *like; /* not NULL: the datagram has the number and the hash of the regions of this head */
} datagram;

/* Datagrams that come in turn, and the exchanges of rank 0 with rank 2. */
typedef struct meeting {
    int posts, more;   /* exchanges that rank 0 posts before the datagrams come, and after them */
    int64_t in, out;   /* the bytes that it receives and sends in each; 0: it does not */
    bool full, over;   /* the link has no room; rank 0 waits for its exchanges, and they are done */
    datagram right[4]; /* they change nothing */
    datagram last;     /* it ends the group, unless sentence is NULL */
    const char *sentence;
} meeting;

static const datagram *arriving;

static ith_watch_event hear_nothing(void *self, int *process, const void **data, size_t *bytes)
{
    (void)self, (void)process, (void)data, (void)bytes;
    return ITH_WATCH_NOTHING;
}

static void *reserve_if_room(void *self, int process, int64_t bytes)
{
    liar *l = self;
    (void)process, (void)bytes;
    return l->due < 0 ? NULL : l->out;
}

enum { RANK_APART = 100 };

/* Byte number `at` of the data of every flow from rank 2. The flows from rank 3 are RANK_APART bytes further. */
static char letter(int64_t at)
{
    return (char)(at * 31 % 251);
}

static int64_t receive_arriving(void *self, int *process, const void **data)
{
    liar *l = self;
    const datagram *d = arriving;
    arriving = NULL;
    if (!d)
        return 0;
    wire_head head = {.kind = (int32_t)d->kind, .from = 2, .to = 0, .taken = d->taken, .exchange = d->exchange};
    head.number = d->number, head.bytes = d->bytes;
    head.tag = 7, head.regions = 1, head.sizes = (uint64_t)d->bytes * 1099511628211u + 1;
    if (d->like)
        head.regions = d->like->regions, head.sizes = d->like->sizes;
    *process = d->wrong == SENDER ? (int)d->value : 1;
    *data = l->in;
    switch (d->wrong) {
    case FROM: head.from = (int32_t)d->value; break;
    case TO: head.to = (int32_t)d->value; break;
    case GROUP: head.group = d->value; break;
    case TAG: head.tag = d->value; break;
    case REGIONS: head.regions = d->value; break;
    case SIZES: head.sizes ^= (uint64_t)d->value; break;
    case KIND: head.kind = (int32_t)d->value; break;
    case NEIGHBOUR: head.from = 3, head.to = 1, head.group = d->value; break; /* to rank 1, of another group */
    case STRANGER: head.from = 3, head.group = d->value; break; /* a rank that is no member of the group */
    default: break;
    }
    memcpy(l->in, &head, sizeof head);
    for (int64_t i = 0; i < d->data; i++)
        l->in[(int64_t)sizeof head + i] =
            letter((d->kind == WIRE_DATA ? d->number + i : i) + RANK_APART * (head.from - 2));
    return d->wrong == LENGTH ? d->value : (int64_t)sizeof head + d->data;
}

/* Rank 0 posts its next exchange with rank 2. */
static ith_status post_with_far(void *state, int64_t exchange, const meeting *m, char *memory)
{
    static ith_transfer lists[8][2];
    ith_transfer *list = lists[exchange];
    ith_operation operation = ITH_OPERATION_INIT;
    list[0] = (ith_transfer){2, {.data = memory, .count = {1, 1}, .bytes = m->in}};
    list[1] = (ith_transfer){2, {.data = memory + MEMORY, .count = {1, 1}, .bytes = m->out}};
    operation.request = exchange, operation.tag = 7, operation.what = "a test";
    operation.receives = list, operation.receive_count = m->in > 0;
    operation.sends = list + 1, operation.send_count = m->out > 0;
    return ith_wire_transport.exchange(state, &operation);
}

static ith_status take(void *state, const datagram *d, const char **said)
{
    arriving = d;
    ith_wire_transport.alive(state);
    assert_null(arriving);
    return ith_wire_transport.failure(state, said);
}

/* Lets the datagrams come, and compares the end of the group with the expected one. */
static void hold_meeting(const meeting *m, size_t number, wire_head *sent)
{
    static liar l;
    static char memory[2 * MEMORY];
    void *states[2], *parts[3];
    const char *said = "";
    liar_init(&l, 1);
    l.due = m->full ? -1 : 0;
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    arriving = NULL;
    liar_open(&l, states);
    for (int i = 0; i < 2; i++) {
        ith_subgroup pair = ITH_SUBGROUP_INIT;
        pair.number = 1, pair.size = 2, pair.members = (const int[]){i, 2 + i};
        assert_int_equal(ith_wire_transport.split(states[i], &pair, &parts[i]), ITH_OK);
    }
    ith_subgroup three_ranks = ITH_SUBGROUP_INIT; /* rank 0 has no state of it */
    three_ranks.number = 2, three_ranks.size = 3, three_ranks.rank = 1, three_ranks.members = (const int[]){0, 1, 2};
    assert_int_equal(ith_wire_transport.split(states[1], &three_ranks, &parts[2]), ITH_OK);
    for (int i = 0; i < m->posts; i++)
        assert_int_equal(post_with_far(states[0], i, m, memory), ITH_OK);
    for (int i = 0; i < m->posts && m->over; i++) {
        bool done = false;
        assert_int_equal(ith_wire_transport.wait(states[0], i, 0, &done), ITH_OK);
        assert_true(done);
    }
    for (int i = 0; i < 4 && m->right[i].kind; i++)
        if (take(states[0], &m->right[i], &said))
            fail_msg("row %zu: the right datagram %d ended the group: %s", number, i, said);
    ith_status status = m->last.kind ? take(states[0], &m->last, &said) : ITH_OK;
    for (int i = 0; i < m->more && !status; i++) {
        post_with_far(states[0], m->posts + i, m, memory);
        status = ith_wire_transport.failure(states[0], &said);
    }
    if (strcmp(said, m->sentence ? m->sentence : ""))
        fail_msg("row %zu: \"%s\" instead of \"%s\"", number, said, m->sentence ? m->sentence : "");
    bool internal = m->sentence && !strncmp(m->sentence, "rank 0 got a wrong datagram", 27);
    bool lost = m->sentence && !strncmp(m->sentence, "rank 0 lost", 11);
    assert_int_equal(status, !m->sentence ? ITH_OK
                             : internal   ? ITH_ERR_INTERNAL
                             : lost       ? ITH_ERR_IO
                                          : ITH_ERR_ARGUMENT);
    void *late = states[0];
    three_ranks.number = 3;
    if (status)
        assert_true(ith_wire_transport.split(states[0], &three_ranks, &late) == status && !late);
    memcpy(sent, l.out, sizeof *sent);
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]);
    for (int i = 0; i < 3; i++)
        ith_wire_transport.close(parts[i]);
    ith_wire_transport.close(states[0]), ith_wire_transport.close(states[1]);
    assert_true(l.closed && l.failed);
}

#define WRONG "rank 0 got a wrong datagram from rank 2 (host there, pid 2): "
#define DISAGREE "rank 0 (host here) and rank 2 (host there) disagree about data from the "
#define MISSING                                                                                                        \
    "rank 0 (host here) receives from rank 2 (host there) in a test (exchange 0 of group 0), where that rank sends "   \
    "nothing to it: every receive needs a send"

static void wrong_offers_are_refused(void **state)
{
    (void)state;
    static const char turn[] = WRONG "an offer that is out of turn";
    static const char length[] = WRONG "an offer of another length than it says";
    static const meeting rows[] = {
        /* offers that wait */
        {.last = {WIRE_OFFER, 0, 0, 100, 100}},
        {.last = {WIRE_OFFER, 0, 0, 0, 0}},
        {.last = {WIRE_OFFER, 0, 0, 4096, 4096}},
        {.last = {WIRE_OFFER, 0, 0, 4097, 0}},
        {.last = {WIRE_OFFER, 0, 1, 100, 100}, .sentence = turn},
        {.last = {WIRE_OFFER, 0, -1, 100, 100}, .sentence = turn},
        {.right = {{WIRE_OFFER, 0, 0, 100, 100}}, .last = {WIRE_OFFER, 1, 0, 100, 100}, .sentence = turn},
        {.right = {{WIRE_OFFER, 3, 0, 100, 100}}, .last = {WIRE_OFFER, 3, 1, 100, 100}, .sentence = turn},
        {.right = {{WIRE_OFFER, 3, 0, 100, 100}}, .last = {WIRE_OFFER, 2, 1, 100, 100}, .sentence = turn},
        {.right = {{WIRE_OFFER, 0, 0}, {WIRE_OFFER, 1, 1}, {WIRE_OFFER, 2, 2}}, .last = {WIRE_OFFER, 3, 3}},
        {.right = {{WIRE_OFFER, 0, 0}, {WIRE_OFFER, 1, 1}, {WIRE_OFFER, 2, 2}, {WIRE_OFFER, 3, 3}},
         .last = {WIRE_OFFER, 4, 4},
         .sentence = turn},
        {.last = {WIRE_OFFER, 0, 0, 100, 100, 0, REGIONS, 0}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, 100, 99}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, 100, 101}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, -1, 0}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, 4096, 0}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, 4097, 4097}, .sentence = length},
        {.last = {WIRE_OFFER, 0, 0, 4097, 1}, .sentence = length},
        /* offers for an exchange that is posted */
        {1, .in = 100, .last = {WIRE_OFFER, 0, 0, 100, 100}},
        {1, .in = 5000, .last = {WIRE_OFFER, 0, 0, 5000, 0}},
        {1, .in = 100, .last = {WIRE_OFFER, 0, 0, 100, 100, 0, TAG, 8},
         .sentence = "rank 0 (host here) is in a test (exchange 0 of group 0), and rank 2 (host there) in another "
                     "operation: all ranks need the same operations in order"},
        {1, .in = 100, .last = {WIRE_OFFER, 0, 0, 100, 100, 0, REGIONS, 2},
         .sentence = DISAGREE "second in a test (exchange 0 of group 0): 1 regions of 100 bytes in all at the first, "
                              "2 of 100 at the second"},
        {1, .in = 100,
         .last = {WIRE_OFFER, 0, 0, 99, 99, 0, SIZES,
                  (int64_t)((100u * 1099511628211u + 1) ^ (99u * 1099511628211u + 1))},
         .sentence = DISAGREE "second in a test (exchange 0 of group 0): 1 regions of 100 bytes in all at the first, "
                              "1 of 99 at the second"},
        {1, .in = 100, .last = {WIRE_OFFER, 0, 0, 100, 100, 0, SIZES, 1},
         .sentence = DISAGREE "second in a test (exchange 0 of group 0): 1 regions of 100 bytes in all at the first, "
                              "1 of 100 at the second"},
        {1, .out = 100, .last = {WIRE_OFFER, 0, 0, 100, 100},
         .sentence = DISAGREE "second in a test (exchange 0 of group 0): 0 regions of 0 bytes in all at the first, "
                              "1 of 100 at the second"},
        /* offers for another exchange than the one that is posted */
        {1, .in = 100, .last = {WIRE_OFFER, 1, 0, 100, 100}, .sentence = MISSING},
        {1, .in = 4096, .last = {WIRE_OFFER, 1, 0, 100, 100}, .sentence = MISSING},
        {1, .in = 4097, .last = {WIRE_OFFER, 1, 0, 100, 100}},
        {1, .out = 100, .last = {WIRE_OFFER, 1, 0, 100, 100}},
        {1, .in = 100, .right = {{WIRE_OFFER, 0, 0, 100, 100}}, .last = {WIRE_OFFER, 1, 1, 100, 100}},
        {1, .over = true, .last = {WIRE_OFFER, 0, 0, 100, 100},
         .sentence = "rank 2 (host there) sends to rank 0 (host here) in an operation (exchange 0 of group 0), where "
                     "that rank receives nothing from it: every send needs a receive"},
    };
    wire_head sent;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hold_meeting(&rows[i], i, &sent);
}

static void wrong_asks_are_refused(void **state)
{
    (void)state;
    static const char twice[] = WRONG "an ask that is wrong or comes twice";
    static const meeting rows[] = {
        {.last = {WIRE_ASK, 0, 0, 5000}},
        {.last = {WIRE_ASK, 0, 0, 4097}},
        {.right = {{WIRE_ASK, 0, 0, 5000}}, .last = {WIRE_ASK, 1, 0, 5000}},
        {.right = {{WIRE_ASK, 0, 0, 5000}}, .last = {WIRE_ASK, 0, 0, 5000}, .sentence = twice},
        {.right = {{WIRE_ASK, 0, 0, 5000}}, .last = {WIRE_ASK, WIRE_REQUESTS, 0, 5000}, .sentence = twice},
        {.last = {WIRE_ASK, 0, 0, 5000, 1}, .sentence = twice},
        {.last = {WIRE_ASK, 0, 0, 5000, 0, 0, REGIONS, 0}, .sentence = twice},
        {.last = {WIRE_ASK, 0, 0, 4096}, .sentence = twice},
        {1, .out = 5000, .last = {WIRE_ASK, 0, 0, 5000}},
        {1, .out = 5000, .right = {{WIRE_ASK, 0, 0, 5000}}, .last = {WIRE_ASK, 1, 0, 5000}},
        {1, .out = 5000, .right = {{WIRE_ASK, 0, 0, 5000}}, .last = {WIRE_ASK, 0, 0, 5000},
         .sentence = WRONG "an ask for data that has been asked for"},
        {1, .out = 5000, .last = {WIRE_ASK, 0, 0, 5001},
         .sentence = DISAGREE "first in a test (exchange 0 of group 0): 1 regions of 5000 bytes in all at the first, "
                              "1 of 5001 at the second"},
        {1, .in = 5000, .last = {WIRE_ASK, 0, 0, 5000},
         .sentence = DISAGREE "first in a test (exchange 0 of group 0): 0 regions of 0 bytes in all at the first, "
                              "1 of 5000 at the second"},
        {1, .over = true, .last = {WIRE_ASK, 0, 0, 5000},
         .sentence = "rank 2 (host there) receives from rank 0 (host here) in an operation (exchange 0 of group 0), "
                     "where that rank sends nothing to it: every receive needs a send"},
    };
    wire_head sent;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hold_meeting(&rows[i], i, &sent);
}

static void wrong_data_are_refused(void **state)
{
    (void)state;
    static const char unasked[] = WRONG "data that was not asked for";
    static const meeting rows[] = {
        {1, .in = 5000, .right = {{WIRE_DATA, 0, 0, 1, 1}}, .last = {WIRE_DATA, 0, 1, 4999, 4999}},
        {1, .in = 5000, .right = {{WIRE_DATA, 0, 0, 1, 1}}, .last = {WIRE_SKIP, 0, 1, 4999}},
        {1, .in = 5000, .last = {WIRE_SKIP, 0, 0, 5000}},
        {.last = {WIRE_DATA, 0, 0, 5000, 5000}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 1, 0, 5000, 5000}, .sentence = unasked},
        {1, .in = 5000, .full = true, .last = {WIRE_DATA, 0, 0, 5000, 5000}, .sentence = unasked},
        {1, .in = 100, .last = {WIRE_DATA, 0, 0, 100, 100}, .sentence = unasked},
        {1, .out = 5000, .last = {WIRE_DATA, 0, 0, 5000, 5000}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 0, 1, 100, 100}, .sentence = unasked},
        {1, .in = 5000, .right = {{WIRE_DATA, 0, 0, 1, 1}}, .last = {WIRE_DATA, 0, 0, 1, 1}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 0, 0, 0, 0}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 0, 0, 5001, 5001}, .sentence = unasked},
        {1, .in = 5000, .right = {{WIRE_DATA, 0, 0, 1, 1}}, .last = {WIRE_DATA, 0, 1, 5000, 5000}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 0, 0, 100, 99}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_DATA, 0, 0, 100, 101}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_SKIP, 0, 0, 5000, 5000}, .sentence = unasked},
        {1, .in = 5000, .last = {WIRE_SKIP, 0, 0, 4999}, .sentence = unasked},
        {1, .in = 5000, .right = {{WIRE_SKIP, 0, 0, 5000}}, .last = {WIRE_SKIP, 0, 0, 5000}, .sentence = unasked},
        {1, .in = 5000, .right = {{WIRE_SKIP, 0, 0, 5000}}, .last = {WIRE_DATA, 0, 0, 5000, 5000}, .sentence = unasked},
    };
    wire_head sent;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hold_meeting(&rows[i], i, &sent);
}

static void wrong_heads_are_refused(void **state)
{
    (void)state;
    static const char ranks[] = WRONG "its ranks are wrong", kind[] = WRONG "its kind is unknown";
    static const char count[] = WRONG "it counts offers that were not sent";
    static const char nobody[] = "rank 0 lost its link over lies: a datagram from no process";
    static const meeting rows[] = {
        {.last = {WIRE_CREDIT}},
        {.last = {WIRE_CREDIT, .wrong = LENGTH, .value = sizeof(wire_head) - 1}, .sentence = WRONG "it is too short"},
        {.last = {WIRE_CREDIT, .wrong = LENGTH, .value = 1}, .sentence = WRONG "it is too short"},
        {.last = {WIRE_CREDIT, .wrong = FROM, .value = 3}},
        {.last = {WIRE_CREDIT, .wrong = FROM, .value = 1}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = FROM, .value = 4}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = FROM, .value = INT32_MAX}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = FROM, .value = INT32_MIN}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = TO, .value = 1}},
        {.last = {WIRE_CREDIT, .wrong = TO, .value = 2}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = TO, .value = INT32_MAX}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = TO, .value = INT32_MIN}, .sentence = ranks},
        {.last = {WIRE_CREDIT, .wrong = KIND, .value = 0}, .sentence = kind},
        {.last = {WIRE_CREDIT, .wrong = KIND, .value = 6}, .sentence = kind},
        {.last = {WIRE_CREDIT, -1}, .sentence = kind},
        /* ranks 0 and 2 have a group 1, ranks 1 and 3 another; rank 0 has no state of group 2; there is no group 3 */
        {.last = {WIRE_OFFER, 0, 1, 0, 0, 0, GROUP, 1}, .sentence = WRONG "an offer that is out of turn"},
        {.last = {WIRE_OFFER, 0, 1, 0, 0, 0, GROUP, 2}},
        {.last = {WIRE_OFFER, 0, 1, 0, 0, 0, GROUP, 3}},
        {.last = {WIRE_OFFER, 0, 1, 0, 0, 0, NEIGHBOUR, 1}, .sentence = WRONG "an offer that is out of turn"},
        {.last = {WIRE_OFFER, 0, 1, 0, 0, 0, STRANGER, 1}},
        /* the number of offers that were taken */
        {1, .out = 100, .last = {WIRE_CREDIT, .taken = 1}},
        {1, .out = 100, .last = {WIRE_CREDIT, .taken = 2}, .sentence = count},
        {1, .out = 100, .last = {WIRE_CREDIT, .taken = -1}, .sentence = count},
        {1, .out = 100, .right = {{WIRE_CREDIT, .taken = 1}}, .last = {WIRE_CREDIT, .taken = 1}},
        {1, .out = 100, .right = {{WIRE_CREDIT, .taken = 1}}, .last = {WIRE_CREDIT, .taken = 0}, .sentence = count},
        /* processes of the link */
        {.last = {WIRE_CREDIT, .wrong = SENDER, .value = 0}, .sentence = nobody},
        {.last = {WIRE_CREDIT, .wrong = SENDER, .value = 2}, .sentence = nobody},
        {.last = {WIRE_CREDIT, .wrong = SENDER, .value = -1}, .sentence = nobody},
    };
    wire_head sent;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hold_meeting(&rows[i], i, &sent);
}

/* Datagrams come before rank 0 posts the exchange that they are for. kind: of the datagram that it sends last. */
static void datagrams_that_waited_are_compared(void **state)
{
    (void)state;
    static const struct {
        meeting meeting;
        wire_kind kind;
    } rows[] = {
        {{.more = 1, .in = 5000, .last = {WIRE_OFFER, 0, 0, 5000, 0}}, WIRE_ASK},
        {{.more = 1, .in = 5000, .last = {WIRE_OFFER, 1, 0, 100, 100}}, WIRE_ASK},
        {{.more = 1, .in = 100, .last = {WIRE_OFFER, 0, 0, 100, 100}}, 0},
        {{.more = 1, .out = 100, .last = {WIRE_OFFER, 1, 0, 100, 100}}, WIRE_OFFER},
        {{.more = 1, .out = 5000, .last = {WIRE_ASK, 0, 0, 5000}}, WIRE_DATA},
        {{.more = 1, .out = 5000, .last = {WIRE_ASK, WIRE_REQUESTS, 0, 5000}}, WIRE_OFFER},
        {{.more = 2, .in = 100, .right = {{WIRE_OFFER, 0, 0, 100, 100}}, .last = {WIRE_OFFER, 1, 1, 100, 100}},
         WIRE_CREDIT},
        {{.more = 1, .in = 100, .last = {WIRE_OFFER, 1, 0, 100, 100}, .sentence = MISSING}, 0},
        {{.more = 1, .in = 4096, .last = {WIRE_OFFER, 1, 0, 100, 100}, .sentence = MISSING}, 0},
        {{.more = 1,
          .in = 100,
          .last = {WIRE_OFFER, 0, 0, 99, 99},
          .sentence = DISAGREE "second in a test (exchange 0 of group 0): 1 regions of 100 bytes in all at the first, "
                               "1 of 99 at the second"},
         0},
        {{.more = 1,
          .out = 5000,
          .last = {WIRE_ASK, 0, 0, 5001},
          .sentence = DISAGREE "first in a test (exchange 0 of group 0): 1 regions of 5000 bytes in all at the first, "
                               "1 of 5001 at the second"},
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wire_head sent;
        hold_meeting(&rows[i].meeting, i, &sent);
        if (sent.kind != (int32_t)rows[i].kind)
            fail_msg("row %zu: a datagram of kind %d was sent, not of kind %d", i, sent.kind, (int)rows[i].kind);
    }
}

/* The last rank of a group takes it out of the list. The groups before it in the list stay. */
static void a_group_that_ends_leaves_the_others(void **state)
{
    static liar l;
    static const datagram wrong = {WIRE_OFFER, 0, 1, 0, 0, 0, GROUP, 2, NULL};
    void *states[2], *parts[2];
    const char *said;
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        liar_init(&l, 1);
        l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
        liar_open(&l, states);
        for (int i = 0; i < 2; i++) {
            ith_subgroup pair = ITH_SUBGROUP_INIT;
            pair.number = 1 + i, pair.size = 2, pair.members = (const int[]){0, 2};
            assert_int_equal(ith_wire_transport.split(states[0], &pair, &parts[i]), ITH_OK);
        }
        ith_wire_transport.close(parts[0]);
        if (ended)
            assert_int_equal(take(states[0], &wrong, &said), ITH_ERR_INTERNAL);
        ith_wire_transport.close(parts[1]);
        for (int i = 0; i < 2; i++)
            ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
        assert_true(l.closed && l.failed == (ended == 1));
    }
}

/* The other process does not know yet that rank 0 has closed. Its datagram would be wrong for a rank that is there. */
static void datagrams_for_a_rank_that_has_closed_are_dropped(void **state)
{
    static liar l;
    static const datagram late = {.kind = WIRE_OFFER, .number = 1, .taken = 1};
    void *states[2];
    const char *said;
    (void)state;
    for (int closed = 0; closed < 2; closed++) {
        liar_init(&l, 1);
        l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
        liar_open(&l, states);
        if (closed)
            ith_wire_transport.leave(states[0]), ith_wire_transport.close(states[0]);
        assert_int_equal(take(states[1], &late, &said), closed ? ITH_OK : ITH_ERR_INTERNAL);
        if (!closed)
            ith_wire_transport.leave(states[0]), ith_wire_transport.close(states[0]);
        ith_wire_transport.leave(states[1]), ith_wire_transport.close(states[1]);
        assert_true(l.closed);
    }
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

enum { PART = 3000, ROWS = 5, ROW = 500, APART = 600, OTHER = 10, FLOW = PART + ROWS * ROW };

/* What rank 0 has sent: the last offer and the last ask, and all data of one flow. */
static wire_head offered, asked;
static char sent_data[FLOW];
static int64_t sent_bytes;

static void send_noted(void *self, int process, int64_t bytes)
{
    liar *l = self;
    wire_head head;
    assert_int_equal(process, 1);
    l->sent++;
    memcpy(&head, l->out, sizeof head);
    if (head.kind == WIRE_OFFER && head.to == 2)
        offered = head;
    if (head.kind == WIRE_ASK)
        asked = head;
    if (head.kind != WIRE_DATA)
        return;
    assert_true(head.number == sent_bytes && head.bytes == bytes - (int64_t)sizeof head &&
                head.bytes <= FLOW - sent_bytes);
    memcpy(sent_data + sent_bytes, l->out + sizeof head, (size_t)head.bytes);
    sent_bytes += head.bytes;
}

/* Lists a flow with rank 2 of a region of PART bytes, and a region of rows that lie apart. A transfer with rank 3 lies
 * between them, and one with rank 0 itself before them. */
static void list_flow(ith_transfer list[4], char *memory)
{
    list[0] = (ith_transfer){0, {.data = memory, .count = {1, 1}, .bytes = OTHER}};
    list[1] = (ith_transfer){2, {.data = memory + 100, .count = {1, 1}, .bytes = PART}};
    list[2] = (ith_transfer){3, {.data = memory + 50, .count = {1, 1}, .bytes = OTHER}};
    list[3] = (ith_transfer){2, {.data = memory + 4000, .count = {ROWS, 1}, .stride = {APART, 0}, .bytes = ROW}};
}

/* Byte number `at` of the flow in memory. */
static char *at_flow(char *memory, int64_t at)
{
    at -= PART;
    return at < 0 ? memory + 100 + PART + at : memory + 4000 + at / ROW * APART + at % ROW;
}

/* The data of a flow fill its regions, and nothing else, however datagrams divide them. */
static void data_pass_between_regions_and_datagrams(void **state)
{
    static liar l;
    static char memory[2][8000], expected[8000];
    static ith_transfer lists[2][4];
    void *states[2];
    const char *said = "";
    bool done = false;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    l.link.send = send_noted;
    sent_bytes = 0;
    liar_open(&l, states);
    for (int i = 0; i < 2; i++)
        list_flow(lists[i], memory[i]);
    memset(memory[0], '-', sizeof memory[0]);
    memcpy(expected, memory[0], sizeof expected);
    for (int64_t i = 0; i < FLOW; i++)
        *at_flow(expected, i) = *at_flow(memory[1], i) = letter(i);
    for (int64_t i = 0; i < OTHER; i++)
        expected[50 + i] = letter(RANK_APART + i);
    ith_operation operation = ITH_OPERATION_INIT;
    operation.tag = 7, operation.what = "a test";
    operation.receives = lists[0], operation.receive_count = 4;
    operation.sends = lists[1], operation.send_count = 4;
    assert_int_equal(ith_wire_transport.exchange(states[0], &operation), ITH_OK);
    assert_true(asked.regions == 2 && asked.bytes == FLOW && asked.sizes == offered.sizes);
    const int64_t ends[] = {1, PART - 1, PART, PART + ROW + 1, PART + 3 * ROW, FLOW};
    const datagram other = {.kind = WIRE_OFFER, .bytes = OTHER, .data = OTHER, .wrong = FROM, .value = 3};
    assert_int_equal(take(states[0], &other, &said), ITH_OK);
    for (int i = 0, from = 0; i < 6; from = (int)ends[i++]) {
        const datagram data = {.kind = WIRE_DATA, .number = from, .bytes = ends[i] - from, .data = ends[i] - from};
        assert_int_equal(take(states[0], &data, &said), ITH_OK);
    }
    const datagram ask = {.kind = WIRE_ASK, .bytes = FLOW, .like = &asked};
    assert_int_equal(take(states[0], &ask, &said), ITH_OK);
    assert_int_equal(ith_wire_transport.wait(states[0], 0, 1, &done), ITH_OK);
    assert_true(done && sent_bytes == FLOW);
    assert_memory_equal(memory[0], expected, sizeof expected);
    for (int64_t i = 0; i < FLOW; i++)
        assert_true(sent_data[i] == letter(i));
    liar_end(states);
}

/* Four offers, two of each far rank, wait for their exchanges, and keep their data apart. */
static void offers_of_two_ranks_wait_apart(void **state)
{
    static liar l;
    static char memory[4][OTHER];
    static ith_transfer lists[4];
    void *states[2];
    const char *said = "";
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    liar_open(&l, states);
    for (int i = 0; i < 4; i++) {
        const int64_t exchange = i / 2, bytes = OTHER - i;
        const datagram offer = {WIRE_OFFER, exchange, exchange, bytes, bytes, 0, FROM, 2 + i % 2, NULL};
        assert_int_equal(take(states[0], &offer, &said), ITH_OK);
        lists[i] = (ith_transfer){2 + i % 2, {.data = memory[i], .count = {1, 1}, .bytes = bytes}};
    }
    for (int i = 0; i < 2; i++) {
        bool done = false;
        ith_operation operation = ITH_OPERATION_INIT;
        operation.request = i, operation.tag = 7, operation.what = "a test";
        operation.receives = lists + 2 * i, operation.receive_count = 2;
        assert_int_equal(ith_wire_transport.exchange(states[0], &operation), ITH_OK);
        assert_int_equal(ith_wire_transport.wait(states[0], i, 1, &done), ITH_OK);
        assert_true(done);
    }
    for (int i = 0; i < 4; i++)
        for (int64_t at = 0; at < OTHER - i; at++)
            assert_true(memory[i][at] == letter(at + i % 2 * RANK_APART));
    liar_end(states);
}

/* Flows of as many regions and bytes, whose regions have other sizes or another order, have other hashes. */
static void sizes_and_their_order_make_the_hash(void **state)
{
    static liar l;
    static char memory[2 * FLOW];
    static ith_transfer lists[4][3];
    static const int64_t sizes[4][3] = {{1000, 2000, 2500}, {2000, 1000, 2500}, {1000, 2500, 2000}, {999, 2001, 2500}};
    uint64_t hashes[4];
    void *states[2];
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    l.link.send = send_noted;
    liar_open(&l, states);
    for (int i = 0; i < 4; i++) {
        ith_operation operation = ITH_OPERATION_INIT;
        for (int j = 0; j < 3; j++)
            lists[i][j] = (ith_transfer){2, {.data = memory, .count = {1, 1}, .bytes = sizes[i][j]}};
        operation.request = i, operation.tag = 7, operation.what = "a test";
        operation.sends = lists[i], operation.send_count = 3;
        assert_int_equal(ith_wire_transport.exchange(states[0], &operation), ITH_OK);
        assert_true(offered.exchange == i && offered.regions == 3 && offered.bytes == FLOW);
        hashes[i] = offered.sizes;
        for (int j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
    }
    liar_end(states);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_end_the_group),
        cmocka_unit_test(wrong_offers_are_refused),
        cmocka_unit_test(wrong_asks_are_refused),
        cmocka_unit_test(wrong_data_are_refused),
        cmocka_unit_test(wrong_heads_are_refused),
        cmocka_unit_test(datagrams_that_waited_are_compared),
        cmocka_unit_test(a_group_that_ends_leaves_the_others),
        cmocka_unit_test(datagrams_for_a_rank_that_has_closed_are_dropped),
        cmocka_unit_test(data_pass_between_regions_and_datagrams),
        cmocka_unit_test(offers_of_two_ranks_wait_apart),
        cmocka_unit_test(sizes_and_their_order_make_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
