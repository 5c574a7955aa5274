/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a call share its work. Every item is done once, after its operands were computed. The end of an item
 * and a failure wake threads that sleep. Layers with several strips, with and without low-rank additions, keep their
 * bits if the caller's functions are slow in some threads, or if threads find no work in the last strip. */
#include "kernels/rowops.h"
#include "linear/linear_set.h"
#include "linear/linear_work.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/random.h"
#include "support/times.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static void sleep_microseconds(long microseconds)
{
    nap(1e-6 * (double)microseconds);
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

enum { STRIPS = 40, MADE = 5, READ = 7, HELD = 2 };

/* Two stages: `make` writes numbers of a strip into one of two places, and `read` adds them up. */
typedef struct scene {
    ith_linear_outcome outcome;
    ith_linear_stage make, read;
    int64_t numbers[HELD][MADE];
    int64_t sums[STRIPS][READ];
} scene;

static void make_numbers(scene *s, int64_t strip)
{
    if (!ith_linear_await(&s->read, strip - HELD, &s->outcome))
        return;
    for (int64_t i; ith_linear_take_item(&s->make, strip, &i);) {
        if ((strip + i) % 11 == 0)
            sleep_microseconds(1000);
        s->numbers[strip % HELD][i] = strip * MADE + i;
        ith_linear_end_item(&s->make, strip, &s->outcome);
    }
}

static void read_numbers(scene *s, int64_t strip)
{
    if (!ith_linear_await(&s->make, strip, &s->outcome))
        return;
    for (int64_t i; ith_linear_take_item(&s->read, strip, &i);) {
        if ((strip + i) % 13 == 0)
            sleep_microseconds(1000);
        for (int64_t k = 0; k < MADE; k++)
            s->sums[strip][i] += s->numbers[strip % HELD][k];
        ith_linear_end_item(&s->read, strip, &s->outcome);
    }
}

static void test_stages(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 6; threads++) {
        static scene s;
        s = (scene){.outcome = ITH_LINEAR_OUTCOME(NULL), .make.items = MADE, .read.items = READ};
#pragma omp parallel num_threads(threads)
        {
            make_numbers(&s, 0);
            for (int64_t strip = 0; strip < STRIPS; strip++) {
                if (strip + 1 < STRIPS)
                    make_numbers(&s, strip + 1);
                read_numbers(&s, strip);
            }
        }
        for (int64_t strip = 0; strip < STRIPS; strip++)
            for (int64_t i = 0; i < READ; i++)
                assert_int_equal(s.sums[strip][i], strip * MADE * MADE + MADE * (MADE - 1) / 2);
    }
}

/* One thread takes an item and ends it, or fails, when the others sleep. */
static void check_sleepers(bool fails)
{
    enum { THREADS = 4 };
    ith_linear_outcome outcome = ITH_LINEAR_OUTCOME(NULL);
    ith_linear_stage stage = {.items = 1};
    int64_t item = -1;
    atomic_int woken = 0;
    assert_true(ith_linear_take_item(&stage, 0, &item));
    assert_int_equal(item, 0);
#pragma omp parallel num_threads(THREADS)
    if (omp_get_thread_num()) {
        if (ith_linear_await(&stage, 0, &outcome) == !fails)
            atomic_fetch_add(&woken, 1);
    } else {
        while (atomic_load(&outcome.sleepers) < omp_get_num_threads() - 1)
            sleep_microseconds(100);
        if (fails)
            ith_linear_fail_file(&outcome, "a file");
        else
            ith_linear_end_item(&stage, 0, &outcome);
    }
    assert_int_equal(atomic_load(&woken), THREADS - 1);
    assert_int_equal(ith_linear_failed(&outcome), fails);
    assert_int_equal(atomic_load(&outcome.sleepers), 0);
}

static void test_sleepers(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        check_sleepers(i % 2);
}

static void test_nothing_to_wait_for(void **state)
{
    (void)state;
    ith_linear_outcome outcome = ITH_LINEAR_OUTCOME(NULL);
    const ith_linear_stage empty = {0}, waiting = {.items = 3};
    assert_true(ith_linear_await(&waiting, -1, &outcome));
    assert_true(ith_linear_await(&waiting, -2, &outcome));
    assert_true(ith_linear_await(&empty, 0, &outcome));
    assert_true(ith_linear_await(&empty, 9, &outcome));
    ith_linear_fail_file(&outcome, "a file");
    assert_false(ith_linear_await(&waiting, -1, &outcome));
    assert_false(ith_linear_await(&waiting, 0, &outcome));
}

/* ---- Slow callers ---------------------------------------------------------------------------------------------- */

enum { ROWS = 9000, WIDTH = 40, WIDE = 70, RANK = 5 };
enum slow { SLOW_ROWS, SLOW_TAKES, SLOW_FINISHES, SLOW_KINDS };

/* Rows of x and y. One function is so slow for one row that other threads do all other work meanwhile. */
typedef struct caller {
    const float *x;
    float *y;
    float *slots; /* [strip][WIDTH]: a row of y until it is finished; NULL: rows need no finish */
    int64_t strip;
    enum slow slow;
} caller;

static void delay(const caller *c, enum slow function, int64_t row)
{
    if (c->slow == function && row == 7)
        sleep_microseconds(20000);
}

static const float *give_row(const void *user, int64_t row, float *space)
{
    const caller *c = user;
    delay(c, SLOW_ROWS, row);
    memcpy(space, c->x + row * WIDTH, WIDTH * sizeof *space);
    return space;
}

static void take(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    caller *c = user;
    delay(c, SLOW_TAKES, first ? -1 : row);
    memcpy((c->slots ? c->slots + row % c->strip * WIDTH : c->y + row * WIDTH) + first, y, (size_t)count * sizeof *y);
}

static void finish(void *user, int64_t row)
{
    caller *c = user;
    delay(c, SLOW_FINISHES, row);
    memcpy(c->y + row * WIDTH, c->slots + row % c->strip * WIDTH, WIDTH * sizeof *c->y);
}

/* Layers of WIDTH to WIDE, of WIDE to WIDTH and of WIDTH to WIDTH, in one set. */
enum { UP, DOWN, SQUARE, LAYERS };
typedef struct layers {
    ith_linear_set *set;
    ith_arena arena, workspace_arena;
    ith_linear *of[LAYERS];
    ith_linear_workspace workspace;
    float *w, *x;
} layers;

static const int64_t inputs[LAYERS] = {WIDTH, WIDE, WIDTH}, outputs[LAYERS] = {WIDE, WIDTH, WIDTH};

/* The low-rank addition to a layer. */
static ith_linear_addition addition_to(const layers *l, int layer)
{
    return (ith_linear_addition){.down = {.data = l->w, .type = ITH_F32, .rows = RANK},
                                 .up = {.data = l->w, .type = ITH_F32, .rows = outputs[layer]},
                                 .factor = 0.5f};
}

/* additions: number of low-rank additions to each layer, 0 or 1. They are separate products. */
static layers make(ith_context *context, int kind, int additions)
{
    layers l = {.w = random_floats(&seed, WIDTH * WIDE), .x = random_floats(&seed, ROWS * WIDTH)};
    assert_int_equal(ith_linear_set_create(context, ITH_LINEAR_KEEP_NONE, &l.set), ITH_OK);
    l.set->merges_most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < LAYERS; i++) {
            const ith_linear_addition sizes = addition_to(&l, i);
            l.of[i] =
                ith_linear_lay_out_with(l.set, inputs[i], outputs[i], operand_kinds[kind], &sizes, additions, &l.arena);
        }
        if (!pass)
            assert_int_equal(ith_arena_allocate(context, &l.arena, "layers"), ITH_OK);
    }
    for (int i = 0; i < LAYERS; i++) {
        const ith_linear_weight weight = {.data = l.w, .type = ITH_F32, .rows = outputs[i]};
        const ith_linear_addition addition = addition_to(&l, i);
        assert_int_equal(ith_linear_attach(context, l.of[i], &weight, 1, NULL), ITH_OK);
        assert_int_equal(ith_linear_add(context, l.of[i], &addition, additions), ITH_OK);
    }
    assert_int_equal(one_workspace_make(context, l.set, ROWS, &l.workspace, &l.workspace_arena), ITH_OK);
    return l;
}

static void unmake(ith_context *context, layers *l)
{
    one_workspace_free(context, &l->workspace, &l->workspace_arena);
    ith_linear_set_destroy(&l->set);
    ith_free(context, l->arena.base);
    free(l->w), free(l->x);
}

/* A layer, a layer whose rows are finished, a feed-forward network, and one whose rows are finished. */
enum form { LAYER, FINISHED_LAYER, NETWORK, FINISHED_NETWORK, FORMS };

/* Computes y with a team of `threads` threads. */
static float *apply(ith_context *context, const layers *l, enum form form, enum slow slow, int threads)
{
    caller c = {.x = l->x, .strip = ith_linear_strip(&l->workspace), .slow = slow};
    const bool finishes = form == FINISHED_LAYER || form == FINISHED_NETWORK;
    c.y = malloc(ROWS * WIDTH * sizeof *c.y);
    c.slots = finishes ? malloc((size_t)c.strip * WIDTH * sizeof *c.slots) : NULL;
    assert_true(c.y && (c.slots || !finishes));
    const ith_linear_input x = {give_row, &c};
    const ith_linear_output y = {.take = take, .finish = c.slots ? finish : NULL, .user = &c};
    const ith_feed_forward network = {l->of[UP], NULL, l->of[DOWN],
                                      ith_rowops_choose(ith_context_cpu(context))->gelu_tanh};
    omp_set_num_threads(threads);
    if (form == NETWORK || form == FINISHED_NETWORK)
        assert_int_equal(ith_feed_forward_apply(context, &network, &l->workspace, ROWS, &x, &y), ITH_OK);
    else
        assert_int_equal(ith_linear_apply(context, l->of[SQUARE], &l->workspace, ROWS, &x, &y), ITH_OK);
    free(c.slots);
    return c.y;
}

static void check_slow_callers(ith_context *context, int kind, int additions)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(4);
    layers l = make(context, kind, additions);
    assert_true(ROWS > 2 * ith_linear_strip(&l.workspace)); /* there are at least three strips */
    for (enum form form = LAYER; form < FORMS; form++) {
        float *expected = apply(context, &l, form, SLOW_KINDS, 1);
        for (int i = 0; i < 3 * SLOW_KINDS; i++) {
            float *y = apply(context, &l, form, (enum slow)(i % SLOW_KINDS), 2 + i / SLOW_KINDS);
            assert_memory_equal(y, expected, ROWS * WIDTH * sizeof *y);
            free(y);
        }
        free(expected);
    }
    omp_set_num_threads(threads);
    unmake(context, &l);
}

/* The units of some kernels have several spans. If there are additions, the rows t of the next strip are computed
 * before the rows of y are finished. */
static void test_slow_callers(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int additions = 0; additions < 2; additions++)
            check_slow_callers(context, kind, additions);
    ith_context_destroy(&context);
}

/* ---- Small strips ---------------------------------------------------------------------------------------------- */

/* The last strip has fewer right panels than the strips before, and fewer than there are threads. */
static void test_small_strips(void **state)
{
    (void)state;
    enum { STRIP_ROWS = 200, MOST = 1000, OUT = 3 };
    ith_context *context = NULL;
    const int threads = omp_get_max_threads();
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    float *w = random_floats(&seed, WIDTH * OUT), *x = random_floats(&seed, MOST * WIDTH);
    float expected[MOST * OUT], y[MOST * OUT];
    one_layer layer;
    assert_int_equal(one_layer_make(context, WIDTH, OUT, w, ITH_F32, NULL, operand_kinds[OPERANDS_F32], false, &layer),
                     ITH_OK);
    assert_int_equal(one_layer_apply(context, &layer, MOST, x, expected), ITH_OK);
    for (int team = 1; team <= 9; team += 4) {
        ith_linear_workspace workspace;
        ith_arena arena;
        omp_set_num_threads(team);
        assert_int_equal(one_workspace_make(context, layer.set, STRIP_ROWS, &workspace, &arena), ITH_OK);
        for (int64_t rows = STRIP_ROWS; rows <= MOST; rows += 19) {
            assert_int_equal(ith_linear_apply_rows(context, layer.linear, &workspace, rows, x, y), ITH_OK);
            assert_memory_equal(y, expected, (size_t)(rows * OUT) * sizeof *y);
        }
        one_workspace_free(context, &workspace, &arena);
    }
    omp_set_num_threads(threads);
    one_layer_free(context, &layer);
    free(w), free(x);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_nothing_to_wait_for),
        cmocka_unit_test(test_slow_callers),
        cmocka_unit_test(test_small_strips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
