/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of examples/socket_transport.h as a module, with one rank in each process. `where` is "FOLDER RANK
 * RANKS". */
#include "socket_meeting.h"

#include <stdio.h>

static ith_status meet(const char *where, int ranks, double seconds, void **states, int *numbers, int *size,
                       char *sentence, size_t bytes)
{
    char folder[128], problem[SOCKET_SENTENCE];
    if (!where || sscanf(where, "%127s %d %d", folder, &numbers[0], size) != 3) {
        snprintf(sentence, bytes, "where is FOLDER RANK RANKS");
        return ITH_ERR_ARGUMENT;
    }
    if (ranks != 1) {
        snprintf(sentence, bytes, "it takes one rank in each process, and this process has %d", ranks);
        return ITH_ERR_UNSUPPORTED;
    }
    states[0] = socket_meet(folder, numbers[0], *size, seconds, problem);
    if (!states[0])
        snprintf(sentence, bytes, "%s", problem);
    return states[0] ? ITH_OK : ITH_ERR_IO;
}

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {
    .abi = ITH_TRANSPORT_MODULE_ABI, .name = "socket", .transport = &socket_transport, .connect = meet};
