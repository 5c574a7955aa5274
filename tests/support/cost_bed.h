/* SPDX-License-Identifier: Apache-2.0 */
/* A machine and a problem for the cost model, whose times follow from equations. */
#ifndef ITH_TESTS_COST_BED_H
#define ITH_TESTS_COST_BED_H

#include <ithaca/cost.h>

/* A machine of devices on one link, with one kernel. Copies and packing take no time unless a test sets them. */
typedef struct bed {
    ith_context *context;
    ith_machine machine;
    ith_machine_level level;
    ith_machine_attention rate;
    ith_attn_problem problem;
    ith_attn_options options;
} bed;

enum { HEADS = 16, DIM = 128, LENGTH = 8192, BYTES = 2 };

/* Seconds of all attention on one device. */
static const double compute_all = 4.0 * LENGTH * LENGTH * DIM * HEADS / 1e12;

/* The caller destroys the context. */
void make_bed(bed *b);
/* The cost by the model and by the simulator. */
ith_cost cost_of(bed *b, int ranks);
ith_cost simulated(bed *b, int ranks);
/* Checks that a number is as expected, but for rounding. */
void near(double found, double expected);

#endif
