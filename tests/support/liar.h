/* SPDX-License-Identifier: Apache-2.0 */
/* A link of comm/wire to another process that the test plays: it brings wrong datagrams and messages. */
#ifndef ITH_TESTS_LIAR_H
#define ITH_TESTS_LIAR_H

#include "comm/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* The state of the datagrams between rank `to` of this process and rank 2 + to of the other, the far rank. */
typedef struct talk {
    int64_t next;         /* the exchange for which the far rank sends its next offer or ask */
    int64_t offers, told; /* numbers of offers that the far rank has sent, and that it has received */
    int64_t asked, moved; /* the exchange whose data it was asked for, -1: none; bytes of them that it has sent */
} talk;

/* The other process, played by the test. It follows the protocol, except that some of its datagrams are wrong
 * (lies). */
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
extern const ith_link_process liar_processes[2];

/* Makes a liar with a link to it. seed: decides which of its datagrams are wrong, and how. */
void liar_init(liar *l, uint32_t seed);
/* A random number below `below`. */
uint32_t liar_draw(liar *l, uint32_t below);
/* The bytes that each rank sends to another in an exchange. */
int64_t liar_bytes(int64_t exchange);
/* Opens the link of a liar and fills in the states of ranks 0 and 1. */
void liar_open(liar *l, void *states[2]);
/* Ends a group that has not failed, and closes the states of both ranks, which closes the link. */
void liar_end(void *states[2]);

#endif
