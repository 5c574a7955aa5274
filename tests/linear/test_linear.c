/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and feed-forward networks are compared with sums in float64. A row has the same bits at any place and
 * with any number of threads. Every row and every number passes through the caller's functions once. */
#include "kernels/rowops.h"
#include "support/compare.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/guarded.h"
#include "support/memory.h"
#include "support/memory_file.h"
#include "support/random.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed = 1;

static one_layer make(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype type,
                      const float *bias, int kind)
{
    one_layer layer;
    assert_int_equal(one_layer_make(context, in, out, weight, type, bias, operand_kinds[kind], false, &layer), ITH_OK);
    return layer;
}

static void apply(ith_context *context, const one_layer *layer, int64_t rows, const float *x, float *y)
{
    assert_int_equal(one_layer_apply(context, layer, rows, x, y), ITH_OK);
}

/* x rounded to operands of this kind. */
static double *operands(const float *x, int64_t count, int kind)
{
    double *rounded = malloc((size_t)count * sizeof *rounded);
    assert_non_null(rounded);
    for (int64_t i = 0; i < count; i++)
        rounded[i] = operand_value(x[i], kind);
    return rounded;
}

/* The largest error of y, as a share of sum |x w| + |b|. */
static double worst_error(int64_t rows, int64_t in, int64_t out, const float *x, const float *w, const float *b,
                          const float *y, int kind)
{
    double worst = 0, *x64 = operands(x, rows * in, kind), *w64 = operands(w, in * out, kind);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            double sum = b ? (double)b[j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < in; k++) {
                double term = x64[i * in + k] * w64[j * in + k];
                sum += term;
                size += fabs(term);
            }
            worst = larger_error(worst, fabs(sum - (double)y[i * out + j]) / size);
        }
    free(x64), free(w64);
    return worst;
}

static void check_shape(ith_context *context, int64_t rows, int64_t in, int64_t out, bool has_bias, int kind)
{
    enum { GUARD = 70 }; /* numbers after y, which must not change */
    float *w = random_floats(&seed, in * out), *b = random_floats(&seed, out), *x = random_floats(&seed, rows * in);
    float *y = new_floats(rows * out + GUARD);
    for (int64_t i = 0; i < rows * out + GUARD; i++)
        y[i] = 12345;
    one_layer layer = make(context, in, out, w, ITH_F32, has_bias ? b : NULL, kind);
    apply(context, &layer, rows, x, y);
    assert_true(worst_error(rows, in, out, x, w, has_bias ? b : NULL, y, kind) < 1e-6);
    for (int64_t i = rows * out; i < rows * out + GUARD; i++)
        assert_true(y[i] == 12345);
    one_layer_free(context, &layer);
    free(w), free(b), free(x), free(y);
}

static void test_against_float64(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},      {1, 7, 3},      {5, 16, 64},    {64, 64, 64},   {63, 65, 127},
                                        {65, 192, 192}, {129, 30, 200}, {20, 128, 257}, {3, 300, 129},  {200, 256, 768},
                                        {2, 2500, 130}, {70, 9000, 66}, {1100, 40, 50}, {2100, 20, 33}, {9, 1025, 31}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            omp_set_num_threads((int)i % 5 + 1);
            check_shape(context, shapes[i][0], shapes[i][1], shapes[i][2], i % 2, kind);
        }
    for (int i = 0; i < 60; i++) {
        omp_set_num_threads(i % 5 + 1);
        check_shape(context, random_between(&seed, 1, 120), random_between(&seed, 1, 400),
                    random_between(&seed, 1, 300), i % 2, i % operand_kinds_here(context));
    }
    omp_set_num_threads(threads);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------ */

/* Checks that a row has the same bits alone and among others, in workspaces for few rows and for many. */
static void check_bits(ith_context *context, int64_t most, int64_t in, int64_t out, int kind)
{
    float *w = random_floats(&seed, in * out), *b = random_floats(&seed, out), *x = random_floats(&seed, most * in);
    float *one_by_one = new_floats(most * out), *together = new_floats(most * out);
    one_layer layer = make(context, in, out, w, ITH_F32, b, kind);
    for (int threads = 1; threads <= 5; threads++) {
        ith_linear_workspace workspace;
        ith_arena arena;
        omp_set_num_threads(threads);
        assert_int_equal(one_workspace_make(context, layer.set, threads == 2 ? 1 : most, &workspace, &arena), ITH_OK);
        for (int64_t i = 0; threads == 1 && i < most; i++)
            assert_int_equal(
                ith_linear_apply_rows(context, layer.linear, &workspace, 1, x + i * in, one_by_one + i * out), ITH_OK);
        for (int64_t rows = 1; rows <= most; rows += rows < 5 ? 1 : most / 5 - 1) {
            int64_t begin = (most - rows) / threads; /* other rows than before, at other places */
            memset(together, 255, (size_t)(rows * out) * sizeof *together);
            assert_int_equal(ith_linear_apply_rows(context, layer.linear, &workspace, rows, x + begin * in, together),
                             ITH_OK);
            assert_memory_equal(together, one_by_one + begin * out, (size_t)(rows * out) * sizeof *together);
        }
        one_workspace_free(context, &workspace, &arena);
    }
    one_layer_free(context, &layer);
    free(w), free(b), free(x), free(one_by_one), free(together);
}

static void test_bits(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{300, 192, 192}, {300, 192, 768}, {300, 768, 192}, {300, 100, 65},
                                        {300, 2000, 70}, {300, 33, 300},  {1300, 700, 40}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++)
            check_bits(context, shapes[i][0], shapes[i][1], shapes[i][2], kind);
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

enum { ROWS = 70, IN = 300, OUT = 150, FIRST = 41, SECOND = 60 };

/* Lays one layer of IN to OUT out in a set, attaches three matrices with these types to it, and applies it. Matrix i
 * has the numbers of `rounded` that belong to its rows. */
static void apply_parts(ith_context *context, const float *rounded, const ith_dtype *types, bool keeps_packed, int kind,
                        const float *x, float *y)
{
    const int64_t begins[4] = {0, FIRST, FIRST + SECOND, OUT};
    ith_linear_weight parts[3];
    void *copies[3];
    for (int i = 0; i < 3; i++) {
        const int64_t rows = begins[i + 1] - begins[i];
        copies[i] = new_floats(rows * IN);
        if (types[i] == ITH_F32)
            memcpy(copies[i], rounded + begins[i] * IN, (size_t)(rows * IN) * sizeof *rounded);
        else
            ith_from_f32(copies[i], types[i], rounded + begins[i] * IN, rows * IN);
        parts[i] = (ith_linear_weight){.data = copies[i], .type = types[i], .rows = rows};
    }
    one_layer layer = {0};
    assert_int_equal(ith_linear_set_create(context, keeps_packed, &layer.set), ITH_OK);
    ith_linear_lay_out(layer.set, IN, OUT, operand_kinds[kind], &layer.arena);
    assert_int_equal(ith_arena_allocate(context, &layer.arena, "a layer"), ITH_OK);
    layer.linear = ith_linear_lay_out(layer.set, IN, OUT, operand_kinds[kind], &layer.arena);
    assert_int_equal(ith_linear_attach(context, layer.linear, parts, 3, NULL), ITH_OK);
    for (int i = 0; keeps_packed && i < 3; i++) /* no longer needed */
        memset(copies[i], 255, (size_t)((begins[i + 1] - begins[i]) * IN * ith_dtype_bytes(types[i])));
    ith_linear_prefetch(layer.linear);
    apply(context, &layer, ROWS, x, y);
    one_layer_free(context, &layer);
    for (int i = 0; i < 3; i++)
        free(copies[i]);
}

/* The same numbers give the same bits in whatever types they are stored, in one matrix or in three, packed or not. */
static void test_weight_types_and_parts(void **state)
{
    (void)state;
    static const ith_dtype types[][3] = {{ITH_F32, ITH_F32, ITH_F32},
                                         {ITH_F16, ITH_F16, ITH_F16},
                                         {ITH_BF16, ITH_BF16, ITH_BF16},
                                         {ITH_F32, ITH_BF16, ITH_F16}};
    ith_context *context = new_context();
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN);
    float *expected = new_floats(ROWS * OUT), *y = new_floats(ROWS * OUT);
    for (int64_t i = 0; i < IN * OUT; i++) /* numbers that every type can hold */
        w[i] = (float)(int)(w[i] * 128) / 128;
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        one_layer layer = make(context, IN, OUT, w, ITH_F32, NULL, kind);
        apply(context, &layer, ROWS, x, expected);
        for (int i = 0; i < 8; i++) {
            memset(y, 255, sizeof *y * ROWS * OUT);
            apply_parts(context, w, types[i / 2], i % 2, kind, x, y);
            assert_memory_equal(y, expected, sizeof *y * ROWS * OUT);
        }
        one_layer_free(context, &layer);
    }
    free(w), free(x), free(expected), free(y);
    ith_context_destroy(&context);
}

/* Weights that must be rounded to bf16: weights that are kept packed have the same bits as weights that are converted
 * anew. */
static void test_packed_weights_have_the_same_bits(void **state)
{
    (void)state;
    ith_context *context = new_context();
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN),
          *y[2] = {new_floats(ROWS * OUT), new_floats(ROWS * OUT)};
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        for (int keeps = 0; keeps < 2; keeps++) {
            one_layer layer;
            assert_int_equal(one_layer_make(context, IN, OUT, w, ITH_F32, x, operand_kinds[kind], keeps, &layer),
                             ITH_OK);
            apply(context, &layer, ROWS, x, y[keeps]);
            one_layer_free(context, &layer);
        }
        assert_memory_equal(y[0], y[1], sizeof(float) * ROWS * OUT);
    }
    free(w), free(x), free(y[0]), free(y[1]);
    ith_context_destroy(&context);
}

static void test_several_ranks_at_once(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    ith_context *context = new_context();
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN);
    float *y = new_floats(RANKS * ROWS * OUT), *expected = new_floats(ROWS * OUT);
    one_layer layer = make(context, IN, OUT, w, ITH_F32, NULL, OPERANDS_F32);
    apply(context, &layer, ROWS, x, expected);
#pragma omp parallel num_threads(RANKS)
    {
        ith_context *mine = NULL;
        int rank = omp_get_thread_num();
        if (!ith_context_clone(context, &mine))
            for (int i = 0; i < 20; i++)
                (void)one_layer_apply(mine, &layer, ROWS, x, y + rank * ROWS * OUT);
        ith_context_destroy(&mine);
    }
    for (int rank = 0; rank < RANKS; rank++)
        assert_memory_equal(y + rank * ROWS * OUT, expected, sizeof *y * ROWS * OUT);
    one_layer_free(context, &layer);
    free(w), free(x), free(y), free(expected);
    ith_context_destroy(&context);
}

/* ---- The caller's functions ------------------------------------------------------------------------------------ */

/* The calls of the caller's functions in one apply. Threads write different elements, except for the atomic counts. */
typedef struct witness {
    const float *x;
    float *y;
    int64_t in, out, strip;
    atomic_int *asked, *taken, *finished; /* [rows], [rows][out], [rows] */
    atomic_int wrong;
} witness;

/* Computes the odd rows in the thread's space. */
static const float *witness_row(const void *user, int64_t row, float *space)
{
    const witness *w = user;
    atomic_fetch_add(&w->asked[row], 1);
    if (row % 2 == 0)
        return w->x + row * w->in;
    memcpy(space, w->x + row * w->in, (size_t)w->in * sizeof *space);
    return space;
}

static void witness_take(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    witness *w = user;
    if (row >= w->strip && atomic_load(&w->finished[row - w->strip]) != 1)
        atomic_store(&w->wrong, 1); /* the slot of an earlier row was still in use */
    for (int64_t i = 0; i < count; i++) {
        atomic_fetch_add(&w->taken[row * w->out + first + i], 1);
        w->y[row * w->out + first + i] = y[i];
    }
}

static void witness_finish(void *user, int64_t row)
{
    witness *w = user;
    for (int64_t i = 0; i < w->out; i++)
        if (atomic_load(&w->taken[row * w->out + i]) != 1)
            atomic_store(&w->wrong, 2);
    atomic_fetch_add(&w->finished[row], 1);
}

static atomic_int *counts(int64_t count)
{
    atomic_int *zeros = calloc((size_t)count, sizeof *zeros);
    assert_non_null(zeros);
    return zeros;
}

static void assert_ones(atomic_int *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(atomic_load(&values[i]), 1);
    free(values);
}

static void test_callers_functions(void **state)
{
    (void)state;
    enum { MOST = 1200, WIDTH = 90, TO = 130 };
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    float *w = random_floats(&seed, WIDTH * TO), *b = random_floats(&seed, TO), *x = random_floats(&seed, MOST * WIDTH);
    float *y = new_floats(MOST * TO), *expected = new_floats(MOST * TO);
    one_layer layer = make(context, WIDTH, TO, w, ITH_F32, b, OPERANDS_F32);
    for (int i = 0; i < 20; i++) {
        const int64_t rows = i % 4 == 3 ? MOST : random_between(&seed, 1, MOST);
        ith_linear_workspace workspace;
        ith_arena arena;
        omp_set_num_threads(i / 4 + 1);
        assert_int_equal(one_workspace_make(context, layer.set, i % 3 ? MOST : 1, &workspace, &arena), ITH_OK);
        assert_int_equal(ith_linear_apply_rows(context, layer.linear, &workspace, rows, x, expected), ITH_OK);
        witness v = {.x = x, .y = y, .in = WIDTH, .out = TO, .strip = ith_linear_strip(&workspace)};
        v.asked = counts(rows), v.taken = counts(rows * TO), v.finished = counts(rows);
        const ith_linear_input input = {witness_row, &v};
        const ith_linear_output output = {.take = witness_take, .finish = witness_finish, .user = &v};
        assert_int_equal(ith_linear_apply(context, layer.linear, &workspace, rows, &input, &output), ITH_OK);
        assert_int_equal(atomic_load(&v.wrong), 0);
        assert_ones(v.asked, rows), assert_ones(v.taken, rows * TO), assert_ones(v.finished, rows);
        assert_memory_equal(y, expected, (size_t)(rows * TO) * sizeof *y);
        one_workspace_free(context, &workspace, &arena);
    }
    omp_set_num_threads(threads);
    one_layer_free(context, &layer);
    free(w), free(b), free(x), free(y), free(expected);
    ith_context_destroy(&context);
}

/* A matrix without data is zeros. */
static void test_matrix_without_data(void **state)
{
    (void)state;
    ith_context *context = new_context();
    float *w = random_floats(&seed, IN * OUT), *bias = random_floats(&seed, OUT), *x = random_floats(&seed, ROWS * IN);
    float *y = new_floats(ROWS * OUT), *expected = new_floats(ROWS * OUT), *read = new_floats(IN * OUT);
    const ith_linear_weight parts[] = {{.data = w, .type = ITH_F32, .rows = FIRST},
                                       {.type = ITH_F32, .rows = OUT - FIRST}};
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        one_layer layer;
        assert_int_equal(one_layer_make(context, IN, OUT, w, ITH_F32, bias, operand_kinds[i / 2], i % 2, &layer),
                         ITH_OK);
        assert_int_equal(ith_linear_attach(context, layer.linear, parts, 2, NULL), ITH_OK);
        apply(context, &layer, ROWS, x, y);
        memset(w + FIRST * IN, 0, sizeof *w * IN * (OUT - FIRST));
        one_layer_free(context, &layer);
        layer = make(context, IN, OUT, w, ITH_F32, NULL, i / 2);
        apply(context, &layer, ROWS, x, expected);
        assert_memory_equal(y, expected, sizeof *y * ROWS * OUT);
        memset(read, 255, sizeof *read * IN * OUT);
        assert_int_equal(ith_linear_attach(context, layer.linear, parts, 2, NULL), ITH_OK);
        assert_null(ith_linear_read(layer.linear, ITH_F32, 0, OUT, read));
        assert_memory_equal(read, w, sizeof *read * IN * OUT);
        one_layer_free(context, &layer);
    }
    free(w), free(bias), free(x), free(y), free(expected), free(read);
    ith_context_destroy(&context);
}

/* ---- Feed-forward networks ------------------------------------------------------------------------------------- */

/* A network of `in` to `wide` to `out` features with its weights; gate NULL: it has no gate. */
typedef struct network {
    int64_t in, wide, out;
    float *up, *gate, *down, *up_bias, *gate_bias, *down_bias;
    one_layer layers; /* the set and the arena of all layers */
    ith_feed_forward parts;
} network;

static network network_make(ith_context *context, int64_t in, int64_t wide, int64_t out, bool has_gate, int kind)
{
    network n = {.in = in, .wide = wide, .out = out};
    n.up = random_floats(&seed, in * wide), n.gate = random_floats(&seed, in * wide);
    n.down = random_floats(&seed, wide * out), n.up_bias = random_floats(&seed, wide);
    n.gate_bias = random_floats(&seed, wide), n.down_bias = random_floats(&seed, out);
    ith_linear *layers[3] = {NULL};
    assert_int_equal(ith_linear_set_create(context, false, &n.layers.set), ITH_OK);
    for (int pass = 0; pass < 2; pass++) {
        layers[0] = ith_linear_lay_out(n.layers.set, in, wide, operand_kinds[kind], &n.layers.arena);
        layers[1] = ith_linear_lay_out(n.layers.set, in, wide, operand_kinds[kind], &n.layers.arena);
        layers[2] = ith_linear_lay_out(n.layers.set, wide, out, operand_kinds[kind], &n.layers.arena);
        if (!pass)
            assert_int_equal(ith_arena_allocate(context, &n.layers.arena, "layers"), ITH_OK);
    }
    const ith_linear_weight weights[3] = {{.data = n.up, .type = ITH_F32, .rows = wide},
                                          {.data = n.gate, .type = ITH_F32, .rows = wide},
                                          {.data = n.down, .type = ITH_F32, .rows = out}};
    const float *biases[3] = {n.up_bias, n.gate_bias, n.down_bias};
    for (int i = 0; i < 3; i++)
        assert_int_equal(ith_linear_attach(context, layers[i], &weights[i], 1, biases[i]), ITH_OK);
    n.parts = (ith_feed_forward){layers[0], has_gate ? layers[1] : NULL, layers[2],
                                 ith_rowops_choose(ith_context_cpu(context))->gelu_tanh};
    return n;
}

static void network_free(ith_context *context, network *n)
{
    one_layer_free(context, &n->layers);
    free(n->up), free(n->gate), free(n->down), free(n->up_bias), free(n->gate_bias), free(n->down_bias);
}

static double sum64(const float *x, const float *w, const float *b, int64_t in, int64_t j)
{
    double sum = (double)b[j];
    for (int64_t k = 0; k < in; k++)
        sum += (double)x[k] * (double)w[j * in + k];
    return sum;
}

/* Computes one row in float64, by the definition. */
static void network_row64(const network *n, const float *x, double *hidden, double *y)
{
    for (int64_t j = 0; j < n->wide; j++) {
        double u = sum64(x, n->up, n->up_bias, n->in, j);
        hidden[j] = 0.5 * u * (1 + tanh(0.7978845608028654 * (u + 0.044715 * u * u * u)));
        if (n->parts.gate)
            hidden[j] *= sum64(x, n->gate, n->gate_bias, n->in, j);
    }
    for (int64_t j = 0; j < n->out; j++) {
        y[j] = (double)n->down_bias[j];
        for (int64_t k = 0; k < n->wide; k++)
            y[j] += hidden[k] * (double)n->down[j * n->wide + k];
    }
}

/* Computes the layers one after the other, with the hidden rows as a matrix. */
static void network_plain(ith_context *context, const network *n, const ith_linear_workspace *workspace, int64_t rows,
                          const float *x, float *y)
{
    float *hidden = new_floats(rows * n->wide), *gates = new_floats(rows * n->wide);
    assert_int_equal(ith_linear_apply_rows(context, n->parts.up, workspace, rows, x, hidden), ITH_OK);
    n->parts.act(hidden, hidden, rows * n->wide);
    if (n->parts.gate) {
        assert_int_equal(ith_linear_apply_rows(context, n->parts.gate, workspace, rows, x, gates), ITH_OK);
        for (int64_t i = 0; i < rows * n->wide; i++)
            hidden[i] *= gates[i];
    }
    assert_int_equal(ith_linear_apply_rows(context, n->parts.down, workspace, rows, hidden, y), ITH_OK);
    free(hidden), free(gates);
}

/* Makes a workspace whose memory ends where a protected page begins. guarded_free_all frees it. */
static void make_guarded_workspace(const ith_linear_set *set, int64_t rows, ith_linear_workspace *workspace)
{
    ith_arena arena = {0};
    ith_linear_workspace_lay_out(set, omp_get_max_threads(), rows, &arena, workspace);
    arena = (ith_arena){.base = guarded_new(arena.used_bytes, ITH_ARENA_ALIGNMENT, true)};
    ith_linear_workspace_lay_out(set, omp_get_max_threads(), rows, &arena, workspace);
}

static void check_network(ith_context *context, const int64_t *sizes, bool has_gate, int kind)
{
    const int64_t rows = sizes[0];
    network n = network_make(context, sizes[1], sizes[2], sizes[3], has_gate, kind);
    float *x = random_floats(&seed, rows * n.in), *y = new_floats(rows * n.out), *plain = new_floats(rows * n.out);
    double *hidden = malloc((size_t)n.wide * sizeof *hidden), *y64 = malloc((size_t)n.out * sizeof *y64);
    assert_true(hidden && y64);
    ith_linear_workspace workspace;
    make_guarded_workspace(n.layers.set, rows, &workspace);
    network_plain(context, &n, &workspace, rows, x, plain);
    witness v = {.x = x, .y = y, .in = n.in, .out = n.out, .strip = ith_linear_strip(&workspace)};
    v.asked = counts(rows), v.taken = counts(rows * n.out), v.finished = counts(rows);
    const ith_linear_input input = {witness_row, &v};
    const ith_linear_output output = {.take = witness_take, .finish = witness_finish, .user = &v};
    assert_int_equal(ith_feed_forward_apply(context, &n.parts, &workspace, rows, &input, &output), ITH_OK);
    assert_int_equal(atomic_load(&v.wrong), 0);
    assert_ones(v.asked, rows), assert_ones(v.taken, rows * n.out), assert_ones(v.finished, rows);
    assert_memory_equal(y, plain, (size_t)(rows * n.out) * sizeof *y);
    for (int64_t i = 0; i < rows && kind == OPERANDS_F32; i += 1 + rows / 20) {
        double square = 0, all = 0;
        network_row64(&n, x + i * n.in, hidden, y64);
        for (int64_t j = 0; j < n.out; j++) {
            square += ((double)y[i * n.out + j] - y64[j]) * ((double)y[i * n.out + j] - y64[j]);
            all += y64[j] * y64[j];
        }
        assert_true(square <= 1e-11 * all);
    }
    guarded_free_all();
    network_free(context, &n);
    free(x), free(y), free(plain), free(hidden), free(y64);
}

static void test_feed_forward(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{1, 1, 1, 1},       {3, 20, 50, 7},      {100, 64, 64, 64},
                                       {60, 33, 401, 90},  {700, 48, 200, 40},  {25, 300, 1000, 300},
                                       {1300, 16, 70, 16}, {1200, 700, 40, 70}, {64, 256, 512, 256},
                                       {2200, 300, 32, 40}}; /* two strips of most kernels, wider than hidden rows */
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            omp_set_num_threads((int)i % 5 + 1);
            check_network(context, sizes[i / 2], i % 2, kind);
        }
    omp_set_num_threads(1); /* the units of some kernels have several spans then */
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check_network(context, sizes[9], true, kind);
    omp_set_num_threads(threads);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* ---- A file that is cut ----------------------------------------------------------------------------------------- */

/* If a file loses its second half after it was mapped, there is an error that names it, also if weights are kept
 * packed. MANY rows are several spans of the kernels that convert the weights of all spans together. */
static void check_cut_file(ith_context *context, int kind)
{
    enum { WIDTH = 256, TO = 1024, MANY = 1100, BYTES = WIDTH * TO * 4 };
    float *x = random_floats(&seed, MANY * WIDTH), *y = new_floats(MANY * TO), *w = random_floats(&seed, WIDTH * TO);
    memory_file file = memory_file_create();
    memory_file_fill(&file, w, BYTES);
    float *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file.file, 0);
    assert_true(mapped != MAP_FAILED);
    one_layer layer = make(context, WIDTH, TO, mapped, ITH_F32, NULL, kind), kept;
    const ith_linear_weight weight = {.data = mapped, .type = ITH_F32, .rows = TO, .file = "model.safetensors"};
    assert_int_equal(ith_linear_attach(context, layer.linear, &weight, 1, NULL), ITH_OK);
    ith_linear_prefetch(layer.linear);
    apply(context, &layer, 1, x, y);
    assert_int_equal(ftruncate(file.file, BYTES / 2), 0);
    ith_linear_prefetch(layer.linear);
    for (int64_t rows = 1; rows <= MANY; rows += MANY - 1) {
        assert_int_equal(one_layer_apply(context, &layer, rows, x, y), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), "model.safetensors"));
    }
    assert_string_equal(ith_linear_read(layer.linear, ITH_F32, 0, TO, y), "model.safetensors");
    assert_int_equal(one_layer_make(context, WIDTH, TO, mapped, ITH_F32, NULL, operand_kinds[kind], true, &kept),
                     ITH_ERR_IO);
    one_layer_free(context, &layer);
    munmap(mapped, BYTES);
    close(file.file);
    free(x), free(y), free(w);
}

static void test_cut_file(void **state)
{
    (void)state;
    ith_context *context = new_context();
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check_cut_file(context, kind);
    ith_context_destroy(&context);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Two layers of one size and one of another take the memory that was counted. Only packed weights take memory. */
static void check_memory(ith_context *context, bool keeps_packed, int kind)
{
    enum { WIDTH = 1536 };
    float *w = random_floats(&seed, WIDTH * WIDTH);
    ith_linear_set *set = NULL;
    ith_linear *layers[3] = {NULL};
    ith_arena arena = {0};
    int64_t before = memory_of(context).current_bytes, counted = 0;
    assert_int_equal(ith_linear_set_create(context, keeps_packed, &set), ITH_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++)
            layers[i] = ith_linear_lay_out(set, WIDTH, i < 2 ? WIDTH : 80, operand_kinds[kind], &arena);
        assert_int_equal(ith_linear_set_status(set), ITH_OK);
        if (!pass) {
            counted = arena.used_bytes;
            assert_int_equal(ith_arena_allocate(context, &arena, "layers"), ITH_OK);
        }
    }
    assert_int_equal(arena.used_bytes, counted);
    for (int i = 0; i < 3; i++) {
        const ith_linear_weight weight = {.data = w, .type = ITH_F32, .rows = i < 2 ? WIDTH : 80};
        assert_int_equal(ith_linear_attach(context, layers[i], &weight, 1, NULL), ITH_OK);
    }
    int64_t held = memory_of(context).current_bytes - before;
    assert_int_equal(held, counted + ITH_ALLOC_HEADER + ith_linear_set_bytes(set));
    assert_true(keeps_packed ? held > WIDTH * WIDTH * 4 : held < 20000);
    ith_linear_set_destroy(&set);
    ith_free(context, arena.base);
    assert_int_equal(memory_of(context).current_bytes, before);
    free(w);
}

static void test_memory(void **state)
{
    (void)state;
    ith_context *context = new_context();
    for (int i = 0; i < 2 * operand_kinds_here(context); i++)
        check_memory(context, i % 2, i / 2);
    ith_context_destroy(&context);
}

static void ignore(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    (void)user, (void)row, (void)first, (void)count, (void)y;
}

/* For workspaces for few and for many rows. */
static void test_applying_allocates_nothing(void **state)
{
    (void)state;
    enum { MOST = 1000 };
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    float *x = random_floats(&seed, MOST * IN), *y = new_floats(MOST * IN);
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int64_t made_for = 1; made_for <= MOST; made_for *= 10) {
            network n = network_make(context, IN, 700, IN, true, kind);
            ith_linear_workspace workspace;
            ith_arena arena;
            assert_int_equal(one_workspace_make(context, n.layers.set, made_for, &workspace, &arena), ITH_OK);
            long allocations = atomic_load(&allocator.calls);
            const ith_linear_output output = {.take = ignore};
            for (int64_t rows = 1; rows <= MOST; rows *= 10) {
                witness v = {.x = x, .in = IN, .asked = counts(rows)};
                const ith_linear_input input = {witness_row, &v};
                assert_int_equal(ith_linear_apply_rows(context, n.parts.up, &workspace, 1, x, y), ITH_OK);
                assert_int_equal(ith_feed_forward_apply(context, &n.parts, &workspace, rows, &input, &output), ITH_OK);
                assert_ones(v.asked, rows);
            }
            assert_int_equal(atomic_load(&allocator.calls), allocations);
            one_workspace_free(context, &workspace, &arena);
            network_free(context, &n);
        }
    free(x), free(y);
    ith_context_destroy(&context);
}

/* ---- Two ways to multiply bf16 --------------------------------------------------------------------------------- */

/* bf16 instructions and f32 instructions give the same sums of the same operands, up to rounding. */
static void test_both_ways_agree(void **state)
{
    (void)state;
    enum { MANY = 100, WIDTH = 2048, TO = 130 };
    ith_context *context = new_context();
    if (operand_kinds_here(context) <= OPERANDS_BF16) {
        ith_context_destroy(&context);
        skip();
    }
    float *w = random_floats(&seed, WIDTH * TO), *x = random_floats(&seed, MANY * WIDTH), *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = new_floats(MANY * TO);
        one_layer layer = make(context, WIDTH, TO, w, ITH_F32, NULL, i ? OPERANDS_BF16 : OPERANDS_BF16_IN_F32);
        apply(context, &layer, MANY, x, y[i]);
        one_layer_free(context, &layer);
    }
    double squares = 0, all = 0;
    for (int64_t i = 0; i < MANY * TO; i++) {
        squares += ((double)y[0][i] - (double)y[1][i]) * ((double)y[0][i] - (double)y[1][i]);
        all += (double)y[1][i] * (double)y[1][i];
    }
    print_message("bf16 in bf16 and in f32: relative difference %.2g\n", sqrt(squares / all));
    assert_true(squares <= 1e-12 * all);
    free(w), free(x), free(y[0]), free(y[1]);
    ith_context_destroy(&context);
}

/* Numbers half way between two bf16 go to the even one: 1 + 2^-8 to 1, 1 + 3 2^-8 to 1 + 2^-6. */
static void test_rounds_to_nearest_even(void **state)
{
    (void)state;
    const float halves[2] = {0x1.01p0f, 0x1.03p0f}, even[2] = {1, 0x1.04p0f};
    ith_context *context = new_context();
    for (int kind = OPERANDS_BF16_IN_F32; kind < operand_kinds_here(context); kind++)
        for (int i = 0; i < 4; i++) {
            float w = halves[i / 2], x = halves[i % 2], y = 0;
            one_layer layer = make(context, 1, 1, &w, ITH_F32, NULL, kind);
            apply(context, &layer, 1, &x, &y);
            assert_true(y == even[i / 2] * even[i % 2]);
            one_layer_free(context, &layer);
        }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_file), /* first: cmocka takes the library's handler of SIGBUS away after a test */
        cmocka_unit_test(test_against_float64),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_weight_types_and_parts),
        cmocka_unit_test(test_packed_weights_have_the_same_bits),
        cmocka_unit_test(test_matrix_without_data),
        cmocka_unit_test(test_several_ranks_at_once),
        cmocka_unit_test(test_callers_functions),
        cmocka_unit_test(test_feed_forward),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_applying_allocates_nothing),
        cmocka_unit_test(test_both_ways_agree),
        cmocka_unit_test(test_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
