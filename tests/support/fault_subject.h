/* SPDX-License-Identifier: Apache-2.0 */
/* The work of tests that provoke faults: two random problems with known results, and their plans on one group of
 * ranks. */
#ifndef ITH_TESTS_FAULT_SUBJECT_H
#define ITH_TESTS_FAULT_SUBJECT_H

#include "support/random_case.h"
#include "support/rank_group.h"

#define SUBJECTS 2

#define POISON 0x5a

#define FAULT_SENTENCE 1024

/* A rank's share of a problem. */
typedef struct fault_share {
    void *q, *k, *v, *o, *right_o;
    float *lse, *right_lse;
    size_t o_bytes, lse_bytes;
} fault_share;

typedef struct fault_subject {
    attention_case c;
    ith_attn_problem problem; /* with strides */
    ith_attn_options options;
    fault_share shares[GROUP_RANKS];
    ith_plan *plans[GROUP_RANKS];
} fault_subject;

typedef struct fault_scene {
    ith_context *root;
    rank_group g;
    fault_subject subjects[SUBJECTS];
    uint64_t random;
    int ranks;
    ith_status seen[GROUP_RANKS];
    char sentences[GROUP_RANKS][FAULT_SENTENCE];
} fault_scene;

uint32_t fault_draw(fault_scene *s, uint32_t below);

void fault_poison(fault_subject *subject, int ranks);

ith_attn_tensors fault_tensors(const fault_subject *subject, int rank);

void fault_note(fault_scene *s, int rank, ith_status status);

void fault_subject_create(fault_subject *subject, uint32_t seed, int64_t longest, int ranks);

void fault_subject_destroy(fault_subject *subject, int ranks);

/* ---- The group and its plans ----------------------------------------------------------------------------------- */

void fault_group_create(fault_scene *s);

void fault_group_destroy(fault_scene *s);

/* ---- Results --------------------------------------------------------------------------------------------------- */

/* Whether a rank's outputs have the right bits; whether nothing was written to them. */
bool fault_is_right(const fault_subject *subject, int rank);

bool fault_is_untouched(const fault_subject *subject, int rank);

/* Executes both plans, and checks that every rank has the right bits. after: the fault before, for messages. */
void fault_expect_right(fault_scene *s, const char *after);

/* Executes both plans for the first time, compares the results with the oracle in float64, and keeps their bits as the
 * right ones. */
void fault_learn(fault_scene *s);

#endif
