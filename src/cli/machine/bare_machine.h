/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine without rates. */
#ifndef ITH_CLI_BARE_MACHINE_H
#define ITH_CLI_BARE_MACHINE_H

#include <ithaca/cost.h>

/* Describes this machine for ranks that are threads of this process. Its units are the processors that the process may
 * use (affinity, control groups), which may be fewer than the machine has. *machine points to *level. */
void ith_machine_bare(ith_machine *machine, ith_machine_level *level);

#endif
