/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the host: the system's name, which may be longer than the place for it. */
#include "base/host_name.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

int __wrap_gethostname(char *name, size_t bytes);

static const char *system_name; /* NULL: the system does not answer */

/* Like the C library's function: a name that does not fit is an error. */
int __wrap_gethostname(char *name, size_t bytes)
{
    errno = system_name ? ENAMETOOLONG : EPERM;
    if (!system_name || strlen(system_name) >= bytes)
        return -1;
    memcpy(name, system_name, strlen(system_name) + 1);
    return 0;
}

static void expect_name(const char *of_system, size_t bytes, const char *expected)
{
    char name[128];
    memset(name, '#', sizeof name);
    system_name = of_system;
    ith_host_name(name, bytes);
    assert_string_equal(name, expected);
    assert_int_equal(name[bytes], '#');
}

static void a_name_that_fits_is_whole(void **state)
{
    (void)state;
    expect_name("node7", 64, "node7");
    expect_name("node7", 6, "node7");
}

/* Linux allows 64 characters, and some clusters use all of them. */
static void a_long_name_is_cut(void **state)
{
    (void)state;
    char longest[65], cut[64];
    memset(longest, 'n', 64), longest[64] = 0;
    memset(cut, 'n', 63), cut[63] = 0;
    expect_name(longest, 65, longest);
    expect_name(longest, 64, cut);
    expect_name(cut, 64, cut);
    expect_name("node7", 5, "node");
}

static void without_a_name_it_is_unnamed(void **state)
{
    (void)state;
    expect_name(NULL, 64, "unnamed");
    expect_name("", 64, "unnamed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_fits_is_whole),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(without_a_name_it_is_unnamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
