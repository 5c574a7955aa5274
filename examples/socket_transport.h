/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that is no part of the library (ithaca/transport.h): ranks are processes of one machine, connected by
 * Unix sockets. socket_meeting.h makes the connections:
 *
 *     char problem[SOCKET_SENTENCE];
 *     void *state = socket_meet(folder, rank, ranks, 10, problem);
 *     if (!state)
 *         fprintf(stderr, "%s\n", problem);
 *     else if (ith_comm_create(context, &socket_transport, state, rank, ranks, &comm))
 *         socket_transport.close(state);
 */
#ifndef SOCKET_TRANSPORT_H
#define SOCKET_TRANSPORT_H

#include <ithaca/transport.h>

enum { SOCKET_SENTENCE = 1024 };

extern const ith_transport socket_transport;

/* The state of rank `rank`. sockets [ranks][2]: the ends of two connections (AF_UNIX, SOCK_SEQPACKET) to each other
 * rank, of which the first is the same as the other rank's first; those at [rank] are not looked at. They belong to the
 * state, which closes them. NULL without memory: the sockets are still the caller's. */
void *socket_state(int rank, int ranks, const int (*sockets)[2]);

#endif
