/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a report as JSON (json_print.h). */
#include "json_print.h"

#include "cli.h"

#include <stdio.h>

int ith_cli_json_print(json_t *all, const char *what, size_t layout)
{
    const int failed = !all || json_dumpf(all, stdout, layout);
    json_decref(all);
    if (failed)
        return ith_cli_error("%s cannot be written as JSON", what);
    putchar('\n');
    return ITH_EXIT_DONE;
}
