/* SPDX-License-Identifier: Apache-2.0 */
/* The option --device of commands with attention, and the list of devices that there are. */
#ifndef ITH_CLI_DEVICE_OPTION_H
#define ITH_CLI_DEVICE_OPTION_H

#include "../option/option.h"

#include <ithaca/ithaca.h>
#include <jansson.h>

/* The row of --device in a table of options. what: the work that the device does. at: the position of the option's
 * text, a const char *, in the command's settings. */
#define ITH_DEVICE_OPTION(what, at)                                                                                    \
    {                                                                                                                  \
        "device", "cpu|cuda|cuda:N",                                                                                   \
            "Compute " what                                                                                            \
            " on the processor, or on a GPU that 'ithaca info' lists; ranks of a process share it (cpu)",              \
            ITH_OPTION_TEXT, .offset = at                                                                              \
    }

/* Makes the plans of a context, and of clones that are made later, compute on the device `name`; NULL: on the
 * processor. Prints errors and returns an exit status. */
int ith_device_choose(ith_context *context, const char *command, const char *name);
/* Fills in *info, and returns whether the context uses a device. */
bool ith_device_in_use(ith_context *context, ith_device_info *info);
/* The devices of this machine as a JSON array [{"name", "about"}]. A module whose devices cannot be used has one row,
 * whose "about" is the reason. If there is no module, the only row says how to get one. */
json_t *ith_device_list(void);

#endif
