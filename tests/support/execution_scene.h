/* SPDX-License-Identifier: Apache-2.0 */
/* Executions whose results are known, among ranks made by hand. */
#ifndef ITH_TESTS_EXECUTION_SCENE_H
#define ITH_TESTS_EXECUTION_SCENE_H

#include "support/rank_group.h"

#define SENTENCE 1024

/* Queries are 0, so all keys have the same weight, and value j is j: a row of o is the mean of the numbers of its keys.
 */
typedef struct sample {
    int64_t length, heads, dim;
    float *q, *k, *v, *o, *lse, *bias; /* whole */
    uint8_t *mask;                     /* [length, length] */
    int32_t kv_length;
} sample;

ith_attn_problem problem_of(const sample *s);
void sample_create(sample *s, int64_t length, int64_t heads, int64_t dim);
void sample_destroy(sample *s);
/* One rank's share; `lengths` is the caller's. */
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
    int odd; /* the rank that does something else */
    void (*spoil)(ith_attn_tensors *tensors);
    int first_plan; /* the others execute this one */
    ith_status seen[GROUP_RANKS];
    char sentences[GROUP_RANKS][SENTENCE];
} scene;

void plan_in_rank(rank_group *g, int rank, void *user);
void execute_in_rank(rank_group *g, int rank, void *user);
/* Keeps the status and the sentence of a rank's call. */
void note(const rank_group *g, int rank, scene *s, ith_status status);

/* All ranks failed alike, with a sentence that contains both texts, and wrote nothing. */
void expect_all_refused(const rank_group *g, const scene *s, ith_status status, const char *words, const char *more);
/* Both plans work on all ranks. */
void expect_right(rank_group *g, scene *s);

typedef void (*scene_fn)(rank_group *g, scene *s);

/* act for every strategy and way of exchange, on two to four ranks; afterwards both plans must work. */
void for_each_way(int64_t lengths[2], bool bias, bool mask, scene_fn act);

void nap(double seconds);

#endif
