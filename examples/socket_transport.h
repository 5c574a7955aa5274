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

enum { SOCKET_SENTENCE = 1024 }; /* room for an error message, in bytes */

extern const ith_transport socket_transport;

/* Makes the state of rank `rank`, for ith_comm_create. sockets[r]: this rank's ends of two connections (AF_UNIX,
 * SOCK_SEQPACKET) with rank r, in the same order on both ranks; sockets[rank] is not used. The state owns the sockets
 * and closes them. Returns NULL if there is no memory; the sockets are then still the caller's. */
void *socket_state(int rank, int ranks, const int (*sockets)[2]);

#endif
