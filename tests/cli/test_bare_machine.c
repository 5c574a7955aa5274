/* SPDX-License-Identifier: Apache-2.0 */
/* The description of this machine without rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/machine/bare_machine.h"

#include <sched.h>

/* The number of units is the number of processors that the process may use. The machine may have more. */
static void units_are_those_of_the_process(void **state)
{
    (void)state;
    ith_machine machine;
    ith_machine_level level;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    ith_machine_bare(&machine, &level);
    assert_int_equal(machine.host_units, ith_processor_count());
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ith_machine_bare(&machine, &level);
    assert_int_equal(machine.host_units, 1);
    assert_ptr_equal(machine.levels, &level);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(units_are_those_of_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
