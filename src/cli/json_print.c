/* SPDX-License-Identifier: Apache-2.0 */
/* Prints reports as JSON (json_print.h). */
#include "json_print.h"

#include "cli.h"

#include <stdio.h>

int ith_cli_json_dump(const json_t *value, const char *what, size_t layout)
{
    if (value && !json_dumpf(value, stdout, layout))
        return ITH_EXIT_DONE;
    return ferror(stdout) ? ITH_EXIT_FAILED : ith_cli_error("%s cannot be written as JSON", what);
}

int ith_cli_json_print(json_t *all, const char *what, size_t layout)
{
    const int code = ith_cli_json_dump(all, what, layout);
    json_decref(all);
    if (!code)
        putchar('\n');
    return code;
}
