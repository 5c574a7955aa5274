/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast the attention kernels of a device are, on heads of pseudo-random numbers. */
#ifndef ITH_PLAN_DEVICE_MEASURE_H
#define ITH_PLAN_DEVICE_MEASURE_H

#include "../attention/setting.h"
#include "wisdom.h"

/* Times the kernels that take tensors of the setting's type, head_dim and softmax without mask and biases, and writes
 * their names and rates to the entry, in the order of the module (ith_kernel_timer). The sequences are as long as the
 * first of these kernels needs to be busy for some milliseconds. */
ith_status ith_measure_device_kernels(const ith_attn_setting *setting, ith_wisdom_entry *entry);

#endif
