/* SPDX-License-Identifier: Apache-2.0 */
/* Executions whose results are known, on ranks of a rank_group. */
#ifndef ITH_TESTS_EXECUTION_SCENE_H
#define ITH_TESTS_EXECUTION_SCENE_H

#include "support/rank_group.h"

#define SENTENCE 1024

/* Tensors of a problem. Queries are 0, so all keys have the same weight, and all numbers of value j are j. So a row of
 * o is the mean of the numbers j of its keys. */
typedef struct sample {
    int64_t length, heads, dim;
    float *q, *k, *v, *o, *lse, *bias; /* whole */
    uint8_t *mask;                     /* [length, length] */
    int32_t kv_length;
} sample;

ith_attn_problem problem_of(const sample *s);
void sample_create(sample *s, int64_t length, int64_t heads, int64_t dim);
void sample_destroy(sample *s);
/* Returns one rank's share. lengths: memory of the caller for kv_lengths. */
ith_attn_tensors tensors_of(sample *s, int rank, int ranks, int32_t *lengths);
/* Whether nothing was written to o. */
bool untouched(const sample *s);
/* Checks o, and resets it. */
void expect_mean(sample *s);

/* The plans of all ranks, and the results of their last calls. */
typedef struct scene {
    ith_attn_options options;
    sample samples[2];
    ith_plan *plans[2][GROUP_RANKS];
    int odd; /* the rank that executes the other plan; -1: no rank does */
    void (*spoil)(ith_attn_tensors *tensors);
    int first_plan; /* number of the plan that all other ranks execute */
    ith_status seen[GROUP_RANKS];
    char sentences[GROUP_RANKS][SENTENCE];
} scene;

void plan_in_rank(rank_group *g, int rank, void *user);
void execute_in_rank(rank_group *g, int rank, void *user);
/* Keeps the status and the sentence of a rank's call in the scene. */
void note(const rank_group *g, int rank, scene *s, ith_status status);

/* Checks that all ranks failed with this status and the same sentence, which contains both texts, and that none wrote
 * to o. */
void expect_all_refused(const rank_group *g, const scene *s, ith_status status, const char *words, const char *more);
/* Executes both plans on all ranks, and checks the results. */
void expect_right(rank_group *g, scene *s);

typedef void (*scene_fn)(rank_group *g, scene *s);

/* Calls `act` for every strategy and exchange on two to four ranks, each time with a new group. Afterwards both plans
 * must still work. */
void for_each_way(int64_t lengths[2], bool bias, bool mask, scene_fn act);

#endif
