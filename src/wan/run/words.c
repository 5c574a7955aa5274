/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the enum values in the options of a run. */
#include "../../base/enum_name.h"

#include <ithaca/wan.h>

ITH_ENUM_NAME(ith_solver_name, ith_solver, "auto", "unipc", "euler", "dpm++")
ITH_ENUM_NAME(ith_sigmas_name, ith_sigmas, "auto", "official", "diffusers")
ITH_ENUM_NAME(ith_fit_name, ith_fit, "auto", "cover", "stretch")
ITH_ENUM_NAME(ith_cfg_name, ith_cfg, "auto", "batch", "parallel", "sequential")
ITH_ENUM_NAME(ith_precision_name, ith_precision, "auto", "f32", "bf16")
