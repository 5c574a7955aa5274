/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of comm/wire over a link that brings wrong datagrams and messages. Whatever comes, the transport
 * touches no memory that is not its own and never waits for ever; a wrong datagram ends the group. The same holds
 * if allocations fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/wire/wire.h"
#include "comm/wire/wire_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5000, STEPS = 40, MEMORY = 300000 };

/* ---- A link that lies ------------------------------------------------------------------------------------------ */

/* The state of the datagrams between rank `to` of this process and rank 2 + to of the other, the far rank. */
typedef struct talk {
    int64_t next;         /* the exchange for which the far rank sends its next offer or ask */
    int64_t offers, told; /* numbers of offers that the far rank has sent, and that it has received */
    int64_t asked, moved; /* the exchange whose data it was asked for, -1: none; bytes of them that it has sent */
} talk;

/* The other process, played by the test. It follows the protocol, except that some of its datagrams are wrong (lies).
 */
typedef struct liar {
    ith_link link;
    uint32_t random;
    bool closed, failed;  /* failed: the group had failed when the link was closed */
    int lies;             /* one of this many datagrams is a lie */
    int due;              /* datagrams that arrive before the next pause */
    int64_t sent, posted; /* datagrams that were sent to it; exchanges that were posted */
    talk talks[2];
    char out[ITH_LINK_BYTES] __attribute__((aligned(64)));
    char in[ITH_LINK_BYTES] __attribute__((aligned(64)));
} liar;

/* Ranks 0 and 1 are of this process, 2 and 3 of the other. */
static const ith_link_process both[2] = {{.pid = 1, .first_rank = 0, .ranks = 2, .name = "here"},
                                         {.host = 1, .pid = 2, .first_rank = 2, .ranks = 2, .name = "there"}};

static uint32_t draw(liar *l, uint32_t below)
{
    l->random = l->random * 1664525u + 1013904223u;
    return (l->random >> 8) % below;
}

/* The bytes that each rank sends to another in an exchange. */
static int64_t bytes_of(int64_t exchange)
{
    static const int64_t sizes[] = {0, 100, 4096, 200000};
    return sizes[(exchange * 7 + exchange / 4) % 4];
}

static void *liar_reserve(void *self, int process, int64_t bytes)
{
    liar *l = self;
    assert_int_equal(process, 1);
    assert_true(bytes > 0 && bytes <= ITH_LINK_FAR_BYTES);
    return draw(l, 5) ? l->out : NULL;
}

static void liar_send(void *self, int process, int64_t bytes)
{
    liar *l = self;
    wire_head head;
    assert_int_equal(process, 1);
    assert_true(bytes >= (int64_t)sizeof head && bytes <= ITH_LINK_FAR_BYTES);
    memcpy(&head, l->out, sizeof head);
    talk *t = &l->talks[head.from];
    t->told += head.kind == WIRE_OFFER;
    if (head.kind == WIRE_ASK)
        t->asked = head.exchange, t->moved = 0;
    l->sent++;
}

static int64_t liar_settled(void *self, int process)
{
    const liar *l = self;
    (void)process;
    return l->sent;
}

/* Writes the next right datagram of a far rank. Returns the bytes after its head; -1 if no datagram is due. */
static int64_t tell_truth(liar *l, int to, wire_head *head)
{
    talk *t = &l->talks[to];
    *head = (wire_head){.from = 2 + to, .to = to, .taken = t->told, .tag = 7, .regions = 1};
    if (t->asked >= 0) {
        int64_t left = bytes_of(t->asked) - t->moved, bytes = left < WIRE_DATA_BYTES ? left : WIRE_DATA_BYTES;
        head->kind = WIRE_DATA, head->exchange = t->asked, head->number = t->moved, head->bytes = bytes;
        t->moved += bytes;
        if (bytes == left)
            t->asked = -1;
        return bytes;
    }
    int64_t bytes = bytes_of(t->next);
    if (t->next >= l->posted + 3)
        return -1;
    head->kind = bytes > WIRE_SMALL ? WIRE_ASK : WIRE_OFFER, head->exchange = t->next++;
    head->bytes = bytes, head->sizes = (uint64_t)bytes * 1099511628211u + 1;
    if (head->kind == WIRE_ASK)
        return 0;
    head->number = t->offers++;
    return bytes;
}

/* Changes one field of a datagram. */
static void lie(liar *l, wire_head *head, int64_t *bytes)
{
    static const int64_t odd[] = {-1, 0, 1, 2, 3, 4, 17, 100, 4096, 4097, 65280, 131072, 200000, INT64_MAX, INT64_MIN};
    int64_t value = odd[draw(l, sizeof odd / sizeof *odd)];
    int64_t *fields[] = {&head->group, &head->taken,   &head->exchange, &head->number,
                         &head->tag,   &head->regions, &head->bytes,    bytes};
    switch (draw(l, 12)) {
    case 0: head->kind = (int32_t)draw(l, 7); break;
    case 1: head->from = (int32_t)value; break;
    case 2: head->to = (int32_t)value; break;
    case 3: head->sizes ^= 1u << draw(l, 32); break;
    default: *fields[draw(l, 8)] = value;
    }
}

static int64_t liar_receive(void *self, int *process, const void **data)
{
    liar *l = self;
    wire_head head;
    if (l->due-- <= 0)
        return 0;
    int64_t bytes = tell_truth(l, (int)draw(l, 2), &head);
    if (bytes < 0)
        return 0;
    if (draw(l, (uint32_t)l->lies) == 0)
        lie(l, &head, &bytes);
    if (bytes < -(int64_t)sizeof head + 1 || bytes > ITH_LINK_BYTES - (int64_t)sizeof head)
        bytes = -1; /* too short for a head */
    memcpy(l->in, &head, sizeof head);
    *process = 1;
    *data = l->in;
    return bytes + (int64_t)sizeof head;
}

static bool liar_tell(void *self, int process, const void *data, size_t bytes, bool droppable)
{
    (void)self, (void)data, (void)droppable;
    return process == 1 && bytes <= ITH_WATCH_BYTES;
}

/* Returns an event now and then. Its message has a kind and a rank, and then random bytes. */
static ith_watch_event liar_hear(void *self, int *process, const void **data, size_t *bytes)
{
    liar *l = self;
    if (draw(l, 12 * (uint32_t)l->lies))
        return ITH_WATCH_NOTHING;
    for (int i = 0; i < 64; i++)
        l->in[i] = (char)(draw(l, 3) ? 0 : draw(l, 256));
    l->in[0] = (char)draw(l, 6), l->in[4] = (char)draw(l, 5);
    *process = 1;
    *data = draw(l, 4) ? l->in : "it said so";
    *bytes = draw(l, 64) + 1;
    if (*data != l->in)
        return ITH_WATCH_LOST;
    return ITH_WATCH_MESSAGE;
}

static void liar_rest(void *self, double seconds)
{
    (void)self, (void)seconds;
}

static void liar_wake(void *self)
{
    (void)self;
}

static void liar_close(void *self, bool failed)
{
    liar *l = self;
    l->closed = true, l->failed = failed;
}

static void liar_init(liar *l, uint32_t seed)
{
    *l = (liar){.random = seed, .talks = {{.asked = -1}, {.asked = -1}}};
    l->lies = 5 + (int)draw(l, 60);
    l->link = (ith_link){
        l,         "lies",    0,         2,         both,      liar_reserve, liar_send, liar_settled, liar_receive,
        liar_tell, liar_hear, liar_rest, liar_wake, liar_close};
}

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
    int numbers[2], size;
    char sentence[256];
    const char *said = NULL;
    liar_init(&l, seed);
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
    assert_true(size == 4 && numbers[0] == 0 && numbers[1] == 1);
    ith_subgroup pair = ITH_SUBGROUP_INIT;
    pair.number = 1, pair.size = 2, pair.members = (const int[]){0, 2};
    assert_int_equal(table->split(states[0], &pair, &part), ITH_OK);
    ith_status status = ITH_OK;
    bool over[2] = {false, false};
    int64_t posted = 0, first = 0;
    for (int step = 0; step < STEPS && !status; step++) {
        l.due = (int)draw(&l, 8);
        if (posted - first < 6) {
            for (int rank = 0; rank < 2 && !status; rank++)
                status = post(states[rank], rank, posted % WIRE_REQUESTS, bytes_of(posted), memory + 2 * rank * MEMORY,
                              lists[2 * step + rank]);
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
    const wire_head *like; /* not NULL: it tells the regions of this head */
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
    int numbers[2], size;
    char sentence[256];
    const char *said = "";
    liar_init(&l, 1);
    l.due = m->full ? -1 : 0;
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    arriving = NULL;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
        /* one group 1 has ranks 0 and 2, the other ranks 1 and 3; rank 0 has no state of group 2; there is no group 3 */
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
    int numbers[2], size;
    char sentence[256];
    const char *said;
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        liar_init(&l, 1);
        l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
        assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    int numbers[2], size;
    char sentence[256];
    const char *said = "";
    bool done = false;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    l.link.send = send_noted;
    sent_bytes = 0;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
}

/* Four offers, two of each far rank, wait for their exchanges, and keep their data apart. */
static void offers_of_two_ranks_wait_apart(void **state)
{
    static liar l;
    static char memory[4][OTHER];
    static ith_transfer lists[4];
    void *states[2];
    int numbers[2], size;
    char sentence[256];
    const char *said = "";
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
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
    int numbers[2], size;
    char sentence[256];
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_nothing, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    l.link.send = send_noted;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
}

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

/* Rank 0 waits for ranks 2 and 3. Rank 2 has moved data later than rank 3, and then is silent; its last message said
 * that it waits for rank `last`. Rank 3 waits for rank `other`. The error must name rank 2, also with a short time
 * limit. */
static void name_silent_rank(int last, int other)
{
    static liar l;
    static char memory[4 * MEMORY];
    static ith_transfer lists[2];
    void *states[2];
    int numbers[2], size, named = -1;
    char sentence[256];
    liar_init(&l, 1);
    l.link.hear = hear_life;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
    ith_operation operation = ITH_OPERATION_INIT;
    for (int i = 0; i < 2; i++)
        lists[i] = (ith_transfer){2 + i, {.data = memory + i * MEMORY, .count = {1, 1}, .bytes = 100}};
    operation.what = "a test", operation.receives = lists, operation.receive_count = 2;
    assert_int_equal(ith_wire_transport.exchange(states[0], &operation), ITH_OK);
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
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
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
    static char memory[200];
    static const datagram credit = {.kind = WIRE_CREDIT};
    static ith_transfer lists[2];
    void *states[2];
    int numbers[2], size, named = -1;
    char sentence[256];
    const char *said;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_life, l.link.reserve = reserve_if_room, l.link.receive = receive_arriving;
    l.link.tell = hear_sign;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
    ith_operation operation = ITH_OPERATION_INIT;
    for (int i = 0; i < 2; i++)
        lists[i] = (ith_transfer){2 + i, {.data = memory + 100 * i, .count = {1, 1}, .bytes = 100}};
    operation.what = "a test", operation.receives = lists, operation.receive_count = 2;
    assert_int_equal(ith_wire_transport.exchange(states[0], &operation), ITH_OK);
    give_life(states[0], 2, 3);
    wait_for_both(states[0], 0.3);
    give_life(states[0], 3, -1);
    wait_for_both(states[0], 0.1);
    const double before = ith_watch_now();
    assert_int_equal(take(states[0], &credit, &said), ITH_OK);
    const double after = ith_watch_now();
    wait_for_both(states[0], 0.1);
    assert_int_equal(told_wait, 3); /* neither is late, and rank 3 worked first */
    give_life(states[0], 3, -1);
    const double silence = ith_wire_transport.silence(states[0], 0, &named), now = ith_watch_now();
    assert_int_equal(named, 2);
    assert_true(silence > 0.1 && silence >= 0.99 * (now - after) - 1e-3 && silence <= now - before);
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
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
    int numbers[2], size, named = -1;
    char sentence[256];
    double silence = 0;
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_wait, l.link.processes = 3, l.link.all = three;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
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
    int numbers[2], size;
    char sentence[256];
    const char *said = "";
    (void)state;
    liar_init(&l, 1);
    l.link.hear = hear_failure;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
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
    ith_link_process wrong[2] = {both[0], both[1]};
    void *states[2];
    int numbers[2], size;
    char sentence[256] = "";
    (void)state;
    liar_init(&l, 1);
    l.link.all = wrong;
    wrong[1].first_rank = 3;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(sentence, "contradict"));
    wrong[1] = both[1], wrong[1].ranks = 0;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    wrong[1].ranks = INT32_MAX;
    assert_int_equal(ith_wire_open(&l.link, states, numbers, &size, sentence, sizeof sentence), ITH_ERR_ARGUMENT);
    l.link.all = both, l.link.process = -1;
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
        cmocka_unit_test(lies_end_the_group),
        cmocka_unit_test(wrong_offers_are_refused),
        cmocka_unit_test(wrong_asks_are_refused),
        cmocka_unit_test(wrong_data_are_refused),
        cmocka_unit_test(wrong_heads_are_refused),
        cmocka_unit_test(datagrams_that_waited_are_compared),
        cmocka_unit_test(a_group_that_ends_leaves_the_others),
        cmocka_unit_test(data_pass_between_regions_and_datagrams),
        cmocka_unit_test(offers_of_two_ranks_wait_apart),
        cmocka_unit_test(sizes_and_their_order_make_the_hash),
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
