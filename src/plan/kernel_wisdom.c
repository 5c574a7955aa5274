/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses kernels by their measured rates (kernel_wisdom.h). */
#include "kernel_wisdom.h"

#include "../kernels/device_use.h"

#include <stdio.h>
#include <string.h>

/* A kernel is preferred to an earlier one in the list only if it is faster by this margin. So kernels of nearly equal
 * rate keep their order from one measurement to the next. */
#define MARGIN_PERCENT 3

/* Writes the text (subject) by which wisdom finds the measured rates of kernels for this setting's type, head_dim,
 * softmax and device. */
static void subject_of(const ith_attn_setting *s, char subject[ITH_WISDOM_SUBJECT_BYTES])
{
    snprintf(subject, ITH_WISDOM_SUBJECT_BYTES, "attention %s head_dim=%lld softmax=%s%s%s",
             ith_dtype_name(s->problem.dtype), (long long)s->problem.head_dim, ith_softmax_name(s->softmax),
             s->device ? " device=" : "", s->device ? s->device->model : "");
}

/* The number of the kernel that is preferred by earlier measurements; -1 if none of the kernels was measured. */
static int recall_kernel(const ith_wisdom *wisdom, const char *subject, const ith_kernel_names *kernels)
{
    const ith_wisdom_entry *known = ith_wisdom_find(wisdom, subject);
    for (int i = 0; known && i < known->count; i++)
        for (int j = 0; j < kernels->count; j++)
            if (!strcmp(known->figures[i].name, kernels->names[j]))
                return j;
    return -1;
}

/* Sorts kernels from the order of their list into the order of preference, by their rates and MARGIN_PERCENT. */
static void sort_by_preference(ith_wisdom_entry *entry)
{
    for (int i = 0; i < entry->count; i++) {
        int best = i;
        for (int j = i + 1; j < entry->count; j++)
            if ((int64_t)entry->figures[j].value * 100 > (int64_t)entry->figures[best].value * (100 + MARGIN_PERCENT))
                best = j;
        ith_wisdom_figure preferred = entry->figures[best];
        memmove(&entry->figures[i + 1], &entry->figures[i], (size_t)(best - i) * sizeof preferred);
        entry->figures[i] = preferred;
    }
}

ith_status ith_kernel_decide(const ith_attn_setting *s, ith_effort effort, const ith_kernel_names *kernels,
                             int estimated, ith_kernel_timer *measure, ith_kernel_decision *decision)
{
    ith_wisdom_entry entry = {.own = true};
    ith_wisdom *wisdom = NULL;
    ith_status status = ith_wisdom_open(s->context, &wisdom);
    if (status)
        return status;
    subject_of(s, entry.subject);
    decision->index = recall_kernel(wisdom, entry.subject, kernels);
    decision->origin = ITH_KERNEL_RECALLED;
    if (decision->index < 0 && effort == ITH_EFFORT_MEASURE && kernels->count > 1) {
        status = measure(s, &entry);
        if (!status) {
            sort_by_preference(&entry);
            ith_wisdom_put(wisdom, &entry);
            decision->index = recall_kernel(wisdom, entry.subject, kernels);
            decision->origin = ITH_KERNEL_MEASURED;
        }
    }
    ith_wisdom_close(s->context);
    if (decision->index < 0)
        *decision = (ith_kernel_decision){kernels->count ? estimated : -1, ITH_KERNEL_ESTIMATED};
    return status;
}
