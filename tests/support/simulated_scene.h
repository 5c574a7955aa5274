/* SPDX-License-Identifier: Apache-2.0 */
/* A machine and a problem for the simulator, and their times by the simulator and by the cost model. */
#ifndef ITH_TESTS_SIMULATED_SCENE_H
#define ITH_TESTS_SIMULATED_SCENE_H

#include <ithaca/cost.h>

enum { HEADS = 16, DIM = 64, LENGTH = 4096 };

typedef struct scene {
    ith_context *context;
    ith_machine machine;
    ith_machine_level levels[2];
    ith_machine_attention rate;
    ith_attn_problem problem;
    ith_attn_options options;
    ith_simulation simulation;
} scene;

/* Hosts of four ranks, with messages alone. fill_scene makes no context. */
void fill_scene(scene *s);
void make_scene(scene *s);

/* The cost by the simulator and by the cost model. */
ith_cost simulate(scene *s, int ranks);
ith_cost predict(scene *s, int ranks);

/* Checks that a number is as expected, up to a share of it. */
void within(double found, double expected, double share);

enum { EVEN_LENGTH = 3840 }; /* divisible by every number of ranks in the tests of an even scene */

/* Makes a scene of `ranks` ranks on one level, each on a unit of its own. Only attention and messages take time. */
void make_even_scene(scene *s, int ranks);

/* Seconds of all attention of an even scene on one unit. */
static const double all_attention = 4.0 * EVEN_LENGTH * EVEN_LENGTH * DIM * HEADS / 1e11;

/* A piece of work in a trace. */
typedef struct piece {
    int rank;
    double begin, seconds;
} piece;

/* Simulates, and lists the attention of all ranks in the order of the trace. Returns the number of pieces. */
int list_attention(scene *s, int ranks, piece *pieces, int most);

#endif
