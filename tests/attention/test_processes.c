/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes, connected by examples/socket_transport.h. Plans of every strategy give the same bits as on
 * ranks that are threads. Whatever happens to one rank, the others never crash, hang, or return ITH_OK with wrong
 * numbers. ITHACA_FAULT_PLANS sets the number of plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "socket_meeting.h"
#include "support/fault_subject.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/socket_group.h"
#include "support/times.h"

#include <omp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGEST 96
#define ROUNDS 12
#define LIMIT_SECONDS 1.0 /* time limit of the other ranks if one is stopped */
#define EXIT_TOO_LATE 3
#define MOST_SECONDS 100     /* most time from a fault to the end of the other ranks */
#define WATCHDOG_SECONDS 300 /* most time of each process */

/* The faults that the group survives, up to LAST_LIVED, and then the faults that end it. */
typedef enum fault {
    FAULT_LATE,    /* a rank comes late: no fault at all */
    FAULT_TENSORS, /* a rank's tensors are wrong */
    FAULT_ORDER,   /* a rank executes the other plan */
    FAULT_CANCEL,
    FAULT_MEMORY, /* a rank has no memory for a new plan */
    FAULT_KILL,   /* a process gets SIGKILL */
    FAULT_EXIT,   /* a process exits without a message to the others */
    FAULT_STOP,   /* a process gets SIGSTOP, and gives no sign of life */
    FAULT_ABORT,
    FAULT_LEAVE, /* a rank destroys its communicator */
    FAULTS
} fault;
#define LAST_LIVED FAULT_MEMORY

static const char *const fault_names[FAULTS] = {"a late rank", "wrong tensors", "another order",        "a cancel",
                                                "no memory",   "SIGKILL",       "the end of a process", "SIGSTOP",
                                                "an abort",    "a rank left"};

/* The outcome of one fault in one process. */
typedef struct sight {
    ith_status status;
    bool wrong; /* ITH_OK with other bits, or an error after which outputs are changed */
    double seconds;
    char sentence[FAULT_SENTENCE];
} sight;

/* Shared by all processes of a test. */
typedef struct board {
    sight sights[ROUNDS][GROUP_RANKS];
    fault faults[ROUNDS];
    int odd[ROUNDS];
    _Atomic pid_t stopped;
    atomic_int planned; /* number of ranks that have made their plans */
} board;

typedef struct scene {
    fault_scene base; /* without its group of threads, which is not used */
    board *board;
    fault ending; /* the fault that ends the group; FAULT_LATE: none */
    int odd;
    double delay;
} scene;

static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* ---- A rank's process ------------------------------------------------------------------------------------------ */

typedef struct member {
    scene *scene;
    int rank;
    ith_context *context;
    ith_comm *comm;
    ith_plan *plans[SUBJECTS];
} member;

static ith_status execute(member *m, int subject, bool wrong_tensors)
{
    ith_attn_tensors tensors = fault_tensors(&m->scene->base.subjects[subject], m->rank);
    if (wrong_tensors)
        tensors.struct_size = 3;
    return ith_plan_execute(m->plans[subject], &tensors);
}

static void see(member *m, int round, int subject, ith_status status, bool may_write)
{
    const fault_subject *x = &m->scene->base.subjects[subject];
    sight *s = &m->scene->board->sights[round][m->rank];
    s->status = status;
    s->wrong = status ? !may_write && !fault_is_untouched(x, m->rank) : !fault_is_right(x, m->rank);
    snprintf(s->sentence, sizeof s->sentence, "%s", status ? ith_context_error(m->context) : "");
}

static int complain(const member *m, const char *what, ith_status status)
{
    fprintf(stderr, "rank %d, %s: %s: %s\n", m->rank, what, ith_status_name(status), ith_context_error(m->context));
    return 1;
}

typedef struct cancel {
    pthread_t thread;
    ith_plan *plan;
    double delay;
} cancel;

static void *cancel_later(void *argument)
{
    cancel *c = argument;
    nap(c->delay);
    ith_plan_cancel(c->plan);
    return NULL;
}

/* Makes a plan. On the odd rank allocations fail after the first `refuse`. */
static ith_status plan_without_memory(member *m, int subject, bool odd, long refuse)
{
    const fault_subject *x = &m->scene->base.subjects[subject];
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, odd ? refuse : -1);
    ith_plan *plan = NULL;
    if (!context)
        return ITH_ERR_INTERNAL;
    ith_status status = ith_plan_create(context, &x->problem, &x->options, m->comm, &plan);
    snprintf(m->scene->board->sights[0][m->rank].sentence, FAULT_SENTENCE, "%s", ith_context_error(context));
    ith_plan_destroy(&plan);
    ith_context_destroy(&context);
    return status;
}

/* Makes a fault that the group survives. All processes draw the same random numbers. */
static void try_fault(member *m, int round, uint64_t *random)
{
    scene *s = m->scene;
    fault kind = (fault)random_below(random, LAST_LIVED + 1);
    int odd = (int)random_below(random, (uint32_t)s->base.ranks), subject = (int)random_below(random, SUBJECTS);
    double delay = 1e-5 * (double)random_below(random, 200);
    long refuse = 1 + (long)random_below(random, 40);
    bool is_odd = m->rank == odd;
    cancel c = {.plan = m->plans[subject], .delay = delay};
    s->board->faults[round] = kind;
    s->board->odd[round] = odd;
    for (int i = 0; i < SUBJECTS; i++)
        fault_poison(&s->base.subjects[i], s->base.ranks);
    if (kind == FAULT_LATE && is_odd)
        nap(delay);
    if (kind == FAULT_CANCEL && is_odd)
        pthread_create(&c.thread, NULL, cancel_later, &c);
    if (kind == FAULT_MEMORY) {
        ith_status status = plan_without_memory(m, subject, is_odd, refuse);
        s->board->sights[round][m->rank].status = status;
        return;
    }
    ith_status status =
        execute(m, kind == FAULT_ORDER && is_odd ? 1 - subject : subject, kind == FAULT_TENSORS && is_odd);
    see(m, round, subject, status, kind == FAULT_CANCEL);
    if (kind == FAULT_CANCEL && is_odd)
        pthread_join(c.thread, NULL);
    if (kind == FAULT_CANCEL && !status) /* the cancel came too late, and may end the next execution */
        execute(m, subject, false);
}

/* Returns whether both plans give the right bits. */
static bool all_right(member *m)
{
    for (int i = 0; i < SUBJECTS; i++) {
        fault_poison(&m->scene->base.subjects[i], m->scene->base.ranks);
        ith_status status = execute(m, i, false);
        if (status)
            return complain(m, "a right execution", status), false;
        if (!fault_is_right(&m->scene->base.subjects[i], m->rank))
            return fprintf(stderr, "rank %d: plan %d gives other bits\n", m->rank, i), false;
    }
    return true;
}

static void *end_later(void *argument)
{
    member *m = argument;
    nap(m->scene->delay);
    switch (m->scene->ending) {
    case FAULT_KILL: kill(getpid(), SIGKILL); break;
    case FAULT_EXIT: _exit(0); break;
    case FAULT_STOP:
        atomic_store(&m->scene->board->stopped, getpid());
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_ABORT: ith_comm_abort(m->comm, ITH_ERR_IO); break;
    default: ith_comm_destroy(&m->comm); break;
    }
    return NULL;
}

/* Executes until something ends the group. */
static void meet_the_end(member *m)
{
    pthread_t thread;
    bool odd = m->rank == m->scene->odd;
    double start = ith_clock_seconds();
    ith_status status = ITH_OK;
    if (odd)
        pthread_create(&thread, NULL, end_later, m);
    for (int n = 0; !status && ith_clock_seconds() < start + 2 * WATCHDOG_SECONDS; n++) {
        fault_poison(&m->scene->base.subjects[n % SUBJECTS], m->scene->base.ranks);
        status = execute(m, n % SUBJECTS, false);
        see(m, 0, n % SUBJECTS, status, true);
        if (m->scene->board->sights[0][m->rank].wrong)
            break;
    }
    m->scene->board->sights[0][m->rank].seconds = ith_clock_seconds() - start;
    if (odd)
        pthread_join(thread, NULL);
    pid_t stopped = atomic_exchange(&m->scene->board->stopped, 0);
    if (stopped)
        kill(stopped, SIGKILL);
}

static board *watched;

/* Called when the time is over. Kills the stopped process, for which its parent would wait for ever, and exits. */
static void bark(int number)
{
    (void)number;
    pid_t stopped = atomic_exchange(&watched->stopped, 0);
    if (stopped)
        kill(stopped, SIGKILL);
    _exit(EXIT_TOO_LATE);
}

/* Waits until every rank has made its plans: a rank that ended earlier would end the planning of the others. */
static void wait_for_plans(member *m)
{
    atomic_int *planned = &m->scene->board->planned;
    atomic_fetch_add(planned, 1);
    while (atomic_load(planned) < m->scene->base.ranks)
        nap(1e-4);
}

static int be_rank(int rank, const char *folder, void *user)
{
    scene *s = user;
    member m = {.scene = s, .rank = rank};
    uint64_t random = s->base.random;
    int failed = 0;
    watched = s->board;
    signal(SIGALRM, bark);
    alarm(WATCHDOG_SECONDS);
    omp_set_num_threads(1 + rank % 2);
    if (ith_context_create(NULL, &m.context))
        return 1;
    m.comm = socket_group_join(m.context, folder, rank, s->base.ranks);
    if (!m.comm)
        return 1;
    for (int i = 0; i < SUBJECTS && !failed; i++) {
        ith_status status =
            ith_plan_create(m.context, &s->base.subjects[i].problem, &s->base.subjects[i].options, m.comm, &m.plans[i]);
        failed = status ? complain(&m, "planning", status) : 0;
    }
    if (!failed)
        wait_for_plans(&m);
    /* The limit holds for plans that were made before, too. */
    ith_comm_set_timeout(m.comm, s->ending == FAULT_STOP ? LIMIT_SECONDS : WATCHDOG_SECONDS);
    if (s->ending == FAULT_LATE && !failed)
        failed = !all_right(&m);
    if (s->ending != FAULT_LATE && !failed)
        meet_the_end(&m);
    for (int round = 0; s->ending == FAULT_LATE && round < ROUNDS && !failed; round++) {
        try_fault(&m, round, &random);
        failed = !all_right(&m);
    }
    for (int i = 0; i < SUBJECTS; i++)
        ith_plan_destroy(&m.plans[i]);
    ith_comm_destroy(&m.comm);
    ith_context_destroy(&m.context);
    return failed;
}

/* ---- What is expected ------------------------------------------------------------------------------------------ */

static void expect_lived(const scene *s, int plan)
{
    static const ith_status errors[] = {ITH_OK, ITH_ERR_ARGUMENT, ITH_ERR_ARGUMENT, ITH_ERR_INTERRUPTED,
                                        ITH_ERR_MEMORY};
    for (int round = 0; round < ROUNDS; round++) {
        fault kind = s->board->faults[round];
        const sight *first = &s->board->sights[round][0];
        bool certain = kind == FAULT_TENSORS || kind == FAULT_ORDER;
        for (int rank = 0; rank < s->base.ranks; rank++) {
            const sight *here = &s->board->sights[round][rank];
            if (here->wrong || here->status != first->status || (here->status && here->status != errors[kind]) ||
                (certain && !here->status))
                fail_msg("plan %d, round %d, %s on rank %d: rank %d: %s%s (%s); rank 0: %s", plan, round,
                         fault_names[kind], s->board->odd[round], rank, ith_status_name(here->status),
                         here->wrong ? " with wrong numbers" : "", here->sentence, ith_status_name(first->status));
        }
    }
}

static void expect_ended(const scene *s, int plan)
{
    char words[32];
    ith_status expected = ITH_ERR_ABORTED;
    snprintf(words, sizeof words, "rank %d", s->odd);
    if (s->ending == FAULT_ABORT)
        expected = ITH_ERR_IO;
    if (s->ending == FAULT_STOP) { /* a rank may name another rank that itself waits for the stopped one */
        expected = ITH_ERR_TIMEOUT;
        snprintf(words, sizeof words, "no sign of life");
    }
    for (int rank = 0; rank < s->base.ranks; rank++) {
        const sight *here = &s->board->sights[0][rank];
        if (rank == s->odd)
            continue;
        if (here->wrong || here->status != expected || !strstr(here->sentence, words) || here->seconds > MOST_SECONDS)
            fail_msg("plan %d, %s of rank %d: rank %d: %s%s after %.3f s (%s)", plan, fault_names[s->ending], s->odd,
                     rank, ith_status_name(here->status), here->wrong ? " with wrong numbers" : "", here->seconds,
                     here->sentence);
    }
}

/* ---- Scenes ---------------------------------------------------------------------------------------------------- */

/* Computes the right results on ranks that are threads. This runs in a process of its own, because the test's process
 * must have no threads before it forks. */
static int learn(int rank, const char *folder, void *user)
{
    fault_scene *s = &((scene *)user)->base;
    (void)rank, (void)folder;
    fault_group_create(s);
    fault_learn(s); /* compares them with float64, too */
    fault_group_destroy(s);
    return 0;
}

static void make_scene(scene *s, draw_table *table, uint64_t *random, int plan)
{
    *s = (scene){.base = {.random = (uint64_t)plan * 7919u}, .board = shared_memory(sizeof *s->board)};
    for (int i = 0; i < SUBJECTS; i++) {
        int ranks = 1;
        ith_attn_options options;
        drawn_plan drawn;
        do {
            drawn = draw_plan(table, random);
            options = draw_options(table, &drawn, &ranks);
        } while (i == 0 && ranks == 1);
        draw_mark(table, &drawn);
        if (i == 0)
            s->base.ranks = ranks;
        if (ranks != s->base.ranks) {
            options.strategy = ITH_STRATEGY_AUTO;
            options.ulysses = options.ring = 0;
        }
        options.exchange = ITH_EXCHANGE_COPY;
        s->base.subjects[i].options = options;
        fault_subject_create(&s->base.subjects[i], (uint32_t)(plan * SUBJECTS + i), LONGEST, s->base.ranks);
        for (int rank = 0; rank < s->base.ranks; rank++) {
            fault_share *x = &s->base.subjects[i].shares[rank];
            free(x->right_o), free(x->right_lse);
            x->right_o = shared_memory(x->o_bytes + 1);
            x->right_lse = shared_memory(x->lse_bytes + 1);
        }
    }
    int status;
    if (socket_run_processes(1, learn, s, &status))
        fail_msg("plan %d: ranks that are threads: status %x", plan, (unsigned)status);
}

static void free_scene(scene *s)
{
    for (int i = 0; i < SUBJECTS; i++) {
        for (int rank = 0; rank < s->base.ranks; rank++) {
            fault_share *x = &s->base.subjects[i].shares[rank];
            munmap(x->right_o, x->o_bytes + 1);
            munmap(x->right_lse, x->lse_bytes + 1);
            x->right_o = x->right_lse = NULL;
        }
        fault_subject_destroy(&s->base.subjects[i], s->base.ranks);
    }
    munmap(s->board, sizeof *s->board);
}

/* Runs the ranks. Only the odd rank may fail, and only if the scene makes it fail. */
static void run_scene(scene *s, int plan)
{
    int statuses[GROUP_RANKS];
    memset(s->board, 0, sizeof *s->board);
    assert_true(socket_run_processes(s->base.ranks, be_rank, s, statuses) >= 0);
    for (int rank = 0; rank < s->base.ranks; rank++)
        if (statuses[rank] && !(s->ending >= FAULT_KILL && s->ending <= FAULT_STOP && rank == s->odd))
            fail_msg("plan %d, %s: the process of rank %d ended with status %x", plan, fault_names[s->ending], rank,
                     (unsigned)statuses[rank]);
}

static void processes_give_the_bits_of_threads_and_survive(void **state)
{
    (void)state;
    static draw_table table;
    const char *wanted = getenv("ITHACA_FAULT_PLANS");
    int plans = wanted ? atoi(wanted) : 10;
    uint64_t random = 1;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    draw_init(context, &table);
    ith_context_destroy(&context);
    for (int plan = 0; plan < plans; plan++) {
        scene s;
        make_scene(&s, &table, &random, plan);
        s.ending = FAULT_LATE;
        run_scene(&s, plan);
        expect_lived(&s, plan);
        for (int n = 0; n < 2; n++) {
            s.ending = (fault)(LAST_LIVED + 1 + (2 * plan + n) % (FAULTS - LAST_LIVED - 1));
            s.odd = (int)random_below(&random, (uint32_t)s.base.ranks);
            s.delay = 1e-5 * (double)random_below(&random, 500);
            run_scene(&s, plan);
            expect_ended(&s, plan);
        }
        free_scene(&s);
    }
}

/* ---- Tensors at the same address ------------------------------------------------------------------------------- */

/* A rank of a group of two, whose masks differ in the last number. Returns 0 if the execution is refused for that. */
static int be_rank_with_mask(int rank, const char *folder, void *user)
{
    enum { LENGTH = 6 };
    static uint8_t mask[LENGTH * LENGTH]; /* at the same address in each process */
    float x[LENGTH] = {0}, o[LENGTH];
    member m = {.rank = rank};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    (void)user;
    memset(mask, 1, sizeof mask);
    mask[sizeof mask - 1] = rank == 0;
    problem.heads = problem.head_dim = 1, problem.q_len = problem.kv_len = LENGTH, problem.mask = ITH_MASK_BOOL;
    tensors.q = tensors.k = tensors.v = x, tensors.o = o, tensors.mask = mask;
    if (ith_context_create(NULL, &m.context) || !(m.comm = socket_group_join(m.context, folder, rank, 2)))
        return 1;
    ith_status status = ith_plan_create(m.context, &problem, NULL, m.comm, &m.plans[0]);
    if (status)
        return complain(&m, "a plan", status);
    status = ith_plan_execute(m.plans[0], &tensors);
    if (status != ITH_ERR_ARGUMENT || !strstr(ith_context_error(m.context), "mask on rank 1 differs"))
        return complain(&m, "another mask", status);
    ith_plan_destroy(&m.plans[0]);
    ith_comm_destroy(&m.comm);
    ith_context_destroy(&m.context);
    return 0;
}

static void masks_of_processes_are_compared(void **state)
{
    (void)state;
    int statuses[2];
    assert_int_equal(socket_run_processes(2, be_rank_with_mask, NULL, statuses), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_of_processes_are_compared),
                                       cmocka_unit_test(processes_give_the_bits_of_threads_and_survive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
