/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: strided pieces of memory (ithaca/transport.h). */
#include <ithaca/transport.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Sizes, contiguous stretches and copies of right and wrong regions. */
static void regions_are_walked(void **state)
{
    (void)state;
    char memory[] = "ab.cd...ef.gh...", packed[9] = "";
    ith_region region = {.data = memory, .count = {2, 2}, .stride = {8, 3}, .bytes = 2}, wrong = region;
    ith_region target = {.data = packed, .count = {1, 1}, .bytes = 8};
    void *at = NULL;
    int64_t done = 0, stretch;
    assert_int_equal(ith_region_bytes(&region), 8);
    while ((stretch = ith_region_stretch(&region, done, &at)) > 0) {
        assert_int_equal(stretch, done % 2 ? 1 : 2);
        memcpy(packed + done, at, (size_t)stretch);
        done += stretch;
    }
    assert_string_equal(packed, "abcdefgh");
    assert_int_equal(ith_region_stretch(&region, 5, &at), 1);
    assert_int_equal(*(char *)at, 'f');
    region.stride[1] = 2; /* runs that lie side by side are one stretch */
    assert_int_equal(ith_region_stretch(&region, 1, &at), 3);
    ith_region_copy(&target, &region);
    assert_string_equal(packed, "ab.cef.g");
    target.bytes = 7;
    memset(packed, '-', 8);
    ith_region_copy(&target, &region); /* the sizes differ, so nothing is copied */
    ith_region_copy(NULL, &region);
    ith_region_copy(&target, NULL);
    assert_string_equal(packed, "--------");
    const int64_t numbers[][3] = {{-1, 1, 1}, {1, -1, 1}, {1, 1, -1}, {INT64_MAX, 2, 1}, {1 << 30, 1 << 30, 1 << 30}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        wrong.count[0] = numbers[i][0], wrong.count[1] = numbers[i][1], wrong.bytes = numbers[i][2];
        assert_int_equal(ith_region_bytes(&wrong), -1);
        assert_int_equal(ith_region_stretch(&wrong, 0, &at), 0);
    }
    const int64_t offsets[] = {INT64_MIN, -1, 8, 9, INT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        assert_int_equal(ith_region_stretch(&region, offsets[i], &at), 0);
    assert_int_equal(ith_region_bytes(NULL), -1);
    assert_int_equal(ith_region_stretch(NULL, 0, &at), 0);
    assert_int_equal(ith_region_stretch(&region, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(regions_are_walked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
