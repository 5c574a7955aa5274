/* SPDX-License-Identifier: Apache-2.0 */
/* The flight record of a rank: its last operations, its activity, and the failure of its group. It shows a person later
 * why a run failed (ith_flight_save).
 *
 * The communicators of the whole group and of its sub-groups write one record. The record belongs to the family of the
 * context, so it is there when the group is gone. A new communicator of a whole group drops old records: all of them if
 * no communicator of the family uses one, otherwise an unused record of the same rank. The memory of a record is fixed,
 * and does not count as held. */
#ifndef ITH_COMM_FLIGHT_H
#define ITH_COMM_FLIGHT_H

#include "../base/context.h"

#include <ithaca/transport.h>

#define ITH_FLIGHT_PEERS 4 /* the most peers of an operation that a record names */

/* How far an operation has come. */
typedef enum ith_flight_state { ITH_FLIGHT_POSTED = 0, ITH_FLIGHT_DONE, ITH_FLIGHT_FAILED } ith_flight_state;

/* One operation of a rank. Ranks are world ranks: their numbers in the whole group. */
typedef struct ith_flight_operation {
    const char *name; /* static storage */
    int64_t group;    /* the number of the group (ith_subgroup.number); 0: the whole group */
    int group_size;   /* the number of its ranks */
    int group_first;  /* its first rank: groups of one split have one number, and different first ranks */
    int64_t number;   /* the number of exchanges that the rank has posted in the group before */
    int64_t bytes[2]; /* that it sends to other ranks, and that it receives from them */
    int peer_count;   /* the number of other ranks to which it sends or from which it receives */
    int peers[ITH_FLIGHT_PEERS];
    ith_flight_state state;
    double posted, ended; /* times, by ith_clock_seconds */
} ith_flight_operation;

typedef struct ith_flight ith_flight;

/* Opens the record of a rank of a group. From now on `context`, the context of the rank, notes its activity in the
 * record. Returns NULL with an error sentence if there is no memory. */
ith_flight *ith_flight_open(ith_context *context, int rank, int size);
/* Ends the use of the record by its communicator. flight may be NULL. */
void ith_flight_close(ith_flight *flight, ith_context *context);
/* Notes where the rank runs. */
void ith_flight_set_place(ith_flight *flight, const ith_place *place);

/* Notes an operation that the rank has posted, and its end. Returns the operation's number in the record; -1 once the
 * group has failed: later operations are not noted. The state and the times need not be set. One thread at a time calls
 * these functions and ith_flight_fail. */
int64_t ith_flight_post(ith_flight *flight, const ith_flight_operation *operation);
void ith_flight_end(ith_flight *flight, int64_t number, ith_flight_state state);
/* Notes the failure of the group; the first one counts. */
void ith_flight_fail(ith_flight *flight, ith_status status, const char *sentence);
/* Notes a sign of life. Any thread may call this. */
void ith_flight_alive(ith_flight *flight);

#endif
