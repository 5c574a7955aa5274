/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a sub-group: error messages name ranks by their numbers in the whole group, and name the hosts if there are
 * several. */
#include "support/fixture.h"
#include "support/told_group.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 4, ODD = 3, HEADS = 2, DIM = 8, LENGTH = 16, SENTENCE = 1024 };

/* ---- Ranks on hosts -------------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 on host a, 2 and 3 on host b. */
static void tell_place(void *state, int rank, ith_place *place)
{
    const int there = told_world_rank(state, rank);
    place->host = there / 2;
    snprintf(place->name, sizeof place->name, "%s", there / 2 ? "b" : "a");
}

/* ---- Calls that ranks refuse together -------------------------------------------------------------------------- */

typedef enum mishap {
    WRONG_HEADS,
    OTHER_HEADS,
    OTHER_PLAN,
    NO_K,
    NO_LSE,
    OTHER_LENGTHS,
    OTHER_BIAS,
    OTHER_MASK,
    CANCELLED_BEFORE,
    CANCELLED_WITHIN
} mishap;

/* The error message after a mishap of rank 3 in the sub-group of ranks 1 and 3. It is made of begin, the name of rank
 * 3, between, the name of rank 1 (if names_first is set), and end. */
static const struct {
    const char *begin, *between;
    bool names_first;
    const char *end;
} sentences[] = {
    [WRONG_HEADS] = {"", ": heads is -1", false, ""},
    [OTHER_HEADS] = {"heads is 4 on ", " and 2 on ", true, ": every rank must ask for the same"},
    [OTHER_PLAN] = {"", " is in execution 1 of plan 2, and ", true, " is in execution 1 of plan 1: "},
    [NO_K] = {"", ": k is NULL", false, ""},
    [NO_LSE] = {"lse must be given on every rank or on none: ", " has none, ", true, " has it"},
    [OTHER_LENGTHS] = {"kv_lengths on ", " differs from kv_lengths on ", true, ": "},
    [OTHER_BIAS] = {"key_bias on ", " differs from key_bias on ", true, ": "},
    [OTHER_MASK] = {"mask on ", " differs from mask on ", true, ": "},
    [CANCELLED_BEFORE] = {"", ": cancelled", false, ""},
    [CANCELLED_WITHIN] = {"", ": cancelled", false, ""},
};

typedef struct scene {
    mishap mishap;
    ith_status seen[RANKS];
    char told[RANKS][SENTENCE];
} scene;

/* The plan that this thread's pool cancels when it runs tasks. */
static _Thread_local ith_plan *to_cancel;

static void run_tasks(void *user, int threads, ith_task_fn task, void *task_user)
{
    (void)user;
    ith_plan_cancel(to_cancel);
    for (int i = 0; i < threads; i++)
        task(task_user, i);
}

static void execute(scene *s, bool odd, ith_plan *const plans[2], int rank, const ith_context *own)
{
    float rows[3][LENGTH * HEADS * DIM] = {{0}}, bias[LENGTH] = {0}, lse[LENGTH * HEADS], o[LENGTH * HEADS * DIM];
    uint8_t mask[LENGTH * LENGTH];
    int32_t lengths = odd && s->mishap == OTHER_LENGTHS ? LENGTH - 1 : LENGTH;
    memset(mask, 1, sizeof mask);
    mask[0] = !(odd && s->mishap == OTHER_MASK);
    bias[0] = odd && s->mishap == OTHER_BIAS;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    tensors.q = rows[0], tensors.k = odd && s->mishap == NO_K ? NULL : rows[1], tensors.v = rows[2], tensors.o = o;
    tensors.lse = odd && s->mishap == NO_LSE ? NULL : lse;
    tensors.kv_lengths = &lengths, tensors.key_bias = bias, tensors.mask = mask;
    if (odd && s->mishap == CANCELLED_BEFORE)
        ith_plan_cancel(plans[0]);
    if (odd && s->mishap == CANCELLED_WITHIN)
        to_cancel = plans[0];
    s->seen[rank] = ith_plan_execute(plans[odd && s->mishap == OTHER_PLAN], &tensors);
    to_cancel = NULL;
    snprintf(s->told[rank], SENTENCE, "%s", ith_context_error(own));
}

static void suffer(rank_group *g, int rank, void *user)
{
    scene *s = user;
    const bool odd = rank == ODD;
    ith_context *own = g->contexts[rank];
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plans[2] = {NULL};
    ith_comm *part = NULL;
    problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    problem.has_kv_lengths = problem.has_key_bias = true, problem.mask = ITH_MASK_BOOL;
    options.threads = 2;
    if (odd && s->mishap <= OTHER_HEADS)
        problem.heads = s->mishap == OTHER_HEADS ? 4 : -1;
    s->seen[rank] = ith_comm_split(g->comms[rank], rank % 2, 0, &part);
    for (int i = 0; i < 2 && !s->seen[rank]; i++)
        s->seen[rank] = ith_plan_create(own, &problem, &options, part, &plans[i]);
    snprintf(s->told[rank], SENTENCE, "%s", ith_context_error(own));
    if (!s->seen[rank])
        execute(s, odd, plans, rank, own);
    for (int i = 0; i < 2; i++)
        ith_plan_destroy(&plans[i]);
    ith_comm_destroy(&part);
}

static void expect_names(mishap m, bool on_hosts)
{
    scene s = {.mishap = m};
    rank_group g;
    ith_context *root = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    char expected[SENTENCE];
    options.parallel = run_tasks;
    snprintf(expected, sizeof expected, "%srank 3%s%s%s%s%s", sentences[m].begin, on_hosts ? " (host b)" : "",
             sentences[m].between, sentences[m].names_first ? "rank 1" : "",
             sentences[m].names_first && on_hosts ? " (host a)" : "", sentences[m].end);
    check(NULL, ith_context_create(&options, &root));
    told_place = tell_place;
    group_connect = on_hosts ? told_group_create : ith_comm_create_local;
    check(root, group_create(&g, root, RANKS));
    group_connect = ith_comm_create_local;
    group_run(&g, suffer, &s);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.seen[rank], rank % 2 == 0           ? ITH_OK
                                       : m >= CANCELLED_BEFORE ? ITH_ERR_INTERRUPTED
                                                               : ITH_ERR_ARGUMENT);
        if (rank % 2 && strncmp(s.told[rank], expected, strlen(expected)) != 0)
            fail_msg("'%s' does not begin with '%s'", s.told[rank], expected);
    }
    group_destroy(&g);
    ith_context_destroy(&root);
}

static void sentences_name_ranks_of_the_whole_group(void **state)
{
    (void)state;
    for (int m = WRONG_HEADS; m <= CANCELLED_WITHIN; m++)
        expect_names((mishap)m, false);
}

static void sentences_name_hosts(void **state)
{
    (void)state;
    for (int m = WRONG_HEADS; m <= CANCELLED_WITHIN; m++)
        expect_names((mishap)m, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_ranks_of_the_whole_group),
        cmocka_unit_test(sentences_name_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
