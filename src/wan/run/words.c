/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the enum values in the options of a run. */
#include <ithaca/wan.h>

const char *ith_solver_name(ith_solver solver)
{
    static const char *const names[] = {"auto", "unipc", "euler", "dpm++"};
    return (unsigned)solver < sizeof names / sizeof *names ? names[solver] : "unknown";
}

const char *ith_sigmas_name(ith_sigmas sigmas)
{
    static const char *const names[] = {"auto", "official", "diffusers"};
    return (unsigned)sigmas < sizeof names / sizeof *names ? names[sigmas] : "unknown";
}

const char *ith_fit_name(ith_fit fit)
{
    static const char *const names[] = {"auto", "cover", "stretch"};
    return (unsigned)fit < sizeof names / sizeof *names ? names[fit] : "unknown";
}

const char *ith_cfg_name(ith_cfg cfg)
{
    static const char *const names[] = {"auto", "batch", "parallel", "sequential"};
    return (unsigned)cfg < sizeof names / sizeof *names ? names[cfg] : "unknown";
}

const char *ith_precision_name(ith_precision precision)
{
    static const char *const names[] = {"auto", "f32", "bf16"};
    return (unsigned)precision < sizeof names / sizeof *names ? names[precision] : "unknown";
}
