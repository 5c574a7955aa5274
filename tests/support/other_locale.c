/* SPDX-License-Identifier: Apache-2.0 */
#include "support/other_locale.h"

#include "support/temporary.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char *made; /* the folder of the locales that were made */

/* For LeakSanitizer: the C library keeps what LOCPATH says. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__argz_add_sep\n";
}

static void remove_made(void)
{
    temporary_remove(made);
}

void other_locale_make(const char *name)
{
    char command[640];
    if (!made) {
        made = temporary_folder();
        atexit(remove_made);
        setenv("LOCPATH", made, 1);
    }
    const char *path = temporary_path(made, name);
    snprintf(command, sizeof command, "localedef -i %.5s -f UTF-8 '%s' >/dev/null 2>&1", name, path);
    /* setlocale comes last: it never finds a locale that was missing once */
    if ((access(path, R_OK) && system(command)) || !setlocale(LC_ALL, name)) {
        printf("skipped: localedef cannot make %s (is the package locales there?)\n", name);
        skip();
    }
    setlocale(LC_ALL, "C");
}

void in_other_locale(const char *name, void (*test)(void **state), void **state)
{
    other_locale_make(name);
    setlocale(LC_ALL, name);
    test(state);
    setlocale(LC_ALL, "C");
}
