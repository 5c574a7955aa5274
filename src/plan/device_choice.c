/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernel of a plan on a device (device_choice.h). */
#include "device_choice.h"

#include "../attention/run/device/device_call.h"
#include "agree.h"
#include "device_measure.h"
#include "kernel_choice.h"
#include "kernel_wisdom.h"
#include "tiles.h"

#include <string.h>

/* The reason why a kernel cannot compute the problem of a setting; NULL: it can. With fixed_m some heads may use the
 * online softmax, so the kernel must be able to do both. */
static const char *refusal_of(const ith_attn_setting *s, const ith_device_kernel *kernel)
{
    const char *reason = ith_device_call_refused(s, kernel, ITH_SOFTMAX_ONLINE, NULL);
    return reason ? reason : ith_device_call_refused(s, kernel, s->softmax, NULL);
}

/* Lists the names of the kernels that can compute the problem; "none" if there are none. */
static void list_fit_on_device(const ith_attn_setting *s, char *text, size_t text_bytes)
{
    const ith_device_kernel *const *kernels = s->device->module->kernels;
    text[0] = '\0';
    for (int i = 0; kernels[i]; i++)
        if (!refusal_of(s, kernels[i]))
            ith_name_list_add(text, text_bytes, kernels[i]->name);
    if (!text[0])
        ith_name_list_add(text, text_bytes, "none");
}

/* Checks the kernel and the tiles that the options ask for, on this rank. */
static ith_status check_asked(const ith_attn_options *o, const ith_attn_setting *s)
{
    char fit[256];
    ith_status status = ith_head_dim_check(s->context, s->problem.head_dim);
    if (status)
        return status;
    ith_attn_tiles tiles = ith_tiles_asked(o);
    for (int i = 0; i < ITH_TILES; i++)
        if (*ith_tile_at(&tiles, i))
            return ith_fail(
                s->context, ITH_ERR_UNSUPPORTED,
                "%s is %lld, and kernels of the device %s have tiles of their own: 0 leaves them the choice",
                ith_tile_name(i), (long long)*ith_tile_at(&tiles, i), s->device->name);
    if (!o->kernel)
        return ITH_OK;
    list_fit_on_device(s, fit, sizeof fit);
    const ith_device_kernel *kernel = ith_device_kernel_named(s->device, o->kernel);
    if (!kernel)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "no kernel of the device %s is named '%.100s'; kernels that would do here: %s", s->device->name,
                        o->kernel, fit);
    const char *reason = refusal_of(s, kernel);
    if (reason)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED, "kernel %s: %s; kernels that would do here: %s", kernel->name,
                        reason, fit);
    return ITH_OK;
}

/* Collective. Lists the kernels that compute the problem on every rank's device; if the options name a kernel, this one
 * alone. The ranks have the same module, so the kernels have the same numbers. */
static ith_status find_common(ith_comm *comm, const ith_attn_options *options, const ith_attn_setting *s,
                              ith_kernel_names *common)
{
    const ith_device_kernel *const *kernels = s->device->module->kernels;
    float lacks[ITH_WISDOM_FIGURES] = {0};
    int count = 0;
    for (; count < ITH_WISDOM_FIGURES && kernels[count]; count++)
        lacks[count] = refusal_of(s, kernels[count]) != NULL;
    ith_status status =
        ith_pass_on(s->context, comm, ith_comm_allreduce(comm, lacks, ITH_WISDOM_FIGURES, ITH_REDUCE_MAX));
    common->count = 0;
    for (int i = 0; i < count; i++)
        if (lacks[i] == 0 && (!options->kernel || !strcmp(kernels[i]->name, options->kernel)))
            common->names[common->count++] = kernels[i]->name;
    return status;
}

/* Rank 0 chooses among the kernels by wisdom, by a measurement, or takes the first, and tells the other ranks. */
static ith_status decide(ith_comm *comm, const ith_attn_options *options, const ith_kernel_names *common,
                         const ith_attn_setting *s, ith_kernel_decision *decision)
{
    ith_status status = ITH_OK;
    *decision = (ith_kernel_decision){common->count ? 0 : -1, ITH_KERNEL_NAMED};
    if (options->kernel)
        return ITH_OK;
    if (ith_comm_rank(comm) == 0)
        status = ith_kernel_decide(s, options->effort, common, 0, ith_measure_device_kernels, decision);
    return ith_agree_with_first(s->context, comm, status, decision, sizeof *decision);
}

ith_status ith_device_kernel_choose(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *s)
{
    ith_kernel_names common;
    ith_kernel_decision decision;
    ith_status status = ith_agree(s->context, comm, check_asked(options, s));
    if (!status)
        status = find_common(comm, options, s, &common);
    if (!status)
        status = decide(comm, options, &common, s, &decision);
    if (status)
        return status;
    if (decision.index < 0)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "no kernel of every rank's device takes head_dim %lld in %s with softmax %s",
                        (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype), ith_softmax_name(s->softmax));
    s->device_kernel = ith_device_kernel_named(s->device, common.names[decision.index]);
    s->kernel_origin = decision.origin;
    return ITH_OK;
}
