/* SPDX-License-Identifier: Apache-2.0 */
/* The division of a host's cores among processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/launch/core_share.h"
#include "support/random.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 12 };

/* The set of cores of which bit i of the mask stands for core i. */
static ith_core_set mask_of(unsigned bits)
{
    ith_core_set mask = {0};
    for (int i = 0; i < (int)(8 * sizeof bits); i++)
        if (bits >> i & 1)
            ith_cores_add(&mask, i);
    return mask;
}

static unsigned bits_of(const ith_core_set *mask)
{
    unsigned bits = 0;
    for (int i = 0; i < (int)(8 * sizeof bits); i++)
        bits |= (unsigned)ith_cores_have(mask, i) << i;
    return bits;
}

/* Divides the cores of `count` processes. Returns whether that was possible. */
static bool divide(const unsigned *masks, int count, unsigned *parts)
{
    ith_core_set sets[MOST], part;
    bool divided = false;
    for (int i = 0; i < count; i++)
        sets[i] = mask_of(masks[i]);
    for (int i = 0; i < count; i++) {
        bool one = ith_cores_divide(sets, count, i, &part);
        assert_true(i == 0 || one == divided); /* all processes find the same division */
        divided = one;
        parts[i] = bits_of(&part);
    }
    return divided;
}

static void equal_masks_give_equal_shares(void **state)
{
    (void)state;
    for (int cores = 1; cores <= 12; cores++)
        for (int count = 1; count <= cores; count++) {
            unsigned masks[MOST], parts[MOST], all = 0;
            for (int i = 0; i < count; i++)
                masks[i] = (1u << cores) - 1;
            assert_true(divide(masks, count, parts));
            for (int i = 0; i < count; i++) {
                int size = __builtin_popcount(parts[i]);
                assert_true(size == cores / count || size == (cores + count - 1) / count);
                assert_int_equal(all & parts[i], 0);
                all |= parts[i];
            }
            assert_int_equal(all, (1u << cores) - 1);
        }
}

static void masks_that_a_launcher_has_set_stay(void **state)
{
    (void)state;
    const unsigned masks[] = {0x0f, 0xf0, 0x300};
    unsigned parts[3];
    assert_true(divide(masks, 3, parts));
    assert_memory_equal(masks, parts, sizeof masks);
}

static void overlaps_are_divided(void **state)
{
    (void)state;
    const unsigned wide_first[] = {0xf, 0x4}, narrow_first[] = {0x4, 0xf};
    unsigned parts[2];
    assert_true(divide(wide_first, 2, parts));
    assert_int_equal(parts[0], 0xb);
    assert_int_equal(parts[1], 0x4);
    assert_true(divide(narrow_first, 2, parts));
    assert_int_equal(parts[0], 0x4);
    assert_int_equal(parts[1], 0xb);
}

static void more_processes_than_cores_keep_their_masks(void **state)
{
    (void)state;
    const unsigned masks[] = {3, 3, 3};
    unsigned parts[3];
    assert_false(divide(masks, 3, parts));
    assert_memory_equal(masks, parts, sizeof masks);
}

/* Every core that some process may use belongs to exactly one process, and this process may use it. */
static void random_masks_are_covered(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int n = 0; n < 2000; n++) {
        unsigned masks[MOST], parts[MOST], wanted = 0, all = 0;
        int count = 1 + (int)random_below(&random, 5);
        for (int i = 0; i < count; i++)
            wanted |= masks[i] = (unsigned)(random_bits(&random) & random_bits(&random)) & 0xffff;
        if (!divide(masks, count, parts)) {
            assert_memory_equal(masks, parts, (size_t)count * sizeof *masks);
            continue;
        }
        for (int i = 0; i < count; i++) {
            assert_true(parts[i] && !(parts[i] & ~masks[i]) && !(parts[i] & all));
            all |= parts[i];
        }
        assert_int_equal(all, wanted);
    }
}

static void cores_are_printed_as_ranges(void **state)
{
    (void)state;
    char text[64], small[6];
    ith_core_set mask = mask_of(0x10f);
    assert_string_equal(ith_cores_print(&mask, text, sizeof text), "0-3,8");
    mask = mask_of(0xaaaa);
    assert_string_equal(ith_cores_print(&mask, small, sizeof small), "1,3,5");
    mask = mask_of(0);
    assert_string_equal(ith_cores_print(&mask, text, sizeof text), "");
    ith_cores_add(&mask, 2047), ith_cores_add(&mask, 8191);
    assert_string_equal(ith_cores_print(&mask, text, sizeof text), "2047,8191");
}

/* ---- Large machines -------------------------------------------------------------------------------------------- */

static int simulated_cores; /* 0: this machine's own cores */

/* Takes the place of the system's function: on a machine of many cores, Linux refuses a mask that is too small. */
int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *mask)
{
    memset(mask, 0, bytes);
    if (!simulated_cores)
        return syscall(SYS_sched_getaffinity, process, bytes, mask) < 0 ? -1 : 0;
    if (8 * bytes < (size_t)simulated_cores) {
        errno = EINVAL;
        return -1;
    }
    for (size_t i = 0; i < (size_t)simulated_cores; i++)
        CPU_SET_S(i, bytes, mask);
    return 0;
}

/* On a machine of more cores than a cpu_set_t has, the processes still share them out. */
static void a_large_machine_is_divided(void **state)
{
    (void)state;
    const int sizes[] = {1024, 1280, 2048, 8192};
    for (int i = 0; i < 4; i++) {
        ith_core_set masks[2], part;
        simulated_cores = sizes[i];
        for (int process = 0; process < 2; process++) {
            assert_true(ith_cores_allowed(0, &masks[process]));
            assert_int_equal(ith_cores_count(&masks[process]), sizes[i]);
        }
        simulated_cores = 0;
        for (int process = 0; process < 2; process++) {
            assert_true(ith_cores_divide(masks, 2, process, &part));
            assert_int_equal(ith_cores_count(&part), sizes[i] / 2);
        }
    }
}

static void a_machine_beyond_all_sizes_is_not_told(void **state)
{
    (void)state;
    ith_core_set mask;
    simulated_cores = 8193;
    assert_false(ith_cores_allowed(0, &mask));
    assert_int_equal(ith_cores_count(&mask), 0);
    simulated_cores = 0;
    assert_true(ith_cores_allowed(0, &mask) && ith_cores_count(&mask) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_masks_give_equal_shares), cmocka_unit_test(masks_that_a_launcher_has_set_stay),
        cmocka_unit_test(overlaps_are_divided),          cmocka_unit_test(more_processes_than_cores_keep_their_masks),
        cmocka_unit_test(random_masks_are_covered),      cmocka_unit_test(cores_are_printed_as_ranges),
        cmocka_unit_test(a_large_machine_is_divided),    cmocka_unit_test(a_machine_beyond_all_sizes_is_not_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
