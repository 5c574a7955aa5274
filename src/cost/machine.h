/* SPDX-License-Identifier: Apache-2.0 */
/* Machine descriptions (ith_machine): reading, checks, and the levels over which ranks reach one another. */
#ifndef ITH_COST_MACHINE_H
#define ITH_COST_MACHINE_H

#include "../comm/comm.h"

#include <ithaca/cost.h>

/* A description that has been read and checked, for a plan on some ranks. */
typedef struct ith_machine_view {
    ith_machine machine; /* its arrays are the caller's; elements are read with the functions below */
    int64_t ranks;
    ith_machine_level levels[ITH_MACHINE_LEVELS];
    /* [level_count]: the number of consecutive ranks that a level joins in this run, from 1 to ranks */
    int64_t joined[ITH_MACHINE_LEVELS];
    int64_t host_ranks; /* the number of consecutive ranks that run on one host */
    int64_t unit_ranks; /* the number of consecutive ranks that share the units of one host (ith_machine.unit_hosts) */
} ith_machine_view;

/* Reads and checks a description. */
ith_status ith_machine_read(ith_context *context, const ith_machine *given, ith_machine_view *out);
/* Prepares a description for a run on `ranks` ranks; the options say how the ranks are started.
 * ITH_ERR_ARGUMENT if the machine has fewer ranks, ITH_ERR_UNSUPPORTED if no level joins all ranks. */
ith_status ith_machine_place(ith_context *context, int ranks, const ith_attn_options *options, ith_machine_view *view);
/* Row `index` of machine.attention or machine.products, with defaults for the fields that the caller's structs lack. */
ith_machine_attention ith_machine_attention_at(const ith_machine_view *view, int64_t index);
ith_machine_product ith_machine_product_at(const ith_machine_view *view, int64_t index);
/* The name of the kernel of row `index` of machine.attention, in the caller's memory. */
const char *ith_machine_kernel_name(const ith_machine_view *view, int64_t index);

/* The rate of a unit while the ranks of its host want `wanted` units, at least 1, as a share of its rate alone. */
double ith_machine_busy_rate(const ith_machine *machine, double wanted);
/* How far two positive sizes are apart, in powers of two; 0 if one of them is 0, which means unknown. */
double ith_machine_apart(int64_t a, int64_t b);

/* Where the ranks run, for the planner (settle.h). */
ith_blocks ith_machine_blocks(const ith_machine_view *view);
/* The level over which two ranks exchange data. */
int ith_machine_level_between(const ith_machine_view *view, int64_t a, int64_t b);
/* The ranks [*begin, *end) that are joined with `rank` by `level` or by a level inside it. level -1: the rank alone. */
void ith_machine_joined(const ith_machine_view *view, int level, int64_t rank, int64_t *begin, int64_t *end);

#endif
