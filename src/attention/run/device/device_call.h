/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a device's attention kernel (ith_device_attend), as they follow from a setting. */
#ifndef ITH_ATTENTION_DEVICE_CALL_H
#define ITH_ATTENTION_DEVICE_CALL_H

#include "../../source.h"

/* Whether keys and values are packed before a kernel reads them: absent keys become zeros then. */
static inline bool ith_device_packs(const ith_attn_setting *setting)
{
    return setting->problem.has_kv_lengths || setting->problem.has_key_bias;
}

/* The rows of a packed shard of the kv heads from `first` on. */
ith_device_rows ith_device_packed_rows(const ith_attn_setting *setting, void *data, int64_t first, int64_t padded_rows);
/* The rows of one tensor as the device's functions take them. */
ith_device_rows ith_device_rows_of(const ith_rows *rows);

/* The members of a call that follow from the setting alone. */
ith_device_attend ith_device_call_of(const ith_attn_setting *setting, ith_softmax softmax);

/* The reason why a kernel cannot compute the calls of the setting's plan; NULL: it can. tensors: the caller's; NULL:
 * tensors that are aligned as the kernel wishes. */
const char *ith_device_call_refused(const ith_attn_setting *setting, const ith_device_kernel *kernel,
                                    ith_softmax softmax, const ith_attn_tensors *tensors);

/* Checks that the device can address the tensors of an execution, and that the plan's kernel takes their addresses. */
ith_status ith_device_tensors_check(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

#endif
