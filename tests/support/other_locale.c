/* SPDX-License-Identifier: Apache-2.0 */
#include "support/other_locale.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LONGEST 1024 /* bytes of a path */

/* For LeakSanitizer: the C library keeps what LOCPATH says. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__argz_add_sep\n";
}

/* Sets `path` to the folder of a locale, in `locales` beside the test's program. Making one takes seconds, so it stays
 * there for other tests. */
static void find_locale(const char *name, char path[LONGEST])
{
    char program[LONGEST / 2];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(bytes > 0 && bytes < (ssize_t)sizeof program - 1);
    program[bytes] = '\0';
    *strrchr(program, '/') = '\0';
    snprintf(path, LONGEST, "%s/locales", program);
    mkdir(path, 0777);
    setenv("LOCPATH", path, 1);
    snprintf(path, LONGEST, "%s/locales/%s", program, name);
}

/* Makes a locale under a name of its own and renames it, because another test may make it at the same time. */
static void make_locale(const char *name, const char *path)
{
    char own[LONGEST + 16], command[5 * LONGEST];
    snprintf(own, sizeof own, "%s.%d", path, (int)getpid());
    snprintf(command, sizeof command,
             "(localedef -i %.5s -f UTF-8 '%s' && mv -T '%s' '%s' || rm -rf '%s') >/dev/null 2>&1", name, own, own,
             path, own);
    const int status = system(command);
    assert_true(status != -1);
}

void other_locale_make(const char *name)
{
    char path[LONGEST];
    find_locale(name, path);
    if (access(path, R_OK))
        make_locale(name, path);
    if (!setlocale(LC_ALL, name)) { /* it never finds a locale that was missing once */
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
