/* SPDX-License-Identifier: Apache-2.0 */
/* Makes communicators of sub-groups. comm.h declares the other functions of comm_life.c. */
#ifndef ITH_COMM_COMM_LIFE_H
#define ITH_COMM_COMM_LIFE_H

#include "comm.h"

/* Makes this rank's communicator of sub-group number `number`, without communication. members: the world ranks of its
 * `size` ranks, of which this one is number `rank`. */
ith_status ith_comm_make_part(ith_comm *comm, int64_t number, int *members, int size, int rank, ith_comm **out);

#endif
