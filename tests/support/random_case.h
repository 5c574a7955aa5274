/* SPDX-License-Identifier: Apache-2.0 */
/* Random attention problems, and random plans for them. Plans are drawn so that in the end each pair of values of two
 * options has occurred in one plan. */
#ifndef ITH_TESTS_RANDOM_CASE_H
#define ITH_TESTS_RANDOM_CASE_H

#include "support/attention_case.h"

/* Makes a random problem of lengths up to `longest`: with or without strides, grouped queries, lengths, biases and
 * masks, perhaps with all keys masked, and with any kind of logits. */
attention_case random_case(uint32_t seed, int64_t longest);

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

typedef enum draw_factor {
    DRAW_MESH,
    DRAW_DIRECTION,
    DRAW_CHUNKS,
    DRAW_FOLD,
    DRAW_SOFTMAX,
    DRAW_SMOOTHING,
    DRAW_EXCHANGE,
    DRAW_TILES,
    DRAW_KERNEL,
    DRAW_FACTORS
} draw_factor;

#define DRAW_MOST_VALUES 16

/* The meshes: {ulysses, ring}. */
static const int draw_meshes[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 2}, {1, 3},
                                     {1, 4}, {2, 2}, {2, 3}, {3, 2}, {5, 1}, {1, 5}};

/* A plan: a value for each factor (option). */
typedef struct drawn_plan {
    int value[DRAW_FACTORS];
} drawn_plan;

typedef struct draw_table {
    const char *kernels[DRAW_MOST_VALUES]; /* kernels that this machine can run */
    int values[DRAW_FACTORS];
    bool met[DRAW_FACTORS][DRAW_MOST_VALUES][DRAW_FACTORS][DRAW_MOST_VALUES];
} draw_table;

void draw_init(ith_context *context, draw_table *table);

void draw_mark(draw_table *table, const drawn_plan *plan);

/* Draws some random plans, and returns the plan with the most pairs of values that have not occurred together yet. */
drawn_plan draw_plan(const draw_table *table, uint64_t *r);

/* The options of a plan; *ranks becomes its number of ranks. */
ith_attn_options draw_options(const draw_table *table, const drawn_plan *plan, int *ranks);

#endif
