/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of q, k and v that a linear layer gives in pieces, compared with float64, in f32 and in bf16. The slots of a
 * strip are used again. */
#include "wan/dit/dit_heads.h"

#include "base/dtype.h"
#include "support/fixture.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 3, HEAD_DIM = 10, DIM = HEADS * HEAD_DIM, ROWS = 11, TOKENS = 4, STRIP = 5, MOST = ROWS * 3 * DIM };

static float y[MOST], scales[2][DIM], cosines[TOKENS * HEAD_DIM / 2], sines[TOKENS * HEAD_DIM / 2];
static uint64_t state;

static void fill(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = random_signed(&state);
}

/* Computes a vector of y after RMSNorm and RoPE. */
static void expect_vector(const float *in, const float *scale, const float *cosine, const float *sine, double *out)
{
    double squares = 0;
    for (int i = 0; i < DIM; i++)
        squares += (double)in[i] * (double)in[i];
    for (int i = 0; i < DIM; i++)
        out[i] = (double)in[i] / sqrt(squares / DIM + 1e-6) * (double)scale[i];
    for (int i = 0; cosine && i < DIM / 2; i++) {
        double even = out[2 * i], odd = out[2 * i + 1];
        double c = (double)cosine[i % (HEAD_DIM / 2)], s = (double)sine[i % (HEAD_DIM / 2)];
        out[2 * i] = even * c - odd * s;
        out[2 * i + 1] = even * s + odd * c;
    }
}

static void expect_row(const ith_dit_heads *h, int64_t row, double *out)
{
    const float *in = y + row * h->parts * DIM;
    const int64_t at = row % TOKENS * HEAD_DIM / 2;
    for (int64_t i = 0; i < h->parts * DIM; i++)
        out[i] = (double)in[i];
    for (int64_t i = 0; i < h->normed; i++)
        expect_vector(in + i * DIM, h->scales[i], h->cosines ? cosines + at : NULL, sines + at, out + i * DIM);
}

/* Gives the rows of a strip in pieces of random width, from left to right, and then finishes each row. */
static void give_rows(const ith_linear_output *output, int64_t width)
{
    for (int64_t strip = 0; strip < ROWS; strip += STRIP) {
        int64_t end = strip + STRIP < ROWS ? strip + STRIP : ROWS, count;
        for (int64_t first = 0; first < width; first += count) {
            count = random_between(&state, 1, width - first);
            for (int64_t row = end - 1; row >= strip; row--)
                output->take(output->user, row, first, count, y + row * width + first);
        }
        for (int64_t row = strip; row < end; row++)
            output->finish(output->user, row);
    }
}

static void check_heads(int parts, int normed, bool turns, ith_dtype type)
{
    static float out[MOST], unrounded[STRIP * 2 * DIM];
    ith_dit dit = {.config = {.heads = HEADS, .head_dim = HEAD_DIM, .dim = DIM, .eps = 1e-6},
                   .types = {.attention = type}};
    ith_dit_heads h = {.dit = &dit,
                       .ops = ith_rowops_choose(ith_context_cpu(context)),
                       .out = out,
                       .parts = parts,
                       .normed = normed,
                       .scales = {scales[0], scales[1]},
                       .cosines = turns ? cosines : NULL,
                       .sines = turns ? sines : NULL,
                       .tokens = turns ? TOKENS : 0,
                       .unrounded = type == ITH_F32 ? NULL : unrounded,
                       .strip = STRIP};
    fill(y, MOST), fill(scales[0], 2 * DIM), fill(cosines, TOKENS * HEAD_DIM / 2), fill(sines, TOKENS * HEAD_DIM / 2);
    const ith_linear_output output = ith_dit_heads_output(&h);
    give_rows(&output, parts * DIM);
    for (int64_t row = 0; row < ROWS; row++) {
        double want[3 * DIM];
        expect_row(&h, row, want);
        for (int64_t i = 0; i < parts * DIM; i++) {
            int64_t at = row * parts * DIM + i;
            double got = (double)(type == ITH_F32 ? out[at] : ith_f32_from_bf16(((const uint16_t *)out)[at]));
            double bound = type == ITH_F32 ? 1e-6 : fabs(want[i]) / 256 + 1e-6;
            if (!(fabs(got - want[i]) <= bound))
                fail_msg("number %d of row %d: %.9g, not %.9g", (int)i, (int)row, got, want[i]);
        }
    }
}

static void rows_are_those_of_float64(void **unused)
{
    (void)unused;
    const ith_dtype types[] = {ITH_F32, ITH_BF16};
    for (int repeat = 0; repeat < 20; repeat++)
        for (int i = 0; i < 2; i++) {
            state = (uint64_t)repeat;
            check_heads(3, 2, true, types[i]);  /* q, k, v of self-attention */
            check_heads(1, 1, false, types[i]); /* q of cross-attention */
            check_heads(2, 1, false, types[i]); /* k, v of cross-attention */
        }
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(rows_are_those_of_float64)};
    return cmocka_run_group_tests_name("dit_heads", all, context_set_up, context_tear_down);
}
