/* SPDX-License-Identifier: Apache-2.0 */
#include "liar.h"

#include "comm/wire/wire_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

const ith_link_process liar_processes[2] = {{.pid = 1, .first_rank = 0, .ranks = 2, .name = "here"},
                                            {.host = 1, .pid = 2, .first_rank = 2, .ranks = 2, .name = "there"}};

uint32_t liar_draw(liar *l, uint32_t below)
{
    l->random = l->random * 1664525u + 1013904223u;
    return (l->random >> 8) % below;
}

int64_t liar_bytes(int64_t exchange)
{
    static const int64_t sizes[] = {0, 100, 4096, 200000};
    return sizes[(exchange * 7 + exchange / 4) % 4];
}

static void *liar_reserve(void *self, int process, int64_t bytes)
{
    liar *l = self;
    assert_int_equal(process, 1);
    assert_true(bytes > 0 && bytes <= ITH_LINK_FAR_BYTES);
    return liar_draw(l, 5) ? l->out : NULL;
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
        int64_t left = liar_bytes(t->asked) - t->moved, bytes = left < WIRE_DATA_BYTES ? left : WIRE_DATA_BYTES;
        head->kind = WIRE_DATA, head->exchange = t->asked, head->number = t->moved, head->bytes = bytes;
        t->moved += bytes;
        if (bytes == left)
            t->asked = -1;
        return bytes;
    }
    int64_t bytes = liar_bytes(t->next);
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
    int64_t value = odd[liar_draw(l, sizeof odd / sizeof *odd)];
    int64_t *fields[] = {&head->group, &head->taken,   &head->exchange, &head->number,
                         &head->tag,   &head->regions, &head->bytes,    bytes};
    switch (liar_draw(l, 12)) {
    case 0: head->kind = (int32_t)liar_draw(l, 7); break;
    case 1: head->from = (int32_t)value; break;
    case 2: head->to = (int32_t)value; break;
    case 3: head->sizes ^= 1u << liar_draw(l, 32); break;
    default: *fields[liar_draw(l, 8)] = value;
    }
}

static int64_t liar_receive(void *self, int *process, const void **data)
{
    liar *l = self;
    wire_head head;
    if (l->due-- <= 0)
        return 0;
    int64_t bytes = tell_truth(l, (int)liar_draw(l, 2), &head);
    if (bytes < 0)
        return 0;
    if (liar_draw(l, (uint32_t)l->lies) == 0)
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
    if (liar_draw(l, 12 * (uint32_t)l->lies))
        return ITH_WATCH_NOTHING;
    for (int i = 0; i < 64; i++)
        l->in[i] = (char)(liar_draw(l, 3) ? 0 : liar_draw(l, 256));
    l->in[0] = (char)liar_draw(l, 6), l->in[4] = (char)liar_draw(l, 5);
    *process = 1;
    *data = liar_draw(l, 4) ? l->in : "it said so";
    *bytes = liar_draw(l, 64) + 1;
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

void liar_init(liar *l, uint32_t seed)
{
    *l = (liar){.random = seed, .talks = {{.asked = -1}, {.asked = -1}}};
    l->lies = 5 + (int)liar_draw(l, 60);
    l->link = (ith_link){
        l,         "lies",    0,         2,         liar_processes, liar_reserve, liar_send, liar_settled, liar_receive,
        liar_tell, liar_hear, liar_rest, liar_wake, liar_close};
}

void liar_open(liar *l, void *states[2])
{
    const ith_link_process *last = &l->link.all[l->link.processes - 1];
    int numbers[2], size;
    char sentence[256];
    assert_int_equal(ith_wire_open(&l->link, states, numbers, &size, sentence, sizeof sentence), ITH_OK);
    assert_int_equal(size, last->first_rank + last->ranks);
    assert_true(numbers[0] == 0 && numbers[1] == 1);
}

void liar_end(void *states[2])
{
    ith_wire_transport.abort(states[0], ITH_ERR_ABORTED, "the end of a test");
    for (int i = 0; i < 2; i++)
        ith_wire_transport.leave(states[i]), ith_wire_transport.close(states[i]);
}
