/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of a plan: the named kernel, or else the fastest kernel that every rank's machine runs, according to
 * earlier measurements (wisdom), a new measurement or a fixed rule. */
#ifndef ITH_PLAN_KERNEL_CHOICE_H
#define ITH_PLAN_KERNEL_CHOICE_H

#include "../attention/setting.h"
#include "measure.h"

/* Fails unless kernels can have this head_dim: products of sizes in kernels could overflow above
 * ITH_ATTN_HEAD_DIM_MAX. */
ith_status ith_head_dim_check(ith_context *context, int64_t head_dim);

/* Adds a name to the list of names in `text`, behind a comma unless it is the first. The list is cut to text_bytes. */
void ith_name_list_add(char *text, size_t text_bytes, const char *name);

/* Sets the kernel of the setting to the kernel of this name. It must run on this machine and take the problem and
 * softmax of the setting. If it does not, the error sentence lists the kernels that do. */
ith_status ith_kernel_take_named(const char *name, ith_attn_setting *setting);

/* The kernels that a plan of this context may choose for this type, head size and softmax (ONLINE or FIXED_M), in the
 * order of the table: all that run here. Kernels in plain C are left out unless there are no others. */
ith_candidates ith_kernel_candidates(const ith_context *context, ith_dtype dtype, int64_t head_dim,
                                     ith_softmax softmax);

/* The rule of ITH_EFFORT_ESTIMATE, in two parts, which follow one another. The first removes the kernels in plain C
 * from the candidates, unless there are no others. The second returns the number of the candidate that the rule
 * chooses: the first that pays at this head_dim; if none does, 0. */
void ith_candidates_drop_plain(ith_candidates *all);
int ith_candidates_estimate(const ith_candidates *all, int64_t head_dim);

/* Whether a kernel takes attention of this type and size with both softmaxes that it may need: with fixed_m, heads
 * whose logits are too large are computed with the online softmax. */
bool ith_kernel_takes(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t head_dim, ith_softmax softmax);

/* Chooses the kernel of the setting. Collective over comm, which may be NULL. Rank 0 decides for all: by earlier
 * measurements (wisdom) if there are any; otherwise, with ITH_EFFORT_MEASURE, by a new measurement; otherwise by the
 * fixed rule of ITH_EFFORT_ESTIMATE. */
ith_status ith_kernel_choose(ith_comm *comm, ith_effort effort, ith_attn_setting *setting);

#endif
