/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of a plan on a device: the named kernel, or else the fastest kernel that every rank's device runs,
 * according to earlier measurements (wisdom), a new measurement, or the order of the module's list. */
#ifndef ITH_PLAN_DEVICE_CHOICE_H
#define ITH_PLAN_DEVICE_CHOICE_H

#include "../attention/setting.h"

/* Sets the device_kernel of the setting, whose other choices have been made. Collective over comm, which may be NULL.
 * Refuses tiles, because kernels of devices have tiles of their own. */
ith_status ith_device_kernel_choose(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *setting);

#endif
