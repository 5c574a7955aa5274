/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers the processes of a link (link_number.h). */
#include "link_number.h"

#include <stdio.h>

static void place_process(const ith_link_guest *guest, int number, int64_t host, ith_link_process *all)
{
    ith_link_process *to = &all[number];
    const ith_link_process *before = number ? to - 1 : NULL;
    *to = (ith_link_process){.host = host,
                             .pid = guest->address.pid,
                             .first_rank = before ? before->first_rank + before->ranks : 0,
                             .ranks = guest->ranks};
    snprintf(to->name, sizeof to->name, "%.*s", ITH_WATCH_NAME - 1, guest->address.name);
}

void ith_link_number(const ith_link_guest *guests, int processes, ith_link_process *all, int *numbers)
{
    int number = 0;
    int64_t host = 0;
    for (int i = 0; i < processes; i++)
        numbers[i] = -1;
    for (int first = 0; first < processes; first++) {
        if (numbers[first] >= 0)
            continue;
        for (int i = first; i < processes; i++) {
            if (numbers[i] >= 0 || !ith_watch_same_host(&guests[first].address, &guests[i].address))
                continue;
            numbers[i] = number;
            place_process(&guests[i], number++, host, all);
        }
        host++;
    }
}
