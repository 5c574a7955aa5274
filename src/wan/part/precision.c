/* SPDX-License-Identifier: Apache-2.0 */
/* The number types of a run, for each precision that the user can ask for. */
#include "precision.h"

#include "../../base/cpu.h"
#include "../../kernels/product.h"

#include <stdio.h>

/* Whether this machine multiplies bf16 faster than f32. With AMX it does. With AVX512-BF16 but without AMX, AMD's
 * processors do, twice as fast, and Intel's do not, half as fast (docs/attention.md, Which kernel). */
static bool bf16_is_faster(const ith_context *context)
{
    if (!ith_product_kernel_choose(ITH_BF16, ith_context_cpu(context)))
        return false;
    return (ith_context_cpu(context) & ITH_CPU_AMX_BF16) || ith_cpu_is_amd();
}

ith_status ith_precision_check(ith_context *context, ith_precision precision)
{
    if ((unsigned)precision <= ITH_PRECISION_BF16)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "precision is %d; 0 (auto), 1 (f32) and 2 (bf16) are known",
                    (int)precision);
}

ith_precision ith_precision_resolve(const ith_context *context, ith_precision precision)
{
    if (precision != ITH_PRECISION_AUTO)
        return precision;
    return ith_context_device_use(context) || bf16_is_faster(context) ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
}

ith_number_types ith_number_types_choose(const ith_context *context, ith_precision precision)
{
    if (precision != ITH_PRECISION_BF16)
        return (ith_number_types){ith_operands_f32(), ITH_F32};
    ith_dtype multiplied = bf16_is_faster(context) ? ITH_BF16 : ITH_F32;
    return (ith_number_types){{ITH_BF16, ITH_BF16, multiplied}, ITH_BF16};
}

/* The reason for the choice of precision, as the end of a sentence; "" if there is nothing to explain. */
static const char *reason_of(const ith_context *context, ith_precision asked)
{
    bool fast = bf16_is_faster(context);
    if (asked == ITH_PRECISION_BF16)
        return fast ? "" : ": operands are rounded to bf16 and multiplied in f32, which is faster on this processor";
    if (asked != ITH_PRECISION_AUTO)
        return "";
    if (ith_context_device_use(context))
        return ": chosen because the transformer computes on a device, which multiplies bf16 faster than f32";
    if (!fast)
        return ": chosen because no instructions of this processor multiply bf16 faster than f32";
    return ith_context_cpu(context) & ITH_CPU_AMX_BF16
               ? ": chosen because this processor has AMX, which multiplies bf16 faster than f32"
               : ": chosen because this processor's AVX512-BF16 multiplies bf16 faster than f32";
}

void ith_precision_describe(const ith_context *context, ith_precision asked, char *text, size_t bytes)
{
    if (!text || !bytes)
        return;
    text[0] = '\0';
    if (context)
        snprintf(text, bytes, "%s%s", ith_precision_name(ith_precision_resolve(context, asked)),
                 reason_of(context, asked));
}
