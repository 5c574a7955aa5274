/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom about kernels: their measured rates for a type, a head size and a softmax, on the processor or on a device. */
#ifndef ITH_PLAN_KERNEL_WISDOM_H
#define ITH_PLAN_KERNEL_WISDOM_H

#include "../attention/setting.h"
#include "wisdom.h"

/* The kernels among which a plan chooses. */
typedef struct ith_kernel_names {
    int count;
    const char *names[ITH_WISDOM_FIGURES];
} ith_kernel_names;

/* Measures the rates of kernels that compute the setting's problem here, and writes them to the entry. */
typedef ith_status ith_kernel_timer(const ith_attn_setting *setting, ith_wisdom_entry *entry);

/* A choice among kernels. */
typedef struct ith_kernel_decision {
    int index; /* the number of the name; -1: there are no names */
    ith_kernel_origin origin;
} ith_kernel_decision;

/* Chooses one of the kernels: by earlier measurements (wisdom) if there are any; otherwise, if the effort is MEASURE
 * and there are several kernels, by the rates of `measure`, which become wisdom; otherwise the kernel number
 * `estimated`. Wisdom is locked meanwhile, so clones of this context wait and then use the same measurement. */
ith_status ith_kernel_decide(const ith_attn_setting *setting, ith_effort effort, const ith_kernel_names *kernels,
                             int estimated, ith_kernel_timer *measure, ith_kernel_decision *decision);

#endif
