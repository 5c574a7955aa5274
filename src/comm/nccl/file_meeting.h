/* SPDX-License-Identifier: Apache-2.0 */
/* Processes find one another through files in a folder that all of them see. */
#ifndef ITH_COMM_FILE_MEETING_H
#define ITH_COMM_FILE_MEETING_H

#include "tcp_link.h"

/* Connects this process with the others, which call it with the same path. Each writes the file PATH.N, where N is its
 * number from the environment: ITHACA_PROCESS of ITHACA_PROCESSES, or the variables of a launcher. Files that earlier
 * runs have left do no harm. ranks: of this process. On success *out is connected; the caller owns it. Returns
 * ITH_ERR_TIMEOUT if another process does not come within `seconds`; on failure nothing is left, and the sentence says
 * why. */
ith_status ith_file_meet(const char *path, int ranks, double seconds, tcp_party *out, char *sentence, size_t bytes);

#endif
