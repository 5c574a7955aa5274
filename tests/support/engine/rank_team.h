/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the engine on ranks that are threads of the test. Some share a pipeline, as in one process; others have a
 * pipeline each, as in several processes. */
#ifndef ITH_TESTS_RANK_TEAM_H
#define ITH_TESTS_RANK_TEAM_H

#include "support/memory.h"

#include <ithaca/wan.h>

#include <pthread.h>
#include <stdatomic.h>

#define MOST_RANKS 4
#define FRAME_BYTES (5 * 48 * 80 * 3)

typedef struct team team;

typedef struct member {
    team *team;
    int rank;
    ith_context *context;
    ith_comm *comm;
    ith_pipeline *pipeline;
    ith_generate_options options;
    ith_attn_options attention;
    ith_generate_report report;
    ith_status status;
    char sentence[1024];
    double ended_at;
    pthread_t thread;
    bool absent;          /* leaves the group instead of calling */
    atomic_int asked;     /* number of calls of its should_stop */
    int stop_at;          /* the call that says to stop; 0: none */
    bool cancels, aborts; /* instead, this call cancels its pipeline, or aborts the group */
} member;

struct team {
    int ranks, pipelines;
    int hosts;                      /* number of hosts; 0: each pipeline is on its own host */
    ith_context *roots[MOST_RANKS]; /* one for each pipeline, no clones of one another */
    ith_pipeline *opened[MOST_RANKS];
    member members[MOST_RANKS];
    uint8_t frames[FRAME_BYTES];
    int64_t frame_count;
    atomic_bool stopped;
    double stopped_at;
    int moment; /* a stage: no rank says to stop before rank 0 has shown progress of it; -1: from the beginning */
    int64_t denoising[MOST_RANKS];  /* the most memory of each pipeline that rank 0 saw while it denoised */
    atomic_bool there;              /* rank 0 has shown progress of this stage */
    const char *models[MOST_RANKS]; /* the folder of each pipeline; NULL: the demo's model */
    failing_allocator allocators[MOST_RANKS];
};

/* A bit for each pipeline whose process does not have the model, in teams that are opened from now on. */
extern unsigned lacking;

/* Rank i takes pipeline i % pipelines, so that neighbours do not share one unless all do. Each pipeline is placed in a
 * process of its own. */
void team_open(team *t, int ranks, int pipelines);

void team_close(team *t);

/* All ranks at once, each in a thread of its own. */
void team_run(team *t);

/* Checks that all ranks that took part have this status and the same sentence, and that the words are in it. */
void team_expect_failure(const team *t, ith_status status, const char *words);

void team_expect_success(const team *t);

#endif
