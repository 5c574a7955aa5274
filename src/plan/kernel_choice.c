/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel_choice.h"

#include "agree.h"
#include "measure.h"
#include "wisdom.h"

#include <stdio.h>
#include <string.h>

/* A kernel must be faster than those before it in the table by so much, so that near equals do not change places from
 * one measurement to the next. */
#define MARGIN_PERCENT 3

static bool runs_here(const ith_attn_setting *s, const ith_attn_kernel *kernel)
{
    return (kernel->cpu & ~ith_context_cpu(s->context)) == 0;
}

/* Head problems that fixed_m does not let through go online in the same call. */
static bool takes(const ith_attn_setting *s, const ith_attn_kernel *kernel)
{
    const ith_attn_problem *p = &s->problem;
    return kernel->supports(p->dtype, p->head_dim, ITH_SOFTMAX_ONLINE) &&
           kernel->supports(p->dtype, p->head_dim, s->softmax);
}

static ith_status refuse_head_dim(const ith_attn_setting *s)
{
    return ith_fail(s->context, ITH_ERR_ARGUMENT, "head_dim is %lld, and must be at most %d",
                    (long long)s->problem.head_dim, ITH_ATTN_HEAD_DIM_MAX);
}

/* ---- By name --------------------------------------------------------------------------------------------------- */

/* The names of the kernels that would do, separated by commas. */
static void list_fit(const ith_attn_setting *s, char *text, size_t text_bytes)
{
    const ith_attn_kernel *kernel;
    size_t length = 0;
    snprintf(text, text_bytes, "none");
    for (int i = 0; (kernel = ith_attn_kernel_at(i)) && length < text_bytes; i++)
        if (runs_here(s, kernel) && takes(s, kernel)) {
            int written = snprintf(text + length, text_bytes - length, "%s%s", length ? ", " : "", kernel->name);
            length += written > 0 ? (size_t)written : 0;
        }
}

ith_status ith_kernel_take_named(const char *name, ith_attn_setting *s)
{
    char fit[512], lacking[128];
    if (s->problem.head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return refuse_head_dim(s);
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    list_fit(s, fit, sizeof fit);
    if (!kernel)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "no kernel is named '%.100s'; those that would do here: %s", name,
                        fit);
    if (!runs_here(s, kernel))
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "kernel %s needs %s, which this machine lacks; those that would do here: %s", name,
                        ith_cpu_describe(kernel->cpu & ~ith_context_cpu(s->context), lacking, sizeof lacking), fit);
    if (!takes(s, kernel))
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "kernel %s does not take head_dim %lld in %s with softmax %s; those that would do here: %s",
                        name, (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype),
                        ith_softmax_name(s->softmax), fit);
    s->kernel = kernel;
    s->kernel_origin = ITH_KERNEL_NAMED;
    return ITH_OK;
}

/* ---- By wisdom, measurement or estimate ------------------------------------------------------------------------ */

/* Kernels by place in the table. */
typedef struct kernel_set {
    bool has[ITH_WISDOM_KERNELS];
} kernel_set;

static kernel_set fit_here(const ith_attn_setting *s)
{
    kernel_set set = {{false}};
    const ith_attn_kernel *kernel;
    for (int i = 0; i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++)
        set.has[i] = runs_here(s, kernel) && takes(s, kernel);
    return set;
}

/* Plain C is no candidate beside anything else. Returns how many are left. */
static int drop_plain(kernel_set *set)
{
    int count = 0, plain = 0;
    for (int i = 0; i < ITH_WISDOM_KERNELS; i++) {
        count += set->has[i];
        plain += set->has[i] && ith_attn_kernel_at(i)->cpu == ITH_CPU_BASELINE;
    }
    for (int i = 0; i < ITH_WISDOM_KERNELS && plain < count; i++)
        set->has[i] = set->has[i] && ith_attn_kernel_at(i)->cpu != ITH_CPU_BASELINE;
    return plain < count ? count - plain : count;
}

/* The rule of ITH_EFFORT_ESTIMATE: of a set the first in the table that pays at this head size, or else the first; -1
 * of none. */
static int estimate(const ith_attn_setting *s, const kernel_set *set)
{
    int first = -1;
    for (int i = 0; i < ITH_WISDOM_KERNELS; i++) {
        if (!set->has[i])
            continue;
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if (!kernel->pays || kernel->pays(s->problem.head_dim))
            return i;
        first = first < 0 ? i : first;
    }
    return first;
}

/* The place of the fastest of a set; -1 if none of it was measured. */
static int fastest(const ith_wisdom_entry *known, const kernel_set *set)
{
    int best = -1;
    for (int i = 0; i < ITH_WISDOM_KERNELS; i++)
        if (set->has[i] && known->rates[i] > 0 &&
            (best < 0 || (int64_t)known->rates[i] * 100 > (int64_t)known->rates[best] * (100 + MARGIN_PERCENT)))
            best = i;
    return best;
}

/* What wisdom says of a set; -1 if nothing. */
static int recall(const ith_attn_setting *s, const ith_wisdom *wisdom, const kernel_set *set)
{
    const ith_wisdom_entry *known = ith_wisdom_find(wisdom, s->problem.dtype, s->problem.head_dim, s->softmax);
    for (int i = 0; known && i < ITH_WISDOM_KERNELS; i++)
        if (set->has[i] && ith_attn_kernel_at(i) == known->kernel)
            return i;
    return known ? fastest(known, set) : -1;
}

typedef struct choice {
    int place; /* in the table; -1: none */
    ith_kernel_origin origin;
} choice;

/* Times all kernels that fit here, and keeps the answer. */
static ith_status measure(const ith_attn_setting *s, ith_wisdom *wisdom, const kernel_set *set, choice *out)
{
    kernel_set all = fit_here(s);
    drop_plain(&all);
    ith_wisdom_entry entry = {.dtype = s->problem.dtype, .softmax = s->softmax, .head_dim = s->problem.head_dim};
    ith_status status = ith_measure_kernels(s->context, all.has, &entry);
    if (status)
        return status;
    *out = (choice){fastest(&entry, set), ITH_KERNEL_MEASURED};
    entry.kernel = ith_attn_kernel_at(fastest(&entry, &all));
    ith_wisdom_put(wisdom, &entry);
    return ITH_OK;
}

/* One of a set. Other contexts of the family wait, so that what one of them measures is wisdom for all. */
static ith_status choose_of(const ith_attn_setting *s, ith_effort effort, kernel_set set, choice *out)
{
    int count = drop_plain(&set);
    *out = (choice){estimate(s, &set), ITH_KERNEL_ESTIMATED};
    ith_wisdom *wisdom = NULL;
    ith_status status = ith_wisdom_open(s->context, &wisdom);
    if (status)
        return status;
    int known = recall(s, wisdom, &set);
    if (known >= 0)
        *out = (choice){known, ITH_KERNEL_RECALLED};
    else if (effort == ITH_EFFORT_MEASURE && count > 1)
        status = measure(s, wisdom, &set, out);
    ith_wisdom_close(s->context);
    return status;
}

static ith_status refuse_all(const ith_attn_setting *s)
{
    return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                    "no kernel that every rank's machine runs takes head_dim %lld in %s with softmax %s",
                    (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype), ith_softmax_name(s->softmax));
}

/* Kernels by rank 0's table: another rank's may have other modules. */
typedef struct roster {
    char names[ITH_WISDOM_KERNELS][48];
} roster;

static roster own_roster(void)
{
    roster r = {{{0}}};
    const ith_attn_kernel *kernel;
    for (int i = 0; i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++)
        snprintf(r.names[i], sizeof r.names[i], "%s", kernel->name);
    return r;
}

/* Which of the roster's kernels serve on every rank. Collective. */
static ith_status find_common(ith_comm *comm, const ith_attn_setting *s, roster *names, kernel_set *common)
{
    float lacks[ITH_WISDOM_KERNELS];
    ith_status status = ith_comm_broadcast(comm, names, sizeof *names, 0);
    if (status)
        return status;
    for (int i = 0; i < ITH_WISDOM_KERNELS; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_named(names->names[i]);
        lacks[i] = !kernel || !runs_here(s, kernel) || !takes(s, kernel);
    }
    status = ith_comm_allreduce(comm, lacks, ITH_WISDOM_KERNELS, ITH_REDUCE_MAX);
    for (int i = 0; i < ITH_WISDOM_KERNELS; i++)
        common->has[i] = lacks[i] == 0;
    return status;
}

ith_status ith_kernel_choose(ith_comm *comm, ith_effort effort, ith_attn_setting *s)
{
    if (s->problem.head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return refuse_head_dim(s);
    roster names = own_roster();
    kernel_set common = {{false}};
    choice chosen = {-1, ITH_KERNEL_ESTIMATED};
    ith_status status = ith_pass_on(s->context, comm, find_common(comm, s, &names, &common));
    if (status)
        return status;
    if (ith_comm_rank(comm) == 0)
        status = choose_of(s, effort, common, &chosen);
    status = ith_agree(s->context, comm, status);
    if (!status)
        status = ith_pass_on(s->context, comm, ith_comm_broadcast(comm, &chosen, sizeof chosen, 0));
    if (status)
        return status;
    if (chosen.place < 0)
        return refuse_all(s);
    s->kernel = ith_attn_kernel_named(names.names[chosen.place]);
    s->kernel_origin = chosen.origin;
    return ITH_OK;
}

ith_status ith_kernel_foresee(ith_attn_setting *s)
{
    if (s->problem.head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return refuse_head_dim(s);
    choice chosen;
    ith_status status = choose_of(s, ITH_EFFORT_ESTIMATE, fit_here(s), &chosen);
    if (status)
        return status;
    if (chosen.place < 0)
        return refuse_all(s);
    s->kernel = ith_attn_kernel_at(chosen.place);
    s->kernel_origin = chosen.origin;
    return ITH_OK;
}
