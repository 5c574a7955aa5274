/* SPDX-License-Identifier: Apache-2.0 */
/* The list of plans (plan_state.h). */
#include "plan_state.h"

#include <stdlib.h>
#include <string.h>

ith_status ith_plan_take(void *user, const ith_plan_candidate *candidate)
{
    ith_plan_command *c = user;
    if (c->count == c->room) {
        int64_t room = c->room ? 2 * c->room : 64;
        ith_plan_row *rows = realloc(c->rows, (size_t)room * sizeof *rows);
        if (!rows)
            return ITH_ERR_MEMORY;
        c->rows = rows, c->room = room;
    }
    ith_plan_row *row = &c->rows[c->count++];
    memset(row, 0, sizeof *row);
    row->legal = candidate->legal;
    row->options = *candidate->options;
    memcpy(row->rule, candidate->rule, sizeof row->rule);
    if (candidate->legal) {
        row->info = *candidate->info, row->cost = *candidate->cost;
        c->legal_count++;
    }
    return ITH_OK;
}
