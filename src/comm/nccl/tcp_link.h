/* SPDX-License-Identifier: Apache-2.0 */
/* A link (link.h) over TCP: one connection for datagrams and one for control (watch.h) between each two processes. */
#ifndef ITH_COMM_TCP_LINK_H
#define ITH_COMM_TCP_LINK_H

#include "../wire/link.h"

/* The connections of a process, and its place among the others. */
typedef struct tcp_party {
    int process, processes;
    ith_link_process *all;     /* [processes]; malloc'ed */
    ith_watch *data, *control; /* connected */
} tcp_party;

/* Closes the connections and frees the memory. */
void ith_tcp_party_close(tcp_party *party);

/* Makes a link. On success the link owns the party's memory and connections; on failure they stay the caller's, and the
 * result is false. */
bool ith_tcp_link_create(const tcp_party *party, ith_link *out);

#endif
