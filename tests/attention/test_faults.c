/* SPDX-License-Identifier: Apache-2.0 */
/* Random faults in the calls of random plans never lead to a crash, a hang, or ITH_OK with wrong numbers. After a fault
 * that the group must survive, the next right execution has the right bits. ITHACA_FAULT_PLANS and ITHACA_FAULTS set
 * the numbers of plans and of faults of each (make check-long: 40 and 1,000). */
#include <omp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "support/fault_subject.h"
#include "support/placed_group.h"
#include "support/socket_group.h"
#include "support/times.h"
#include "support/wire_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define LONGEST 96
#define WATCHDOG_SECONDS 300

typedef enum fault {
    FAULT_ORDER,   /* some ranks execute the other plan */
    FAULT_TENSORS, /* some ranks' tensors are wrong */
    FAULT_DIFFER,  /* one rank's lengths, bias, mask or wish for lse differ */
    FAULT_CANCEL,
    FAULT_THREADS, /* another thread executes a plan of the communicator at the same time */
    FAULT_MAKE,    /* one rank makes a plan, the others execute; or one asks for another plan than the others */
    FAULT_LATE,    /* ranks come late: no fault at all */
    FAULT_DESTROY, /* everything is destroyed, in any order */
    FAULT_LEAVE,   /* one rank destroys its communicator, before the others execute or meanwhile */
    FAULT_ABORT,   /* one rank ends the group, before the others execute or meanwhile */
    FAULTS
} fault;

static const char *const fault_names[FAULTS] = {"another order", "wrong tensors", "tensors that differ", "a cancel",
                                                "two threads",   "a plan made",   "a late rank",         "destruction",
                                                "a rank left",   "an abort"};

/* The arguments of the threads of a fault. */
typedef struct act {
    fault_scene *scene;
    fault fault;
    int kind, subject, odd;
    double delay;
    uint32_t odds; /* a bit for each rank that makes the fault */
    ith_plan *made[GROUP_RANKS];
    atomic_bool odd_waits, intruder_waits, helper_waits, others_wait; /* they are in a call, or near it */
    atomic_int plan;                                                  /* the plan that the others execute */
    ith_status other;                                                 /* the status of the intruding thread */
} act;

static char where[128]; /* the name of the running case, for the watchdog to print */

static void bark(int number)
{
    (void)number;
    static const char message[] = "hangs: ";
    ssize_t written = write(2, message, sizeof message - 1);
    written += write(2, where, strlen(where));
    written += write(2, "\n", 1);
    _exit(written > 0 ? 3 : 4);
}

/* ---- What is expected ------------------------------------------------------------------------------------------ */

/* Checks that all ranks have the same status and the same sentence. With ITH_OK they have the right bits; with an error
 * nothing was written, unless may_write is set. */
static void expect_alike(fault_scene *s, const act *a, bool may_write)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        if (s->seen[rank] != s->seen[0] || strcmp(s->sentences[rank], s->sentences[0]))
            fail_msg("%s: rank 0: %s: %s; rank %d: %s: %s", where, ith_status_name(s->seen[0]), s->sentences[0], rank,
                     ith_status_name(s->seen[rank]), s->sentences[rank]);
        for (int i = 0; i < SUBJECTS; i++) {
            const fault_subject *subject = &s->subjects[i];
            if (!s->seen[rank] && i == a->subject && !fault_is_right(subject, rank))
                fail_msg("%s: ITH_OK with other bits on rank %d", where, rank);
            if (s->seen[rank] && !may_write && !fault_is_untouched(subject, rank))
                fail_msg("%s: rank %d has written, and returned %s", where, rank, ith_status_name(s->seen[rank]));
        }
    }
}

static void expect(fault_scene *s, ith_status status)
{
    if (s->seen[0] != status)
        fail_msg("%s: %s (%s) instead of %s", where, ith_status_name(s->seen[0]), s->sentences[0],
                 ith_status_name(status));
}

static void execute_subject(act *a, int rank, int subject)
{
    ith_attn_tensors tensors = fault_tensors(&a->scene->subjects[subject], rank);
    fault_note(a->scene, rank, ith_plan_execute(a->scene->subjects[subject].plans[rank], &tensors));
}

static bool is_odd(const act *a, int rank)
{
    return a->odds >> rank & 1;
}

/* ---- Faults that the group survives ---------------------------------------------------------------------------- */

static void execute_in_order(rank_group *g, int rank, void *user)
{
    act *a = user;
    (void)g;
    execute_subject(a, rank, is_odd(a, rank) ? 1 - a->subject : a->subject);
}

static void try_order(fault_scene *s, act *a)
{
    uint32_t all = (1u << s->ranks) - 1;
    a->odds &= all;
    if (a->odds == all)
        a->odds = 0;
    group_run(&s->g, execute_in_order, a);
    expect_alike(s, a, false);
    expect(s, a->odds ? ITH_ERR_ARGUMENT : ITH_OK);
}

/* Whether a rank's k has any rows, so that o must not overlap it. */
static bool has_keys(const ith_attn_problem *p, int ranks, int rank)
{
    int64_t begin, rows = p->kv_len;
    if (!p->replicated_kv)
        ith_share(p->kv_len, ranks, rank, &begin, &rows);
    return rows > 0;
}

static void execute_wrong_tensors(rank_group *g, int rank, void *user)
{
    act *a = user;
    const fault_subject *subject = &a->scene->subjects[a->subject];
    ith_attn_tensors t = fault_tensors(subject, rank);
    static int32_t long_lengths[8] = {1 << 30, 1 << 30, -5, -5, -5, -5, -5, -5};
    switch (is_odd(a, rank) ? a->kind : -1) {
    case 0: t.q = NULL; break;
    case 1: t.k = NULL; break;
    case 2: t.v = NULL; break;
    case 3: t.o = NULL; break;
    case 4: t.struct_size = 3; break;
    case 5: t.o = has_keys(&subject->c.problem, g->ranks, rank) ? (void *)t.k : NULL; break;
    case 6: t.k = (const char *)t.k + 1; break;
    case 7: t.kv_lengths = t.kv_lengths ? long_lengths : (const int32_t *)subject->shares[rank].k; break;
    case 8: t.key_bias = t.key_bias ? NULL : (const float *)subject->shares[rank].k; break;
    case 9: t.mask = t.mask ? NULL : subject->shares[rank].k; break;
    default: break;
    }
    bool none = is_odd(a, rank) && a->kind == 10;
    fault_note(a->scene, rank, ith_plan_execute(subject->plans[rank], none ? NULL : &t));
}

static void try_tensors(fault_scene *s, act *a)
{
    a->odds |= 1u << a->odd;
    a->kind = (int)fault_draw(s, 11);
    group_run(&s->g, execute_wrong_tensors, a);
    expect_alike(s, a, false); /* ITH_OK is right too: a rank without rows needs no tensors */
    if (a->kind == 4 || a->kind == 10)
        expect(s, ITH_ERR_ARGUMENT);
}

static size_t mask_bytes(const ith_attn_problem *p)
{
    int64_t rows = (p->mask_batch ? p->mask_batch : 1) * (p->mask_heads ? p->mask_heads : 1) * p->q_len;
    return (size_t)(rows * p->kv_len) * (p->mask == ITH_MASK_BOOL ? 1 : sizeof(float));
}

/* Executes with copies of kv_lengths, key_bias and mask, which must be the same on all ranks. On the odd rank one of
 * them differs, or only this rank asks for lse, or does not. */
static void execute_copies(rank_group *g, int rank, void *user)
{
    act *a = user;
    const fault_subject *subject = &a->scene->subjects[a->subject];
    const ith_attn_problem *p = &subject->c.problem;
    ith_attn_tensors t = fault_tensors(subject, rank);
    bool odd = rank == a->odd;
    size_t sizes[3] = {t.kv_lengths ? (size_t)p->batch * sizeof(int32_t) : 0,
                       t.key_bias ? (size_t)(p->batch * p->kv_len) * sizeof(float) : 0, t.mask ? mask_bytes(p) : 0};
    unsigned char *copies[3];
    const void *const whole[3] = {t.kv_lengths, t.key_bias, t.mask};
    (void)g;
    for (int i = 0; i < 3; i++) {
        copies[i] = malloc(sizes[i] + 16);
        if (sizes[i])
            memcpy(copies[i], whole[i], sizes[i]);
    }
    if (odd && a->kind == 0 && t.kv_lengths)
        *(int32_t *)(void *)copies[0] = t.kv_lengths[0] ? t.kv_lengths[0] - 1 : (int32_t)ith_min64(p->kv_len, 1);
    if (odd && a->kind > 0 && a->kind < 3 && sizes[a->kind])
        copies[a->kind][sizes[a->kind] / 2] ^= 1;
    if (odd && a->kind == 3)
        t.lse = t.lse ? NULL : subject->shares[rank].lse;
    t.kv_lengths = t.kv_lengths ? (const int32_t *)(void *)copies[0] : NULL;
    t.key_bias = t.key_bias ? (const float *)(void *)copies[1] : NULL;
    t.mask = t.mask ? copies[2] : NULL;
    fault_note(a->scene, rank, ith_plan_execute(subject->plans[rank], &t));
    for (int i = 0; i < 3; i++)
        free(copies[i]);
}

static void try_differ(fault_scene *s, act *a)
{
    const ith_attn_problem *p = &s->subjects[a->subject].c.problem;
    bool lengths = p->has_kv_lengths && p->kv_len > 0, bias = p->has_key_bias && p->kv_len > 0;
    bool there[4] = {lengths, bias, p->mask && mask_bytes(p) > 0, true};
    a->kind = (int)fault_draw(s, 4);
    a->odd = s->ranks > 1 ? a->odd : -1; /* nothing can differ on a single rank */
    group_run(&s->g, execute_copies, a);
    expect_alike(s, a, false);
    expect(s, s->ranks > 1 && there[a->kind] ? ITH_ERR_ARGUMENT : ITH_OK);
}

static void *cancel_later(void *argument)
{
    act *a = argument;
    nap(a->delay);
    ith_plan_cancel(a->scene->subjects[a->subject].plans[a->odd]);
    return NULL;
}

static void execute_plainly(rank_group *g, int rank, void *user)
{
    act *a = user;
    (void)g;
    execute_subject(a, rank, a->subject);
}

static void try_cancel(fault_scene *s, act *a)
{
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_later, a);
    group_run(&s->g, execute_plainly, a);
    pthread_join(thread, NULL);
    expect_alike(s, a, true);
    expect(s, s->seen[0] ? ITH_ERR_INTERRUPTED : ITH_OK);
    if (s->seen[0]) /* this execution was cancelled, so the next one is not */
        return;
    group_run(&s->g, execute_plainly, a); /* the cancel came too late, and ends the next execution */
    expect_alike(s, a, true);
    expect(s, ITH_ERR_INTERRUPTED);
}

/* Executes a plan of the odd rank, with outputs that nothing else uses. */
static ith_status execute_aside(const act *a, int plan)
{
    const fault_subject *subject = &a->scene->subjects[plan];
    const fault_share *share = &subject->shares[a->odd];
    ith_attn_tensors t = fault_tensors(subject, a->odd);
    t.o = malloc(share->o_bytes + 64);
    memset(t.o, POISON, share->o_bytes);
    float *lse = malloc(share->lse_bytes + 64);
    t.lse = t.lse ? lse : NULL;
    ith_status status = ith_plan_execute(subject->plans[a->odd], &t);
    if (!status && memcmp(t.o, share->right_o, share->o_bytes))
        status = ITH_ERR_INTERNAL;
    free(t.o), free(lse);
    return status;
}

static void *intrude(void *argument)
{
    act *a = argument;
    omp_set_num_threads(1);
    nap(a->delay);
    a->other = execute_aside(a, a->kind);
    atomic_store(&a->intruder_waits, false);
    return NULL;
}

static void *be_odd(void *argument)
{
    act *a = argument;
    omp_set_num_threads(1);
    execute_subject(a, a->odd, a->subject);
    atomic_store(&a->odd_waits, false);
    return NULL;
}

static void execute_but_odd(rank_group *g, int rank, void *user)
{
    act *a = user;
    (void)g;
    if (rank != a->odd)
        execute_subject(a, rank, atomic_load(&a->plan));
}

static void *be_others(void *argument)
{
    act *a = argument;
    group_run(&a->scene->g, execute_but_odd, a);
    atomic_store(&a->others_wait, false);
    return NULL;
}

static void *be_helper(void *argument)
{
    act *a = argument;
    omp_set_num_threads(1);
    execute_aside(a, atomic_load(&a->plan));
    atomic_store(&a->helper_waits, false);
    return NULL;
}

/* Starts a function again in a thread, after its last run in this thread has ended. */
static void start(pthread_t *thread, atomic_bool *runs, void *(*function)(void *), act *a)
{
    pthread_join(*thread, NULL);
    atomic_store(runs, true);
    pthread_create(thread, NULL, function, a);
}

/* If one side waits alone for a while, the other side helps it to go on: the other ranks help the odd rank's threads,
 * and one more thread of the odd rank helps the other ranks. */
static void help_each_other(act *a, pthread_t *others)
{
    pthread_t helper;
    atomic_store(&a->helper_waits, true);
    pthread_create(&helper, NULL, be_helper, a);
    for (int quiet = 0;; nap(0.001)) {
        bool odd = atomic_load(&a->odd_waits), intruder = atomic_load(&a->intruder_waits);
        bool helps = atomic_load(&a->helper_waits), waits = atomic_load(&a->others_wait);
        if (!odd && !intruder && !helps && !waits)
            break;
        quiet = (odd || intruder || helps) != waits ? quiet + 1 : 0;
        if (quiet < 8)
            continue;
        quiet = 0;
        if (waits) {
            start(&helper, &a->helper_waits, be_helper, a);
            continue;
        }
        if (odd || intruder)
            atomic_store(&a->plan, odd ? a->subject : a->kind);
        start(others, &a->others_wait, be_others, a);
    }
    pthread_join(helper, NULL);
}

static void try_threads(fault_scene *s, act *a)
{
    pthread_t odd, intruder, others;
    a->kind = (int)fault_draw(s, SUBJECTS);
    atomic_store(&a->plan, a->subject);
    atomic_store(&a->odd_waits, true);
    atomic_store(&a->intruder_waits, true);
    atomic_store(&a->others_wait, true);
    pthread_create(&others, NULL, be_others, a);
    pthread_create(&odd, NULL, be_odd, a);
    pthread_create(&intruder, NULL, intrude, a);
    help_each_other(a, &others);
    pthread_join(others, NULL);
    pthread_join(odd, NULL);
    pthread_join(intruder, NULL);
    if (a->other && a->other != ITH_ERR_ARGUMENT)
        fail_msg("%s: the other thread got %s", where, ith_status_name(a->other));
    if (s->seen[a->odd] && s->seen[a->odd] != ITH_ERR_ARGUMENT)
        fail_msg("%s: %s", where, s->sentences[a->odd]);
    for (int rank = 0; rank < s->ranks; rank++)
        if (!s->seen[rank] && rank == a->odd && !fault_is_right(&s->subjects[a->subject], rank))
            fail_msg("%s: other bits on rank %d", where, rank);
}

static void make_in_rank(rank_group *g, int rank, void *user)
{
    act *a = user;
    const fault_subject *subject = &a->scene->subjects[a->subject];
    ith_attn_problem problem = subject->problem;
    bool odd = rank == a->odd;
    if (!odd && a->kind == 0) {
        execute_subject(a, rank, a->subject);
        return;
    }
    if (odd && a->kind == 1)
        problem.head_dim = -1;
    if (odd && a->kind == 2)
        problem.scale = 0.75f;
    fault_note(a->scene, rank,
               ith_plan_create(g->contexts[rank], &problem, &subject->options, g->comms[rank], &a->made[rank]));
}

static void try_make(fault_scene *s, act *a)
{
    a->kind = (int)fault_draw(s, 3);
    group_run(&s->g, make_in_rank, a);
    bool made = s->ranks == 1 && a->kind != 1;
    for (int rank = 0; rank < s->ranks; rank++) {
        if (!s->seen[rank] != made || (a->made[rank] != NULL) != made || strcmp(s->sentences[rank], s->sentences[0]))
            fail_msg("%s: rank %d: %s: %s", where, rank, ith_status_name(s->seen[rank]), s->sentences[rank]);
        ith_plan_destroy(&a->made[rank]);
    }
}

static void execute_late(rank_group *g, int rank, void *user)
{
    act *a = user;
    (void)g;
    if (is_odd(a, rank))
        nap(a->delay);
    execute_subject(a, rank, a->subject);
}

static void try_late(fault_scene *s, act *a)
{
    group_run(&s->g, execute_late, a);
    expect_alike(s, a, false);
    expect(s, ITH_OK);
}

/* ---- Faults that end the group --------------------------------------------------------------------------------- */

/* Checks that ranks that got ITH_OK have the right bits. */
static void expect_no_lies(fault_scene *s, const act *a)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        if (rank == a->odd)
            continue;
        if (!s->seen[rank] && !fault_is_right(&s->subjects[a->subject], rank))
            fail_msg("%s: ITH_OK with other bits on rank %d", where, rank);
        if (s->seen[rank] && !s->sentences[rank][0])
            fail_msg("%s: rank %d got %s without a word", where, rank, ith_status_name(s->seen[rank]));
    }
}

static void try_destroy(fault_scene *s, act *a)
{
    int things = (2 + SUBJECTS) * s->ranks;
    while (things > 0) {
        int kind = (int)fault_draw(s, 2 + SUBJECTS), rank = (int)fault_draw(s, (uint32_t)s->ranks);
        ith_plan **plan = kind >= 2 ? &s->subjects[kind - 2].plans[rank] : NULL;
        bool there = plan ? *plan != NULL : kind ? s->g.comms[rank] != NULL : s->g.contexts[rank] != NULL;
        things -= there;
        if (!there)
            continue;
        if (plan && !s->g.comms[rank]) {
            ith_attn_tensors t = fault_tensors(&s->subjects[kind - 2], rank);
            assert_int_equal(ith_plan_execute(*plan, &t), ITH_ERR_ARGUMENT);
        }
        if (plan)
            ith_plan_destroy(plan);
        else if (kind)
            ith_comm_destroy(&s->g.comms[rank]);
        else
            ith_context_destroy(&s->g.contexts[rank]);
    }
    s->root = NULL;
    (void)a;
}

static void *leave_later(void *argument)
{
    act *a = argument;
    nap(a->delay);
    ith_comm_destroy(&a->scene->g.comms[a->odd]);
    return NULL;
}

static void execute_or_go(rank_group *g, int rank, void *user)
{
    act *a = user;
    if (rank != a->odd || a->kind == 0) {
        execute_subject(a, rank, a->subject);
        return;
    }
    nap(a->delay);
    if (a->fault == FAULT_ABORT)
        ith_comm_abort(g->comms[rank], ITH_ERR_IO);
    else
        ith_comm_destroy(&g->comms[rank]);
}

/* kind 0: another thread destroys the communicator while the rank executes as well. */
static void try_leave(fault_scene *s, act *a)
{
    pthread_t thread;
    a->kind = a->fault == FAULT_LEAVE ? (int)fault_draw(s, 2) : 1;
    if (a->kind == 0)
        pthread_create(&thread, NULL, leave_later, a);
    group_run(&s->g, execute_or_go, a);
    if (a->kind == 0)
        pthread_join(thread, NULL);
    expect_no_lies(s, a);
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

static void (*const tries[FAULTS])(fault_scene *s, act *a) = {
    try_order, try_tensors, try_differ, try_cancel, try_threads, try_make, try_late, try_destroy, try_leave, try_leave};

static void try_fault(fault_scene *s, int plan, int number)
{
    static const double delays[] = {0, 1e-5, 5e-5, 2e-4, 1e-3};
    act a = {.scene = s, .fault = (fault)fault_draw(s, FAULTS)};
    a.subject = (int)fault_draw(s, SUBJECTS);
    a.odd = (int)fault_draw(s, (uint32_t)s->ranks);
    a.odds = fault_draw(s, 1u << s->ranks);
    a.delay = delays[fault_draw(s, 5)] * (double)(1 + fault_draw(s, 4));
    snprintf(where, sizeof where, "plan %d, fault %d, %d ranks, %s", plan, number, s->ranks, fault_names[a.fault]);
    alarm(WATCHDOG_SECONDS);
    for (int i = 0; i < SUBJECTS; i++)
        fault_poison(&s->subjects[i], s->ranks);
    tries[a.fault](s, &a);
    if (a.fault >= FAULT_DESTROY) {
        if (s->root)
            fault_group_destroy(s);
        fault_group_create(s);
    }
    fault_expect_right(s, where);
    alarm(0);
}

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void nothing_goes_wrong_in_silence(void **state)
{
    (void)state;
    static draw_table table;
    int plans = number_from("ITHACA_FAULT_PLANS", 12), faults = number_from("ITHACA_FAULTS", 12);
    uint32_t seed = (uint32_t)number_from("ITHACA_FAULT_SEED", 1);
    uint64_t random = seed;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    draw_init(context, &table);
    ith_context_destroy(&context);
    signal(SIGALRM, bark);
    for (int plan = 0; plan < plans; plan++) {
        fault_scene s = {.random = seed + (uint32_t)plan * 7919u};
        for (int i = 0; i < SUBJECTS; i++) {
            int ranks = 0;
            drawn_plan drawn = draw_plan(&table, &random);
            ith_attn_options options = draw_options(&table, &drawn, &ranks);
            if (i == 0)
                s.ranks = ranks;
            draw_mark(&table, &drawn);
            if (i > 0 && ranks != s.ranks) { /* the second plan has as many ranks as the first */
                options.strategy = ITH_STRATEGY_AUTO;
                options.ulysses = options.ring = 0;
                options.exchange = s.ranks == 1 ? ITH_EXCHANGE_AUTO : options.exchange;
            }
            if (group_connect == socket_group_create)
                options.exchange = ITH_EXCHANGE_COPY;
            if ((group_connect == placed_group_create || group_connect == wire_group_create) &&
                options.exchange != ITH_EXCHANGE_COPY)
                options.exchange = ITH_EXCHANGE_AUTO;
            s.subjects[i].options = options;
        }
        for (int i = 0; i < SUBJECTS; i++)
            fault_subject_create(&s.subjects[i], seed * 1000u + (uint32_t)(plan * SUBJECTS + i), LONGEST, s.ranks);
        fault_group_create(&s);
        fault_learn(&s);
        for (int number = 0; number < faults; number++)
            try_fault(&s, plan, number);
        fault_group_destroy(&s);
        for (int i = 0; i < SUBJECTS; i++)
            fault_subject_destroy(&s.subjects[i], s.ranks);
    }
    print_message("%d plans, %d faults each\n", plans, faults);
}

/* Without an argument, ranks are threads of one process. With "sockets", sockets connect them. With "processes" and
 * "wire" they behave as if each two of them ran in a process of their own; with "wire" on the transport over links. */
int main(int argc, char **argv)
{
    placed_evenly(2, 1);
    wire_group_each = 2;
    if (argc > 1)
        group_connect = !strcmp(argv[1], "processes") ? placed_group_create
                        : !strcmp(argv[1], "wire")    ? wire_group_create
                                                      : socket_group_create;
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_goes_wrong_in_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
