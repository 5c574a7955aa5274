/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine without rates (bare_machine.h). */
#include "bare_machine.h"

#include <stdio.h>

void ith_machine_bare(ith_machine *machine, ith_machine_level *level)
{
    *machine = (ith_machine)ITH_MACHINE_INIT;
    *level = (ith_machine_level)ITH_MACHINE_LEVEL_INIT;
    snprintf(machine->name, sizeof machine->name, "this machine");
    snprintf(level->name, sizeof level->name, "threads");
    level->shares_memory = true;
    machine->host_units = ith_processor_count();
    machine->level_count = 1, machine->levels = level;
}
