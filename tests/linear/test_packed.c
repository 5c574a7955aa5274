/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers whose weights have quantised types (kernels/unpack.h) give the bits of layers with the unpacked numbers
 * as f32, and are compared with float64. test_unpack.c compares the unpacked numbers with a reference. */
#include "kernels/unpack.h"
#include "support/compare.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/memory.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 37, MATRICES = 3 };

static uint64_t seed = 1;
static ith_context *context;

/* A matrix of a layer: packed numbers, the scales of its rows, and the same numbers as f32. */
typedef struct matrix {
    ith_dtype type;
    int64_t rows, in;
    unsigned char *packed;
    float *scale; /* NULL: none */
    int64_t scale_stride;
    float *numbers; /* [rows][in] */
} matrix;

static void *memory(int64_t bytes)
{
    void *data = malloc((size_t)bytes);
    assert_non_null(data);
    return data;
}

/* Writes finite f16 scales to their places in a quantisation block. */
static void write_scales(ith_dtype type, unsigned char *block)
{
    const bool has_minimum = type == ITH_Q4_1 || type == ITH_Q5_1 || (type >= ITH_Q2_K && type <= ITH_Q5_K);
    const int64_t at = type == ITH_Q2_K ? 80 : type == ITH_Q3_K ? 108 : type == ITH_Q6_K ? 208 : 0;
    const float d = random_signed(&seed) / 256, m = random_signed(&seed) / 64;
    ith_from_f32(block + at, ITH_F16, &d, 1);
    if (has_minimum && type != ITH_Q3_K)
        ith_from_f32(block + at + 2, ITH_F16, &m, 1);
}

/* Random bytes, with finite numbers only. stride -1: without scales. */
static matrix make(ith_dtype type, int64_t rows, int64_t in, int64_t stride)
{
    matrix m = {.type = type, .rows = rows, .in = in, .scale_stride = stride};
    const int64_t bytes = rows * ith_dtype_row_bytes(type, in), block = ith_dtype_bytes(type);
    m.packed = memory(bytes), m.numbers = memory(rows * in * (int64_t)sizeof *m.numbers);
    for (int64_t i = 0; i < bytes; i++)
        m.packed[i] = (unsigned char)(random_bits(&seed) % (type == ITH_F8_E5M2 ? 0x7c : 0x7f));
    for (int64_t i = 0; ith_dtype_run(type) > 1 && i < bytes; i += block)
        write_scales(type, m.packed + i);
    ith_unpack_ref(type, m.packed, 0, rows * in, m.numbers);
    if (stride >= 0)
        m.scale = random_floats(&seed, rows);
    for (int64_t i = 0; m.scale && i < rows * in; i++)
        m.numbers[i] *= m.scale[i / in * stride];
    return m;
}

static void discard(matrix *m)
{
    free(m->packed), free(m->scale), free(m->numbers);
}

/* Applies a layer of these matrices, with the packed numbers or with the f32 numbers. */
static void apply(const matrix *matrices, int64_t in, int64_t out, bool as_f32, bool keeps_packed, int kind,
                  const float *x, float *y)
{
    ith_linear_weight parts[MATRICES];
    for (int i = 0; i < MATRICES; i++) {
        const matrix *m = &matrices[i];
        parts[i] = as_f32 ? (ith_linear_weight){.data = m->numbers, .type = ITH_F32, .rows = m->rows}
                          : (ith_linear_weight){.data = m->packed,
                                                .type = m->type,
                                                .rows = m->rows,
                                                .scale = m->scale,
                                                .scale_stride = m->scale_stride};
    }
    one_layer layer = {0};
    assert_int_equal(ith_linear_set_create(context, keeps_packed, &layer.set), ITH_OK);
    ith_linear_lay_out(layer.set, in, out, operand_kinds[kind], &layer.arena);
    assert_int_equal(ith_arena_allocate(context, &layer.arena, "a layer"), ITH_OK);
    layer.linear = ith_linear_lay_out(layer.set, in, out, operand_kinds[kind], &layer.arena);
    assert_int_equal(ith_linear_attach(context, layer.linear, parts, MATRICES, NULL), ITH_OK);
    assert_int_equal(one_layer_apply(context, &layer, ROWS, x, y), ITH_OK);
    one_layer_free(context, &layer);
}

/* The largest error of y against float64, as a share of sum |x w|. */
static double worst_error(const matrix *matrices, int64_t in, int64_t out, const float *x, const float *y, int kind)
{
    double worst = 0;
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0, row = 0, n = 0; j < out; j++, row++) {
            if (row == matrices[n].rows)
                row = 0, n++;
            double sum = 0, size = 0;
            for (int64_t k = 0; k < in; k++) {
                const double term =
                    operand_value(x[i * in + k], kind) * operand_value(matrices[n].numbers[row * in + k], kind);
                sum += term, size += fabs(term);
            }
            worst = larger_error(worst, size > 0 ? fabs(sum - (double)y[i * out + j]) / size : 0);
        }
    return worst;
}

/* A layer of one matrix of the type, one of another type, and one of the type with scales if it may have them. */
static void check(ith_dtype type, int64_t in, int kind)
{
    const bool scales = ith_dtype_run(type) == 1;
    matrix matrices[MATRICES] = {make(type, 41, in, -1), make(in % 256 ? ITH_F8_E4M3 : ITH_Q4_K, 30, in, -1),
                                 make(type, 29, in, scales ? (int64_t)random_below(&seed, 2) : -1)};
    const int64_t out = 100;
    float *x = random_floats(&seed, ROWS * in), *y = memory(ROWS * out * (int64_t)sizeof *y);
    float *expected = memory(ROWS * out * (int64_t)sizeof *y);
    apply(matrices, in, out, true, false, kind, x, expected);
    for (int keeps = 0; keeps < 2; keeps++) {
        memset(y, 255, sizeof *y * ROWS * (size_t)out);
        apply(matrices, in, out, false, keeps, kind, x, y);
        assert_memory_equal(y, expected, sizeof *y * ROWS * (size_t)out);
    }
    assert_true(worst_error(matrices, in, out, x, y, kind) < 1e-6);
    free(x), free(y), free(expected);
    for (int i = 0; i < MATRICES; i++)
        discard(&matrices[i]);
}

/* Inputs are such that blocks of k do not end where quantisation blocks end. */
static void packed_weights_are_their_numbers(void **state)
{
    (void)state;
    static const int64_t inputs[] = {256, 1280, 2304};
    for (ith_dtype type = ITH_F32; type <= ITH_IQ4_NL; type++)
        for (int i = 0; i < 3 && ith_unpack_has(type); i++)
            for (int kind = 0; kind < operand_kinds_here(context); kind++)
                check(type, ith_dtype_run(type) == 1 ? inputs[i] / 3 : inputs[i], kind);
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check(ITH_Q8_0, 32 * 33, kind);
}

static void partial_blocks_are_refused(void **state)
{
    (void)state;
    static const struct {
        ith_dtype type;
        int64_t in;
        ith_status status;
    } cases[] = {{ITH_Q8_0, 48, ITH_ERR_UNSUPPORTED},
                 {ITH_Q4_K, 128, ITH_ERR_UNSUPPORTED},
                 {ITH_Q8_0, 96, ITH_OK},
                 {ITH_F8_E5M2, 7, ITH_OK},
                 {ITH_U8, 32, ITH_ERR_ARGUMENT},
                 {ITH_F64, 32, ITH_ERR_ARGUMENT}};
    static const unsigned char zeros[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_layer layer;
        assert_int_equal(one_layer_make(context, cases[i].in, 4, zeros, cases[i].type, NULL,
                                        operand_kinds[OPERANDS_F32], false, &layer),
                         cases[i].status);
        if (cases[i].status == ITH_ERR_UNSUPPORTED)
            assert_non_null(strstr(ith_context_error(context), "must be a multiple of that"));
        one_layer_free(context, &layer);
    }
}

static int set_up(void **state)
{
    (void)state;
    return ith_context_create(NULL, &context) != ITH_OK;
}

static int tear_down(void **state)
{
    (void)state;
    const int left = memory_of(context).current_bytes != 0;
    ith_context_destroy(&context);
    return left;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_are_their_numbers),
        cmocka_unit_test(partial_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
