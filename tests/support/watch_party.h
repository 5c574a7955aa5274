/* SPDX-License-Identifier: Apache-2.0 */
/* Processes with control connections, as threads of a test: how they meet and part. */
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
    int looks;                                                    /* how many looks come before the one that fails */
} party;

/* Opens the ports of `size` processes, which wait for each other for a minute. */
void party_listen(party *p, int size);

/* Connects all that are not absent, each in a thread of its own. */
void party_connect(party *p);

/* Both, and the processes must be connected then. */
void party_meet(party *p, int size);

/* Closes all watches at once, since each waits for the goodbyes of the others. */
void party_part(party *p);

/* The next event. Whom a process awaits before it is connected is of interest to one test alone. */
ith_watch_event party_receive(ith_watch *w, int *from, const void **data, size_t *bytes);

/* Waits for an event, at most a minute. */
ith_watch_event party_hear(ith_watch *w, int *from, const void **data, size_t *bytes);

/* Makes processes look as if they ran on different hosts: the loopback is not tried by itself, and nobody looks up the
 * state of a process in the system. */
void party_separate(party *p);

/* A clock. */
double party_seconds(void);

#endif
