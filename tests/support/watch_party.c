/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/watch_party.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

typedef struct guest {
    party *party;
    int number;
    pthread_t thread;
} guest;

static void *meet(void *argument)
{
    guest *g = argument;
    party *p = g->party;
    const ith_watch_patience patience = {p->seconds, p->look[g->number], p};
    p->met[g->number] = !ith_watch_connect(p->watches[g->number], p->all, g->number, p->size, &patience,
                                           p->sentences[g->number], SENTENCE);
    return NULL;
}

void party_listen(party *p, int size)
{
    *p = (party){.size = size, .seconds = 60};
    for (int i = 0; i < size; i++) {
        p->watches[i] = ith_watch_listen(&p->all[i], p->sentences[i], SENTENCE);
        assert_non_null(p->watches[i]);
        p->all[i].number = i;
    }
}

void party_connect(party *p)
{
    guest guests[MOST];
    for (int i = 0; i < p->size; i++) {
        guests[i] = (guest){.party = p, .number = i};
        if (!p->absent[i])
            assert_int_equal(pthread_create(&guests[i].thread, NULL, meet, &guests[i]), 0);
    }
    for (int i = 0; i < p->size; i++)
        if (!p->absent[i])
            pthread_join(guests[i].thread, NULL);
}

void party_meet(party *p, int size)
{
    party_listen(p, size);
    party_connect(p);
    for (int i = 0; i < size; i++)
        if (!p->met[i])
            fail_msg("process %d: %s", i, p->sentences[i]);
}

static void *leave(void *watch)
{
    ith_watch_close(watch, true);
    return NULL;
}

void party_part(party *p)
{
    pthread_t threads[MOST];
    for (int i = 0; i < p->size; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, leave, p->watches[i]), 0);
    for (int i = 0; i < p->size; i++)
        pthread_join(threads[i], NULL);
}

ith_watch_event party_receive(ith_watch *w, int *from, const void **data, size_t *bytes)
{
    ith_watch_event event;
    while ((event = ith_watch_receive(w, from, data, bytes)) == ITH_WATCH_AWAITS)
        ;
    return event;
}

ith_watch_event party_hear(ith_watch *w, int *from, const void **data, size_t *bytes)
{
    double end = ith_clock_seconds() + 60;
    ith_watch_event event = ITH_WATCH_NOTHING;
    while (!(event = party_receive(w, from, data, bytes)) && ith_clock_seconds() < end)
        ith_watch_rest(w, 0.01);
    return event;
}

void party_separate(party *p)
{
    for (int i = 0; i < p->size; i++) {
        snprintf(p->all[i].boot, sizeof p->all[i].boot, "boot %d", i);
        snprintf(p->all[i].name, sizeof p->all[i].name, "host%d", i);
        p->all[i].interface[0] = (ith_watch_interface){.bytes = {127, 0, 0, 1}};
        p->all[i].interfaces = 1;
    }
}

int party_knock(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}
