/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of examples/socket_transport.h as a module. `where` is "FOLDER RANK RANKS". */
#include "socket_meeting.h"

#include <stdio.h>

static ith_status meet(const char *where, void **state, int *rank, int *size, char *sentence, size_t bytes)
{
    char folder[128], problem[SOCKET_SENTENCE];
    if (!where || sscanf(where, "%127s %d %d", folder, rank, size) != 3) {
        snprintf(sentence, bytes, "where is FOLDER RANK RANKS");
        return ITH_ERR_ARGUMENT;
    }
    *state = socket_meet(folder, *rank, *size, 10, problem);
    if (!*state)
        snprintf(sentence, bytes, "%s", problem);
    return *state ? ITH_OK : ITH_ERR_IO;
}

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {
    .abi = ITH_TRANSPORT_MODULE_ABI, .name = "socket", .transport = &socket_transport, .connect = meet};
