/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of processes in a link. */
#ifndef ITH_COMM_LINK_NUMBER_H
#define ITH_COMM_LINK_NUMBER_H

#include "link.h"

/* A process that takes part, and the number of its ranks. Plain data: processes exchange it as bytes. */
typedef struct ith_link_guest {
    int ranks;
    ith_watch_address address;
} ith_link_guest;

/* Numbers processes host by host, in the order of the first process of each host. guests [processes]: in the order of
 * the launcher. Fills in all [processes], as ith_link.all, and numbers [processes], the new number of each guest. */
void ith_link_number(const ith_link_guest *guests, int processes, ith_link_process *all, int *numbers);

#endif
