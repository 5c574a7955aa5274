/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the parts of `ithaca tune` share (tune_state.h): whether to stop, the names of its files, its display.
 */
#include "tune_state.h"

#include "../file/cache_file.h"
#include "../file/output_name.h"
#include "../launch/interrupt.h"
#include "../launch/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ith_tune_stops(void *user)
{
    const ith_tune *t = user;
    return ith_interrupt_came() || ith_cli_seconds() > t->until;
}

int ith_tune_save(ith_tune *t)
{
    return ith_wisdom_save(t->context, t->wisdom) ? ith_cli_error("%s", ith_context_error(t->context)) : ITH_EXIT_DONE;
}

void ith_tune_show(const ith_tune *t, const char *format, ...)
{
    char text[512], line[600];
    va_list arguments;
    if (!ith_terminal_draws())
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "%3.0f of %.0f s  %s", ith_cli_seconds() - t->start, t->settings->budget, text);
    fprintf(stderr, "\r\033[K%.*s", ith_terminal_columns(), line);
}

int ith_tune_find_file(const char *option, const char *given, const char *name, char path[PATH_MAX])
{
    path[0] = '\0';
    if (given && !strcmp(given, "none"))
        return ITH_EXIT_DONE;
    if (given && snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
        return ith_cli_error("%s: the name of the file has %zu bytes, and may have %d", option, strlen(given),
                             PATH_MAX - 1);
    if (!given && !ith_cache_path(name, path))
        return ith_cli_error("%s is needed: neither XDG_CACHE_HOME nor HOME names a folder", option);
    int code = given ? ITH_EXIT_DONE : ith_cache_make(path);
    return code ? code : ith_cli_check_output(path);
}

int ith_tune_find_machine(ith_tune *t)
{
    return ith_tune_find_file("--machine", t->settings->machine, "machine.yaml", t->machine_path);
}
