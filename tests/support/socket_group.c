/* SPDX-License-Identifier: Apache-2.0 */
#include "support/socket_group.h"
#include "socket_meeting.h"

#include <stdio.h>
#include <sys/socket.h>

enum { MOST_RANKS = 16 };

ith_status socket_group_create(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    int ends[MOST_RANKS][MOST_RANKS][2];
    ith_status status = ranks > MOST_RANKS ? ITH_ERR_ARGUMENT : ITH_OK;
    for (int a = 0; !status && a < ranks; a++)
        for (int b = a + 1; b < ranks; b++)
            for (int which = 0; which < 2; which++) {
                int pair[2];
                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
                    return ITH_ERR_IO;
                ends[a][b][which] = pair[0];
                ends[b][a][which] = pair[1];
            }
    for (int rank = 0; !status && rank < ranks; rank++) {
        void *state = socket_state(rank, ranks, (const int(*)[2])ends[rank]);
        comms[rank] = NULL;
        if (!state)
            return ITH_ERR_MEMORY;
        status = ith_comm_create(contexts[rank], &socket_transport, state, rank, ranks, &comms[rank]);
        if (status)
            socket_transport.close(state);
    }
    return status;
}

ith_comm *socket_group_join(ith_context *context, const char *folder, int rank, int ranks)
{
    char problem[SOCKET_SENTENCE];
    ith_comm *comm = NULL;
    void *state = socket_meet(folder, rank, ranks, 30, problem);
    if (!state) {
        fprintf(stderr, "rank %d: %s\n", rank, problem);
        return NULL;
    }
    if (ith_comm_create(context, &socket_transport, state, rank, ranks, &comm)) {
        fprintf(stderr, "rank %d: %s\n", rank, ith_context_error(context));
        socket_transport.close(state);
    }
    return comm;
}
