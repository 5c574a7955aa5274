/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernel of a plan (kernel_choice.h). */
#include "kernel_choice.h"

#include "../base/cpu.h"
#include "agree.h"
#include "kernel_wisdom.h"
#include "measure.h"

#include <stdio.h>
#include <string.h>

/* Whether this context may use the instructions of a kernel. */
static bool runs_here(const ith_context *context, const ith_attn_kernel *kernel)
{
    return ith_cpu_has(ith_context_cpu(context), kernel->cpu);
}

bool ith_kernel_takes(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return kernel->supports(dtype, head_dim, ITH_SOFTMAX_ONLINE) && kernel->supports(dtype, head_dim, softmax);
}

/* Whether a kernel runs here and takes the problem of a setting. */
static bool fits(const ith_attn_setting *s, const ith_attn_kernel *kernel)
{
    return runs_here(s->context, kernel) && ith_kernel_takes(kernel, s->problem.dtype, s->problem.head_dim, s->softmax);
}

ith_status ith_head_dim_check(ith_context *context, int64_t head_dim)
{
    if (head_dim >= 1 && head_dim <= ITH_ATTN_HEAD_DIM_MAX)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "head_dim is %lld, and must be from 1 to %d", (long long)head_dim,
                    ITH_ATTN_HEAD_DIM_MAX);
}

/* ---- By name --------------------------------------------------------------------------------------------------- */

void ith_name_list_add(char *text, size_t text_bytes, const char *name)
{
    const size_t length = strlen(text);
    snprintf(text + length, text_bytes - length, "%s%s", length ? ", " : "", name);
}

/* Lists the names of the kernels that run here and take the problem; "none" if there are none. */
static void list_fit_on_processor(const ith_attn_setting *s, char *text, size_t text_bytes)
{
    const ith_attn_kernel *kernel;
    text[0] = '\0';
    for (int i = 0; (kernel = ith_attn_kernel_at(i)); i++)
        if (fits(s, kernel))
            ith_name_list_add(text, text_bytes, kernel->name);
    if (!text[0])
        ith_name_list_add(text, text_bytes, "none");
}

ith_status ith_kernel_take_named(const char *name, ith_attn_setting *s)
{
    char fit[512], lacking[128];
    ith_status status = ith_head_dim_check(s->context, s->problem.head_dim);
    if (status)
        return status;
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    list_fit_on_processor(s, fit, sizeof fit);
    if (!kernel)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "no kernel is named '%.100s'; kernels that would do here: %s",
                        name, fit);
    if (!runs_here(s->context, kernel))
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "kernel %s needs %s, which this machine lacks; kernels that would do here: %s", name,
                        ith_cpu_describe(kernel->cpu & ~ith_context_cpu(s->context), lacking, sizeof lacking), fit);
    if (!ith_kernel_takes(kernel, s->problem.dtype, s->problem.head_dim, s->softmax))
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "kernel %s does not take head_dim %lld in %s with softmax %s; kernels that would do here: %s",
                        name, (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype),
                        ith_softmax_name(s->softmax), fit);
    s->kernel = kernel;
    s->kernel_origin = ITH_KERNEL_NAMED;
    return ITH_OK;
}

/* ---- By wisdom, measurement or estimate ------------------------------------------------------------------------ */

/* All kernels that run here and take such attention, in the order of the table. */
static ith_candidates fit_here(const ith_context *context, ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    ith_candidates all = {.count = 0};
    const ith_attn_kernel *kernel;
    for (int i = 0; all.count < ITH_WISDOM_FIGURES && (kernel = ith_attn_kernel_at(i)); i++)
        if (runs_here(context, kernel) && ith_kernel_takes(kernel, dtype, head_dim, softmax))
            all.kernels[all.count++] = kernel;
    return all;
}

void ith_candidates_drop_plain(ith_candidates *all)
{
    int count = 0;
    for (int i = 0; i < all->count; i++)
        if (all->kernels[i]->cpu != ITH_CPU_BASELINE)
            all->kernels[count++] = all->kernels[i];
    all->count = count ? count : all->count;
}

ith_candidates ith_kernel_candidates(const ith_context *context, ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    ith_candidates all = fit_here(context, dtype, head_dim, softmax);
    ith_candidates_drop_plain(&all);
    return all;
}

int ith_candidates_estimate(const ith_candidates *all, int64_t head_dim)
{
    for (int i = 0; i < all->count; i++)
        if (!all->kernels[i]->pays || all->kernels[i]->pays(head_dim))
            return i;
    return 0;
}

/* Times all kernels that run here and take the problem (ith_kernel_timer). This includes kernels that other ranks lack,
 * because wisdom is about this machine, not about a group. */
static ith_status measure(const ith_attn_setting *s, ith_wisdom_entry *entry)
{
    ith_candidates all = ith_kernel_candidates(s->context, s->problem.dtype, s->problem.head_dim, s->softmax);
    return ith_measure_kernels(s->context, s->problem.dtype, s->problem.head_dim, s->softmax, &all, entry);
}

/* Rank 0's choice of a kernel, as it is sent to the other ranks. */
typedef struct choice {
    char kernel[ITH_ATTN_NAME_BYTES]; /* name of the kernel; empty if no kernel fits */
    ith_kernel_origin origin;
} choice;

/* Chooses one of the candidates. */
static ith_status choose_of(const ith_attn_setting *s, ith_effort effort, ith_candidates all, choice *out)
{
    ith_kernel_names names = {.count = 0};
    ith_kernel_decision decision;
    ith_candidates_drop_plain(&all);
    for (; names.count < all.count; names.count++)
        names.names[names.count] = all.kernels[names.count]->name;
    ith_status status =
        ith_kernel_decide(s, effort, &names, ith_candidates_estimate(&all, s->problem.head_dim), measure, &decision);
    if (status)
        return status;
    out->origin = decision.origin;
    if (decision.index >= 0)
        snprintf(out->kernel, sizeof out->kernel, "%s", names.names[decision.index]);
    return ITH_OK;
}

/* Collective. Removes from rank 0's candidates each kernel that some rank lacks: modules and machines may differ. */
static ith_status keep_common(ith_comm *comm, const ith_attn_setting *s, ith_candidates *all)
{
    char names[ITH_WISDOM_FIGURES][ITH_ATTN_NAME_BYTES] = {{0}};
    float lacks[ITH_WISDOM_FIGURES];
    for (int i = 0; i < all->count; i++)
        snprintf(names[i], sizeof names[i], "%s", all->kernels[i]->name);
    ith_status status = ith_comm_broadcast(comm, names, sizeof names, 0);
    if (status)
        return status;
    for (int i = 0; i < ITH_WISDOM_FIGURES; i++) {
        names[i][ITH_ATTN_NAME_BYTES - 1] = '\0'; /* also if a transport has brought other bytes */
        const ith_attn_kernel *kernel = ith_attn_kernel_named(names[i]);
        lacks[i] = !kernel || !fits(s, kernel);
    }
    status = ith_comm_allreduce(comm, lacks, ITH_WISDOM_FIGURES, ITH_REDUCE_MAX);
    int kept = 0;
    for (int i = 0; i < all->count; i++)
        if (lacks[i] == 0)
            all->kernels[kept++] = all->kernels[i];
    all->count = kept;
    return status;
}

/* Rank 0 chooses the kernel and broadcasts its name; each rank finds the kernel in its own table. */
ith_status ith_kernel_choose(ith_comm *comm, ith_effort effort, ith_attn_setting *s)
{
    ith_status status = ith_head_dim_check(s->context, s->problem.head_dim);
    if (status)
        return status;
    ith_candidates common = fit_here(s->context, s->problem.dtype, s->problem.head_dim, s->softmax);
    choice chosen = {.kernel = ""};
    status = ith_pass_on(s->context, comm, keep_common(comm, s, &common));
    if (status)
        return status;
    if (ith_comm_rank(comm) == 0)
        status = choose_of(s, effort, common, &chosen);
    status = ith_agree_with_first(s->context, comm, status, &chosen, sizeof chosen);
    if (status)
        return status;
    s->kernel = ith_attn_kernel_named(chosen.kernel);
    s->kernel_origin = chosen.origin;
    if (s->kernel)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                    "no kernel that every rank's machine runs takes head_dim %lld in %s with softmax %s",
                    (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype), ith_softmax_name(s->softmax));
}
