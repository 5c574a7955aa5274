/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernel of a plan on a device (device_choice.h). */
#include "device_choice.h"

#include "../attention/run/device/device_call.h"
#include "agree.h"
#include "tiles.h"

#include <stdio.h>
#include <string.h>

enum { MOST_KERNELS = 16 }; /* kernels of a module that are looked at */

/* The reason why a kernel cannot compute the problem of a setting; NULL: it can. With fixed_m some heads may use the
 * online softmax, so the kernel must be able to do both. */
static const char *refusal_of(const ith_attn_setting *s, const ith_device_kernel *kernel)
{
    const char *reason = ith_device_call_refused(s, kernel, ITH_SOFTMAX_ONLINE, NULL);
    return reason ? reason : ith_device_call_refused(s, kernel, s->softmax, NULL);
}

/* Lists the names of the kernels that can compute the problem, separated by commas. */
static void list_fit(const ith_attn_setting *s, char *text, size_t text_bytes)
{
    const ith_device_kernel *const *kernels = s->device->module->kernels;
    size_t length = 0;
    snprintf(text, text_bytes, "none");
    for (int i = 0; kernels[i] && length < text_bytes; i++)
        if (!refusal_of(s, kernels[i])) {
            int written = snprintf(text + length, text_bytes - length, "%s%s", length ? ", " : "", kernels[i]->name);
            length += written > 0 ? (size_t)written : 0;
        }
}

/* Checks what the options ask for on this rank. */
static ith_status check_asked(const ith_attn_options *o, const ith_attn_setting *s)
{
    char fit[256];
    if (s->problem.head_dim > ITH_ATTN_HEAD_DIM_MAX)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "head_dim is %lld, and must be at most %d",
                        (long long)s->problem.head_dim, ITH_ATTN_HEAD_DIM_MAX);
    ith_attn_tiles tiles = ith_tiles_asked(o);
    for (int i = 0; i < ITH_TILES; i++)
        if (*ith_tile_at(&tiles, i))
            return ith_fail(
                s->context, ITH_ERR_UNSUPPORTED,
                "%s is %lld, and kernels of the device %s have tiles of their own: 0 leaves them the choice",
                ith_tile_name(i), (long long)*ith_tile_at(&tiles, i), s->device->name);
    if (!o->kernel)
        return ITH_OK;
    list_fit(s, fit, sizeof fit);
    const ith_device_kernel *kernel = ith_device_kernel_named(s->device, o->kernel);
    if (!kernel)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "no kernel of the device %s is named '%.100s'; those that would do here: %s", s->device->name,
                        o->kernel, fit);
    const char *reason = refusal_of(s, kernel);
    if (reason)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED, "kernel %s: %s; those that would do here: %s", kernel->name,
                        reason, fit);
    return ITH_OK;
}

ith_status ith_device_kernel_choose(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *s)
{
    const ith_device_kernel *const *kernels = s->device->module->kernels;
    float lacks[MOST_KERNELS] = {0};
    int count = 0;
    ith_status status = ith_agree(s->context, comm, check_asked(options, s));
    for (; !status && count < MOST_KERNELS && kernels[count]; count++)
        lacks[count] = refusal_of(s, kernels[count]) != NULL;
    if (!status)
        status = ith_pass_on(s->context, comm, ith_comm_allreduce(comm, lacks, MOST_KERNELS, ITH_REDUCE_MAX));
    if (status)
        return status;
    s->kernel_origin = options->kernel ? ITH_KERNEL_NAMED : ITH_KERNEL_ESTIMATED;
    for (int i = 0; i < count && !s->device_kernel; i++)
        if (lacks[i] == 0 && (!options->kernel || !strcmp(kernels[i]->name, options->kernel)))
            s->device_kernel = kernels[i];
    if (s->device_kernel)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                    "no kernel of every rank's device takes head_dim %lld in %s with softmax %s",
                    (long long)s->problem.head_dim, ith_dtype_name(s->problem.dtype), ith_softmax_name(s->softmax));
}
