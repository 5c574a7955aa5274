/* SPDX-License-Identifier: Apache-2.0 */
/* The values of reports in JSON (json_print.h). */
#include "json_print.h"

#include "../cli.h"
#include "text_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *ith_cli_json_text(const char *text)
{
    char *copy = ith_text_is_utf8(text) ? NULL : strdup(text);
    if (copy)
        ith_text_clean(copy);
    json_t *json = json_string(copy ? copy : text);
    free(copy);
    return json;
}

json_t *ith_cli_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *ith_cli_json_about(const char *name, const char *about)
{
    return json_pack("{s:o, s:o}", "name", ith_cli_json_text(name), "about", ith_cli_json_text(about));
}

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
