/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections between threads of a test that take the parts of processes. */
#ifndef ITH_TESTS_WATCH_PARTY_H
#define ITH_TESTS_WATCH_PARTY_H

#include "comm/wire/watch.h"

enum { MOST = 5, SENTENCE = 512 };

typedef struct party {
    int size;
    double seconds;
    ith_watch *watches[MOST];
    ith_watch_address all[MOST];
    bool met[MOST];
    char sentences[MOST][SENTENCE];
    bool (*look[MOST])(void *user, char *sentence, size_t bytes); /* of ith_watch_patience; user: the party */
    bool absent[MOST];                                            /* never connects */
    int looks;                                                    /* the number of calls of `look` before the call that
                                                                   * fails */
} party;

/* Opens the ports of `size` processes, which wait for each other for a minute. */
void party_listen(party *p, int size);

/* Connects all processes that are not absent, each in a separate thread. */
void party_connect(party *p);

/* Calls party_listen and party_connect, and checks that all processes are connected. */
void party_meet(party *p, int size);

/* Closes all watches at once, since each waits for the goodbyes of the others. */
void party_part(party *p);

/* Returns the next event (ith_watch_receive). Leaves out ITH_WATCH_AWAITS, which concerns one test alone. */
ith_watch_event party_receive(ith_watch *w, int *from, const void **data, size_t *bytes);

/* Waits for such an event, at most a minute. */
ith_watch_event party_hear(ith_watch *w, int *from, const void **data, size_t *bytes);

/* Makes processes look as if they ran on different hosts: their boot ids and host names differ, and each has the
 * address 127.0.0.1 alone. So they do not try the loopback besides, and do not look up one another's state in the
 * system. */
void party_separate(party *p);

/* Connects to a port of this host, and returns the descriptor. */
int party_knock(uint16_t port);

#endif
