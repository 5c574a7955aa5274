/* SPDX-License-Identifier: Apache-2.0 */
/* Random problems under random plans, compared with the definition in double. ITHACA_PROBLEMS sets the number of
 * problems (make check-long: 1200). A run with 300 or more is long: problems have up to 4096 rows, and by the end every
 * pair of values of two options has been in one plan. ITHACA_PLAN_STEP=n leaves out most legal plans of a small
 * problem: it takes all plans on one rank, and every n-th plan on several ranks. */
#include "kernels/kernel.h"
#include "support/attention_check.h"
#include "support/compare.h"
#include "support/fixture.h"
#include "support/random_case.h"

#include <stdlib.h>
#include <string.h>

enum { PLANS_PER_PROBLEM = 3, FEW_PROBLEMS = 90, LONG_RUN = 300 };
static const int64_t MOST_PRODUCTS = 60000000; /* queries x keys x head_dim x heads: about a second of the oracle */

/* If a plan's kernel does not take the problem, the plan gets the next kernel that does. Small tiles have the smallest
 * sizes that the kernel takes. */
static void fit_to_kernel(const draw_table *table, drawn_plan *plan, attention_case *c)
{
    const ith_attn_problem *p = &c->problem;
    const ith_attn_kernel *kernel = ith_attn_kernel_named(c->options.kernel);
    while (!kernel->supports(p->dtype, p->head_dim, c->options.softmax)) {
        plan->value[DRAW_KERNEL] = (plan->value[DRAW_KERNEL] + 1) % table->values[DRAW_KERNEL];
        c->options.kernel = table->kernels[plan->value[DRAW_KERNEL]];
        kernel = ith_attn_kernel_named(c->options.kernel);
    }
    ith_attn_tiles step = kernel->tiles(p->head_dim).step;
    if (plan->value[DRAW_TILES] == 1)
        c->options.block_q = step.block_q;
    if (plan->value[DRAW_TILES] == 2) {
        c->options.block_kv_compute = step.block_kv_compute;
        c->options.block_kv = 2 * step.block_kv;
    }
}

/* A problem that is not too large for the oracle. */
static attention_case affordable_case(uint32_t seed, int64_t longest)
{
    for (;; longest = longest * 3 / 4) {
        attention_case c = random_case(seed, longest);
        const ith_attn_problem *p = &c.problem;
        if (p->q_len * p->kv_len * p->head_dim * p->heads * p->batch <= MOST_PRODUCTS)
            return c;
        case_free(&c);
    }
}

static bool takes_fixed_m(const char *kernel)
{
    const ith_attn_kernel *k = ith_attn_kernel_named(kernel);
    return k->supports(ITH_BF16, 64, ITH_SOFTMAX_FIXED_M) || k->supports(ITH_F16, 64, ITH_SOFTMAX_FIXED_M) ||
           k->supports(ITH_F32, 64, ITH_SOFTMAX_FIXED_M);
}

static uint32_t number_of_problems(void)
{
    const char *wanted = getenv("ITHACA_PROBLEMS");
    return wanted ? (uint32_t)atoi(wanted) : FEW_PROBLEMS;
}

static void random_problems_under_random_plans(void **state)
{
    (void)state;
    const uint32_t problems = number_of_problems();
    uint64_t r = 20;
    draw_table *table = malloc(sizeof *table);
    draw_init(context, table);
    for (uint32_t seed = 1; seed <= problems; seed++) {
        attention_case c = affordable_case(seed, problems >= LONG_RUN ? 4096 : 600);
        int64_t rows = c.problem.batch * c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
        float *o = malloc((size_t)(count + 1) * sizeof *o), *lse = malloc((size_t)(rows + 1) * sizeof *lse);
        case_oracle(&c, o, lse);
        for (int i = 0; i < PLANS_PER_PROBLEM; i++) {
            drawn_plan plan = draw_plan(table, &r);
            int ranks;
            c.options = draw_options(table, &plan, &ranks);
            fit_to_kernel(table, &plan, &c);
            if (c.problem.replicated_kv)
                c.options.exchange = ITH_EXCHANGE_AUTO;
            draw_mark(table, &plan);
            check_run(context, &c, ranks);
            check_result(&c, o, lse, seed);
        }
        free(o), free(lse);
        case_free(&c);
    }
    for (int a = 0; problems >= LONG_RUN && a < DRAW_FACTORS; a++)
        for (int b = a + 1; b < DRAW_FACTORS; b++)
            for (int i = 0; i < table->values[a] * table->values[b]; i++) {
                int x = i / table->values[b], y = i % table->values[b];
                bool possible = a != DRAW_SOFTMAX || b != DRAW_KERNEL || x == 0 || takes_fixed_m(table->kernels[y]);
                if (possible && !table->met[a][x][b][y])
                    print_error("value %d of option %d and value %d of option %d have not met\n", x, a, y, b);
                assert_true(!possible || table->met[a][x][b][y]);
            }
    free(table);
}

/* Changes a plan into the next one, as an odometer counts: the first option changes fastest. Returns false after the
 * last plan. */
static bool next_plan(const draw_table *table, drawn_plan *plan)
{
    for (int f = 0; f < DRAW_FACTORS; f++) {
        if (++plan->value[f] < table->values[f])
            return true;
        plan->value[f] = 0;
    }
    return false;
}

/* The number of combinations of kernel, tiles, smoothing and softmax. A ulysses plan must have the bits of the plan on
 * one rank with the same combination. */
enum { SINGLES = DRAW_MOST_VALUES * 3 * 2 * 2 };

static size_t like_single(const drawn_plan *plan)
{
    const int *value = plan->value;
    return (size_t)(((value[DRAW_KERNEL] * 3 + value[DRAW_TILES]) * 2 + value[DRAW_SMOOTHING]) * 2 +
                    value[DRAW_SOFTMAX]);
}

/* Whether a plan sets an option that it does not use. Such a plan is the same as one without the option. */
static bool is_twin(const drawn_plan *plan, bool every_tile)
{
    const int *mesh = draw_meshes[plan->value[DRAW_MESH]];
    bool axes[2] = {mesh[0] > 1, mesh[1] > 1};
    bool mixed = plan->value[DRAW_EXCHANGE] == 2;
    return (mixed && !(axes[0] && axes[1])) || (!axes[0] && (plan->value[DRAW_CHUNKS] || plan->value[DRAW_FOLD])) ||
           (!axes[1] && plan->value[DRAW_DIRECTION]) || (!axes[0] && !axes[1] && plan->value[DRAW_EXCHANGE]) ||
           (!plan->value[DRAW_SOFTMAX] && plan->value[DRAW_SMOOTHING]) || (!every_tile && plan->value[DRAW_TILES]);
}

/* Runs a small problem under every legal plan. single and ulysses keep the keys in one piece, so their plans have the
 * same bits if kernel, tiles and softmax are the same. */
static void every_plan(uint32_t seed, ith_dtype dtype, case_kind kind, bool every_tile)
{
    draw_table *table = malloc(sizeof *table);
    draw_init(context, table);
    attention_case c = {
        .problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .kind = kind, .wants_lse = true};
    c.problem.batch = 2, c.problem.heads = 6, c.problem.kv_heads = 3, c.problem.head_dim = 32;
    c.problem.q_len = 23, c.problem.kv_len = 37, c.problem.dtype = dtype;
    case_fill(&c, seed, 0);
    int64_t rows = c.problem.batch * c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
    size_t bytes = (size_t)(count * ith_dtype_bytes(dtype));
    float *o = malloc((size_t)count * sizeof *o), *lse = malloc((size_t)rows * sizeof *lse);
    char *singles = malloc(bytes * SINGLES);
    case_oracle(&c, o, lse);
    const char *wanted = getenv("ITHACA_PLAN_STEP");
    const int step = wanted && atoi(wanted) > 0 ? atoi(wanted) : 1;
    int number = 0;
    drawn_plan plan = {{0}};
    do {
        int ranks;
        c.options = draw_options(table, &plan, &ranks);
        if (ranks > 1 && number++ % step)
            continue;
        drawn_plan fitted = plan;
        bool taken = ith_attn_kernel_named(c.options.kernel)->supports(dtype, c.problem.head_dim, c.options.softmax);
        if (!taken || is_twin(&plan, every_tile))
            continue;
        fit_to_kernel(table, &fitted, &c);
        check_run(context, &c, ranks);
        check_result(&c, o, lse, seed);
        char *single = singles + like_single(&plan) * bytes;
        if (ranks == 1)
            memcpy(single, c.o_bits, bytes);
        if (c.options.strategy == ITH_STRATEGY_ULYSSES)
            assert_memory_equal(single, c.o_bits, bytes);
    } while (next_plan(table, &plan));
    free(o), free(lse), free(singles), free(table);
    case_free(&c);
}

static void every_legal_plan(void **state)
{
    (void)state;
    every_plan(1, ITH_BF16, CASE_UNEVEN, false);
    if (number_of_problems() >= LONG_RUN) {
        every_plan(2, ITH_F32, CASE_UNEVEN, true);
        every_plan(3, ITH_F16, CASE_OFFSET, true);
        every_plan(4, ITH_BF16, CASE_NORMAL, true);
    }
}

/* The error does not grow with the number of hops. */
static void hops_add_no_error(void **state)
{
    (void)state;
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    c.problem.heads = 2, c.problem.head_dim = 64, c.problem.q_len = 64, c.problem.kv_len = 1500;
    case_fill(&c, 4, 0);
    int64_t rows = c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
    float *o = malloc((size_t)count * sizeof *o), *lse = malloc((size_t)rows * sizeof *lse);
    case_oracle(&c, o, lse);
    for (int softmax = ITH_SOFTMAX_ONLINE; softmax <= ITH_SOFTMAX_FIXED_M; softmax++) {
        double first = 0;
        for (int hops = 1; hops <= 16; hops *= 2) {
            c.options.softmax = (ith_softmax)softmax;
            c.options.strategy = hops > 1 ? ITH_STRATEGY_RING : ITH_STRATEGY_SINGLE;
            c.options.exchange = hops > 1 ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_AUTO;
            check_run(context, &c, hops);
            check_result(&c, o, lse, 4);
            double error = relative_l2(c.o, o, count);
            first = hops == 1 ? error : first;
            assert_true(error <= 1.5 * first);
        }
    }
    free(o), free(lse);
    case_free(&c);
}

/* A ring in place gives the bits of a ring by messages, also where shards have no keys: with fewer keys than ranks, or
 * with kv_lengths that hide the last shards. */
static void a_ring_has_the_same_bits_in_place(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {{1, 1}, {3, 3}, {90, 20}, {90, 0}, {90, 89}};
    for (int i = 0; i < 5 * 4; i++) {
        attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
        c.problem.heads = 2, c.problem.head_dim = 32, c.problem.q_len = 40, c.problem.kv_len = lengths[i / 4][0];
        c.problem.has_kv_lengths = true;
        case_fill(&c, (uint64_t)i, 0);
        c.kv_lengths[0] = (int32_t)lengths[i / 4][1];
        c.options.strategy = ITH_STRATEGY_RING;
        c.options.softmax = i % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        c.options.direction = i % 4 > 1 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        size_t bytes = (size_t)(2 * 32 * 40) * sizeof(float);
        void *in_place = malloc(bytes);
        assert_non_null(in_place);
        c.options.exchange = ITH_EXCHANGE_IN_PLACE;
        check_run(context, &c, 4);
        memcpy(in_place, c.o_bits, bytes);
        c.options.exchange = ITH_EXCHANGE_COPY;
        check_run(context, &c, 4);
        assert_memory_equal(in_place, c.o_bits, bytes);
        free(in_place);
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_has_the_same_bits_in_place),
        cmocka_unit_test(random_problems_under_random_plans),
        cmocka_unit_test(every_legal_plan),
        cmocka_unit_test(hops_add_no_error),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
