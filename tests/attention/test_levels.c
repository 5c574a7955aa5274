/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of ranks that run in several processes and on several hosts: the mesh and the exchange that the library
 * chooses, and the bits of the exchange that uses the ulysses axis in place and sends messages along the ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "support/attention_check.h"
#include "support/fixture.h"
#include "support/placed_group.h"
#include "support/random_case.h"

#include <cmocka.h>

/* ---- Choices --------------------------------------------------------------------------------------------------- */

/* Where up to six ranks run, and the plan that they get. */
typedef struct layout {
    const char *processes, *hosts; /* a character for each rank; equal characters: the same process, the same host */
    int64_t heads;
    ith_strategy strategy;
    int ulysses, ring;
    ith_exchange_mode exchange;
} layout;

static const layout layouts[] = {
    /* ranks of one host */
    {"aaaa", "1111", 12, ITH_STRATEGY_AUTO, 4, 1, ITH_EXCHANGE_IN_PLACE},
    {"aabb", "1111", 12, ITH_STRATEGY_AUTO, 4, 1, ITH_EXCHANGE_COPY},
    {"abcd", "1111", 12, ITH_STRATEGY_AUTO, 4, 1, ITH_EXCHANGE_COPY},
    {"aabb", "1111", 2, ITH_STRATEGY_AUTO, 2, 2, ITH_EXCHANGE_MIXED},
    /* hosts with equally many ranks */
    {"aabb", "1122", 12, ITH_STRATEGY_AUTO, 2, 2, ITH_EXCHANGE_MIXED},
    {"abcd", "1122", 12, ITH_STRATEGY_AUTO, 2, 2, ITH_EXCHANGE_COPY},
    {"abcd", "1234", 12, ITH_STRATEGY_AUTO, 1, 4, ITH_EXCHANGE_COPY},
    {"aaabbb", "111222", 12, ITH_STRATEGY_AUTO, 3, 2, ITH_EXCHANGE_MIXED},
    {"aabbcc", "112233", 12, ITH_STRATEGY_AUTO, 2, 3, ITH_EXCHANGE_MIXED},
    {"aabccd", "111222", 12, ITH_STRATEGY_AUTO, 3, 2, ITH_EXCHANGE_COPY},
    /* an axis of 3 would give a rank 2 of 4 heads */
    {"aaabbb", "111222", 4, ITH_STRATEGY_AUTO, 1, 6, ITH_EXCHANGE_COPY},
    /* hosts with different numbers of ranks: 2 divides both, and nothing divides 2 and 3 */
    {"aabbcc", "112222", 12, ITH_STRATEGY_AUTO, 2, 3, ITH_EXCHANGE_MIXED},
    {"aabbbb", "112222", 12, ITH_STRATEGY_AUTO, 2, 3, ITH_EXCHANGE_MIXED},
    {"abcdef", "111122", 12, ITH_STRATEGY_AUTO, 2, 3, ITH_EXCHANGE_COPY},
    {"aabbb", "11222", 30, ITH_STRATEGY_AUTO, 5, 1, ITH_EXCHANGE_COPY},
    /* the ranks of a process, or of a host, do not follow one another */
    {"abab", "1111", 12, ITH_STRATEGY_AUTO, 4, 1, ITH_EXCHANGE_COPY},
    {"abab", "1212", 12, ITH_STRATEGY_AUTO, 1, 4, ITH_EXCHANGE_COPY},
    /* strategies that the options name */
    {"aabb", "1122", 12, ITH_STRATEGY_ULYSSES, 4, 1, ITH_EXCHANGE_COPY},
    {"aabb", "1122", 12, ITH_STRATEGY_RING, 1, 4, ITH_EXCHANGE_COPY},
    {"aabb", "1122", 12, ITH_STRATEGY_ULYSSES_RING, 2, 2, ITH_EXCHANGE_MIXED},
    {"aaaa", "1111", 12, ITH_STRATEGY_ULYSSES_RING, 2, 2, ITH_EXCHANGE_IN_PLACE},
};

static int settle_layout(const layout *l)
{
    int ranks = (int)strlen(l->processes);
    for (int rank = 0; rank < ranks; rank++) {
        placed_process[rank] = l->processes[rank] - 'a';
        placed_host[rank] = l->hosts[rank] - '1';
    }
    return ranks;
}

/* The problem and options of every rank, and the plan that each rank gets for them. */
typedef struct choice {
    ith_attn_problem problem;
    ith_attn_options options;
    ith_status seen[GROUP_RANKS];
    ith_plan_info infos[GROUP_RANKS], predicted[GROUP_RANKS];
    char sentences[GROUP_RANKS][512], printed[512];
} choice;

static void plan_in_rank(rank_group *g, int rank, void *user)
{
    choice *c = user;
    ith_plan *plan = NULL;
    c->infos[rank] = (ith_plan_info)ITH_PLAN_INFO_INIT;
    c->seen[rank] = ith_plan_create(g->contexts[rank], &c->problem, &c->options, g->comms[rank], &plan);
    snprintf(c->sentences[rank], sizeof c->sentences[rank], "%s", ith_context_error(g->contexts[rank]));
    if (!c->seen[rank])
        ith_plan_describe(plan, &c->infos[rank]);
    ith_attn_options placed = c->options;
    ith_blocks blocks = ith_comm_blocks(g->comms[rank], 0, g->ranks);
    placed.process_ranks = blocks.process_ranks, placed.host_ranks = blocks.host_ranks;
    c->predicted[rank] = (ith_plan_info)ITH_PLAN_INFO_INIT;
    if (!c->seen[rank])
        c->seen[rank] =
            ith_plan_predict(g->contexts[rank], &c->problem, &placed, g->ranks, rank, false, &c->predicted[rank]);
    if (rank == 0)
        ith_plan_print(plan, c->printed, sizeof c->printed);
    ith_plan_destroy(&plan);
}

static choice choose(int64_t heads, const ith_attn_options *options, int ranks)
{
    choice c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = *options};
    rank_group g;
    c.problem.heads = heads, c.problem.head_dim = 8, c.problem.q_len = c.problem.kv_len = 64;
    assert_int_equal(group_create(&g, context, ranks), ITH_OK);
    group_run(&g, plan_in_rank, &c);
    group_destroy(&g);
    return c;
}

/* Checks that a plan and its prediction agree in the members that depend on the places of ranks. */
static void expect_alike(const ith_plan_info *made, const ith_plan_info *predicted)
{
    assert_int_equal(made->strategy, predicted->strategy);
    assert_int_equal(made->ulysses, predicted->ulysses);
    assert_int_equal(made->ring, predicted->ring);
    assert_int_equal(made->exchange, predicted->exchange);
    assert_int_equal(made->chunks, predicted->chunks);
    assert_int_equal(made->sent_bytes, predicted->sent_bytes);
    assert_int_equal(made->memory_bytes, predicted->memory_bytes);
}

static void meshes_follow_hosts_and_exchanges_processes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        int ranks = settle_layout(l);
        options.strategy = l->strategy;
        choice c = choose(l->heads, &options, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            const ith_plan_info *info = &c.infos[rank];
            if (c.seen[rank] || info->ulysses != l->ulysses || info->ring != l->ring || info->exchange != l->exchange)
                fail_msg("%s on %s, rank %d: %d x %d, %s, %s", l->processes, l->hosts, rank, info->ulysses, info->ring,
                         ith_exchange_mode_name(info->exchange), c.sentences[rank]);
            expect_alike(info, &c.predicted[rank]);
        }
    }
}

static void expect_refused(const char *processes, const ith_attn_options *options, const char *words)
{
    const layout l = {.processes = processes, .hosts = "111111"};
    int ranks = settle_layout(&l);
    choice c = choose(12, options, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(c.seen[rank], ITH_ERR_UNSUPPORTED);
        if (!strstr(c.sentences[rank], words))
            fail_msg("'%s' lacks '%s'", c.sentences[rank], words);
    }
}

static void exchanges_that_memory_does_not_allow_are_refused(void **state)
{
    (void)state;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.ulysses = 2;
    options.exchange = ITH_EXCHANGE_IN_PLACE;
    expect_refused("aabb", &options, "exchange is in_place, and these ranks do not share memory: they can use mixed");
    expect_refused("abcd", &options, "exchange is in_place, and these ranks do not share memory: they can use copy");
    options.exchange = ITH_EXCHANGE_MIXED;
    expect_refused("abcd", &options,
                   "exchange is mixed, and the 2 ranks of a ulysses axis do not share memory: they can");
    expect_refused("abbc", &options, "exchange is mixed");
    expect_refused("aaabbb", &options, "exchange is mixed");
}

static void mixed_is_printed(void **state)
{
    (void)state;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    placed_evenly(2, 1);
    choice c = choose(12, &options, 4);
    if (!strstr(c.printed, "ulysses 2 x ring 2, exchange mixed (ulysses in place, ring copied) in 1 chunk, uni"))
        fail_msg("%s", c.printed);
    options.exchange = ITH_EXCHANGE_MIXED; /* with an axis of length 1, `mixed` becomes `copy` or `in_place` */
    options.ulysses = 1;
    assert_int_equal(choose(12, &options, 4).infos[0].exchange, ITH_EXCHANGE_COPY);
    placed_evenly(4, 1);
    options.ulysses = 4;
    assert_int_equal(choose(12, &options, 4).infos[0].exchange, ITH_EXCHANGE_IN_PLACE);
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

typedef struct job {
    attention_case *c;
    ith_status seen[GROUP_RANKS];
    char sentences[GROUP_RANKS][512];
} job;

static void run_in_rank(rank_group *g, int rank, void *user)
{
    job *j = user;
    j->seen[rank] = case_in_rank(g->contexts[rank], g->comms[rank], j->c);
    snprintf(j->sentences[rank], sizeof j->sentences[rank], "%s", ith_context_error(g->contexts[rank]));
}

static void run_case(attention_case *c, int ranks, uint32_t seed)
{
    job j = {.c = c};
    rank_group g;
    assert_int_equal(group_create(&g, context, ranks), ITH_OK);
    group_run(&g, run_in_rank, &j);
    group_destroy(&g);
    for (int rank = 0; rank < ranks; rank++)
        if (j.seen[rank])
            fail_msg("problem %u, rank %d: %s\n%s", seed, rank, j.sentences[rank], c->plan);
}

/* Meshes on which `mixed` is legal, with the numbers of ranks of the first processes. */
static const struct {
    int ulysses, ring, process_ranks[3];
} mixed_meshes[] = {{2, 2, {2}}, {2, 3, {2}}, {3, 2, {3}}, {2, 3, {2, 4}}, {2, 3, {4, 2}}};

static void place_in_processes(const int *process_ranks, int ranks)
{
    for (int rank = 0, process = 0, left = process_ranks[0]; rank < ranks; rank++, left--) {
        if (left == 0) {
            int next = process + 1 < 3 ? process_ranks[process + 1] : 0;
            left = next ? next : process_ranks[0];
            process++;
        }
        placed_process[rank] = placed_host[rank] = process;
    }
}

/* The mixed exchange gives the bits of an exchange by messages, with overlap and without, and of an exchange in place
 * between threads of one process. */
static void mixed_has_the_bits_of_messages(void **state)
{
    (void)state;
    static draw_table table;
    const char *wanted = getenv("ITHACA_PROBLEMS");
    uint32_t problems = wanted ? (uint32_t)atoi(wanted) / 4 : 60;
    uint64_t random = 3;
    draw_init(context, &table);
    for (uint32_t seed = 1; seed <= problems; seed++) {
        attention_case c = random_case(seed, 300);
        drawn_plan plan = draw_plan(&table, &random);
        int mesh = (int)(seed % (sizeof mixed_meshes / sizeof *mixed_meshes)), ranks;
        int64_t rows = c.problem.batch * c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
        size_t bytes = (size_t)(count * ith_dtype_bytes(c.problem.dtype)), lse_bytes = (size_t)rows * sizeof(float);
        float *o = malloc((size_t)count * sizeof *o + 1), *lse = malloc(lse_bytes + 1),
              *lse_bits = malloc(lse_bytes + 1);
        char *bits = malloc(bytes + 1);
        c.problem.replicated_kv = false;
        case_oracle(&c, o, lse);
        c.options = draw_options(&table, &plan, &ranks);
        c.options.strategy = ITH_STRATEGY_ULYSSES_RING;
        c.options.ulysses = mixed_meshes[mesh].ulysses, c.options.ring = mixed_meshes[mesh].ring;
        c.options.kernel = NULL;
        ranks = c.options.ulysses * c.options.ring;
        for (int way = 0; way < 5; way++) {
            static const ith_exchange_mode exchanges[] = {ITH_EXCHANGE_COPY, ITH_EXCHANGE_AUTO, ITH_EXCHANGE_IN_PLACE,
                                                          ITH_EXCHANGE_AUTO, ITH_EXCHANGE_COPY};
            placed_evenly(GROUP_RANKS, 1);
            if (way == 1 || way == 3)
                place_in_processes(mixed_meshes[mesh].process_ranks, ranks);
            c.options.exchange = exchanges[way];
            c.options.overlap = way < 3 ? ITH_CHOICE_AUTO : ITH_CHOICE_OFF;
            run_case(&c, ranks, seed);
            check_result(&c, o, lse, seed);
            if (way == 1 || way == 3)
                assert_non_null(strstr(c.plan, "exchange mixed"));
            assert_true((strstr(c.plan, "not hidden") != NULL) == (way >= 3));
            if (way == 0) {
                memcpy(bits, c.o_bits, bytes);
                memcpy(lse_bits, c.lse, lse_bytes);
                continue;
            }
            if (memcmp(bits, c.o_bits, bytes) || (c.wants_lse && memcmp(lse_bits, c.lse, lse_bytes)))
                fail_msg("problem %u: other bits than by messages\n%s", seed, c.plan);
        }
        free(o), free(lse), free(bits), free(lse_bits);
        case_free(&c);
    }
}

int main(void)
{
    group_connect = placed_group_create;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_follow_hosts_and_exchanges_processes),
        cmocka_unit_test(exchanges_that_memory_does_not_allow_are_refused),
        cmocka_unit_test(mixed_is_printed),
        cmocka_unit_test(mixed_has_the_bits_of_messages),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
