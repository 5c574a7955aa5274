/* SPDX-License-Identifier: Apache-2.0 */
/* Another thread destroys the communicator of a call of the engine, at any moment of the call: the call ends with an
 * error on all ranks, and nothing uses memory that was freed. The allocator overwrites memory that is freed. */
#include "support/engine/pipeline_fixture.h"
#include "support/fixture.h"
#include "support/rank_group.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 2, HEADER = 64 };

/* The calls that are tested. */
typedef enum engine_call { CALL_GENERATE, CALL_ENCODE, CALL_LEND, CALLS } engine_call;

/* One call on all ranks. The communicator of the victim is destroyed at its allocation number `moment`. */
typedef struct scene {
    engine_call call;
    int victim, moment;
    ith_pipeline *pipeline;
    ith_status seen[RANKS];
    ith_comm **comm; /* the victim's */
    pthread_t destroyer;
    bool started; /* the thread that destroys the communicator was started */
    atomic_bool destroyed;
} scene;

static scene *current;
/* Allocations of this thread until the communicator is destroyed; 0: it stays. */
static _Thread_local int left_to_go;

static void *destroy(void *user)
{
    scene *s = user;
    ith_comm_destroy(s->comm);
    atomic_store(&s->destroyed, true);
    return NULL;
}

/* Destroys the communicator in another thread. That thread may wait for a lock of this one, so this one waits for
 * 20 ms at most. */
static void destroy_elsewhere(scene *s)
{
    s->started = !pthread_create(&s->destroyer, NULL, destroy, s);
    for (int i = 0; i < 20 && s->started && !atomic_load(&s->destroyed); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)alignment;
    if (left_to_go && !--left_to_go)
        destroy_elsewhere(current);
    char *block = aligned_alloc(HEADER, (bytes + 2 * HEADER - 1) / HEADER * HEADER);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    return block + HEADER;
}

static void release(void *user, void *pointer)
{
    char *block = (char *)pointer - HEADER;
    size_t bytes;
    (void)user;
    memcpy(&bytes, block, sizeof bytes);
    memset(pointer, 0xdd, bytes);
    free(block);
}

static void call_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    const char *texts[] = {"a red circle", "a green square"};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = texts[0], options.threads = RANKS, options.precision = ITH_PRECISION_F32;
    options.frames = 1, options.height = options.width = 32, options.steps = 1;
    left_to_go = rank == s->victim ? s->moment : 0;
    if (s->call == CALL_GENERATE)
        s->seen[rank] = ith_pipeline_generate(s->pipeline, g->comms[rank], &options, NULL);
    else if (s->call == CALL_ENCODE)
        s->seen[rank] = ith_pipeline_encode(s->pipeline, g->comms[rank], &options, texts, 2);
    else
        s->seen[rank] = ith_model_lend(g->comms[rank], MODEL);
    left_to_go = 0;
}

/* Runs the call in a context of its own. Returns whether the communicator was destroyed before the call ended. */
static bool destroyed_at(engine_call call, int victim, int moment)
{
    ith_allocator allocator = {sizeof allocator, allocate, release, NULL};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *own = NULL;
    scene s = {.call = call, .victim = victim, .moment = moment};
    rank_group g;
    options.allocator = &allocator;
    check(NULL, ith_context_create(&options, &own));
    check(own, ith_pipeline_open(own, MODEL, &s.pipeline));
    check(own, group_create(&g, own, RANKS));
    s.comm = &g.comms[victim];
    current = &s;
    group_run(&g, call_in_rank, &s);
    if (s.started)
        pthread_join(s.destroyer, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        if (s.started ? s.seen[rank] > ITH_OK : s.seen[rank] != ITH_OK)
            fail_msg("call %d, victim %d, allocation %d: rank %d: %s: %s", call, victim, moment, rank,
                     ith_status_name(s.seen[rank]), ith_context_error(g.contexts[rank]));
    group_destroy(&g);
    ith_pipeline_close(&s.pipeline);
    assert_int_equal(memory_of(own).current_bytes, 0);
    ith_context_destroy(&own);
    return s.started;
}

static void a_communicator_may_go_during_a_call(void **state)
{
    (void)state;
    for (int call = 0; call < CALLS; call++)
        for (int victim = 0; victim < RANKS; victim++) {
            int moment = 1;
            while (destroyed_at((engine_call)call, victim, moment))
                moment += 1 + moment / 8;
            assert_true(moment > 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_communicator_may_go_during_a_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
