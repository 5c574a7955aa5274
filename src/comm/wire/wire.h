/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over any link (link.h): groups, sub-groups, matching, data, silence, notices and failures. Ranks of one
 * process copy between their memories; data between processes travels in datagrams.
 *
 * A module's `connect` makes a link and opens it:
 *
 *     return ith_wire_open(&link, states, numbers, size, sentence, bytes);
 *
 * and the module's table names ith_wire_transport. This folder uses only the public functions of libithaca. */
#ifndef ITH_COMM_WIRE_H
#define ITH_COMM_WIRE_H

#include "link.h"

/* The table of the states that ith_wire_open makes. */
extern const ith_transport ith_wire_transport;

/* Makes the states of this process's ranks: states [ranks] and numbers [ranks], with ranks = link->all[link->process]
 * .ranks, and *size, the number of all ranks. The struct is copied. Communicates nothing. On success the link belongs
 * to the states: the last that is closed closes it. On failure the link stays the caller's; the sentence says why.
 * ITH_ERR_MEMORY, or ITH_ERR_ARGUMENT if link->all contradicts itself. */
ith_status ith_wire_open(const ith_link *link, void **states, int *numbers, int *size, char *sentence, size_t bytes);

#endif
