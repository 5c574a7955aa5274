/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations of every instruction set, compared with float64. All instruction sets give the same bits. */
#include "base/context.h"
#include "base/dtype.h"
#include "kernels/rowops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/machine.h"
#include "support/random.h"
#include "support/subnormal.h"

#define GUARD 8
#define MOST 5153

static const int64_t sizes[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 100, 257, 1536, 5120, MOST};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

/* Arrays with guard numbers after them, filled anew for every case. */
static float x[MOST + GUARD], y[MOST + GUARD], a[MOST + GUARD], b[MOST + GUARD];
static double want[MOST];
static uint64_t random_state = 1;

static void fill(float *values, float centre, float width)
{
    for (int i = 0; i < MOST + GUARD; i++)
        values[i] = centre + width * random_signed(&random_state);
}

static void poison(float *values)
{
    for (int i = 0; i < MOST + GUARD; i++)
        values[i] = 12345.0f;
}

static void assert_guard(const float *values, int64_t n)
{
    for (int64_t i = n; i < n + GUARD; i++)
        assert_true(values[i] == 12345.0f);
}

/* Checks that |y - want| <= bound * (|want| + scale) for all numbers. */
static void assert_near(const float *got, int64_t n, double bound, double scale)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= bound * (fabs(want[i]) + scale)))
            fail_msg("element %d of %d: %.9g, not %.9g", (int)i, (int)n, (double)got[i], want[i]);
}

/* The tables that this machine can run. */
static int tables(const ith_rowops *out[MACHINE_LISTS])
{
    uint32_t lists[MACHINE_LISTS];
    const int count = machine_lists(lists);
    for (int i = 0; i < count; i++)
        out[i] = ith_rowops_choose(lists[i]);
    return count;
}

/* Counts as skipped if there are tables that this machine cannot run. */
static void tables_that_do_not_run_here(void **state)
{
    (void)state;
#if defined(__x86_64__)
    bool avx2 = machine_has("rowops for AVX2", ITH_CPU_AVX2),
         avx512 = machine_has("rowops for AVX-512", ITH_CPU_AVX512);
    if (!avx2 || !avx512)
        skip();
#endif
}

static void choice_follows_the_cpu(void **state)
{
    (void)state;
    assert_string_equal(ith_rowops_choose(0)->name, "ref");
    assert_string_equal(ith_rowops_choose(ITH_CPU_BASELINE)->name, "ref");
#if defined(__x86_64__)
    assert_string_equal(ith_rowops_choose(ITH_CPU_BASELINE | ITH_CPU_AVX2)->name, "avx2");
    assert_string_equal(ith_rowops_choose(ITH_CPU_AVX2 | ITH_CPU_AVX512)->name, "avx512");
#endif
}

static void want_layer_norm(bool has_a, bool has_b, int64_t n, double eps)
{
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        want[i] =
            ((double)x[i] - mean) / sqrt(variance + eps) * (has_a ? (double)a[i] : 1) + (has_b ? (double)b[i] : 0);
}

static void layer_norm_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float centres[] = {0, 3, 1e6f, 0, 0}, widths[] = {1, 0.01f, 100, 1e-12f, 1e25f};
    for (int t = 0; t < count; t++)
        for (int s = 0; s < SIZES; s++)
            for (int c = 0; c < 5; c++)
                for (int affine = 0; affine < 4; affine++) {
                    int64_t n = sizes[s];
                    fill(x, centres[c], widths[c]), fill(a, 1, 1), fill(b, 0, 1), poison(y);
                    want_layer_norm(affine & 1, affine & 2, n, 1e-6);
                    ops[t]->layer_norm(y, x, affine & 1 ? a : NULL, affine & 2 ? b : NULL, n, 1e-6f);
                    assert_near(y, n, 4e-7, 2);
                    assert_guard(y, n);
                    ops[t]->layer_norm(x, x, affine & 1 ? a : NULL, affine & 2 ? b : NULL, n, 1e-6f);
                    assert_memory_equal(x, y, (size_t)n * sizeof *x);
                }
}

static void rms_norm_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float widths[] = {1, 1e-4f, 1e-30f, 1e30f};
    for (int t = 0; t < count; t++)
        for (int s = 0; s < SIZES; s++)
            for (int c = 0; c < 4; c++) {
                int64_t n = sizes[s];
                fill(x, 0, widths[c]), fill(a, 1, 1), poison(y);
                double squares = 0;
                for (int64_t i = 0; i < n; i++)
                    squares += (double)x[i] * (double)x[i] / (double)n;
                for (int64_t i = 0; i < n; i++)
                    want[i] = (double)x[i] / sqrt(squares + (double)1e-6f) * (double)a[i];
                ops[t]->rms_norm(y, x, a, n, 1e-6f);
                assert_near(y, n, 3e-7, 1e-37);
                assert_guard(y, n);
            }
}

static void rope_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const int64_t dims[] = {2, 6, 24, 32, 64, 72, 128};
    for (int t = 0; t < count; t++)
        for (int d = 0; d < 7; d++)
            for (int64_t heads = 1; heads <= 6; heads++) {
                int64_t dim = dims[d], n = heads * dim;
                fill(x, 0, 3), fill(a, 0, 1), fill(b, 0, 1);
                for (int i = 0; i < GUARD; i++)
                    x[n + i] = 12345.0f;
                for (int64_t i = 0; i < n; i += 2) {
                    double cosine = (double)a[i % dim / 2], sine = (double)b[i % dim / 2];
                    want[i] = (double)x[i] * cosine - (double)x[i + 1] * sine;
                    want[i + 1] = (double)x[i] * sine + (double)x[i + 1] * cosine;
                }
                ops[t]->rope(x, a, b, heads, dim);
                assert_near(x, n, 2e-7, 6);
                assert_guard(x, n);
            }
}

static void add_gated_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    for (int t = 0; t < count; t++)
        for (int s = 0; s < SIZES; s++)
            for (int gated = 0; gated < 2; gated++) {
                int64_t n = sizes[s];
                fill(x, 0, 3), fill(a, 0, 1), fill(b, 0, 1);
                for (int i = 0; i < GUARD; i++)
                    x[n + i] = 12345.0f;
                for (int64_t i = 0; i < n; i++)
                    want[i] = (double)x[i] + (gated ? (double)b[i] : 1) * (double)a[i];
                ops[t]->add_gated(x, a, gated ? b : NULL, n);
                assert_near(x, n, 2e-7, 1);
                assert_guard(x, n);
            }
}

static double silu(double v)
{
    return v / (1 + exp(-v));
}

static double gelu_tanh(double v)
{
    return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
}

static double gelu_quick(double v)
{
    return v / (1 + exp(-1.702 * v));
}

static double gelu(double v)
{
    return 0.5 * v * erfc(-v / sqrt(2));
}

typedef void activation_fn(float *y, const float *x, int64_t n);

/* Checks an activation of x against float64. */
static void assert_activation(activation_fn *activation, double (*truth)(double), int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        want[i] = truth((double)x[i]);
    poison(y);
    activation(y, x, n);
    assert_near(y, n, 4e-7, 0.1); /* the argument is rounded, so the bound is absolute in the tail */
    assert_guard(y, n);
}

static void activations_are_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float widths[] = {0.01f, 1, 12, 1e5f, 1e30f};
    for (int t = 0; t < count; t++)
        for (int s = 0; s < SIZES; s++)
            for (int c = 0; c < 5; c++) {
                int64_t n = sizes[s];
                fill(x, 0, widths[c]), poison(y);
                for (int64_t i = 0; i < n; i++)
                    want[i] = silu((double)x[i]);
                ops[t]->silu(y, x, n);
                assert_near(y, n, 4e-7, 1e-30); /* -0 where e^-x overflows */
                assert_guard(y, n);
                assert_activation(ops[t]->gelu_tanh, gelu_tanh, n);
                assert_activation(ops[t]->gelu_quick, gelu_quick, n);
                assert_activation(ops[t]->gelu, gelu, n);
            }
}

static void activations_take_extremes(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    for (int t = 0; t < count; t++) {
        const float extremes[] = {INFINITY, -3e38f, 3e38f, NAN, -0.0f, 0.0f, -88.0f, -104.5f};
        float got[8];
        ops[t]->silu(got, extremes, 8);
        assert_true(got[0] == INFINITY && got[1] == 0 && got[2] == 3e38f && isnan(got[3]));
        assert_true(got[4] == 0 && got[5] == 0 && fabsf(got[6] + 5.327e-37f) < 1e-39f && got[7] == 0);
        ops[t]->gelu_tanh(got, extremes, 8);
        assert_true(got[0] == INFINITY && got[1] == 0 && got[2] == 3e38f && isnan(got[3]));
        assert_true(got[4] == 0 && got[5] == 0 && got[6] == 0 && got[7] == 0);
        ops[t]->gelu(got, extremes, 8);
        assert_true(got[0] == INFINITY && got[1] == 0 && got[2] == 3e38f && isnan(got[3]));
        assert_true(got[4] == 0 && got[5] == 0 && got[6] == 0 && got[7] == 0);
        ops[t]->gelu(got, (const float[]){-INFINITY, -NAN, 1e-45f, -1e-45f, 1e-38f}, 5);
        assert_true(got[0] == 0 && isnan(got[1]) && fabsf(got[2]) < 3e-45f && fabsf(got[3]) < 3e-45f);
        assert_true(fabsf(got[4] - 5e-39f) < 1e-44f);
        ops[t]->gelu_quick(got, extremes, 8);
        assert_true(got[0] == INFINITY && got[1] == 0 && got[2] == 3e38f && isnan(got[3]));
        assert_true(got[4] == 0 && got[5] == 0 && got[7] == 0);
    }
}

/* No number takes longer than others, because no intermediate result is subnormal. */
static void activations_meet_no_subnormal(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    for (int t = 0; t < count; t++)
        for (int n = 0; n < 2; n++) {
            for (int i = 0; i < MOST; i++)
                x[i] = (float)(i - MOST / 2) * (n ? 0.01f : 1.0f);
            forget_subnormals();
            ops[t]->silu(y, x, MOST);
            ops[t]->gelu_tanh(y, x, MOST);
            ops[t]->gelu_quick(y, x, MOST);
            ops[t]->gelu(y, x, MOST);
            assert_false(met_subnormal(SUBNORMAL_OPERAND | SUBNORMAL_RESULT));
        }
}

static void channel_norm_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const int64_t channels[] = {1, 3, 8, 16, 20, 96, 384};
    const float widths[] = {1, 1e-5f, 0, 1e30f};
    for (int t = 0; t < count; t++)
        for (int c = 0; c < 7; c++)
            for (int w = 0; w < 4; w++)
                for (int with_silu = 0; with_silu < 2; with_silu++) {
                    int64_t n = channels[c], pixels = 5;
                    fill(x, 0, widths[w]), fill(a, 1, 1), poison(y);
                    for (int64_t p = 0; p < pixels; p++) {
                        double squares = 0;
                        for (int64_t i = 0; i < n; i++)
                            squares += (double)x[p * n + i] * (double)x[p * n + i];
                        for (int64_t i = 0; i < n; i++) {
                            double v =
                                (double)x[p * n + i] / fmax(sqrt(squares), 1e-12) * sqrt((double)n) * (double)a[i];
                            want[p * n + i] = with_silu ? silu(v) : v;
                        }
                    }
                    ops[t]->channel_norm(y, x, a, pixels, n, with_silu);
                    assert_near(y, pixels * n, 6e-7, 1e-6);
                    assert_guard(y, pixels * n);
                    ops[t]->channel_norm(x, x, a, pixels, n, with_silu);
                    assert_memory_equal(x, y, (size_t)(pixels * n) * sizeof *x);
                }
}

static void softmax_is_right(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float centres[] = {0, 1000, -3e4f}, widths[] = {1, 80, 0.5f};
    for (int t = 0; t < count; t++)
        for (int s = 0; s < SIZES; s++)
            for (int c = 0; c < 3; c++) {
                int64_t n = sizes[s];
                fill(x, centres[c], widths[c]);
                if (n > 3)
                    x[n / 2] = -INFINITY;
                double most = -INFINITY, total = 0;
                for (int64_t i = 0; i < n; i++)
                    most = fmax(most, (double)x[i]);
                for (int64_t i = 0; i < n; i++)
                    total += want[i] = exp((double)x[i] - most);
                for (int64_t i = 0; i < n; i++)
                    want[i] /= total;
                for (int i = 0; i < GUARD; i++)
                    x[n + i] = 12345.0f;
                ops[t]->softmax(x, n);
                assert_near(x, n, 3e-7, 1e-37);
                assert_guard(x, n);
            }
}

/* Numbers around every power of two down to the smallest subnormal. The softmax of (0, v) is 1/(1 + e^v), e^v/(1 +
 * e^v). */
static void softmax_takes_extremes(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    for (int t = 0; t < count; t++) {
        for (double v = -104; v < 0; v += 0.0137) {
            float row[2] = {(float)v, 0};
            double power = exp((double)row[0]);
            ops[t]->softmax(row, 2);
            assert_true(fabs((double)row[0] - power / (1 + power)) <= 3e-7 * power + 1.5e-45);
        }
        float masked[19], poisoned[3] = {-INFINITY, NAN, -INFINITY};
        for (int i = 0; i < 19; i++)
            masked[i] = -INFINITY;
        ops[t]->softmax(masked, 19);
        for (int i = 0; i < 19; i++)
            assert_true(masked[i] == 0);
        ops[t]->softmax(poisoned, 3);
        assert_true(isnan(poisoned[0]) && isnan(poisoned[1]) && isnan(poisoned[2]));
        float one[1] = {-3e38f};
        ops[t]->softmax(one, 1);
        assert_true(one[0] == 1);
    }
}

static void bf16_goes_both_ways(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    enum { ALL = 65536 };
    uint16_t *bits = malloc(ALL * sizeof *bits), *back = malloc(ALL * sizeof *back);
    float *values = malloc(ALL * sizeof *values);
    assert_true(bits && back && values);
    for (int t = 0; t < count; t++) {
        for (uint32_t i = 0; i < ALL; i++)
            bits[i] = (uint16_t)i;
        ops[t]->f32_from_bf16(values, bits, ALL);
        for (uint32_t i = 0; i < ALL; i++)
            assert_true(ith_f32_bits(values[i]) == i << 16);
        ops[t]->bf16_from_f32(back, values, ALL);
        for (uint32_t i = 0; i < ALL; i++)
            assert_true(isnan(values[i]) ? isnan(ith_f32_from_bf16(back[i])) : back[i] == i);
        for (uint32_t i = 0; i < ALL; i++) /* between two bf16 numbers: ties, NaN with low bits, overflow to infinity */
            values[i] = ith_f32_from_bits(i << 16 | (i % 3 ? 0x8000u : i % 2 ? 0x7fffu : 0x8001u));
        ops[t]->bf16_from_f32(back, values, ALL);
        for (uint32_t i = 0; i < ALL; i++)
            assert_int_equal(back[i], ith_bf16_from_f32(values[i]));
    }
    free(bits), free(back), free(values);
}

/* Stochastic rounding gives one of the two bf16 numbers beside a number. The choice depends neither on the instruction
 * set nor on the cut of a row into pieces. Its mean error is zero, both over many numbers and for one number at many
 * places. */
static void stochastic_rounding_keeps_the_mean(void **state)
{
    (void)state;
    enum { ALL = 200000, CUT = 777 };
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    float *from = malloc(ALL * sizeof *from), *to = malloc(ALL * sizeof *to), *cut = malloc(ALL * sizeof *cut);
    assert_true(from && to && cut);
    for (int kind = 0; kind < 5; kind++) {
        double sum = 0, most = 0;
        for (int i = 0; i < ALL; i++) /* kind 0: any number in [1, 2); others: 1 and a part of 2^-7 */
            from[i] = (i % 2 ? -1.0f : 1.0f) * (kind ? 1 + 0x1p-7f * (float[]){0, 0.01f, 0.25f, 0.5f, 0.97f}[kind]
                                                     : 1 + random_uniform(&random_state));
        for (int t = 0; t < count; t++) {
            memcpy(cut, from, ALL * sizeof *from);
            for (int i = 0; i < ALL; i += CUT)
                ops[t]->round_stochastic(cut + i, i + CUT < ALL ? CUT : ALL - i, 5, (uint32_t)i);
            if (!t)
                memcpy(to, cut, ALL * sizeof *to);
            assert_memory_equal(to, cut, ALL * sizeof *to);
        }
        for (int i = 0; i < ALL; i++) {
            const double error = fabs((double)to[i]) - fabs((double)from[i]);
            assert_true(ith_round_to_bf16(to[i]) == to[i]);
            most = fmax(most, fabs(error)), sum += error;
        }
        assert_true(most < 0x1p-7 && fabs(sum / ALL) < 0x1p-7 * 0.005); /* 4 standard deviations of the mean */
    }
    for (int t = 0; t < count; t++)
        for (uint32_t i = 0; i < 65536; i++) {
            float one[2] = {ith_f32_from_bf16((uint16_t)i), ith_f32_from_bits(i << 16 | 1)};
            const bool is_nan = isnan(one[1]);
            ops[t]->round_stochastic(one, 2, i, i * 3);
            assert_true(isnan(ith_f32_from_bf16((uint16_t)i)) ? isnan(one[0]) : ith_f32_bits(one[0]) == i << 16);
            assert_true(isnan(one[1]) == is_nan);
        }
    free(from), free(to), free(cut);
}

/* Transposes a matrix of `rows` rows and `columns` columns, and checks every number. Numbers around it must not
 * change. */
static void check_turn(const ith_rowops *ops, int64_t rows, int64_t columns)
{
    enum { STRIDE = 53, MANY = STRIDE * STRIDE };
    static float from[MANY], to[MANY], plain[MANY], bias[STRIDE];
    for (int i = 0; i < MANY; i++)
        from[i] = plain[i] = (float)i, to[i] = -1;
    for (int i = 0; i < STRIDE; i++)
        bias[i] = 0.25f * (float)i;
    ops->turn_and_bias(to, STRIDE, from, STRIDE, bias, rows, columns);
    for (int64_t j = 0; j < STRIDE; j++)
        for (int64_t i = 0; i < STRIDE; i++)
            assert_true(to[j * STRIDE + i] == (i < rows && j < columns ? from[i * STRIDE + j] + bias[i] : -1));
    ops->add_bias(plain, bias, rows, columns);
    for (int64_t i = 0; i < MANY; i++)
        assert_true(plain[i] == from[i] + (i < rows * columns ? bias[i / columns] : 0));
    memcpy(plain, from, sizeof plain);
    ops->multiply(plain, to, rows * columns);
    for (int64_t i = 0; i < MANY; i++)
        assert_true(plain[i] == from[i] * (i < rows * columns ? to[i] : 1));
}

static void matrices_are_turned(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    for (int t = 0, count = tables(ops); t < count; t++)
        for (int64_t rows = 0; rows <= 50; rows += rows < 20 ? 1 : 10)
            for (int64_t columns = 1; columns <= 50; columns += columns < 20 ? 1 : 15)
                check_turn(ops[t], rows, columns);
}

#define RESULTS 10 /* results of run_all */

/* Runs all operations of one table on the same numbers, and appends their results. */
static void run_all(const ith_rowops *ops, int64_t n, float *out)
{
    random_state = 7;
    fill(x, 0.1f, 2), fill(a, 1, 1), fill(b, 0, 1);
    ops->layer_norm(out, x, a, b, n, 1e-6f), out += n;
    ops->rms_norm(out, x, a, n, 1e-6f), out += n;
    ops->silu(out, x, n), out += n;
    ops->gelu_tanh(out, x, n), out += n;
    ops->gelu_quick(out, x, n), out += n;
    ops->gelu(out, x, n), out += n;
    memcpy(out, x, (size_t)n * sizeof *out);
    ops->multiply(out, b, n), out += n;
    ops->channel_norm(out, x, a, 1, n, true), out += n;
    memcpy(out, x, (size_t)n * sizeof *out);
    ops->softmax(out, n);
    out += n;
    memcpy(out, x, (size_t)n * sizeof *out);
    ops->rope(out, a, b, 1, n - n % 2);
    ops->add_gated(out, b, a, n);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    const ith_rowops *ops[MACHINE_LISTS];
    int count = tables(ops);
    float *first = malloc(sizeof(float) * RESULTS * MOST), *other = malloc(sizeof(float) * RESULTS * MOST);
    assert_true(first && other);
    for (int s = 0; s < SIZES; s++) {
        run_all(ops[0], sizes[s], first);
        for (int t = 1; t < count; t++) {
            run_all(ops[t], sizes[s], other);
            assert_memory_equal(first, other, sizeof(float) * RESULTS * (size_t)sizes[s]);
        }
    }
    free(first), free(other);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(choice_follows_the_cpu),
        cmocka_unit_test(tables_that_do_not_run_here),
        cmocka_unit_test(layer_norm_is_right),
        cmocka_unit_test(rms_norm_is_right),
        cmocka_unit_test(rope_is_right),
        cmocka_unit_test(add_gated_is_right),
        cmocka_unit_test(activations_are_right),
        cmocka_unit_test(activations_take_extremes),
        cmocka_unit_test(activations_meet_no_subnormal),
        cmocka_unit_test(channel_norm_is_right),
        cmocka_unit_test(softmax_is_right),
        cmocka_unit_test(softmax_takes_extremes),
        cmocka_unit_test(bf16_goes_both_ways),
        cmocka_unit_test(stochastic_rounding_keeps_the_mean),
        cmocka_unit_test(matrices_are_turned),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests_name("rowops", all, NULL, NULL);
}
