/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are connected by the sockets of examples/socket_transport.h. */
#ifndef ITH_TESTS_SOCKET_GROUP_H
#define ITH_TESTS_SOCKET_GROUP_H

#include <ithaca/ithaca.h>

/* As ith_comm_create_local, for ranks that are threads of this process. */
ith_status socket_group_create(ith_context *const *contexts, int ranks, ith_comm **comms);

/* Makes the communicator of a rank that is a process of socket_run_processes. On failure returns NULL, with a sentence
 * on standard error. */
ith_comm *socket_group_join(ith_context *context, const char *folder, int rank, int ranks);

#endif
