/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the enum values in the options of a run. */
#include "../../base/count.h"
#include "../../base/enum_name.h"

#include <ithaca/wan.h>

const char *ith_solver_name(ith_solver value)
{
    static const char *const names[] = {"auto", "unipc", "euler", "dpm++"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_sigmas_name(ith_sigmas value)
{
    static const char *const names[] = {"auto", "official", "diffusers"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_fit_name(ith_fit value)
{
    static const char *const names[] = {"auto", "cover", "stretch"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_cfg_name(ith_cfg value)
{
    static const char *const names[] = {"auto", "batch", "parallel", "sequential"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_precision_name(ith_precision value)
{
    static const char *const names[] = {"auto", "f32", "bf16"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}
