/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking of every quantised type, on every instruction set, compared with the numbers that other software gives
 * (tools/make_unpack_golden.py). A golden file holds packed numbers, and then the same numbers as f32. */
#include "base/context.h"
#include "base/dtype.h"
#include "kernels/unpack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/guarded.h"
#include "support/in_range.h"
#include "support/machine.h"
#include "support/random.h"

enum { ELEMENTS = 16 * 256 };

/* A quantised type, and its golden numbers. */
typedef struct golden {
    ith_dtype type;
    int64_t bytes; /* bytes of `packed` */
    unsigned char packed[2 * ELEMENTS];
    float values[ELEMENTS];
} golden;

static golden all[ITH_IQ4_NL + 1];

/* Reads the golden file of a type. The sizes of quantisation blocks must be the sizes in the file. */
static void read_golden(golden *g, ith_dtype type)
{
    char path[64];
    snprintf(path, sizeof path, "golden/unpack/%s.bin", ith_dtype_name(type));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    g->type = type, g->bytes = ith_dtype_row_bytes(type, ELEMENTS);
    assert_true(in_range(g->bytes, 1, sizeof g->packed));
    assert_int_equal(fread(g->packed, 1, (size_t)g->bytes, file), g->bytes);
    assert_int_equal(fread(g->values, sizeof(float), ELEMENTS, file), ELEMENTS);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

static int read_all(void **state)
{
    (void)state;
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++)
        if (ith_unpack_has(type))
            read_golden(&all[type], type);
    return 0;
}

/* The functions that this machine can run. */
static int functions(ith_unpack_fn out[MACHINE_LISTS])
{
    uint32_t lists[MACHINE_LISTS];
    const int count = machine_lists(lists);
    for (int i = 0; i < count; i++)
        out[i] = ith_unpack_choose(lists[i]);
    return count;
}

/* Whether both have the same bits, or both are NaN. */
static bool is_same(float a, float b)
{
    return ith_f32_bits(a) == ith_f32_bits(b) || (isnan(a) && isnan(b));
}

/* Unpacks numbers [first, first + count) by every function. The packed blocks and the output end at a page that cannot
 * be touched, and the packed blocks stand at an odd address. */
static void check_part(const golden *g, int64_t first, int64_t count)
{
    ith_unpack_fn functions_here[MACHINE_LISTS];
    const int64_t run = ith_dtype_run(g->type), begin = first / run * run;
    const int64_t bytes = ith_dtype_row_bytes(g->type, (first + count + run - 1) / run * run - begin);
    unsigned char *packed = guarded_new(bytes, 1, true);
    memcpy(packed, g->packed + ith_dtype_row_bytes(g->type, begin), (size_t)bytes);
    for (int f = functions(functions_here) - 1; f >= 0; f--) {
        float *out = guarded_new(count * (int64_t)sizeof *out, 4, true);
        functions_here[f](g->type, packed, first - begin, count, out);
        for (int64_t i = 0; i < count; i++)
            if (!is_same(out[i], g->values[first + i]))
                fail_msg("%s, function %d, number %d: %.9g, not %.9g", ith_dtype_name(g->type), f, (int)(first + i),
                         (double)out[i], (double)g->values[first + i]);
    }
    guarded_free_all();
}

static void every_number_is_the_reference(void **state)
{
    (void)state;
    int types = 0;
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++) {
        if (!ith_unpack_has(type))
            continue;
        check_part(&all[type], 0, ELEMENTS);
        types++;
    }
    assert_int_equal(types, 14);
}

static void any_part_is_unpacked(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++)
        for (int i = 0; i < 100 && ith_unpack_has(type); i++) {
            int64_t first = random_below(&random, ELEMENTS);
            int64_t most = i % 2 ? ELEMENTS - first : first + 70 < ELEMENTS ? 70 : ELEMENTS - first;
            check_part(&all[type], first, 1 + random_below(&random, (uint32_t)most));
        }
}

/* The golden numbers have the special values that the types can hold. */
static void golden_numbers_are_extreme(void **state)
{
    (void)state;
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++) {
        int nans = 0, infinite = 0, zeros = 0, negative = 0;
        for (int i = 0; i < ELEMENTS && ith_unpack_has(type); i++) {
            const float x = all[type].values[i];
            nans += isnan(x) != 0, infinite += isinf(x) != 0, zeros += x == 0, negative += x < 0;
        }
        if (!ith_unpack_has(type))
            continue;
        assert_true(zeros && negative);
        assert_true(type == ITH_I8 || nans);
        assert_true(type == ITH_I8 || type == ITH_F8_E4M3 || infinite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_the_reference),
        cmocka_unit_test(any_part_is_unpacked),
        cmocka_unit_test(golden_numbers_are_extreme),
    };
    return cmocka_run_group_tests(tests, read_all, NULL);
}
