/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank and dense additions to linear layers, compared with sums in float64: one matrix or three, several additions
 * to one matrix, ranks from 1 to more than a block of k. A row has the same bits at any place, with weights packed or
 * not, and in a feed-forward network. */
#include "kernels/product.h"
#include "kernels/rowops.h"
#include "linear/linear_set.h"
#include "support/compare.h"
#include "support/engine/added_layer.h"
#include "support/engine/kinds.h"
#include "support/memory.h"
#include "support/random.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

/* The sum of x[k] w[k], with x rounded to operands. *size: the sum of the terms without signs. */
static double sum64(const float *x, const double *w, int64_t count, int kind, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < count; k++) {
        double term = operand_value(x[k], kind) * w[k];
        sum += term, *size += fabs(term);
    }
    return sum;
}

/* Whether an addition of this number reaches row j of the weights, and is merged into it. */
static bool is_merged_into(const added_layer *s, int64_t n, int64_t j)
{
    const int matrix = s->additions[n].matrix;
    return j >= s->begins[matrix] && j < s->begins[matrix + 1] && (!s->parts[n].rank || s->layer.linear->merges);
}

/* Sets `row` [in] to row j of the weights: with the additions that are merged into it or, if there are none, rounded as
 * operands. Returns whether there are any. */
static bool weights_of(const added_layer *s, int64_t j, int kind, double *row)
{
    bool merged = false;
    for (int64_t n = 0; n < s->count; n++)
        merged = merged || is_merged_into(s, n, j);
    for (int64_t k = 0; k < s->in; k++)
        row[k] = merged ? (double)s->w[j * s->in + k] : operand_value(s->w[j * s->in + k], kind);
    for (int64_t n = 0; n < s->count; n++) {
        const int64_t rank = s->parts[n].rank;
        const float *up = s->parts[n].up + (j - s->begins[s->additions[n].matrix]) * (rank ? rank : s->in);
        for (int64_t k = 0; is_merged_into(s, n, j) && k < s->in; k++) {
            double sum = rank ? 0 : (double)up[k];
            for (int64_t r = 0; r < rank; r++)
                sum += (double)up[r] * (double)s->parts[n].down[r * s->in + k];
            row[k] += (double)s->additions[n].factor * sum;
        }
    }
    return merged;
}

/* Adds separate addition number n to output j of one row of x in float64, and the sizes of its terms. */
static void add64(const added_layer *s, int64_t n, const float *x, int64_t j, int kind, double *y, double *size)
{
    const ith_linear_addition *a = &s->additions[n];
    const int64_t rank = s->parts[n].rank;
    for (int64_t r = 0; r < rank; r++) {
        const double up = operand_value(s->parts[n].up[(j - s->begins[a->matrix]) * rank + r], kind);
        for (int64_t k = 0; k < s->in; k++) {
            const double down = operand_value(s->parts[n].down[r * s->in + k], kind);
            const double term = (double)a->factor * up * down * operand_value(x[k], kind);
            *y += term, *size += fabs(term);
        }
    }
}

/* The largest error, as a share of the sizes of the terms. t is rounded to bf16 where x is, with an error of at most
 * 2^-9. A weight with merged additions is rounded stochastically, with an error below 2^-7. */
static double allowed(int kind, bool merged)
{
    return kind == OPERANDS_F32 ? 1e-6 : merged ? 1.0 / 127 : 1.0 / 512;
}

/* The largest error of y, as a share of the allowed error. Checks only some outputs of wide layers. */
static double worst_error(const added_layer *s, int64_t rows, const float *x, const float *y, int kind)
{
    double worst = 0, *row = malloc((size_t)s->in * sizeof *row);
    assert_non_null(row);
    for (int64_t j = 0; j < s->out; j += 1 + s->out / 200) {
        const bool merged = weights_of(s, j, kind, row);
        for (int64_t i = 0; i < rows; i += 1 + rows / 9) {
            double size, sum = sum64(x + i * s->in, row, s->in, kind, &size) + (double)s->bias[j];
            for (int64_t n = 0; n < s->count; n++)
                if (j >= s->begins[s->additions[n].matrix] && j < s->begins[s->additions[n].matrix + 1] &&
                    !is_merged_into(s, n, j))
                    add64(s, n, x + i * s->in, j, kind, &sum, &size);
            const double most = allowed(kind, merged) * (size + fabs((double)s->bias[j]));
            worst = larger_error(worst, fabs(sum - (double)y[i * s->out + j]) / most);
        }
    }
    free(row);
    return worst;
}

static void check(ith_context *context, int64_t rows, int64_t in, int64_t out, int64_t most_rank, int kind,
                  bool separate)
{
    added_layer s = added_layer_make(context, &seed, in, out, most_rank, kind, separate);
    float *x = random_floats(&seed, rows * in), *y = new_floats(rows * out), *again = new_floats(rows * out);
    assert_int_equal(one_layer_apply(context, &s.layer, rows, x, y), ITH_OK);
    assert_true(worst_error(&s, rows, x, y, kind) < 1);
    one_layer_free(context, &s.layer); /* again, with packed weights for merged additions, then for all */
    added_layer_attach(context, &s, kind, ITH_LINEAR_KEEP_MERGED);
    assert_int_equal(ith_linear_is_packed(s.layer.linear), s.layer.linear->merges);
    ith_linear_prefetch(s.layer.linear);
    assert_int_equal(one_layer_apply(context, &s.layer, rows, x, again), ITH_OK);
    assert_memory_equal(y, again, (size_t)(rows * out) * sizeof *y);
    one_layer_free(context, &s.layer);
    added_layer_attach(context, &s, kind, ITH_LINEAR_KEEP_ALL);
    for (int64_t i = 0; i < s.count; i++) { /* no longer needed */
        memset(s.parts[i].stored_down, 255, (size_t)(s.parts[i].rank * in * ith_dtype_bytes(s.additions[i].down.type)));
        memset(s.parts[i].stored_up, 255,
               (size_t)((s.parts[i].rank ? s.parts[i].rank : in) * s.additions[i].up.rows *
                        ith_dtype_bytes(s.additions[i].up.type)));
    }
    ith_linear_prefetch(s.layer.linear);
    assert_int_equal(one_layer_apply(context, &s.layer, rows, x, again), ITH_OK);
    assert_memory_equal(y, again, (size_t)(rows * out) * sizeof *y);
    added_layer_free(context, &s);
    free(x), free(y), free(again);
}

static void results_agree_with_float64(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 1, 1},       {1, 7, 3, 5},      {5, 16, 64, 300},   {64, 64, 64, 16},
                                        {63, 65, 127, 9},   {129, 30, 200, 4}, {20, 128, 257, 70}, {3, 300, 129, 260},
                                        {2, 2500, 130, 64}, {1100, 40, 50, 8}, {2100, 20, 33, 3},  {9, 1025, 331, 600}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            omp_set_num_threads((int)i % 3 + 1);
            check(context, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], kind, false);
            check(context, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], kind, true);
        }
    for (int i = 0; i < 60; i++) {
        omp_set_num_threads(i % 3 + 1);
        check(context, random_between(&seed, 1, 120), random_between(&seed, 1, 400), random_between(&seed, 1, 300),
              random_between(&seed, 1, 40), i % operand_kinds_here(context), i % 2);
    }
    omp_set_num_threads(threads);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* Operations that an addition of rank 8 to the first `up` outputs adds to a layer, for `rows` rows. */
static double added_operations(ith_context *context, int kind, int64_t in, int64_t out, int64_t up, int64_t rows)
{
    const ith_linear_addition sizes = {.down.rows = 8, .up.rows = up};
    one_layer l = {0};
    assert_int_equal(ith_linear_set_create(context, false, &l.set), ITH_OK);
    for (int pass = 0; pass < 2; pass++) {
        l.linear = ith_linear_lay_out_with(l.set, in, out, operand_kinds[kind], &sizes, 1, &l.arena);
        if (!pass)
            assert_int_equal(ith_arena_allocate(context, &l.arena, "a layer"), ITH_OK);
    }
    const double operations = ith_linear_added_operations(l.linear, ITH_LINEAR_KEEP_NONE, rows);
    const bool merges = l.linear->merges;
    assert_true((ith_linear_added_operations(l.linear, ITH_LINEAR_KEEP_MERGED, rows) == 0) == merges);
    one_layer_free(context, &l);
    return operations;
}

/* Additions to a small layer, with in out / (in + out) up to 2048, are merged if a weight has one part, so their cost
 * does not grow with the rows. Additions to a large layer are separate products, with the same precision. */
static void additions_to_small_layers_are_merged(void **state)
{
    (void)state;
    enum { LARGE = 4200 };
    static const struct {
        int64_t in, out, up;
        bool small;
    } sizes[] = {{1536, 1536, 1536, true}, {4096, 4096, 4096, true}, {9000, 1000, 300, true},
                 {1000, 9000, 900, true},  {4098, 4098, 100, false}, {LARGE, LARGE, LARGE, false}};
    ith_context *context = new_context();
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        const ith_product_kernel *kernel =
            ith_product_kernel_choose(operand_kinds[kind].multiplied, ith_context_cpu(context));
        const bool merges = ith_product_parts(kernel, ITH_F32, operand_kinds[kind].stored == ITH_BF16) == 1;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int64_t rows = 1; rows < 20000; rows *= 99) {
                const int64_t in = sizes[i].in, out = sizes[i].out, up = sizes[i].up;
                const int64_t expected = 2 * 8 * (merges && sizes[i].small ? in * up : rows * (in + up));
                assert_true(fabs(added_operations(context, kind, in, out, up, rows) - (double)expected) < 1);
            }
    }
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check(context, 3, LARGE, LARGE, 8, kind, false);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* Additions of a twentieth of the last place of bf16 weights: merging keeps their sum. */
static void small_additions_are_not_lost(void **state)
{
    (void)state;
    enum { IN = 1024, OUT = 64 };
    const float unit = 0x1p-7f;
    float w[IN * OUT], x[IN], up[OUT], y[OUT];
    ith_context *context = new_context();
    added_layer s = {.in = IN, .out = OUT, .matrices = 1, .count = 1, .begins = {0, OUT}, .w = w};
    s.bias = calloc(OUT, sizeof *s.bias);
    for (int i = 0; i < IN * OUT; i++)
        w[i] = 1 + unit * (float)random_below(&seed, 128);
    for (int i = 0; i < IN; i++)
        x[i] = 1;
    for (int i = 0; i < OUT; i++)
        up[i] = 1;
    s.additions[0] = (ith_linear_addition){.down = {.data = x, .type = ITH_F32, .rows = 1},
                                           .up = {.data = up, .type = ITH_F32, .rows = OUT},
                                           .factor = unit / 20};
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        double sum = 0;
        added_layer_attach(context, &s, kind, ITH_LINEAR_KEEP_NONE);
        assert_int_equal(one_layer_apply(context, &s.layer, 1, x, y), ITH_OK);
        for (int j = 0; j < OUT; j++) {
            sum += (double)y[j];
            for (int i = 0; i < IN; i++)
                sum -= (double)w[j * IN + i];
        }
        const double expected = (double)unit / 20 * IN * OUT;
        assert_true(fabs(sum - expected) < 8 * (double)unit * sqrt(IN * OUT / 20.0)); /* 8 standard deviations */
        one_layer_free(context, &s.layer);
    }
    free(s.bias);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* A row has the same bits alone and among others, in workspaces for few rows and for many, with any number of
 * threads. */
static void a_row_has_the_same_bits_anywhere(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{300, 192, 192, 64}, {300, 100, 365, 40}, {1300, 700, 40, 5}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (int n = 0; n < 6 * operand_kinds_here(context); n++) {
        const int64_t *shape = shapes[n % 6 / 2], most = shape[0], in = shape[1], out = shape[2];
        added_layer s = added_layer_make(context, &seed, in, out, shape[3], n / 6, n % 2);
        float *x = random_floats(&seed, most * in), *alone = new_floats(most * out), *together = new_floats(most * out);
        for (int team = 1; team <= 4; team++) {
            ith_linear_workspace workspace;
            ith_arena arena;
            omp_set_num_threads(team);
            assert_int_equal(one_workspace_make(context, s.layer.set, team == 2 ? 1 : most, &workspace, &arena), 0);
            for (int64_t i = 0; team == 1 && i < most; i++)
                assert_int_equal(
                    ith_linear_apply_rows(context, s.layer.linear, &workspace, 1, x + i * in, alone + i * out), ITH_OK);
            for (int64_t rows = 1; rows <= most; rows += rows < 5 ? 1 : most / 5 - 1) {
                int64_t begin = (most - rows) / team;
                assert_int_equal(
                    ith_linear_apply_rows(context, s.layer.linear, &workspace, rows, x + begin * in, together), ITH_OK);
                assert_memory_equal(together, alone + begin * out, (size_t)(rows * out) * sizeof *together);
            }
            one_workspace_free(context, &workspace, &arena);
        }
        added_layer_free(context, &s);
        free(x), free(alone), free(together);
    }
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

/* ---- Feed-forward networks ------------------------------------------------------------------------------------- */

/* Up, gate and down, each with an addition of its own rank, in one set. */
typedef struct network {
    int64_t sizes[3]; /* in, wide, out */
    float *w[3], *bias[3];
    float *low[3][2]; /* down and up of the addition to each layer */
    one_layer layers;
    ith_linear *linears[3];
} network;

static void network_lay_out(network *n, const int64_t *ranks, int kind)
{
    const int64_t shapes[3][2] = {{n->sizes[0], n->sizes[1]}, {n->sizes[0], n->sizes[1]}, {n->sizes[1], n->sizes[2]}};
    for (int i = 0; i < 3; i++) {
        const ith_linear_addition sizes = {.down.rows = ranks[i], .up.rows = shapes[i][1]};
        n->linears[i] = ith_linear_lay_out_with(n->layers.set, shapes[i][0], shapes[i][1], operand_kinds[kind], &sizes,
                                                1, &n->layers.arena);
    }
}

/* separate: the additions are not merged, whatever the sizes of the layers. */
static network network_make(ith_context *context, const int64_t *sizes, const int64_t *ranks, bool separate, int kind)
{
    network n = {.sizes = {sizes[1], sizes[2], sizes[3]}};
    assert_int_equal(ith_linear_set_create(context, false, &n.layers.set), ITH_OK);
    n.layers.set->merges_most = separate ? 0 : ITH_LINEAR_MERGES_MOST;
    network_lay_out(&n, ranks, kind);
    assert_int_equal(ith_arena_allocate(context, &n.layers.arena, "layers"), ITH_OK);
    network_lay_out(&n, ranks, kind);
    for (int i = 0; i < 3; i++) {
        const int64_t in = sizes[i == 2 ? 2 : 1], out = sizes[i == 2 ? 3 : 2];
        n.w[i] = random_floats(&seed, in * out), n.bias[i] = random_floats(&seed, out);
        n.low[i][0] = random_floats(&seed, ranks[i] * in), n.low[i][1] = random_floats(&seed, out * ranks[i]);
        const ith_linear_addition a = {.down = {.data = n.low[i][0], .type = ITH_F32, .rows = ranks[i]},
                                       .up = {.data = n.low[i][1], .type = ITH_F32, .rows = out},
                                       .factor = 0.25f};
        const ith_linear_weight w = {.data = n.w[i], .type = ITH_F32, .rows = out};
        assert_int_equal(ith_linear_attach(context, n.linears[i], &w, 1, n.bias[i]), ITH_OK);
        assert_int_equal(ith_linear_add(context, n.linears[i], &a, 1), ITH_OK);
    }
    return n;
}

static void network_free(ith_context *context, network *n)
{
    one_layer_free(context, &n->layers);
    for (int i = 0; i < 3; i++)
        free(n->w[i]), free(n->bias[i]), free(n->low[i][0]), free(n->low[i][1]);
}

/* A network has the bits of its layers one after the other, which results_agree_with_float64 has compared. */
static void check_network(ith_context *context, const int64_t *sizes, const int64_t *ranks, bool separate,
                          bool has_gate, int kind)
{
    const int64_t rows = sizes[0], wide = sizes[2], out = sizes[3];
    network n = network_make(context, sizes, ranks, separate, kind);
    const ith_feed_forward parts = {n.linears[0], has_gate ? n.linears[1] : NULL, n.linears[2],
                                    ith_rowops_choose(ith_context_cpu(context))->gelu_tanh};
    float *x = random_floats(&seed, rows * sizes[1]), *y = new_floats(rows * out), *plain = new_floats(rows * out);
    float *hidden = new_floats(rows * wide), *gates = new_floats(rows * wide);
    ith_linear_workspace workspace;
    ith_arena arena;
    assert_int_equal(one_workspace_make(context, n.layers.set, rows, &workspace, &arena), ITH_OK);
    assert_int_equal(ith_linear_apply_rows(context, parts.up, &workspace, rows, x, hidden), ITH_OK);
    assert_int_equal(ith_linear_apply_rows(context, n.linears[1], &workspace, rows, x, gates), ITH_OK);
    parts.act(hidden, hidden, rows * wide);
    for (int64_t i = 0; has_gate && i < rows * wide; i++)
        hidden[i] *= gates[i];
    assert_int_equal(ith_linear_apply_rows(context, parts.down, &workspace, rows, hidden, plain), ITH_OK);
    const ith_linear_rows from = {x, sizes[1]};
    ith_linear_rows to = {y, out};
    const ith_linear_input input = ith_linear_from_rows(&from);
    const ith_linear_output output = ith_linear_to_rows(&to);
    assert_int_equal(ith_feed_forward_apply(context, &parts, &workspace, rows, &input, &output), ITH_OK);
    assert_memory_equal(y, plain, (size_t)(rows * out) * sizeof *y);
    one_workspace_free(context, &workspace, &arena);
    network_free(context, &n);
    free(x), free(y), free(plain), free(hidden), free(gates);
}

static void networks_have_the_bits_of_their_layers(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{1, 1, 1, 1},      {3, 20, 50, 7},     {100, 64, 64, 64},
                                       {60, 33, 401, 90}, {700, 48, 200, 40}, {1300, 16, 70, 16}};
    static const int64_t ranks[][3] = {{5, 33, 70}, {3000, 5, 4}, {5, 3000, 4}}; /* of up, gate and down */
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            omp_set_num_threads((int)i % 3 + 1);
            check_network(context, sizes[i / 2], ranks[0], false, i % 2, kind);
        }
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int i = 1; i < 3; i++)
            check_network(context, sizes[5], ranks[i], true, true, kind);
    omp_set_num_threads(threads);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* Number k of row j of the weights with all additions, in float64. */
static double sum_of(const added_layer *s, int64_t j, int64_t k)
{
    double sum = (double)s->w[j * s->in + k];
    for (int64_t n = 0; n < s->count; n++) {
        const ith_linear_addition *a = &s->additions[n];
        const int64_t rank = s->parts[n].rank, width = rank ? rank : s->in;
        if (j < s->begins[a->matrix] || j >= s->begins[a->matrix + 1])
            continue;
        const float *up = s->parts[n].up + (j - s->begins[a->matrix]) * width;
        double low = rank ? 0 : (double)up[k];
        for (int64_t r = 0; r < rank; r++)
            low += (double)up[r] * (double)s->parts[n].down[r * s->in + k];
        sum += (double)a->factor * low;
    }
    return sum;
}

/* ith_linear_read gives rows of the weights with all additions, merged and separate. */
static void reading_gives_weights_with_additions(void **state)
{
    (void)state;
    ith_context *context = new_context();
    for (int i = 0; i < 60; i++) {
        const int kind = i % OPERANDS_BF16;
        added_layer s = added_layer_make(context, &seed, random_between(&seed, 1, 700), random_between(&seed, 1, 200),
                                         i % 5 ? 20 : 150, kind, i % 2);
        const int64_t first = random_below(&seed, (uint32_t)s.out), count = random_between(&seed, 1, s.out - first);
        float *f32 = new_floats(count * s.in);
        uint16_t *bf16 = malloc((size_t)(count * s.in) * sizeof *bf16);
        assert_non_null(bf16);
        assert_null(ith_linear_read(s.layer.linear, ITH_F32, first, count, f32));
        assert_null(ith_linear_read(s.layer.linear, ITH_BF16, first, count, bf16));
        for (int64_t j = 0; j < count; j++)
            for (int64_t k = 0; k < s.in; k++) {
                const double sum = sum_of(&s, first + j, k), bound = 1e-4 + 2e-6 * fabs(sum);
                assert_true(fabs((double)f32[j * s.in + k] - sum) <= bound);
                assert_true(fabs((double)ith_f32_from_bf16(bf16[j * s.in + k]) - sum) <= bound + fabs(sum) / 127);
            }
        free(f32), free(bf16);
        added_layer_free(context, &s);
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* If weights are stored as bf16, ith_linear_read gives the numbers that the layer multiplies. Rows of x that have a
 * single 1 show them. */
static void reading_gives_what_is_multiplied(void **state)
{
    (void)state;
    enum { IN = 1100, OUT = 30 };
    static const float zeros[OUT];
    ith_context *context = new_context();
    float *x = calloc(IN * IN, sizeof *x), *y = new_floats(IN * OUT);
    uint16_t *bf16 = malloc(IN * OUT * sizeof *bf16);
    assert_true(x && bf16);
    for (int k = 0; k < IN; k++)
        x[k * IN + k] = 1;
    for (int i = 0; i < 8; i++)
        for (int kind = OPERANDS_BF16_IN_F32; kind < operand_kinds_here(context); kind++) {
            added_layer s = added_layer_make(context, &seed, IN, OUT, 100, kind, false);
            assert_int_equal(s.layer.linear->added_count, 0);
            memcpy(s.layer.linear->bias, zeros, sizeof zeros);
            assert_int_equal(one_layer_apply(context, &s.layer, IN, x, y), ITH_OK);
            assert_null(ith_linear_read(s.layer.linear, ITH_BF16, 0, OUT, bf16));
            for (int j = 0; j < OUT; j++)
                for (int k = 0; k < IN; k++)
                    assert_true(y[k * OUT + j] == ith_f32_from_bf16(bf16[j * IN + k]));
            added_layer_free(context, &s);
        }
    free(x), free(y), free(bf16);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_agree_with_float64),
        cmocka_unit_test(a_row_has_the_same_bits_anywhere),
        cmocka_unit_test(networks_have_the_bits_of_their_layers),
        cmocka_unit_test(additions_to_small_layers_are_merged),
        cmocka_unit_test(small_additions_are_not_lost),
        cmocka_unit_test(reading_gives_weights_with_additions),
        cmocka_unit_test(reading_gives_what_is_multiplied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
